//! Run counts of programs and registered structs, of any process.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::{MapCore as _, MapHandle};

use super::program::LoadedType;
use super::sys;

/// Enables run-time statistics of all programs while it lives. Each run of a program costs some 20 ns more.
#[derive(Debug)]
#[must_use = "the kernel counts until this is dropped"]
pub struct Statistics {
    _open: OwnedFd,
}

impl Statistics {
    /// Enables the statistics.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    ///
    /// Source: bpf(2), BPF_ENABLE_STATS; since 5.8.
    pub fn enable() -> io::Result<Statistics> {
        Ok(Statistics { _open: sys::enable_statistics()? })
    }
}

/// Returns the lowest id of a program above this one, of any process; none if there is none.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
///
/// Source: bpf(2), BPF_PROG_GET_NEXT_ID.
pub fn next_program(after: u32) -> io::Result<Option<u32>> {
    Ok(sys::next_program(after)?)
}

/// Accumulated run time of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTime {
    /// Name of the program in the object, not truncated.
    pub program: String,
    /// Type of the program.
    pub kind: LoadedType,
    /// Nanoseconds of all runs on all CPUs.
    pub nanoseconds: u64,
}

/// Counter of a program's runs that the kernel skipped because another one ran on that CPU. It keeps the
/// program loaded.
#[derive(Debug)]
pub struct SkippedRuns {
    program: OwnedFd,
}

impl SkippedRuns {
    pub(super) fn of(program: OwnedFd) -> SkippedRuns {
        SkippedRuns { program }
    }

    /// Returns the number of skipped runs since the load; none if the query fails.
    pub fn count(&self) -> Option<u64> {
        sys::program_info(self.program.as_fd()).ok().map(|info| info.recursion_misses)
    }
}

/// Run counts of a loaded program, of any process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedRuns {
    /// Name of the program, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Type of the program.
    pub kind: LoadedType,
    /// Number of runs while statistics were enabled.
    pub runs: u64,
    /// Accumulated run time in nanoseconds.
    pub run_time_ns: u64,
    /// Runs skipped because a program already ran on that CPU; none if the kernel does not count them.
    pub missed: Option<u64>,
}

/// Returns the run counts of a program by its id, accumulated whenever statistics were enabled.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; ENOENT if the program is gone.
///
/// Source: bpf(2), BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD.
pub fn counted(id: u32) -> io::Result<CountedRuns> {
    let program = sys::program_by_id(id)?;
    let info = sys::program_info(program.as_fd())?;
    let kind = LoadedType::from(info.type_);
    let bytes = info.name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
    Ok(CountedRuns {
        name: name.into_owned(),
        kind,
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
        missed: (!kind.shares_recursion() || sys::any_link().is_ok_and(|link| counts_missed(link.as_fd())))
            .then_some(info.recursion_misses),
    })
}

/// Returns whether the kernel counts missed runs of programs at tracepoints and kprobes, judged by the
/// information about any link.
///
/// The series of changes that added the count also added `missed` to `struct bpf_link_info`. A kernel whose
/// struct has no room for that member therefore does not count. Linux 6.7 does, 6.6 does not; the check holds
/// for kernels with backports, too.
///
/// Source: `trace_call_bpf` in kernel/trace/bpf_trace.c and `struct bpf_link_info` in
/// include/uapi/linux/bpf.h, v6.6 and v6.7.
pub fn counts_missed(link: BorrowedFd<'_>) -> bool {
    /// Type, id and program id, then the largest member of the union: that of kprobes, which ends with
    /// `missed`.
    const BYTES_WITH_MISSED: u32 = 16 + 40;
    sys::link_info_bytes(link).is_ok_and(|bytes| bytes >= BYTES_WITH_MISSED)
}

/// A registered struct_ops struct, of any process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Name in the plugin, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Name of the kernel's struct; none if the kernel's types cannot be read.
    pub ops: Option<String>,
}

/// Returns the struct whose map has this id.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; ENOENT if it is gone.
///
/// Source: bpf(2), BPF_MAP_GET_FD_BY_ID; kernel/bpf/bpf_struct_ops.c, `struct bpf_struct_ops_value`, v6.18:
/// the kernel's type of the value is the struct with this name before its own.
pub fn registered(map: u32) -> io::Result<Registered> {
    const WRAPPER: &str = "bpf_struct_ops_";
    let refused = |_| io::Error::last_os_error();
    let map = MapHandle::from_map_id(map).map_err(refused)?;
    let info = map.info().map_err(refused)?.info;
    let types = Btf::from_vmlinux().ok();
    let ty = types
        .as_ref()
        .and_then(|types| types.type_by_id::<BtfType<'_>>(TypeId::from(info.btf_vmlinux_value_type_id)));
    let wrapper = ty.and_then(|ty| Some(ty.name()?.to_string_lossy().into_owned()));
    let ops = wrapper.and_then(|wrapper| Some(wrapper.strip_prefix(WRAPPER)?.to_owned()));
    Ok(Registered { name: map.name().to_string_lossy().into_owned(), ops })
}
