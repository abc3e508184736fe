//! Tests of hardware events on a PMU. They count on this machine if it has a PMU; otherwise
//! `tests/tests/emulated/counters.rs` runs the same tests on an emulated arm64 machine, whose PMU has 7
//! counters.
//!
//! This crate has the code that those tests measure: loops with a known number of instructions.

mod asm;
mod bpf;
mod script;

pub use asm::iterate;
pub use bpf::{CounterReader, CountingProgram};
pub use script::Script;

/// Instructions of one iteration of [`iterate`].
pub const INSNS_PER_ITERATION: u64 = 2;

/// Returns whether the tests run on the emulated machine, where counts are exact.
pub fn is_emulated() -> bool {
    std::env::var_os("KS_EMULATED").is_some()
}
