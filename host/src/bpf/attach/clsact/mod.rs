//! tc programs on kernels without tcx links (before Linux 6.6): filters of the interface's clsact qdisc.
//!
//! A filter outlives the process that created it. A supervisor process therefore removes the filters after
//! this process has ended, including by SIGKILL:
//!
//! ```text
//! start ------- supervisor: another process, which reads from a pipe
//! attach ------ the pipe: "this filter is to come"; netlink: qdisc, filter
//! drop -------- netlink: filter gone, qdisc gone if it is ours and empty; the pipe: "nothing to do there"
//! end, SIGKILL  the pipe ends: the supervisor does what `drop` does with all that is left
//! ```
//!
//! The supervisor knows priority, handle and program of a filter before the filter exists. It removes what has
//! all three, so that a filter of another tool with the same priority and handle stays.

mod netlink;
mod supervisor;

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use netlink::Filters;

use super::super::sys;
use super::net::FilterOrder;

pub use supervisor::Supervisor;

/// A tc filter of this process. Dropping it removes the filter from the interface.
#[derive(Debug)]
pub(in crate::bpf) struct Filter {
    attach_point: AttachPoint,
    supervisor: Arc<Supervisor>,
}

/// The position of a filter: interface, direction and handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AttachPoint {
    interface: i32,
    side: Side,
    /// Of two filters, the one with the lower number runs first.
    priority: u16,
    /// The filter's handle, unique within its priority.
    handle: u32,
    /// The kernel's id of the program.
    program: u32,
    /// True if this process created the clsact qdisc.
    owns_qdisc: bool,
}

impl AttachPoint {
    /// Whether two filters are the same one.
    fn is_same(&self, other: &AttachPoint) -> bool {
        AttachPoint { owns_qdisc: other.owns_qdisc, ..*self } == *other
    }
}

/// The priority of a filter for which none is chosen: before those of others.
const FIRST: u16 = 1;

/// Direction of the packets that a filter sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Packets that the interface receives.
    Ingress,
    /// Packets that the interface sends.
    Egress,
}

impl Filter {
    /// Attaches a program before the existing filters of the interface, or in this order.
    pub(super) fn attach(
        program: BorrowedFd<'_>,
        interface: i32,
        side: Side,
        order: FilterOrder,
        supervisor: &Arc<Supervisor>,
    ) -> Result<Filter, Errno> {
        // The owner of the qdisc is known only after the attempt to create it; until then assume that it is
        // ours.
        let handle = order.handle.map_or_else(random_handle, |handle| Ok(handle.get()))?;
        let priority = order.priority.map_or(FIRST, NonZeroU16::get);
        let program_id = sys::program_info(program)?.id;
        let attach_point =
            AttachPoint { interface, side, priority, handle, program: program_id, owns_qdisc: true };
        supervisor.expect(&attach_point)?;
        // An error from here on drops first the lock, then the filter, which removes everything created so
        // far.
        let mut filter = Filter { attach_point, supervisor: Arc::clone(supervisor) };
        let _lock = lock()?;
        match netlink::add_qdisc(interface) {
            // A killed host may have left an empty qdisc a moment ago; take it over.
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

/// Removes a filter, and the qdisc if it is ours and has no other filters. Ignores all errors: a filter that
/// does not exist needs no removal, and nobody could handle another failure. Does not allocate, because the
/// supervisor must not.
fn undo(attach_point: &AttachPoint) {
    let _lock = lock();
    if netlink::is_there(attach_point) == Ok(true) {
        let _ = netlink::delete_filter(attach_point);
    }
    if attach_point.owns_qdisc && netlink::filters(attach_point.interface) == Ok(Filters::None) {
        let _ = netlink::delete_qdisc(attach_point.interface);
    }
}

/// Locks the qdiscs of this network namespace against other hosts, so that none adds a filter between the
/// check that a qdisc is empty and its removal. The lock file is the namespace's file in procfs; closing the
/// descriptor releases the lock (flock(2)).
fn lock() -> Result<Flock<File>, Errno> {
    let file = File::open("/proc/self/ns/net");
    let file = file.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)
}

/// Returns an unused filter handle: 31 bits, not 0 (net/sched/cls_bpf.c, v6.1).
fn random_handle() -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok((u32::from_ne_bytes(bytes) & 0x7fff_ffff).max(1))
}
