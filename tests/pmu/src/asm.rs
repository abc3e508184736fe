//! Loops with a known number of instructions, written in assembly.
#![expect(unsafe_code, reason = "assembly")]

use std::arch::asm;

/// Runs a loop of two instructions this many times, at least once.
#[inline(never)]
pub fn iterate(iterations: u64) {
    let iterations = iterations.max(1);
    // SAFETY: one register is counted down to zero; no memory is touched, and the flags are declared as
    // clobbered.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        asm!("2:", "subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) iterations => _, options(nomem, nostack));
        #[cfg(target_arch = "x86_64")]
        asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) iterations => _, options(nomem, nostack));
    }
}
