//! Tracepoints: records, arguments, system calls.

use std::fs;

use ks_tests::{Folder, command, finish};

use crate::trace::{Opener, WAIT, host, run};

#[test]
fn traced_tracepoint_record() {
    let script = include_str!("../scripts/tracepoints_tracepoint_record.ks");
    let ran = run("record", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_raw_tracepoint_arguments() {
    let script = include_str!("../scripts/tracepoints_raw_tracepoint_arguments.ks");
    let ran = run("raw", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// Members of arguments are loaded from memory directly. A pointer passed to a function becomes a number,
/// whose members are read by helpers. Both read the same values.
#[test]
fn traced_members_are_the_same_however_they_are_read() {
    let script = include_str!("../scripts/tracepoints_members_are_the_same_however_they_are_read.ks");
    let ran = run("members", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// `sigset_t` is a typedef of an anonymous struct. A task begins with its flags, so the first word is
/// compared with those.
#[test]
fn traced_a_struct_that_only_a_typedef_names() {
    let script = include_str!("../scripts/tracepoints_a_struct_that_only_a_typedef_names.ks");
    let ran = run("typedef", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_lf_074_system_calls() {
    let script = include_str!("../scripts/tracepoints_lf_074_system_calls.ks");
    let opener = Opener::start();
    let ran = run("calls", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// The kernel counts a hit for no event if a program at the tracepoint returns 0.
#[test]
fn traced_a_counter_of_a_tracepoint_has_what_a_program_there_saw() {
    let script = include_str!("../scripts/tracepoints_counters_beside_a_program.ks");
    let opener = Opener::start();
    let ran = run("beside", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
    // The kernel counts skipped runs since 6.7.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let counts = (numbers.next(), numbers.next()) >= (Some(6), Some(7));
    assert_eq!(
        ran.stderr.matches("this kernel does not count them").count(),
        usize::from(!counts),
        "{ran:#?}"
    );
}

/// The offsets of a task's ids in a PID namespace differ from kernel to kernel.
#[test]
fn traced_numbers_of_tasks_are_those_of_the_hosts_pid_namespace() {
    let folder = Folder::new();
    let script = include_str!("../scripts/tracepoints_numbers_of_tasks.ks");
    let source = folder.write("numbers.ks", script);
    let plugin = folder.path("numbers.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let mount = if fs::exists("/sys/kernel/tracing/events").unwrap_or_default() {
        ""
    } else {
        "mount -t tracefs tracefs /sys/kernel/tracing && "
    };
    let lines = format!(
        "{mount}mount -t proc proc /proc && exec {} --isolation thread {} -- --pid=$$",
        ks_tests::binary("ks-host").display(),
        plugin.display()
    );
    // The shell is the first process of two nested namespaces.
    let nested = ["-m", "-p", "-f", "unshare", "-m", "-p", "-f", "sh", "-c", &lines];
    let ran = finish(std::process::Command::new("unshare").args(nested));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.starts_with("process 1, thread "), "{ran:#?}");
}

/// An error in a target is reported before anything is attached.
#[test]
fn traced_another_target_than_the_attribute_is_refused() {
    let script = include_str!("../scripts/tracepoints_another_target_than_the_attribute_is_refused.ks");
    let folder = Folder::new();
    let source = folder.write("other.ks", script);
    let plugin = folder.path("other.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin).args(["--", "--target=sched_wakeup"]));
    assert_eq!(ran.code, 22, "{ran:#?}");
    assert!(ran.stderr.contains("cannot attach `ktother`: `sched_wakeup` is not its target"), "{ran:#?}");
}

/// A header only declares names; its types of members may be wrong.
#[test]
fn traced_members_are_read_right_despite_a_wrong_header() {
    let header = "struct task_struct { group_leader: u32, real_parent: u64, pid: i64, prio: i16 }";
    let script = include_str!("../scripts/tracepoints_members_are_read_right_despite_a_wrong_header.ks");
    let folder = Folder::new();
    folder.write("wrong.kh", header);
    let source = folder.write("types.ks", format!("{script}{WAIT}"));
    let plugin = folder.path("types.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// LF-072: a header that describes the record wrongly only declares names.
#[test]
fn traced_lf_072_record_is_read_right_despite_a_wrong_header() {
    let script = include_str!("../scripts/tracepoints_lf_072_record_is_read_right_despite_a_wrong_header.ks");
    let ran = run("header", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}
