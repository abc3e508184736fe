//! Failures of host calls.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::sys::types;

/// Result of a call that may fail with an [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The kind of an [`Error`], for plugins that handle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel refuses this user: a capability or a sysctl is missing (EPERM, EACCES).
    NotPermitted,
    /// A named program, map, variable, event, task or file does not exist (ENOENT, ESRCH, ENODEV).
    NotFound,
    /// The request can never succeed (EINVAL, E2BIG), or a type does not fit the object that it names.
    Invalid,
    /// An exclusive resource is in use (EBUSY, EEXIST).
    Busy,
    /// A limit of the host, of the process or of the hardware is reached (EMFILE, ENOSPC, ENOMEM).
    Limit,
    /// The handle is detached, or the handle of its group leader is.
    Stale,
    /// This kernel or this CPU does not support it (EOPNOTSUPP, or ENOENT for an event without a counter).
    Unsupported,
    /// The host asked the plugin to stop during the call.
    Interrupted,
    /// The policy of the plugin does not allow it. The kernel was not asked.
    DeniedByPolicy,
    /// Any other errno of the kernel, see [`Error::errno`].
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

/// A failure of a call: its kind, the errno, and a message.
///
/// The message says what was tried, what the kernel answered and what to do; it may have several lines. Its parts
/// are there on their own, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

/// The parts of an error, on the heap: results of calls stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    kind: ErrorKind,
    errno: Option<u32>,
    errno_name: Option<String>,
    message: String,
    because: Option<String>,
    advice: Option<String>,
}

impl Error {
    /// The kind, for plugins that handle the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The errno, if a system call failed: a number in the `errno.h` of the machine that runs the plugin.
    pub fn errno(&self) -> Option<u32> {
        self.0.errno
    }

    /// The name of the errno, for example `ENOENT`.
    pub fn errno_name(&self) -> Option<&str> {
        self.0.errno_name.as_deref()
    }

    /// What was tried or is wrong: the first line of the message.
    pub fn tried(&self) -> &str {
        self.0.message.lines().next().unwrap_or_default()
    }

    /// The cause, as far as the host knows it.
    pub fn because(&self) -> Option<&str> {
        self.0.because.as_deref()
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// Creates an error that this crate detects itself: a type or value does not fit.
    pub(crate) fn invalid(message: String) -> Error {
        let (errno, errno_name, because, advice) = (None, None, None, None);
        Error(Box::new(Parts { kind: ErrorKind::Invalid, errno, errno_name, message, because, advice }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl core::error::Error for Error {}

impl From<types::Error> for Error {
    fn from(error: types::Error) -> Error {
        Error(Box::new(Parts {
            kind: error.kind.into(),
            errno: error.errno,
            errno_name: error.errno_name,
            message: error.message,
            because: error.because,
            advice: error.advice,
        }))
    }
}
