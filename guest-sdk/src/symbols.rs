//! Addresses in the words of those who wrote the code.

use alloc::string::String;

use crate::sys::symbols;

/// The function of the kernel at an address and the bytes from its start, `do_nanosleep+0x5f`; `0x..`, the address, if
/// nothing is known there, or it may not be looked up (CAP_SYSLOG), which is then said on standard error.
pub fn kernel(address: u64) -> String {
    symbols::name(None, address)
}

/// The same for an address of a process, by the files that it has mapped now. Those of another user's process need
/// CAP_SYS_PTRACE.
pub fn process(pid: i32, address: u64) -> String {
    symbols::name(Some(pid), address)
}
