//! The rights of a worker: none but its memory, its socket and the time.

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::apart;
use crate::confine::{self, ConfineError, WorkerFilter};
use crate::plugin::Limits;
use crate::policy::{Limit, Policy};
use crate::processes::limits::{self, page_bytes};

/// Memory of a worker beside that of its plugin.
const OWN_BYTES: u64 = 256 << 20;

/// Why a worker keeps rights that it must not have.
#[derive(Debug, thiserror::Error)]
pub(super) enum RightsError {
    #[error("cannot limit the process: {0}")]
    Limits(#[from] nix::errno::Errno),
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

/// Descriptors of a worker beside those of its plugin's events and maps.
const OWN_DESCRIPTORS: u64 = 64;

/// Pages of hardware events that a worker maps at most, to read them without a system call. It reads others with
/// read(2).
const EVENT_PAGES: u64 = 1024;

/// Drops the rights of this process, for good: what it loads and runs then has memory and what is open. Returns the
/// filter of system calls that is left to install.
///
/// # Errors
/// [`RightsError`]: nothing of a plugin may be loaded then.
pub(super) fn drop_rights() -> Result<WorkerFilter, RightsError> {
    let filter = WorkerFilter::prepare();
    let is_root = geteuid().is_root();
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    let most = EVENT_PAGES.saturating_mul(page_bytes());
    // Only with CAP_SYS_RESOURCE. Events whose pages cannot be mapped are read with read(2).
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard.max(most));
    apart::become_nobody();
    // After the change of user, which resets both.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A broker without capabilities could not count what it may not trace.
    prctl::set_dumpable(!is_root)?;
    prctl::set_no_new_privs()?;
    confine::leave_rights()?;
    Ok(filter)
}

/// Limits what this process takes, and filters its system calls.
///
/// # Errors
/// [`RightsError`]: nothing of a plugin may run then.
pub(super) fn enter(filter: &WorkerFilter, policy: &Policy) -> Result<(), RightsError> {
    let limits = Limits::of(policy);
    let data = (limits.memory_bytes as u64).saturating_add(OWN_BYTES);
    // Whatever the broker has closed, no more of it stays open here.
    let descriptors = policy.limit(Limit::Descriptors);
    let pages = policy.limit(Limit::Attachments).min(EVENT_PAGES);
    limits::lower(&[
        (Resource::RLIMIT_DATA, data),
        (Resource::RLIMIT_NOFILE, descriptors.saturating_add(OWN_DESCRIPTORS)),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NPROC, 0),
        (Resource::RLIMIT_MEMLOCK, pages.saturating_mul(page_bytes())),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ])?;
    Ok(filter.install()?)
}
