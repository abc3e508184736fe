//! Every system call on perf events, as one enum and one function, so that tracing and counting need a single
//! hook.
//!
//! Closing is the drop of an [`OwnedFd`].
//!
//! Source: perf_event_open(2); `include/uapi/linux/perf_event.h`.
#![expect(unsafe_code, reason = "system calls that no safe wrapper offers")]

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::slice;
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::libc;
use perf_event_open_sys::bindings::{self, perf_event_attr};

/// The events that an ioctl affects: one event, or the group that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "PERF_IOC_FLAG_GROUP")]
pub(super) enum Scope {
    Event,
    Group,
}

impl Scope {
    fn flags(self) -> libc::c_ulong {
        match self {
            Scope::Event => 0,
            Scope::Group => libc::c_ulong::from(bindings::PERF_IOC_FLAG_GROUP),
        }
    }
}

/// The task and the CPU that an event observes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// A task, -1 for every task, or the descriptor of a control group's directory.
    pub(super) pid: i32,
    /// A CPU, or -1 for any.
    pub(super) cpu: i32,
    /// Whether `pid` is the descriptor of a control group.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    pub(super) is_cgroup: bool,
}

/// A system call with its operands.
enum Request<'a> {
    Open {
        attr: &'a perf_event_attr,
        text: Option<&'a CStr>,
        observed: Observed,
        leader: Option<BorrowedFd<'a>>,
    },
    Id {
        event: BorrowedFd<'a>,
    },
    Enable {
        event: BorrowedFd<'a>,
    },
    Disable {
        event: BorrowedFd<'a>,
        scope: Scope,
    },
    Reset {
        event: BorrowedFd<'a>,
        scope: Scope,
    },
    Period {
        event: BorrowedFd<'a>,
        events: u64,
    },
    Read {
        event: BorrowedFd<'a>,
        words: &'a mut [u64],
    },
}

impl Request<'_> {
    fn name(&self) -> &'static str {
        match self {
            Request::Open { .. } => "perf_event_open",
            Request::Id { .. } => "PERF_EVENT_IOC_ID",
            Request::Enable { .. } => "PERF_EVENT_IOC_ENABLE",
            Request::Disable { .. } => "PERF_EVENT_IOC_DISABLE",
            Request::Reset { .. } => "PERF_EVENT_IOC_RESET",
            Request::Period { .. } => "PERF_EVENT_IOC_PERIOD",
            Request::Read { .. } => "read",
        }
    }
}

