//! The kernel's static tracepoints: lookup of ids by name, and a list of all names.
//!
//! Minimal systems often do not mount tracefs. Then it is mounted for this process alone, invisible to other
//! processes, which needs CAP_SYS_ADMIN; the mount ends with the process.
//!
//! Source: `Documentation/trace/events.rst`; fsopen(2), fsmount(2), since Linux 5.2.

mod sys;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::killed;
use crate::opener;

/// Usual mount points of tracefs; the second is that of kernels before 4.1.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Advice on how to make tracefs readable: its files belong to a group, which is root's unless a mount option
/// names another.
///
/// Source: fs/tracefs/inode.c, `tracefs_parse_param`; fs/tracefs/internal.h, `TRACE_MODE_READ`, v6.18.
pub const READ_REMEDY: &str = "as root: mount -o remount,gid=GROUP,mode=750 /sys/kernel/tracing, with a \
                               group of this user; or give ks-host CAP_DAC_READ_SEARCH";

/// Why the id of a tracepoint cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TracefsError {
    /// tracefs is not mounted and cannot be mounted privately.
    #[error("tracefs is not mounted, and ks-host may not mount it for itself")]
    NotMounted,
    /// This user may not read tracefs.
    #[error("this user may not read tracefs")]
    NotPermitted,
    /// There is no tracepoint of this name.
    #[error("the kernel has no tracepoint `{name}`")]
    NotFound {
        /// `category/event`.
        name: String,
        /// Up to three similar names, the most similar first.
        near: Vec<String>,
    },
    /// tracefs could not be read, for the reason in the text.
    #[error("tracefs: {0}")]
    Unreadable(String),
}

/// Returns the id of the tracepoint `category/event`, which is the config of its perf event.
///
/// Names consist of letters, digits and `_`, so that the path stays below tracefs.
///
/// # Errors
/// See [`TracefsError`].
pub fn tracepoint_id(category: &str, event: &str) -> Result<u64, TracefsError> {
    opener::tracepoint_id(category, event).unwrap_or_else(|| read_tracepoint_id(category, event))
}

/// As [`tracepoint_id`], on the calling thread.
pub(crate) fn read_tracepoint_id(category: &str, event: &str) -> Result<u64, TracefsError> {
    let root = root()?;
    let name = format!("{category}/{event}");
    let unknown = || TracefsError::NotFound { name: name.clone(), near: near(root, &name) };
    if !is_name(category) || !is_name(event) {
        return Err(unknown());
    }
    let file = root.join("events").join(category).join(event).join("id");
    let text = fs::read_to_string(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => unknown(),
        _ => refused(&error),
    })?;
    text.trim().parse().map_err(|_| TracefsError::Unreadable(format!("{name}/id is not a number")))
}

/// Returns the names of all tracepoints, `category/event`, sorted alphabetically.
///
/// # Errors
/// See [`TracefsError`].
pub fn tracepoints() -> Result<Vec<String>, TracefsError> {
    opener::tracepoints().unwrap_or_else(read_tracepoints)
}

/// As [`tracepoints`], on the calling thread.
pub(crate) fn read_tracepoints() -> Result<Vec<String>, TracefsError> {
    let root = root()?;
    names(root).map_err(|error| refused(&error))
}

/// Finds or mounts tracefs, on behalf of threads that may not do so later.
pub(crate) fn prepare() {
    // An error is reported when a caller needs tracefs.
    let _ = root();
}

fn refused(error: &io::Error) -> TracefsError {
    match error.kind() {
        ErrorKind::PermissionDenied => TracefsError::NotPermitted,
        _ => TracefsError::Unreadable(error.to_string()),
    }
}

/// Returns the folder that contains `events`. It stays the same for the lifetime of the process.
fn root() -> Result<&'static Path, TracefsError> {
    static ROOT: OnceLock<Option<Root>> = OnceLock::new();
    let root = ROOT.get_or_init(|| mounted().or_else(privately));
    root.as_ref().map(|root| root.path.as_path()).ok_or(TracefsError::NotMounted)
}

/// A folder, and the private mount that it is the root of, if there is one.
struct Root {
    path: PathBuf,
    _mount: Option<OwnedFd>,
}

/// A folder may exist and not be readable for this user: then accesses below it report that.
fn mounted() -> Option<Root> {
    let mount_point = MOUNT_POINTS.iter().map(Path::new).find(|mount_point| {
        match fs::metadata(mount_point.join("events")) {
            Ok(metadata) => metadata.is_dir(),
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        }
    });
    mount_point.map(|path| Root { path: path.to_owned(), _mount: None })
}

fn privately() -> Option<Root> {
    let mount = sys::mount(c"tracefs").ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    path.join("events").is_dir().then_some(Root { path, _mount: Some(mount) })
}

fn names(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let categories = folders(&root.join("events"))?;
    for category in categories.into_iter().take_while(|_| !killed::is_killed()) {
        for event in folders(&root.join("events").join(&category))? {
            names.push(format!("{category}/{event}"));
        }
    }
    names.sort();
    Ok(names)
}

fn folders(path: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(path)?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn near(root: &Path, name: &str) -> Vec<String> {
    crate::near::near(name, names(root).unwrap_or_default())
}

/// Whether a text consists only of characters that categories and events of the kernel have.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_a_tracepoint_has_a_number_even_where_nothing_is_mounted() {
        let switch = tracepoint_id("sched", "sched_switch").unwrap();
        assert!(switch > 0);
        assert!(tracepoints().unwrap().contains(&"sched/sched_switch".to_owned()));
        let Err(TracefsError::NotFound { near, .. }) = tracepoint_id("sched", "sched_swich") else {
            panic!("there is no such tracepoint")
        };
        assert_eq!(near.first().map(String::as_str), Some("sched/sched_switch"));
        assert!(tracepoint_id("..", "sched").is_err());
    }
}
