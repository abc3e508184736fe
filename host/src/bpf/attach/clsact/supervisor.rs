//! The process that undoes what would outlive the host.
#![expect(unsafe_code, reason = "a process is forked")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, fork, pipe2, setsid};

use super::{AttachPoint, Side, undo};

/// Most filters at one time.
const MOST: usize = 256;

/// Bytes of a message through the pipe: fewer than PIPE_BUF, so that it is there as a whole or not at all (pipe(7)).
const RECORD: usize = 16;

/// The other process, which undoes what is left when this value is dropped or this process is gone.
#[derive(Debug)]
pub struct Supervisor {
    pipe: File,
    /// How many filters it knows.
    known: AtomicUsize,
}

impl Supervisor {
    /// Starts the process. Capabilities that this thread drops later stay its own.
    ///
    /// # Errors
    /// Of pipe(2) and fork(2).
    pub fn start() -> Result<Supervisor, Errno> {
        let (read, write) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: other threads may hold locks, for example of the allocator; the child calls nothing but system calls, on
        // memory of its own stack, and ends by _exit.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                // It ends at once: the supervisor is its child, so that nobody has to wait for that.
                let _ = nix::sys::wait::waitpid(child, None);
                Ok(Supervisor { pipe: File::from(write), known: AtomicUsize::new(0) })
            }
            ForkResult::Child => {
                // SAFETY: as above.
                if matches!(unsafe { fork() }, Ok(ForkResult::Child)) {
                    supervise(read);
                }
                // SAFETY: ends this process without running anything of the program's.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Tells of a filter that is to come.
    ///
    /// # Errors
    /// ENOSPC if there are too many; of write(2).
    pub(super) fn expect(&self, attach_point: &AttachPoint) -> Result<(), Errno> {
        if self.known.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.known.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        self.report(true, attach_point)
    }

    /// Tells more of a filter that it knows.
    pub(super) fn correct(&self, attach_point: &AttachPoint) -> Result<(), Errno> {
        self.report(true, attach_point)
    }

    /// Tells of a filter that is gone.
    pub(super) fn forget(&self, attach_point: &AttachPoint) {
        self.known.fetch_sub(1, Ordering::Relaxed);
        // Without the other process nobody undoes it a second time, either.
        let _ = self.report(false, attach_point);
    }

    fn report(&self, is_there: bool, attach_point: &AttachPoint) -> Result<(), Errno> {
        let mut record = [0; RECORD];
        record[0] = is_there.into();
        record[1] = (attach_point.side == Side::Egress).into();
        record[2] = attach_point.owns_qdisc.into();
        record[4..8].copy_from_slice(&attach_point.interface.to_ne_bytes());
        record[8..12].copy_from_slice(&attach_point.handle.to_ne_bytes());
        let written = (&self.pipe).write_all(&record);
        written.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

/// Listens until the host is gone, and undoes what it has left.
fn supervise(pipe: OwnedFd) {
    // Signals for the host, also from its terminal, are not for this process.
    let _ = setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: ignoring a signal runs nothing.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let kept = pipe.as_raw_fd().unsigned_abs();
    // Links and events of the host, the pipe's other end, and its output must not stay open here.
    // SAFETY: the descriptors belong to nobody in this process; the pipe is left out.
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
        let (is_there, attach_point) = attach_point_of(&record);
        let same = |one: &Option<AttachPoint>| one.is_some_and(|one| one.handle == attach_point.handle);
        let at =
            attach_points.iter().position(same).or_else(|| attach_points.iter().position(Option::is_none));
        if let Some(slot) = at.and_then(|at| attach_points.get_mut(at)) {
            *slot = is_there.then_some(attach_point);
        }
    }
    attach_points.iter().flatten().for_each(undo);
}

fn attach_point_of(record: &[u8; RECORD]) -> (bool, AttachPoint) {
    let number =
        |at: usize| record.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    let attach_point = AttachPoint {
        side: if record[1] == 1 { Side::Egress } else { Side::Ingress },
        owns_qdisc: record[2] == 1,
        interface: i32::from_ne_bytes(number(4)),
        handle: u32::from_ne_bytes(number(8)),
    };
    (record[0] == 1, attach_point)
}
