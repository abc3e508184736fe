//! Local storage: values that belong to tasks, sockets, cgroups and inodes. The tests run on the running
//! kernel as far as it supports them, and on the emulated ones. They need root.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;
use ks_tests::cgroup::Group;
use ks_tests::emulated::{Kernel, Machine, here_or_inside};
use ks_tests::watched::Running;
use ks_tests::{Folder, run_plugin, try_compile_for, wait_until_gone};
use nix::sys::socket::{setsockopt, sockopt};

#[test]
fn kernel_6_1() {
    store_in(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    store_in(Kernel::V6_12);
}

fn store_in(kernel: Kernel) {
    Machine::new(kernel).seconds(400).run_tests(module_path!(), &["stored_"]);
}

/// Returns the `main` of each script: it loads all programs, attaches those with a target, and prints
/// variables at the end.
fn main_of(programs: &[(&str, Option<&str>)], printed: &[&str]) -> String {
    let attach = |(name, target): &(&str, Option<&str>)| match target {
        Some(target) => format!("if (attach(load({name}), \"{target}\", 0) != 0) {{ return 1 }}\n"),
        None => format!("var _{name} = load({name})\n"),
    };
    let print = |name: &&str| format!("print(\"{name} %u\", {name})\n");
    let attached: String = programs.iter().map(attach).collect();
    let printed: String = printed.iter().map(print).collect();
    format!(
        "fn main(args: Args) -> i32 {{
            wanted = args.wanted
            {attached}
            print(\"ready\")
            while (!stopping()) {{ sleep(10) }}
            {printed}
            return 0
        }}
        struct Args {{ wanted: u64 }}
        var wanted: u64 = 0\n"
    )
}

fn start(project: &str, script: &str, wanted: u64) -> Running {
    Running::start(project, script, &[format!("--wanted={wanted}")])
}

fn run_true(times: u32) {
    for _ in 0..times {
        assert!(Command::new("/bin/true").status().expect("it is there").success());
    }
}

/// Ids and memory of ended tasks are reused: a task's value is gone with the task.
#[test]
fn stored_values_of_tasks_live_as_long_as_they() {
    let script = r#"
        var forks : task_storage<u64>
        var fresh: u64 = 0
        var stale: u64 = 0
        var mine: u64 = 0

        @raw_tracepoint("sched_process_fork")
        fn kslsfork(parent: *task_struct, child: *task_struct) -> i32 {
            if (forks[child] == null) {
                fresh += 1
            } else {
                stale += 1
            }
            forks[child] = 1000
            forks[parent] += 1
            if (parent->pid as u64 == wanted) {
                mine = forks[parent]
            }
            return 0
        }
    "#;
    let main = main_of(&[("kslsfork", Some(""))], &["fresh", "stale", "mine"]);
    let running = start("lives", &format!("{script}{main}"), nix::unistd::gettid().as_raw() as u64);
    run_true(100);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("mine"), [100], "{outcome:#?}");
    assert!(outcome.numbers("fresh")[0] >= 100, "{outcome:#?}");
    assert_eq!(outcome.numbers("stale"), [0], "{outcome:#?}");
    wait_until_gone("kslsfork");
}

