//! Tools that show calls with files.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use ks_tests::{Folder, command, finish, wait_until};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{LONGEST, RunningTool, Workload, around, rows};

#[test]
fn root_opensnoop_shows_paths_and_results() {
    let me = std::process::id().to_string();
    let beside = RunningTool::begin("opensnoop", &["--pid", &me]);
    let folder = Folder::new();
    let path = folder.write("opened", b"text");
    let file = File::open(&path).expect("it was written");
    let missing = folder.path("missing");
    assert!(File::open(&missing).is_err());
    let ran = beside.end();
    let descriptor = file.as_raw_fd().to_string();
    let is_this = |row: &Vec<&str>| row[0] == me && row[row.len() - 3..row.len() - 1] == [&*descriptor, "-"];
    assert!(rows(&ran, &format!(" {}", path.display())).iter().any(is_this), "{ran:#?}");
    let failed = rows(&ran, &format!(" {}", missing.display()));
    assert!(failed.len() == 1 && failed[0][failed[0].len() - 3..][..2] == ["-1", "ENOENT"], "{ran:#?}");
}

/// Makes each call with a path that some processors lack.
const CALLS: &str = r#"
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char status[512];
#ifdef SYS_open
    syscall(SYS_open, "/no/open", O_RDONLY);
    syscall(SYS_creat, "/no/creat", 0600);
    syscall(SYS_stat, "/no/stat", status);
    syscall(SYS_lstat, "/no/lstat", status);
#endif
    syscall(SYS_openat, AT_FDCWD, "/no/openat", O_RDONLY);
    syscall(SYS_newfstatat, AT_FDCWD, "/no/newfstatat", status, 0);
    syscall(SYS_statfs, "/no/statfs", status);
    return 0;
}"#;

/// The `stat` of C libraries is one call, those of other programs are others.
#[test]
fn root_tools_of_calls_show_each_call_that_does_the_same() {
    let folder = Folder::new();
    let source = folder.write("calls.c", CALLS);
    let program = folder.path("calls");
    let built = finish(Command::new("cc").arg("-o").arg(&program).arg(source));
    assert_eq!(built.code, 0, "{built:#?}");
    let program = program.display().to_string();
    let old = cfg!(target_arch = "x86_64");
    for (tool, always, if_old) in [
        ("opensnoop", &["/no/openat"][..], &["/no/open", "/no/creat"][..]),
        ("statsnoop", &["/no/newfstatat", "/no/statfs"], &["/no/stat", "/no/lstat"]),
    ] {
        let ran = around(tool, &[], &[&program]);
        for path in always.iter().chain(if_old.iter().filter(|_| old)) {
            let found: Vec<_> = rows(&ran, path).into_iter().filter(|row| row.last() == Some(path)).collect();
            assert!(found.len() == 1 && found[0].contains(&"ENOENT"), "{path}: {ran:#?}");
        }
    }
}

/// Tasks outside of the tool's PID namespace all have the number 0 there.
#[test]
fn root_opensnoop_in_a_pid_namespace_keeps_tasks_outside_apart() {
    let mut inside = Command::new("unshare");
    inside.args(["-pf", "--mount-proc"]).arg(command("ks-host").get_program());
    let beside = RunningTool::of(inside.args(["tool", "opensnoop", "--timeout", "60"]));
    let cat = Workload::of("/bin/cat");
    let (pipe, other) = (cat.folder.path("pipe"), cat.folder.write("other", ""));
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("the folder is writable");
    let mut waiting = Command::new(&cat.path).arg(&pipe).spawn().expect("it starts");
    let wchan = format!("/proc/{}/wchan", waiting.id());
    wait_until(LONGEST, "the pipe is being opened", || {
        fs::read_to_string(&wchan).is_ok_and(|function| function == "wait_for_partner")
    });
    drop(File::open(&other).expect("it was written"));
    drop(File::options().write(true).open(&pipe).expect("it is read"));
    assert!(waiting.wait().expect("it is ours").success());
    let ran = beside.end();
    for path in [&pipe, &other] {
        let failed = |row: &Vec<&str>| row[row.len() - 2] != "-";
        let found = rows(&ran, &format!(" {}", path.display()));
        assert!(!found.is_empty() && !found.iter().any(failed), "{}: {ran:#?}", path.display());
    }
    let row = &rows(&ran, &format!(" {}", pipe.display()));
    assert!(row.iter().any(|row| row[1] == cat.name), "{ran:#?}");
}

#[test]
fn root_statsnoop_shows_paths_and_results() {
    let me = std::process::id().to_string();
    let beside = RunningTool::begin("statsnoop", &["--pid", &me]);
    let folder = Folder::new();
    let path = folder.write("asked", b"text");
    for _ in 0..3 {
        fs::metadata(&path).expect("it was written");
    }
    assert!(fs::metadata(folder.path("missing")).is_err());
    nix::sys::statfs::statfs(&path).expect("it is there");
    let ran = beside.end();
    let found = rows(&ran, &format!(" {}", path.display()));
    assert!(found.len() == 4 && found.iter().all(|row| row[row.len() - 2] == "0"), "{ran:#?}");
    let failed = rows(&ran, &folder.path("missing").display().to_string());
    assert!(failed.len() == 1 && failed[0][failed[0].len() - 2] == "ENOENT", "{ran:#?}");
}

#[test]
fn root_filetop_counts_the_bytes_of_files() {
    let me = std::process::id().to_string();
    let beside = RunningTool::begin("filetop", &["--pid", &me]);
    let folder = Folder::new();
    let path = folder.path("filetop-counts");
    let mut file = File::create(&path).expect("the folder is writable");
    for _ in 0..7 {
        file.write_all(&[1; 1000]).expect("there is space");
    }
    drop(file);
    let mut bytes = Vec::new();
    let mut file = File::open(&path).expect("it was written");
    let mut piece = [0; 700];
    while let Ok(count @ 1..) = file.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    assert_eq!(bytes.len(), 7000);
    let ran = beside.end();
    let found = rows(&ran, " filetop-counts ");
    let column = |from_end: usize| -> u64 {
        found.iter().map(|row| row[row.len() - from_end].parse::<u64>().expect("a number")).sum()
    };
    assert_eq!([4, 3, 2, 1].map(column), [10, 7, 7000, 7000], "{ran:#?}");
}

#[test]
fn root_mountsnoop_shows_mounts_and_their_ends() {
    let folder = Folder::new();
    let at = folder.path("mounted").display().to_string();
    fs::create_dir(&at).expect("the folder is writable");
    // In a mount namespace of its own, by mount(2) also where mount(8) knows newer calls.
    let script = format!(
        "export LIBMOUNT_FORCE_MOUNT2=always; mount -t tmpfs -o noexec ks-source {at} && umount {at}; umount {at}; true"
    );
    let ran = around("mountsnoop", &[], &["unshare", "-m", "sh", "-c", &script]);
    let found: Vec<_> = rows(&ran, &at).into_iter().map(|row| row[1..].join(" ")).collect();
    let expected = [
        format!("mount mount 0 0x8 tmpfs ks-source {at}"),
        format!("umount umount 0 0 - - {at}"),
        format!("umount umount EINVAL 0 - - {at}"),
    ];
    assert_eq!(found, expected, "{ran:#?}");
}
