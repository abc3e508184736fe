//! Ids of static tracepoints, which programs are attached to by perf events.

use nix::errno::Errno;

use super::error::BpfError;
use crate::tracefs::{self, TracefsError};

/// Returns the id of the tracepoint `category/name`, which is the config of its perf event.
///
/// # Errors
/// [`BpfError::Target`] if the name is malformed; [`BpfError::NoTracepoint`] if it does not exist;
/// [`BpfError::TracefsClosed`] without the permission to read tracefs; [`BpfError::NoTracefs`] if it is not mounted and
/// this process cannot mount it; [`BpfError::Kernel`] if it cannot be read.
pub fn tracepoint_id(program: &str, target: &str) -> Result<u64, BpfError> {
    let (category, name) = target
        .split_once('/')
        .filter(|(category, name)| is_name(category) && is_name(name))
        .ok_or_else(|| BpfError::Target {
            program: program.into(),
            target: target.into(),
            expected: "`category/event`, for example `sched/sched_switch`",
        })?;
    tracefs::tracepoint_id(category, name).map_err(|error| match error {
        TracefsError::NotMounted => BpfError::NoTracefs,
        TracefsError::NotFound { near, .. } => {
            BpfError::NoTracepoint { program: program.into(), target: target.into(), near }
        }
        TracefsError::NotPermitted => {
            BpfError::TracefsClosed { program: program.into(), target: target.into() }
        }
        TracefsError::Unreadable(_) => BpfError::Kernel {
            tried: format!("find the tracepoint `{target}` for program `{program}`"),
            call: "open(tracefs)",
            errno: Errno::EIO,
        },
    })
}

/// Returns whether text has the form of a category's or an event's name.
fn is_name(text: &str) -> bool {
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
