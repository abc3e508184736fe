//! The rights of a worker: none but its memory, its socket and the time.

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use crate::apart;
use crate::confine::{self, ConfineError};
use crate::plugin::Limits;

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

/// Confines this process, for good.
///
/// # Errors
/// [`RightsError`]: nothing of a plugin may run then.
pub(super) fn enter(limits: &Limits) -> Result<(), RightsError> {
    let data = (limits.memory_bytes as u64).saturating_add(OWN_BYTES);
    for (resource, most) in [
        (Resource::RLIMIT_DATA, data),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NPROC, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ] {
        // A lower limit, set by the host's parent, stays.
        let most = most.min(getrlimit(resource)?.1);
        setrlimit(resource, most, most)?;
    }
    let is_root = geteuid().is_root();
    apart::become_nobody();
    // After the change of user, which resets both.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A broker without capabilities could not count what it may not trace.
    prctl::set_dumpable(!is_root)?;
    Ok(confine::enter_worker()?)
}
