//! Assigns no socket: this kind of program is refused.
#![no_std]
use aya_ebpf::{macros::sk_lookup, programs::SkLookupContext};

#[sk_lookup]
pub fn any(_ctx: SkLookupContext) -> u32 {
    1
}
