//! Conversion of host errors to errors of the contract.

use nix::errno::Errno;
use wasmtime::component::ResourceTableError;

use super::bindings::kernelscript::host::types::{Error, ErrorKind, Host};
use super::state::State;
use crate::bpf::BpfError;
use crate::explain::{self, FailureKind};
use crate::host_bytes::Full;
use crate::perf::PerfError;
use crate::plugin::Abort;
use crate::policy::Limit;
use crate::text;

/// Failure of a host function.
#[derive(Debug)]
pub enum HostError {
    /// An error that the function returns to the plugin.
    Guest(Box<Error>),
    /// A trap that ends the plugin: a broken invariant of the host, or an invalid handle.
    Trap(wasmtime::Error),
}

impl HostError {
    /// The plugin's policy does not allow the action.
    pub(super) fn denied(message: String) -> HostError {
        HostError::Guest(Box::new(failure(ErrorKind::DeniedByPolicy, None, message)))
    }

    /// The plugin has reached a limit.
    pub(super) fn limit(limit: Limit, number: u64) -> HostError {
        HostError::over_limit(limit.reached(number))
    }

    /// The plugin has reached a limit that has its own text.
    pub(super) fn over_limit(message: String) -> HostError {
        HostError::Guest(Box::new(failure(ErrorKind::Limit, None, message)))
    }

    /// An answer of the kernel that the caller has explained.
    pub(super) fn of_kernel(kind: FailureKind, errno: Errno, message: String) -> HostError {
        guest(kind, Some(errno), message)
    }

    /// A request that can never succeed.
    pub(super) fn invalid(message: String) -> HostError {
        HostError::Guest(Box::new(failure(ErrorKind::Invalid, None, message)))
    }

    /// Returns the message if this machine lacks what was asked for: by an answer of the kernel or a file, not because this
    /// host cannot look.
    pub(super) fn lack(&self) -> Option<&str> {
        match self {
            HostError::Guest(error) => match error.kind {
                ErrorKind::NotFound => Some(&error.message),
                ErrorKind::Unsupported if error.errno.is_some() => Some(&error.message),
                _ => None,
            },
            HostError::Trap(_) => None,
        }
    }

    /// A wait was interrupted because the plugin is to stop.
    pub(super) fn interrupted() -> HostError {
        HostError::Guest(Box::new(failure(
            ErrorKind::Interrupted,
            None,
            "the plugin was asked to stop".into(),
        )))
    }
}

impl From<PerfError> for HostError {
    fn from(error: PerfError) -> HostError {
        guest(error.kind(), error.errno(), error.to_string())
    }
}

impl From<BpfError> for HostError {
    fn from(error: BpfError) -> HostError {
        let explained = explain::bpf::explain(&error);
        guest(explained.kind, error.errno(), explain::bpf::describe(&error, &explained))
    }
}

impl From<Full> for HostError {
    fn from(full: Full) -> HostError {
        guest(FailureKind::Limit, None, full.to_string())
    }
}

impl From<ResourceTableError> for HostError {
    fn from(error: ResourceTableError) -> HostError {
        match error {
            ResourceTableError::Full => guest(FailureKind::Limit, None, TOO_MANY_HANDLES.into()),
            error => HostError::Trap(error.into()),
        }
    }
}

impl From<wasmtime::Error> for HostError {
    fn from(error: wasmtime::Error) -> HostError {
        HostError::Trap(error)
    }
}

const TOO_MANY_HANDLES: &str = "the plugin holds too many handles\n  \
                                do: drop those that are not used any more, or allow more (--limit \
                                handles=..)";

/// Rejects a text that is too long for a name: the host looks names up, compares, keeps and logs them.
pub(super) fn check_length(what: &str, name: &str) -> Result<(), HostError> {
    if name.len() <= text::MOST_BYTES {
        return Ok(());
    }
    Err(HostError::invalid(format!("no {what} has a name of {} bytes", name.len())))
}

/// Builds the trap for a plugin without room for a handle, in a call that cannot fail.
pub(super) fn no_room(_: ResourceTableError) -> wasmtime::Error {
    wasmtime::Error::new(Abort(TOO_MANY_HANDLES.into()))
}

/// Builds the trap for a plugin that exceeds the host's memory for it, in a call that cannot fail.
pub(super) fn too_much(full: Full) -> wasmtime::Error {
    wasmtime::Error::new(Abort(full.to_string()))
}

fn guest(kind: FailureKind, errno: Option<Errno>, message: String) -> HostError {
    let kind = match kind {
        FailureKind::NotPermitted => ErrorKind::NotPermitted,
        FailureKind::NotFound => ErrorKind::NotFound,
        FailureKind::Invalid => ErrorKind::Invalid,
        FailureKind::Busy => ErrorKind::Busy,
        FailureKind::Limit => ErrorKind::Limit,
        FailureKind::Stale => ErrorKind::Stale,
        FailureKind::DeniedByPolicy => ErrorKind::DeniedByPolicy,
        FailureKind::Unsupported => ErrorKind::Unsupported,
        FailureKind::Kernel => ErrorKind::Kernel,
    };
    HostError::Guest(Box::new(failure(kind, errno, message)))
}

/// Builds a failure from its text, whose parts are those of [`explain`]: a line that says what was tried, then
/// lines that begin with two spaces and `because:` or `do:`, each of which may go on in further lines.
fn failure(kind: ErrorKind, errno: Option<Errno>, message: String) -> Error {
    let part = |label: &str| {
        let start = message.find(&format!("\n  {label}: "))?;
        let text = &message[start + label.len() + 5..];
        let next =
            ["kernel", "because", "do"].iter().filter_map(|label| text.find(&format!("\n  {label}: ")));
        Some(text[..next.min().unwrap_or(text.len())].to_owned())
    };
    Error {
        kind,
        errno: errno.map(|errno| (errno as i32).unsigned_abs()),
        errno_name: errno.filter(|errno| *errno != Errno::UnknownErrno).map(|errno| format!("{errno:?}")),
        tried: message.lines().next().unwrap_or_default().to_owned(),
        because: part("because"),
        advice: part("do"),
        message,
    }
}

impl Host for State {
    fn convert_error(&mut self, error: HostError) -> wasmtime::Result<Error> {
        match error {
            HostError::Guest(error) => Ok(*error),
            HostError::Trap(trap) => Err(trap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_parts_of_its_text() {
        let text = "cannot open `x` (pid 1, any cpu)\n  kernel: perf_event_open: EACCES\n  because: it is\n  \
                    another user's\n  do: ask\n  or wait";
        let error = failure(ErrorKind::NotPermitted, Some(Errno::EACCES), text.to_owned());
        assert_eq!((error.errno, error.errno_name.as_deref()), (Some(13), Some("EACCES")));
        assert_eq!(
            (error.message.as_str(), error.tried.as_str()),
            (text, "cannot open `x` (pid 1, any cpu)")
        );
        assert_eq!(error.because.as_deref(), Some("it is\n  another user's"));
        assert_eq!(error.advice.as_deref(), Some("ask\n  or wait"));
        let error = failure(ErrorKind::Invalid, None, "no text".to_owned());
        assert_eq!((error.tried.as_str(), error.errno_name), ("no text", None));
        assert_eq!((error.because, error.advice), (None, None));
    }
}
