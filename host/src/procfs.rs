//! Whether `/proc` shows the tasks of this process's PID namespace.
//!
//! In a container that has a PID namespace and no procfs of its own, a folder of `/proc` is of a task with that number in
//! another namespace: whatever is read there is somebody else's.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// What to do about a procfs of another PID namespace.
pub const REMEDY: &str = "mount -t proc proc /proc in this PID namespace (`unshare --mount-proc`)";

/// Whether numbers of tasks in `/proc` are those that system calls of this process use; also where nobody can tell.
pub fn is_own() -> bool {
    /// A process stays in its namespace.
    static IS_OWN: LazyLock<bool> = LazyLock::new(|| {
        let own = std::process::id().to_string();
        fs::read_link("/proc/self").map_or(true, |link| link == Path::new(&own))
    });
    *IS_OWN
}
