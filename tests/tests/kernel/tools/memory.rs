//! Tools that show memory: faults, and what happens when there is too little.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use ks_tests::Folder;

use super::{RunningTool, around, copy_of, rows};

#[test]
fn root_pagefaults_counts_those_of_a_command() {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/dd", &folder);
    // Each page of 16 MiB is written once, by the kernel for read(2) of /dev/zero.
    let ran = around(
        "pagefaults",
        &[],
        &[&path, "if=/dev/zero", "of=/dev/null", "bs=16M", "count=1", "status=none"],
    );
    let numbers = ran.numbers(&name);
    assert!((4096..6000).contains(&(numbers[0] + numbers[1])) && numbers[0] > 0, "{ran:#?}");
}

#[test]
fn root_oomkill_shows_the_victim() {
    let Some(group) = MemoryGroup::new("oom", 16 << 20) else {
        panic!("the memory controller of control groups is needed");
    };
    let beside = RunningTool::begin("oomkill", &[]);
    // 64 MiB of a shell's variable.
    let script = format!(
        "echo $$ > {}/cgroup.procs; x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ${{#x}}",
        group.path
    );
    let mut child =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("it starts");
    let pid = child.id().to_string();
    let status = child.wait().expect("it is ours");
    let ran = beside.end();
    assert_eq!(status.signal(), Some(9), "{status} {ran:#?}");
    let found = rows(&ran, &format!(" {pid} "));
    assert!(found.len() == 1 && found[0][2..4] == [&*pid, "sh"], "{ran:#?}");
    let anonymous: u64 = found[0][5].parse().expect("a number");
    assert!((8 << 10..=16 << 10).contains(&anonymous), "{ran:#?}");
}

#[test]
fn root_drsnoop_shows_who_frees_memory() {
    let Some(group) = MemoryGroup::new("reclaim", 8 << 20) else {
        panic!("the memory controller of control groups is needed");
    };
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/dd", &folder);
    let file = folder.path("cached").display().to_string();
    // The file is four times as large as the group's memory.
    let script = format!(
        "echo $$ > {}/cgroup.procs; {path} if=/dev/zero of={file} bs=1M count=32 status=none",
        group.path
    );
    let ran = around("drsnoop", &[], &["sh", "-c", &script]);
    let found = rows(&ran, &name);
    let pages: u64 = found.iter().map(|row| row[4].parse::<u64>().expect("a number")).sum();
    assert!(found.iter().all(|row| row[2] == "group"), "{ran:#?}");
    // 32 MiB are 8192 pages, of which the group keeps 2048.
    assert!((4096..16384).contains(&pages), "{pages} {ran:#?}");
}

/// A control group whose memory is limited; removed when dropped.
struct MemoryGroup {
    path: String,
}

impl MemoryGroup {
    fn new(name: &str, bytes: u64) -> Option<MemoryGroup> {
        let named = |root: &str| format!("{root}/ks-{name}-{}", std::process::id());
        let second = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(|root| {
            fs::read_to_string(format!("{root}/cgroup.controllers")).is_ok_and(|all| all.contains("memory"))
        });
        let (path, limit) = match second {
            Some(root) => {
                fs::write(format!("{root}/cgroup.subtree_control"), "+memory").ok()?;
                (named(root), "memory.max")
            }
            // The first version has a hierarchy for each controller.
            None => (named("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        };
        fs::create_dir(&path).ok()?;
        let group = MemoryGroup { path };
        fs::write(format!("{}/{limit}", group.path), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What is left of it is reported by the next test that makes one of this name.
        drop(fs::remove_dir(&self.path));
    }
}
