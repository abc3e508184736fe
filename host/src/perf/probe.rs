//! Kprobes and uprobes: events at instructions of the kernel or of user programs that only run a program.
//!
//! Source: perf_event_open(2), "kprobe" and "uprobe"; kernel/events/core.c, `perf_kprobe_event_init`,
//! `perf_uprobe_event_init`, v6.12.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use perf_event_open_sys::bindings::perf_event_attr;

use super::sys;
use crate::files::FileError;
use crate::probed::{ProbeMoment, ProbePoint};

/// Links a program to an event: takes the event's descriptor and returns the link's.
pub type LinkProbe<'a> = dyn FnMut(BorrowedFd<'_>) -> Result<OwnedFd, Errno> + 'a;

/// The instruction at which a probe is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeLocation {
    /// An offset from the start of a kernel function.
    Kernel {
        /// The function's symbol in the kernel.
        function: CString,
        /// Offset from the function's start, in bytes.
        offset: u64,
    },
    /// An instruction of a file, probed in every process that runs it.
    File(ProbePoint),
}

/// Formats the location for messages.
impl fmt::Display for ProbeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeLocation::Kernel { function, offset } => {
                write!(f, "`{}+{offset}`", function.to_string_lossy())
            }
            ProbeLocation::File(point) => {
                write!(f, "offset {:#x} of `{}`", point.offset(), point.path().display())
            }
        }
    }
}

impl ProbeLocation {
    /// Returns the text by which the kernel finds the location. For a file, it is valid in system calls of
    /// this process while `self` lives.
    pub(super) fn text(&self) -> CString {
        match self {
            ProbeLocation::Kernel { function, .. } => function.clone(),
            ProbeLocation::File(point) => point.kernel_path(),
        }
    }

    /// Offset from the start of the function or file, in bytes.
    pub(super) fn offset(&self) -> u64 {
        match self {
            ProbeLocation::Kernel { offset, .. } => *offset,
            ProbeLocation::File(point) => point.offset(),
        }
    }

    /// Checks that the file is unchanged since the instruction was verified; called after the probe is
    /// placed.
    pub(super) fn check_unchanged(&self) -> Result<(), FileError> {
        match self {
            ProbeLocation::Kernel { .. } => Ok(()),
            ProbeLocation::File(point) => point.check_unchanged(),
        }
    }
}

/// A probe with its program. Dropping it removes the probe, as does the end of the process.
#[derive(Debug)]
#[must_use = "dropping a probe takes it away"]
pub struct Probe {
    _link: OwnedFd,
    _event: OwnedFd,
}

/// The reason why a probe could not be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeError {
    /// The kernel was built without this kind of probe: it publishes no PMU for it.
    Unsupported,
    /// A system call failed.
    Kernel {
        /// The name of the system call.
        call: &'static str,
        /// The errno that it returned.
        errno: Errno,
    },
    /// The file was changed meanwhile; the probe was removed.
    File(FileError),
}

/// Places a probe on every CPU: of a file in every process that runs it, or only in the one with this id.
///
/// # Errors
/// [`ProbeError`]: EINVAL or ENOENT from opening if the location does not exist, ESRCH if the process does
/// not; the errno of linking.
pub fn probe(
    location: &ProbeLocation,
    moment: ProbeMoment,
    process: Option<i32>,
    link: &mut LinkProbe<'_>,
) -> Result<Probe, ProbeError> {
    let pmu = match location {
        ProbeLocation::Kernel { .. } => "kprobe",
        ProbeLocation::File(_) => "uprobe",
    };
    let type_ = pmu_type(pmu).ok_or(ProbeError::Unsupported)?;
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.type_ = type_;
    // `retprobe` is bit 0 of `config` in the formats of both PMUs.
    attr.config = u64::from(moment == ProbeMoment::Return);
    attr.probe_offset = location.offset();
    attr.sample_period = 1;
    attr.wakeup_events = 1;
    let failed = |call| move |errno| ProbeError::Kernel { call, errno };
    let observed = match process {
        Some(pid) => sys::Observed { pid, cpu: -1, is_cgroup: false },
        // The kernel runs the program for hits on every CPU, regardless of the event's CPU
        // (`perf_event_attach_bpf_prog`).
        None => sys::Observed { pid: -1, cpu: 0, is_cgroup: false },
    };
    let event =
        sys::open(&attr, Some(&location.text()), observed, None).map_err(failed("perf_event_open"))?;
    location.check_unchanged().map_err(ProbeError::File)?;
    let link = link(event.as_fd()).map_err(failed("bpf(BPF_LINK_CREATE)"))?;
    Ok(Probe { _link: link, _event: event })
}

/// Reads the event type of a PMU. Source: Documentation/ABI/testing/sysfs-bus-event_source-devices.
fn pmu_type(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/type")).ok()?;
    text.trim().parse().ok()
}
