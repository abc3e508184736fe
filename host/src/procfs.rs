//! Detects whether `/proc` shows the tasks of this process's PID namespace.
//!
//! In a container that has a PID namespace and no procfs of its own, a folder of `/proc` belongs to the task
//! with that number in another namespace: everything read there is about another process.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Advice for a procfs of another PID namespace.
pub const REMEDY: &str = "mount -t proc proc /proc in this PID namespace (`unshare --mount-proc`)";

/// Whether task ids in `/proc` are those of this process's system calls. True if that is unknown.
pub fn is_own() -> bool {
    /// Computed once: a process stays in its namespace.
    static IS_OWN: LazyLock<bool> = LazyLock::new(|| {
        let own = std::process::id().to_string();
        fs::read_link("/proc/self").map_or(true, |link| link == Path::new(&own))
    });
    *IS_OWN
}
