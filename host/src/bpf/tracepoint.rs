//! The kernel's numbers for its static tracepoints.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;

use super::error::BpfError;

/// Where tracefs is mounted; the second is the place of kernels before 4.1.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The number of the tracepoint `category/name`, which is the config of its perf event.
///
/// # Errors
/// [`BpfError::Target`] if that is no such name; [`BpfError::Kernel`]: ENOENT if there is no such tracepoint, EACCES
/// without the right to read tracefs; [`BpfError::NoTracefs`].
///
/// Source: `Documentation/trace/events.rst`.
pub fn tracepoint_id(program: &str, target: &str) -> Result<u64, BpfError> {
    let (category, name) = target
        .split_once('/')
        .filter(|(category, name)| is_word(category) && is_word(name))
        .ok_or_else(|| BpfError::Target {
            program: program.into(),
            target: target.into(),
            expected: "`category/event`, for example `sched/sched_switch`",
        })?;
    let events = TRACEFS
        .iter()
        .map(|root| Path::new(root).join("events"))
        .find(|events| fs::metadata(events).is_ok_and(|metadata| metadata.is_dir()) || is_hidden(events))
        .ok_or(BpfError::NoTracefs)?;
    let file = events.join(category).join(name).join("id");
    let refused = |errno| BpfError::Kernel {
        tried: format!("find the tracepoint `{target}` for program `{program}`"),
        call: "open(tracefs)",
        errno,
    };
    let text = fs::read_to_string(file)
        .map_err(|error| refused(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)))?;
    text.trim().parse().map_err(|_| refused(Errno::EIO))
}

/// A folder may be there and not be shown to this user.
fn is_hidden(folder: &Path) -> bool {
    fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// What a category or an event of the kernel is named with; so the path stays below tracefs.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_stays_below_tracefs() {
        for target in ["", "sched", "/", "sched/", "../x/y", "sched/../x", "sched/a b", "a/b/c"] {
            let error = tracepoint_id("p", target).expect_err("no target");
            assert!(matches!(error, BpfError::Target { .. }), "{target:?}: {error}");
        }
    }
}