/// Every form of access, in one run of the program.
#[test]
fn stored_values_are_read_written_bound_and_deleted() {
    let script = r#"
        struct Life { births: u64, deaths: u32, marks: u32[4] }
        var lives : task_storage<Life>
        var plain : task_storage<u32>
        var large : task_storage<Large>
        struct Large { count: u64, rest: u8[65016] }
        var last: u32 = 3
        var runs: u64 = 0
        var wrong: u64 = 0

        @helper fn check(holds: bool, number: u64) {
            if (!holds && wrong == 0) { wrong = number }
        }

        @helper fn delete_all(task: *task_struct) {
            check(plain[task] == 30, 25)
            delete plain[task]
            delete lives[task]
        }

        @helper fn count(task: *task_struct) -> u32 {
            plain[task] += 1
            return plain[task]
        }

        @raw_tracepoint("sched_process_fork")
        fn kslsforms(parent: *task_struct, child: *task_struct) -> i32 {
            if (parent->pid as u64 != wanted) { return 0 }
            runs += 1
            plain[parent] = 1000
            defer delete_all(child)
            check(plain[child] == null, 1)
            check(plain[child] == 0, 2)
            check(lives[child].births == 0, 3)
            lives[child].births = 5
            lives[child].deaths += 5
            delete lives[child]
            check(lives[child] == null, 4)

            plain[child] = 7
            check(plain[child] == 7, 5)
            plain[child] -= 2
            plain[child] *= 3
            check(plain[child] == 15, 6)
            check(plain[parent] != 15, 7)

            lives[child] = Life { births: 1, deaths: 2, marks: [1, 2, 3, 4] }
            if (var life = lives[child]) {
                life.births += 10
                life.marks[2] = 8
            } else {
                check(false, 8)
            }
            lives[child].deaths += 3
            lives[child].marks[last] += 6
            var life = lives[child]
            check(life.births == 11 && life.deaths == 5 && life.marks[2] == 8 && life.marks[3] == 10, 9)
            life.births = 12
            check(lives[child].births == 12, 10)

            var leader = child->group_leader
            check(leader->pid == child->pid, 11)
            check(plain[leader] == 15, 12)
            plain[leader] += 1
            plain[leader] += 1
            plain[leader] += 1
            check(plain[child] == 18, 13)
            check(count(leader) == 19, 14)
            check(count(child->group_leader) == 20, 15)
            check(plain[child->real_parent->group_leader] == plain[parent->group_leader], 16)

            delete plain[child]
            check(plain[child] == null && plain[leader] == 0, 17)
            delete plain[child]

            plain[null] = 4
            plain[child->pi_top_task] += 4
            lives[child->pi_top_task] = life
            delete plain[child->pi_top_task]
            check(plain[null] == null && plain[child->pi_top_task] == 0, 18)
            check(lives[child->pi_top_task] == null, 19)
            var at = &plain[parent]
            if (at == null) { check(false, 23) } else { *at += 5 }
            check(plain[parent] == 1005 && &plain[null] == null, 24)
            check(large[child] == null, 22)
            large[child].count += 1
            check(large[child].count == 1, 26)

            var running = bpf_get_current_task_btf()
            plain[running] = 3
            check(plain[parent] == 3, 20)
            delete plain[parent]
            check(count(bpf_get_current_task_btf()) == 1, 21)
            delete plain[running]
            plain[child] = 30
            return 0
        }
    "#;
    let main = main_of(&[("kslsforms", Some(""))], &["runs", "wrong"]);
    let running = start("forms", &format!("{script}{main}"), nix::unistd::gettid().as_raw() as u64);
    run_true(2);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!((outcome.numbers("runs"), outcome.numbers("wrong")), (vec![2], vec![0]), "{outcome:#?}");
}

