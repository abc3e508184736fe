//! Drops the IPv4 packets of blocked sources, as a firewall in Aya's manner does.
#![no_std]
use aya_ebpf::{
    bindings::xdp_action,
    macros::{map, xdp},
    maps::{HashMap, PerCpuArray},
    programs::XdpContext,
};

/// Sources whose packets are dropped, in network order.
#[map]
static BLOCKED: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);
#[map]
static DROPPED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;

/// Returns a pointer into the packet, if `T` lies inside of it.
#[inline(always)]
fn at<T>(ctx: &XdpContext, offset: usize) -> Option<*const T> {
    let (start, end) = (ctx.data() + offset, ctx.data_end());
    if start + core::mem::size_of::<T>() > end {
        None
    } else {
        Some(start as *const T)
    }
}

#[inline(always)]
fn action(ctx: &XdpContext) -> Option<u32> {
    let protocol = u16::from_be(unsafe { at::<u16>(ctx, 12)?.read_unaligned() });
    if protocol != IPV4 {
        return Some(xdp_action::XDP_PASS);
    }
    let source = unsafe { at::<u32>(ctx, ETHERNET_BYTES + 12)?.read_unaligned() };
    if BLOCKED.get_ptr(&source).is_none() {
        return Some(xdp_action::XDP_PASS);
    }
    if let Some(count) = DROPPED.get_ptr_mut(0) {
        unsafe { *count += 1 };
    }
    Some(xdp_action::XDP_DROP)
}

#[xdp]
pub fn drop_blocked(ctx: XdpContext) -> u32 {
    action(&ctx).unwrap_or(xdp_action::XDP_ABORTED)
}
