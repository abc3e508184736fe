//! The process that removes attachments that would outlive the host.
#![expect(unsafe_code, reason = "a process is forked")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, fork, pipe2, setsid};

use super::{AttachPoint, Side, undo};

/// Upper limit of filters at one time.
const MOST: usize = 256;

/// Bytes of a message through the pipe. Less than PIPE_BUF, so that a write is atomic (pipe(7)).
const RECORD: usize = 20;

/// The state of a filter, as the supervisor is notified of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    /// Attached, or about to be.
    Attached,
    Removed,
}

/// Handle to the supervisor process. It removes the remaining filters when this value is dropped or this
/// process ends.
#[derive(Debug)]
pub struct Supervisor {
    pipe: File,
    /// Number of filters that the supervisor has been notified of.
    known: AtomicUsize,
}

impl Supervisor {
    /// Starts the process. It keeps the capabilities that the calling thread has now, even if this thread
    /// drops them later.
    ///
    /// # Errors
    /// Those of pipe(2) and fork(2).
    pub fn start() -> Result<Supervisor, Errno> {
        let (read, write) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: other threads may hold locks, for example the allocator's. The child makes system calls
        // only, uses only memory of its own stack, and ends with _exit.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                // The child exits at once. The supervisor is the grandchild, so that nobody has to wait for
                // it.
                let _ = nix::sys::wait::waitpid(child, None);
                Ok(Supervisor { pipe: File::from(write), known: AtomicUsize::new(0) })
            }
            ForkResult::Child => {
                // SAFETY: as above.
                if matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
                    supervise(read);
                }
                // SAFETY: ends this process without running exit handlers.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// The descriptor by which it is notified.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Announces a filter that is about to be created.
    ///
    /// # Errors
    /// ENOSPC above 256 filters; those of write(2).
    pub(super) fn expect(&self, attach_point: &AttachPoint) -> Result<(), Errno> {
        if self.known.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.known.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        self.report(FilterState::Attached, attach_point)
    }

    /// Updates an announced filter, once the owner of its qdisc is known.
    pub(super) fn correct(&self, attach_point: &AttachPoint) -> Result<(), Errno> {
        self.report(FilterState::Attached, attach_point)
    }

    /// Reports that a filter has been removed.
    pub(super) fn forget(&self, attach_point: &AttachPoint) {
        self.known.fetch_sub(1, Ordering::Relaxed);
        // If the write fails, the supervisor is gone and will not remove the filter a second time.
        let _ = self.report(FilterState::Removed, attach_point);
    }

    fn report(&self, state: FilterState, attach_point: &AttachPoint) -> Result<(), Errno> {
        let mut record = [0; RECORD];
        record[0] = (state == FilterState::Attached).into();
        record[1] = (attach_point.side == Side::Egress).into();
        record[2] = attach_point.owns_qdisc.into();
        record[4..8].copy_from_slice(&attach_point.interface.to_ne_bytes());
        record[8..12].copy_from_slice(&attach_point.handle.to_ne_bytes());
        record[12..16].copy_from_slice(&attach_point.program.to_ne_bytes());
        record[16..18].copy_from_slice(&attach_point.priority.to_ne_bytes());
        let written = (&self.pipe).write_all(&record);
        written.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

/// Reads the pipe until the host has ended, then removes the remaining filters.
fn supervise(pipe: OwnedFd) {
    // A new session, so that signals to the host or from its terminal do not reach this process.
    let _ = setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: SIG_IGN runs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let kept = pipe.as_raw_fd().unsigned_abs();
    // Close everything but the pipe: the host's links, events and output and the write end of the pipe must
    // not stay open. SAFETY: nothing in this process owns the closed descriptors; `kept` is left out.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0);
    }
    let mut pipe = File::from(pipe);
    let mut attach_points: [Option<AttachPoint>; MOST] = [None; MOST];
    let mut record = [0; RECORD];
    while pipe.read_exact(&mut record).is_ok() {
        let (state, attach_point) = message_of(&record);
        let same = |one: &Option<AttachPoint>| one.is_some_and(|one| one.is_same(&attach_point));
        let at =
            attach_points.iter().position(same).or_else(|| attach_points.iter().position(Option::is_none));
        if let Some(slot) = at.and_then(|at| attach_points.get_mut(at)) {
            *slot = (state == FilterState::Attached).then_some(attach_point);
        }
    }
    attach_points.iter().flatten().for_each(undo);
}

fn message_of(record: &[u8; RECORD]) -> (FilterState, AttachPoint) {
    let number =
        |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    let attach_point = AttachPoint {
        side: if record[1] == 1 { Side::Egress } else { Side::Ingress },
        owns_qdisc: record[2] == 1,
        interface: i32::from_ne_bytes(number(4)),
        handle: u32::from_ne_bytes(number(8)),
        program: u32::from_ne_bytes(number(12)),
        priority: u16::from_ne_bytes([record[16], record[17]]),
    };
    let state = if record[0] == 1 { FilterState::Attached } else { FilterState::Removed };
    (state, attach_point)
}
