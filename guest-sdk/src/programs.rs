//! BPF programs of the whole machine, and what they cost.
//!
//! The kernel counts from the first call on until the plugin ends. Meanwhile each run of each BPF program of the machine
//! takes some 20 ns more.

use alloc::string::String;
use core::time::Duration;

use crate::Result;
use crate::sys::programs;

/// A loaded program, of any process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramInfo {
    /// The name, of which the kernel keeps 15 bytes; may be empty.
    pub name: String,
    /// The name of the type: `tracepoint`, `xdp`.
    pub kind: String,
    /// Runs while they were counted.
    pub runs: u64,
    /// Time of these runs, on all CPUs.
    pub run_time: Duration,
}

/// Returns the ids of the programs in ascending order.
///
/// The iterator ends after an error.
pub fn ids() -> impl Iterator<Item = Result<u32>> {
    let mut last = Some(0);
    core::iter::from_fn(move || {
        let next = programs::next(last?).transpose();
        last = next.as_ref().and_then(|next| next.as_ref().ok().copied());
        next.map(|next| Ok(next?))
    })
}

/// Returns the program of this id; none if there is none any more.
///
/// # Errors
/// Without CAP_SYS_ADMIN, and on kernels before 5.8.
pub fn info(id: u32) -> Result<Option<ProgramInfo>> {
    Ok(programs::info(id)?.map(|info| ProgramInfo {
        name: info.name,
        kind: info.kind,
        runs: info.runs,
        run_time: Duration::from_nanos(info.run_time),
    }))
}
