//! The kernel's numbers for the static tracepoints that programs are attached to.

use nix::errno::Errno;

use super::error::BpfError;
use crate::tracefs::{self, TracefsError};

/// The number of the tracepoint `category/name`, which is the config of its perf event.
///
/// # Errors
/// [`BpfError::Target`] if that is no such name; [`BpfError::Kernel`]: ENOENT if there is no such tracepoint;
/// [`BpfError::TracefsClosed`] without the right to read tracefs; [`BpfError::NoTracefs`] if it is not mounted and cannot be
/// for this process.
pub fn tracepoint_id(program: &str, target: &str) -> Result<u64, BpfError> {
    let (category, name) = target
        .split_once('/')
        .filter(|(category, name)| is_name(category) && is_name(name))
        .ok_or_else(|| BpfError::Target {
            program: program.into(),
            target: target.into(),
            expected: "`category/event`, for example `sched/sched_switch`",
        })?;
    let refused = |errno| BpfError::Kernel {
        tried: format!("find the tracepoint `{target}` for program `{program}`"),
        call: "open(tracefs)",
        errno,
    };
    tracefs::tracepoint_id(category, name).map_err(|error| match error {
        TracefsError::NotMounted => BpfError::NoTracefs,
        TracefsError::NotFound { .. } => refused(Errno::ENOENT),
        TracefsError::NotPermitted => {
            BpfError::TracefsClosed { program: program.into(), target: target.into() }
        }
        TracefsError::Unreadable(_) => refused(Errno::EIO),
    })
}

/// What a category or an event of the kernel is named with.
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
