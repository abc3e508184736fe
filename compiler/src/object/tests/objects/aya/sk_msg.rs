//! Passes messages between sockets of this machine without the network.
#![no_std]
use aya_ebpf::{
    bindings::sk_action,
    macros::{map, sk_msg, sock_ops, stream_parser, stream_verdict},
    maps::SockHash,
    programs::{SkBuffContext, SkMsgContext, SockOpsContext},
};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pair {
    pub local: u32,
    pub remote: u32,
}
#[map]
static SOCKETS: SockHash<Pair> = SockHash::with_max_entries(1024, 0);

/// `BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB`
const ESTABLISHED: u32 = 5;

#[sock_ops]
pub fn remember(ctx: SockOpsContext) -> u32 {
    if ctx.op() == ESTABLISHED {
        let mut key = Pair { local: ctx.local_port(), remote: ctx.remote_port() };
        let _ = SOCKETS.update(&mut key, unsafe { &mut *ctx.ops }, 0);
    }
    0
}

#[sk_msg]
pub fn redirect(ctx: SkMsgContext) -> u32 {
    let (local, remote) = unsafe { ((*ctx.msg).remote_port, (*ctx.msg).local_port) };
    let mut key = Pair { local, remote };
    SOCKETS.redirect_msg(&ctx, &mut key, 1) as u32
}

#[stream_parser]
pub fn parse(ctx: SkBuffContext) -> u32 {
    ctx.len()
}

#[stream_verdict]
pub fn pass(ctx: SkBuffContext) -> u32 {
    let (local, remote) = unsafe { ((*ctx.skb.skb).remote_port, (*ctx.skb.skb).local_port) };
    match SOCKETS.redirect_skb(&ctx, &mut Pair { local, remote }, 0) {
        0 => sk_action::SK_DROP,
        _ => sk_action::SK_PASS,
    }
}
