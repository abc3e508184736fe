//! Drops IPv4 packets to blocked destinations when an interface sends them.
#![no_std]
use aya_ebpf::{
    bindings::{TC_ACT_PIPE, TC_ACT_SHOT},
    macros::{classifier, map},
    maps::{lpm_trie::Key, HashMap, LpmTrie},
    programs::TcContext,
};

#[map]
static BLOCKED: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);
#[map]
static NETWORKS: LpmTrie<u32, u32> = LpmTrie::with_max_entries(64, 1);

fn decide(ctx: &TcContext) -> Result<i32, i64> {
    let protocol = u16::from_be(ctx.load(12)?);
    if protocol != 0x0800 {
        return Ok(TC_ACT_PIPE);
    }
    let destination: u32 = ctx.load(14 + 16)?;
    let is_blocked =
        BLOCKED.get_ptr(&destination).is_some() || NETWORKS.get(&Key::new(32, destination)).is_some();
    Ok(if is_blocked { TC_ACT_SHOT } else { TC_ACT_PIPE })
}

#[classifier]
pub fn block_egress(ctx: TcContext) -> i32 {
    decide(&ctx).unwrap_or(TC_ACT_SHOT)
}
