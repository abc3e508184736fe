//! Limits of a process of this program (setrlimit(2)).

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// Limits this process, for good. A lower limit, set by the host's parent, stays.
///
/// # Errors
/// Of getrlimit(2) and setrlimit(2). What comes before in the list is limited then.
pub(crate) fn lower(limits: &[(Resource, u64)]) -> Result<(), Errno> {
    for (resource, most) in limits {
        let most = getrlimit(*resource)?.1.min(*most);
        setrlimit(*resource, most, most)?;
    }
    Ok(())
}

/// Returns the size of a page of memory, by which the kernel counts.
pub(crate) fn page_bytes() -> u64 {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}
