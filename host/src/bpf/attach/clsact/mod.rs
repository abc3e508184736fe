//! tc programs where the kernel has no links for them (before Linux 6.6): a filter of the interface's clsact qdisc.
//!
//! A filter outlives the process that made it, so a supervisor takes it away when this process is gone, however it ended:
//!
//! ```text
//! start ------- supervisor: another process, which waits at a pipe
//! attach ------ the pipe: "this filter is to come"; netlink: qdisc, filter
//! drop -------- netlink: filter gone, qdisc gone if it is ours and empty; the pipe: "nothing to do there"
//! end, SIGKILL  the pipe ends: the supervisor does what `drop` does with all that is left
//! ```
//!
//! The filter's handle is random and told before it is made, so what the supervisor finds under it is ours.

mod netlink;
mod supervisor;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use netlink::Filters;

pub use supervisor::Supervisor;

/// A filter of ours. Dropping it takes it away.
#[derive(Debug)]
pub(in crate::bpf) struct Filter {
    attach_point: AttachPoint,
    supervisor: Arc<Supervisor>,
}

/// Where a filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AttachPoint {
    interface: i32,
    side: Side,
    /// The filter's number among those of its priority.
    handle: u32,
    /// The qdisc was not there before.
    owns_qdisc: bool,
}

/// Which packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Those that come in.
    Ingress,
    /// Those that go out.
    Egress,
}

impl Filter {
    /// Puts a program before the filters that are there.
    pub(super) fn attach(
        program: BorrowedFd<'_>,
        interface: i32,
        side: Side,
        supervisor: &Arc<Supervisor>,
    ) -> Result<Filter, Errno> {
        // Whose the qdisc is turns out when it is made; until then it may be ours.
        let attach_point = AttachPoint { interface, side, handle: random_handle()?, owns_qdisc: true };
        supervisor.expect(&attach_point)?;
        // From here on a failure drops the filter, after the lock, and with it what is ours.
        let mut filter = Filter { attach_point, supervisor: Arc::clone(supervisor) };
        let _lock = lock()?;
        match netlink::add_qdisc(interface) {
            // One that has nothing in it a killed host may have left a moment ago.
            Err(Errno::EEXIST) if netlink::filters(interface)? != Filters::Others => {}
            Err(Errno::EEXIST) => {
                filter.attach_point.owns_qdisc = false;
                supervisor.correct(&filter.attach_point)?;
            }
            added => added?,
        }
        netlink::add_filter(&filter.attach_point, program)?;
        Ok(filter)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        undo(&self.attach_point);
        self.supervisor.forget(&self.attach_point);
    }
}

/// Takes a filter away, and the qdisc if it is ours and nobody uses it. What is not there is no failure; what cannot be
/// taken away cannot be told to anybody who could do more. Allocates nothing: the supervisor may not.
fn undo(attach_point: &AttachPoint) {
    let _lock = lock();
    let _ = netlink::delete_filter(attach_point);
    if attach_point.owns_qdisc && netlink::filters(attach_point.interface) == Ok(Filters::None) {
        let _ = netlink::delete_qdisc(attach_point.interface);
    }
}

/// Only one process at a time changes the qdiscs of a network namespace: between the look whether one is empty and its end
/// nobody may put a filter there. The file stands for the namespace; the lock ends with its descriptor (flock(2)).
fn lock() -> Result<Flock<File>, Errno> {
    let file = File::open("/proc/self/ns/net");
    let file = file.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)
}

/// A number that no filter has: handles are 31 bits that are not 0 (net/sched/cls_bpf.c, v6.1).
fn random_handle() -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok((u32::from_ne_bytes(bytes) & 0x7fff_ffff).max(1))
}
