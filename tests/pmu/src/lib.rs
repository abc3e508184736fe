//! Hardware events on a PMU: where this machine has one they are counted here, else `tests/tests/emulated/counters.rs` runs the
//! same tests on an emulated arm64 machine, whose PMU has 7 counters.
//!
//! This crate holds what those tests count: loops whose instructions are known.

mod asm;
mod bpf;
mod script;

pub use asm::iterate;
pub use bpf::{CounterReader, CountingProgram};
pub use script::Script;

/// Instructions of one round of [`iterate`].
pub const INSNS_PER_ITERATION: u64 = 2;

/// Whether the tests run on the emulated machine, where counts are exact.
pub fn is_emulated() -> bool {
    std::env::var_os("KS_EMULATED").is_some()
}
