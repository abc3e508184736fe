//! Events at instructions of the kernel or of user programs, which only run a program: kprobes and uprobes.
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
use crate::probed::ProbePoint;

/// Links a program to an event.
pub type LinkProbe<'a> = dyn FnMut(BorrowedFd<'_>) -> Result<OwnedFd, Errno> + 'a;

/// Where a probe is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeLocation {
    /// So many bytes behind the start of a function of the kernel.
    Kernel {
        /// The function.
        function: CString,
        /// Bytes.
        offset: u64,
    },
    /// An instruction of a file, for every process that runs it.
    File(ProbePoint),
}

/// As messages name it.
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
    /// The text by which the kernel finds it. Of a file it holds in system calls of this process, while the place lives.
    pub(super) fn text(&self) -> CString {
        match self {
            ProbeLocation::Kernel { function, .. } => function.clone(),
            ProbeLocation::File(point) => point.kernel_path(),
        }
    }

    /// Bytes from the start of the function or file.
    pub(super) fn offset(&self) -> u64 {
        match self {
            ProbeLocation::Kernel { offset, .. } => *offset,
            ProbeLocation::File(point) => point.offset(),
        }
    }

    /// Makes sure that what was proven of a file holds now that the probe is there.
    pub(super) fn check_unchanged(&self) -> Result<(), FileError> {
        match self {
            ProbeLocation::Kernel { .. } => Ok(()),
            ProbeLocation::File(point) => point.check_unchanged(),
        }
    }
}

/// A probe with its program. Dropping it takes the probe away, and so does the end of the process.
#[derive(Debug)]
#[must_use = "dropping a probe takes it away"]
pub struct Probe {
    _link: OwnedFd,
    _event: OwnedFd,
}

/// Why a probe could not be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeError {
    /// The kernel was built without such probes: it publishes no PMU for them.
    Unsupported,
    /// What a system call said.
    Kernel {
        /// The call.
        call: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// The file was changed meanwhile, and the probe was taken away.
    File(FileError),
}

/// Puts a probe, on every CPU; at the returns of a function with `at_return`.
///
/// # Errors
/// [`ProbeError`]: EINVAL or ENOENT from opening if there is no such place; what linking said.
pub fn probe(
    location: &ProbeLocation,
    at_return: bool,
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
    // The format `retprobe` of both PMUs is `config:0`.
    attr.config = u64::from(at_return);
    attr.probe_offset = location.offset();
    attr.sample_period = 1;
    attr.wakeup_events = 1;
    // The kernel runs the program for hits on every CPU, wherever the event is (`perf_event_attach_bpf_prog`).
    let failed = |call| move |errno| ProbeError::Kernel { call, errno };
    let everywhere = sys::Observed { pid: -1, cpu: 0, is_cgroup: false };
    let event =
        sys::open(&attr, Some(&location.text()), everywhere, None).map_err(failed("perf_event_open"))?;
    location.check_unchanged().map_err(ProbeError::File)?;
    let link = link(event.as_fd()).map_err(failed("bpf(BPF_LINK_CREATE)"))?;
    Ok(Probe { _link: link, _event: event })
}

/// The type of the events of a PMU. Source: Documentation/ABI/testing/sysfs-bus-event_source-devices.
fn pmu_type(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/type")).ok()?;
    text.trim().parse().ok()
}
