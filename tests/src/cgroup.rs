//! Control groups for single tests. Needs root; [`Group`] needs control groups of version 2.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Outcome, finish, is_within};

/// Returns the folder where a file system of control groups is mounted; `options` says which one.
fn mounted(fs: &str, options: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
    mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        (fields[2] == fs && options(fields[3])).then(|| fields[1].into())
    })
}

/// Creates a control group that no other test has.
fn create(root: &Path) -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ks-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = root.join(name);
    std::fs::create_dir(&path).map(|()| path)
}

/// A control group, removed when dropped.
pub struct Group(PathBuf);

impl Group {
    /// Creates a control group without processes.
    pub fn new() -> Group {
        let root = mounted("cgroup2", |_| true).expect("control groups of version 2 are mounted");
        Group(create(&root).expect("root may make a control group"))
    }

    /// Returns the group's folder in cgroupfs.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the group's id in the kernel, which is the inode number of its folder.
    pub fn id(&self) -> u64 {
        std::fs::metadata(&self.0).expect("it is there").ino()
    }

    /// Moves a process into the group.
    pub fn add(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("root may move processes");
    }

    /// Runs a shell command in the group.
    pub fn run(&self, script: &str) -> Outcome {
        let script = format!("echo $$ > {}/cgroup.procs; {script}", self.0.display());
        finish(Command::new("sh").args(["-c", &script]))
    }
}

impl Default for Group {
    fn default() -> Self {
        Group::new()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel removes it only after its last process. A group that remains is harmless.
        is_within(Duration::from_millis(500), || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// A control group of either version whose processes share a limit of memory, that of BPF maps included.
/// Removed when dropped.
pub struct MemoryGroup {
    group: Group,
    /// The file that delegates controllers to the groups of the root, if this process delegated memory.
    delegated: Option<PathBuf>,
}

impl MemoryGroup {
    /// Creates a group with a limit in bytes; none if no hierarchy has the memory controller, or it cannot be
    /// used.
    pub fn new(bytes: u64) -> Option<MemoryGroup> {
        let first = mounted("cgroup", |options| options.split(',').any(|option| option == "memory"));
        let (root, file) = match first {
            Some(root) => (root, "memory.limit_in_bytes"),
            None => (mounted("cgroup2", |_| true)?, "memory.max"),
        };
        let control = root.join("cgroup.subtree_control");
        let has_memory = |list: &str| list.split_whitespace().any(|name| name == "memory");
        let is_delegated = std::fs::read_to_string(&control).map_or(true, |list| has_memory(&list));
        if !is_delegated {
            std::fs::write(&control, "+memory").ok()?;
        }
        let delegated = (!is_delegated).then_some(control);
        let group = MemoryGroup { group: Group(create(&root).ok()?), delegated };
        std::fs::write(group.group.0.join(file), bytes.to_string()).ok()?;
        Some(group)
    }

    /// Moves a process into the group.
    pub fn add(&self, pid: u32) {
        self.group.add(pid);
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Some(control) = &self.delegated {
            // Fails if another process uses it by now.
            let _ = std::fs::write(control, "-memory");
        }
    }
}
