//! Control groups for single tests. Needs root, and control groups of version 2.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Outcome, finish, is_within};

/// A control group, removed when dropped.
pub struct Group(PathBuf);

impl Group {
    /// Creates a control group without processes.
    pub fn new() -> Group {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            (fields[2] == "cgroup2").then(|| fields[1].to_owned())
        });
        let root = root.expect("control groups of version 2 are mounted");
        let name = format!("ks-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(&root).join(name);
        std::fs::create_dir(&path).expect("root may make a control group");
        Group(path)
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
