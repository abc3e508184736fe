//! How often programs ran, of whatever process.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::program::ProgramKind;
use super::sys;

/// While this lives the kernel counts the runs of all programs; each run costs some 20 ns more.
#[derive(Debug)]
#[must_use = "the kernel counts until this is dropped"]
pub struct Statistics {
    _open: OwnedFd,
}

impl Statistics {
    /// Starts counting.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    ///
    /// Source: bpf(2), BPF_ENABLE_STATS; since 5.8.
    pub fn enable() -> io::Result<Statistics> {
        Ok(Statistics { _open: sys::enable_statistics()? })
    }
}

/// A program that the kernel holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// Its type.
    pub kind: ProgramKind,
    /// Runs that were counted.
    pub runs: u64,
    /// Nanoseconds that they took together.
    pub run_time_ns: u64,
    /// Runs that were left out because the program ran already on that CPU.
    pub missed: u64,
}

/// What the kernel has counted of the program of this id, whenever counting was on.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; ENOENT if it is gone.
///
/// Source: bpf(2), BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD.
pub fn counted(id: u32) -> io::Result<Counted> {
    let program = sys::program_by_id(id)?;
    let info = sys::program_info(program.as_fd())?;
    let bytes = info.name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
    Ok(Counted {
        name: name.into_owned(),
        kind: ProgramKind::from(info.type_),
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
        missed: info.recursion_misses,
    })
}