/// Opens an event, close-on-exec, as a member of `leader`'s group if there is one. For a probe, `text` is the
/// function or the file; other events have none.
///
/// Returns EINVAL, without a system call, for attributes that would let the kernel read memory through a
/// pointer of unknown lifetime, or that set fields which this module does not use.
#[doc(alias = "perf_event_open")]
pub(super) fn open(
    attr: &perf_event_attr,
    text: Option<&CStr>,
    observed: Observed,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    if text.is_some() != is_probe(attr.type_) || !is_plain(attr) {
        return Err(Errno::EINVAL);
    }
    loop {
        match perform(Request::Open { attr, text, observed, leader }) {
            // A signal arrived while the kernel waited for the observed task's exec to end.
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
            Ok(number) => {
                let fd = RawFd::try_from(number).map_err(|_| Errno::EBADF)?;
                // SAFETY: the kernel has just returned this descriptor; nothing else knows it yet.
                return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
}

/// Returns the kernel's id of an event, which identifies its entry in a group read.
#[doc(alias = "PERF_EVENT_IOC_ID")]
pub(super) fn id(event: BorrowedFd<'_>) -> Result<u64, Errno> {
    perform(Request::Id { event })
}

/// Starts one event. A member runs only while its leader does.
#[doc(alias = "PERF_EVENT_IOC_ENABLE")]
pub(super) fn enable(event: BorrowedFd<'_>) -> Result<(), Errno> {
    perform(Request::Enable { event }).map(drop)
}

/// Stops an event, or the group it leads.
#[doc(alias = "PERF_EVENT_IOC_DISABLE")]
pub(super) fn disable(event: BorrowedFd<'_>, scope: Scope) -> Result<(), Errno> {
    perform(Request::Disable { event, scope }).map(drop)
}

/// Sets the count to zero, but not the times and not the counts of ended children.
#[doc(alias = "PERF_EVENT_IOC_RESET")]
pub(super) fn reset(event: BorrowedFd<'_>, scope: Scope) -> Result<(), Errno> {
    perform(Request::Reset { event, scope }).map(drop)
}

/// Sets the events between two samples, or the samples per second of an event with a frequency.
#[doc(alias = "PERF_EVENT_IOC_PERIOD")]
pub(super) fn set_period(event: BorrowedFd<'_>, events: u64) -> Result<(), Errno> {
    perform(Request::Period { event, events }).map(drop)
}

/// Reads into `words`. Returns the number of bytes, 0 if the event is in error state.
#[inline]
pub(super) fn read(event: BorrowedFd<'_>, words: &mut [u64]) -> Result<usize, Errno> {
    perform(Request::Read { event, words }).map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Makes one system call. Returns the kernel's result, or the id for [`Request::Id`]. Its callers keep what their request
/// needs: a read would else set up memory for all requests, and jump to its own.
#[inline(always)]
fn perform(request: Request<'_>) -> Result<u64, Errno> {
    tracing::trace!(call = request.name());
    match request {
        Request::Open { attr, text, observed: Observed { pid, cpu, is_cgroup }, leader } => {
            let leader = leader.map_or(-1, |fd| fd.as_raw_fd());
            let cgroup = if is_cgroup { bindings::PERF_FLAG_PID_CGROUP } else { 0 };
            let flags = libc::c_ulong::from(bindings::PERF_FLAG_FD_CLOEXEC | cgroup);
            let mut attr = *attr;
            if let Some(text) = text {
                // The field is a union with `kprobe_func`.
                attr.uprobe_path = text.as_ptr() as u64;
            }
            // SAFETY: `attr` lives on this frame, and its `size` is at most that of the type (`is_plain`), so
            // the kernel reads no byte after it. It takes one field for an address of ours, and for two types
            // only: the text of a probe (`perf_kprobe_init` and `perf_uprobe_init` in
            // kernel/trace/trace_event_perf.c, v6.18). There it is the address of `text`, which ends with a
            // zero byte and lives until the call is over; `open` rejects events of these types without a
            // text. The kernel writes `size` only, for E2BIG from a smaller structure of its own.
            let answer =
                unsafe { libc::syscall(libc::SYS_perf_event_open, &raw mut attr, pid, cpu, leader, flags) };
            checked(answer)
        }
        Request::Id { event } => {
            let mut id = 0_u64;
            // SAFETY: PERF_EVENT_IOC_ID writes one u64 to its argument, which lives on this frame.
            let answer = unsafe { libc::ioctl(event.as_raw_fd(), request_code(bindings::ID), &raw mut id) };
            checked(libc::c_long::from(answer)).map(|_| id)
        }
        Request::Enable { event } => control(event, bindings::ENABLE, Scope::Event),
        Request::Disable { event, scope } => control(event, bindings::DISABLE, scope),
        Request::Reset { event, scope } => control(event, bindings::RESET, scope),
        Request::Period { event, mut events } => {
            // SAFETY: PERF_EVENT_IOC_PERIOD reads one u64 from its argument, which lives on this frame.
            let answer =
                unsafe { libc::ioctl(event.as_raw_fd(), request_code(bindings::PERIOD), &raw mut events) };
            checked(libc::c_long::from(answer))
        }
        Request::Read { event, words } => {
            // SAFETY: the pointer and the length in bytes are those of one exclusively borrowed slice, and
            // any bit pattern is a u64.
            let bytes =
                unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words)) };
            // rustix, not the C library: read(2) there is a cancellation point, which costs two locked
            // instructions once there are threads.
            let answer = rustix::io::read(event, bytes);
            answer.map(|length| length as u64).map_err(|errno| Errno::from_raw(errno.raw_os_error()))
        }
    }
}

/// Whether the kernel takes this type for a probe, and one of its fields for the address of a text.
fn is_probe(type_: u32) -> bool {
    // The kernel registers these PMUs once, at boot; their numbers depend on the other PMUs.
    static TYPES: LazyLock<[Option<u32>; 2]> = LazyLock::new(|| {
        ["kprobe", "uprobe"].map(|name| {
            let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/type")).ok()?;
            text.trim().parse().ok()
        })
    });
    // Dynamic PMU types start after the fixed ones (kernel/events/core.c, `perf_pmu_register`, v6.18).
    type_ >= bindings::PERF_TYPE_MAX && TYPES.contains(&Some(type_))
}

/// Whether the attributes have their own size, and 0 in all fields that this module does not use: data for
/// signals, AUX buffers, registers and branches in samples, and `config3`.
fn is_plain(attr: &perf_event_attr) -> bool {
    let unused = [
        attr.config3,
        attr.sig_data,
        attr.branch_sample_type,
        attr.sample_regs_user,
        attr.sample_regs_intr,
        u64::from(attr.sample_stack_user),
        u64::from(attr.aux_watermark),
        u64::from(attr.aux_sample_size),
        // `aux_action` since Linux 6.13.
        u64::from(attr.__reserved_3),
        attr.sigtrap(),
        attr.aux_output(),
    ];
    attr.size as usize <= size_of::<perf_event_attr>() && unused.iter().all(|field| *field == 0)
}

/// Performs an ioctl whose argument is a flag word.
fn control(event: BorrowedFd<'_>, code: bindings::perf_event_ioctls, scope: Scope) -> Result<u64, Errno> {
    // SAFETY: these requests take their argument by value; the kernel touches no memory of ours.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request_code(code), scope.flags()) };
    checked(libc::c_long::from(answer))
}

/// Converts an ioctl number to the type that this C library requires (musl's is signed).
fn request_code(code: bindings::perf_event_ioctls) -> libc::Ioctl {
    code as libc::Ioctl
}

fn checked(answer: libc::c_long) -> Result<u64, Errno> {
    u64::try_from(answer).map_err(|_| Errno::last())
}
