//! Takes every file, port and other process from the calling thread by Landlock: a line behind the filter of system calls,
//! for those calls that the filter could let through one day.
//!
//! Source: Documentation/userspace-api/landlock.rst, v6.18; landlock(7).

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};

/// The newest interface whose rights are taken. A kernel with an older one takes those that it knows, one without
/// Landlock none.
const KNOWN: ABI = ABI::V6;

/// Leaves no file to open, no port, no abstract socket, and no process outside of this one to signal. What is open stays.
///
/// # Errors
/// If a kernel with Landlock refuses.
pub(super) fn leave_nothing() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .restrict_self()
}

/// Leaves nothing but reading what is at or below these paths, as far as they exist.
///
/// # Errors
/// If a kernel with Landlock refuses.
pub(super) fn leave_readable(
    paths: impl IntoIterator<Item = PathBuf>,
) -> Result<RestrictionStatus, RulesetError> {
    let readable = AccessFs::ReadFile | AccessFs::ReadDir;
    Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .add_rules(path_beneath_rules(paths, readable))?
        .restrict_self()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read as _};
    use std::net::TcpListener;
    use std::thread;

    use landlock::RulesetStatus;

    use super::*;

    #[test]
    fn nothing_can_be_opened_and_what_is_open_stays() {
        let mut open = File::open("/proc/version").expect("readable");
        let restricted = thread::spawn(move || {
            let status = leave_nothing().expect("the kernel takes what it knows");
            if status.ruleset == RulesetStatus::NotEnforced {
                return false;
            }
            assert_eq!(
                File::open("/proc/version").map(drop).unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
            assert_eq!(std::fs::read_dir("/").map(drop).unwrap_err().kind(), ErrorKind::PermissionDenied);
            if status.ruleset == RulesetStatus::FullyEnforced {
                let listens = TcpListener::bind("127.0.0.1:0").map(drop);
                assert_eq!(listens.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
            open.read_exact(&mut [0; 5]).expect("it was opened before");
            true
        });
        if !restricted.join().expect("the thread does not panic") {
            eprintln!("not tested: this kernel has no Landlock");
        }
        assert!(File::open("/proc/version").is_ok(), "other threads are free");
    }
}
