//! Reports the destinations of a control group's packets, and lets those to blocked ones not leave.
#![no_std]
use aya_ebpf::{
    macros::{cgroup_skb, cgroup_sock_addr, map},
    maps::{HashMap, PerfEventArray},
    programs::{SkBuffContext, SockAddrContext},
};

#[repr(C)]
pub struct Packet {
    pub destination: u32,
    pub allowed: i32,
}
#[map]
static EVENTS: PerfEventArray<Packet> = PerfEventArray::new(0);
#[map]
static BLOCKED: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);

#[cgroup_skb(egress)]
pub fn filter(ctx: SkBuffContext) -> i32 {
    let Ok(destination) = ctx.load::<u32>(16) else { return 0 };
    let allowed = i32::from(BLOCKED.get_ptr(&destination).is_none());
    EVENTS.output(&ctx, &Packet { destination, allowed }, 0);
    allowed
}

#[cgroup_sock_addr(connect4)]
pub fn no_telnet(ctx: SockAddrContext) -> i32 {
    let port = unsafe { (*ctx.sock_addr).user_port };
    i32::from(port != u32::from(23_u16.to_be()))
}