/// Iterations of loops that the kernel runs, by an iterator or by calls, use objects that were found before
/// the loop.
#[test]
fn stored_values_in_loops() {
    let script = include_str!("scripts/storage_values_in_loops.ks");
    let calls = Some(KernelVersion::new(6, 1));
    for kernel in [calls, None] {
        if kernel.is_none() && is_6_1() {
            continue;
        }
        let target = Target { kernel, ..Target::default() };
        let plugin =
            try_compile_for("loops", script, target).unwrap_or_else(|errors| panic!("{errors}")).plugin;
        let outcome = run_plugin("loops", &plugin, &[] as &[&str]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{kernel:?}: {outcome:#?}");
        assert_eq!(outcome.numbers("sum"), [50 + 999 * 500], "{kernel:?}: {outcome:#?}");
    }
}

/// Programs with the socket in their context, and a program with the socket as a parameter, see the same
/// value.
#[test]
fn stored_values_of_sockets() {
    const MARK: u32 = 7719;
    let script = r#"
        struct Traffic { packets: u64, bytes: u64 }
        var traffic : sk_storage<Traffic>
        var connected : sk_storage<u32>
        var last: u64 = 0
        var bytes: u64 = 0
        var without: u64 = 0

        @tc("egress") fn kslsout(ctx: *__sk_buff) -> i32 {
            if (ctx->mark != wanted) { return TC_ACT_OK }
            if (var seen = traffic[ctx->sk]) {
                seen.packets += 1
                seen.bytes += ctx->len
            } else {
                traffic[ctx->sk] = Traffic { packets: 1, bytes: ctx->len }
            }
            last = traffic[ctx->sk].packets
            bytes = traffic[ctx->sk].bytes
            return TC_ACT_OK
        }

        @tc("ingress") fn kslsin(ctx: *__sk_buff) -> i32 {
            if (ctx->mark == wanted) {
                traffic[ctx->sk].packets += 1
                if (traffic[ctx->sk] == null) { without += 1 }
            }
            return TC_ACT_OK
        }

        @cgroup("egress") fn kslsleave(ctx: *__sk_buff) -> i32 {
            connected[ctx->sk] += 1
            return 1
        }

        @cgroup("connect4") fn kslsconnect(ctx: *bpf_sock_addr) -> i32 {
            connected[ctx->sk] = 1
            return 1
        }

        @raw_tracepoint("inet_sock_set_state")
        fn kslsstate(sk: *sock, old: i32, now: i32) -> i32 {
            delete connected[sk]
            return 0
        }
    "#;
    let main = main_of(
        &[
            ("kslsout", Some("lo")),
            ("kslsin", Some("lo")),
            ("kslsstate", Some("")),
            ("kslsleave", None),
            ("kslsconnect", None),
        ],
        &["last", "bytes", "without"],
    );
    let running = start("sockets", &format!("{script}{main}"), MARK.into());
    let to = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = to.local_addr().expect("bound");
    for packets in [5, 3] {
        let from = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        setsockopt(&from, sockopt::Mark, &MARK).expect("root may mark packets");
        for _ in 0..packets {
            assert_eq!(from.send_to(&[1; 58], address).expect("lo is up"), 58);
        }
    }
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let seen = ["last", "bytes"].map(|name| outcome.numbers(name)[0]);
    assert_eq!(seen, [3, 3 * 100], "{outcome:#?}");
    wait_until_gone("kslsout");
}

/// A task's cgroup is reached through two pointers.
#[test]
fn stored_values_of_cgroups() {
    // The kernel has no such maps before 6.2; `checking.rs` tests that this is reported.
    if is_6_1() {
        return;
    }
    let script = r#"
        var moves : cgroup_storage<u64>
        var forks : cgroup_storage<u64>
        var moved: u64 = 0
        var forked: u64 = 0

        @raw_tracepoint("cgroup_attach_task")
        fn kslsmove(to: *cgroup, path: *u8, task: *task_struct, threadgroup: bool) -> i32 {
            moves[to] += 1
            if (to->kn->id == wanted) { moved = moves[to] }
            return 0
        }

        @raw_tracepoint("sched_process_fork")
        fn kslsgroup(parent: *task_struct, child: *task_struct) -> i32 {
            var group = parent->cgroups->dfl_cgrp
            forks[group] += 1
            if (group->kn->id == wanted) { forked = forks[parent->cgroups->dfl_cgrp] }
            return 0
        }
    "#;
    let main = main_of(&[("kslsmove", Some("")), ("kslsgroup", Some(""))], &["moved", "forked"]);
    let group = Group::new();
    let running = start("groups", &format!("{script}{main}"), group.id());
    for _ in 0..3 {
        assert_eq!(group.run("/bin/true; /bin/true; exit 0").code, 0);
    }
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!((outcome.numbers("moved"), outcome.numbers("forked")), (vec![3], vec![6]), "{outcome:#?}");
}

fn is_6_1() -> bool {
    fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted").starts_with("6.1.")
}

#[test]
fn stored_values_of_inodes() {
    let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    if !here_or_inside("LSM programs", modules.split(',').any(|one| one.trim() == "bpf")) {
        return;
    }
    let script = r#"
        var opens : inode_storage<u64>
        var seen: u64 = 0
        var others: u64 = 0

        @lsm("file_open")
        fn kslsopen(file: *file) -> i32 {
            opens[file->f_inode] += 1
            if (file->f_inode->i_ino == wanted) {
                seen = opens[file->f_inode]
            } else if (opens[file->f_inode] > 0) {
                others += 1
            }
            return 0
        }

        @lsm("inode_rename")
        fn kslsrename(old_in: *inode, old: *dentry, new_in: *inode, renamed: *dentry) -> i32 {
            delete opens[old->d_inode]
            return 0
        }
    "#;
    let main = main_of(&[("kslsopen", Some("")), ("kslsrename", Some(""))], &["seen", "others"]);
    let folder = Folder::new();
    let file = folder.write("opened", "");
    let inode = fs::metadata(&file).expect("it is there").ino();
    let running = start("inodes", &format!("{script}{main}"), inode);
    for _ in 0..4 {
        drop(File::open(&file).expect("it is there"));
    }
    let renamed = folder.path("renamed");
    fs::rename(&file, &renamed).expect("it is there");
    for _ in 0..2 {
        drop(File::open(&renamed).expect("it is there"));
    }
    drop(File::open(folder.write("other", "")).expect("it is there"));
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("seen"), [2], "{outcome:#?}");
    assert!(outcome.numbers("others")[0] > 0, "{outcome:#?}");
}
