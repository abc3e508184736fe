//! Failures of host calls.

use alloc::string::String;
use core::fmt;

use crate::sys::types;

/// What a call gives that may fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What kind of failure an [`Error`] is: what a plugin decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel refuses this user: a capability or a sysctl is missing (EPERM, EACCES).
    NotPermitted,
    /// What was named does not exist: a program, map, variable, event, task or file (ENOENT, ESRCH, ENODEV).
    NotFound,
    /// The request can never succeed as it stands (EINVAL, E2BIG), or a type does not fit what it names.
    Invalid,
    /// Something exclusive is taken (EBUSY, EEXIST).
    Busy,
    /// A limit of the host, of the process or of the hardware is reached (EMFILE, ENOSPC, ENOMEM).
    Limit,
    /// The handle was detached, or the leader it depended on was.
    Stale,
    /// This kernel or this CPU cannot do it (EOPNOTSUPP, or ENOENT for an event without a counter).
    Unsupported,
    /// The host asked the plugin to stop while the call was waiting.
    Interrupted,
    /// The policy under which the plugin runs does not allow it. The kernel was not asked.
    DeniedByPolicy,
    /// Any other answer of the kernel; [`Error::errno`] says which.
    Kernel,
    /// A kind that a later version of the contract defines, by its number.
    Other(u32),
}

impl From<types::ErrorKind> for ErrorKind {
    fn from(kind: types::ErrorKind) -> ErrorKind {
        match kind {
            types::ErrorKind::NotPermitted => ErrorKind::NotPermitted,
            types::ErrorKind::NotFound => ErrorKind::NotFound,
            types::ErrorKind::Invalid => ErrorKind::Invalid,
            types::ErrorKind::Busy => ErrorKind::Busy,
            types::ErrorKind::Limit => ErrorKind::Limit,
            types::ErrorKind::Stale => ErrorKind::Stale,
            types::ErrorKind::Unsupported => ErrorKind::Unsupported,
            types::ErrorKind::Interrupted => ErrorKind::Interrupted,
            types::ErrorKind::DeniedByPolicy => ErrorKind::DeniedByPolicy,
            types::ErrorKind::Kernel => ErrorKind::Kernel,
            types::ErrorKind::Other(number) => ErrorKind::Other(number),
        }
    }
}

/// A failure: what kind, what the kernel said, and words for a person.
///
/// Its text says what was tried, what the kernel said and what to do; it may have several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    errno: Option<u32>,
    message: String,
}

impl Error {
    /// The kind, to decide by.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The errno, if a system call failed: a number of the `errno.h` of the machine that runs the plugin.
    pub fn errno(&self) -> Option<u32> {
        self.errno
    }

    /// A failure that this crate finds itself: what is asked for does not fit.
    pub(crate) fn invalid(message: String) -> Error {
        Error { kind: ErrorKind::Invalid, errno: None, message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Error {}

impl From<types::Error> for Error {
    fn from(error: types::Error) -> Error {
        Error { kind: error.kind.into(), errno: error.errno, message: error.message }
    }
}
