//! Names of functions at addresses.

use alloc::string::String;

use crate::sys::symbols;

/// Returns the kernel function at an address and the byte offset into it, `do_nanosleep+0x5f`. Returns the
/// address, `0x..`, if nothing is known about it, or the lookup is not permitted (CAP_SYSLOG), which is
/// reported on standard error.
pub fn kernel(address: u64) -> String {
    symbols::name(None, address)
}

/// Returns the function at an address of a process, by the files that it has mapped now. Processes of other
/// users need CAP_SYS_PTRACE.
pub fn process(pid: i32, address: u64) -> String {
    symbols::name(Some(pid), address)
}

/// Returns the kernel function at an address, as [`kernel`] without the offset into it.
pub fn kernel_function(address: u64) -> String {
    symbols::kernel_function(address)
}

/// Returns the function at an address of a process, as [`process`] without the offset into it; also if the process has
/// ended while the plugin runs, for which the host records what processes map (CAP_PERFMON).
pub fn process_function(pid: i32, address: u64) -> String {
    symbols::process_function(pid, address)
}

/// Returns the functions of a call stack of the kernel, the innermost first, each on a line: what the map of stacks has
/// under the number that bpf_get_stackid gave. `[no stack]` and `[stack lost]` stand for negative numbers.
pub fn kernel_stack(map: &str, id: i64) -> String {
    symbols::kernel_stack(map, id)
}

/// Returns the functions of a call stack of a process, as [`kernel_stack`].
pub fn process_stack(map: &str, pid: i32, id: i64) -> String {
    symbols::process_stack(map, pid, id)
}
