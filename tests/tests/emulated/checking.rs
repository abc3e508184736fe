//! `ks-host check`: its report about the kernel agrees with the kernel when the plugin runs. These tests need
//! root.

use std::sync::Arc;

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Options, Target};
use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, allowed, command, compile, finish};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_check"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_check"]);
}

/// A requirement, the first kernel that meets it, and a script that exits with 0 where the kernel meets it.
const CASES: &[(&str, (u32, u32), &str)] = &[
    ("xdp", (5, 9), include_str!("scripts/checking_cases.ks")),
    ("bpf_get_current_pid_tgid", (6, 10), include_str!("scripts/checking_main.ks")),
    ("bpf_iter_num_new", (6, 4), include_str!("scripts/checking_main_2.ks")),
    ("struct_ops/undo_cwnd", (6, 4), include_str!("scripts/checking_main_3.ks")),
    ("bpf_task_storage_get", (6, 16), include_str!("scripts/checking_main_4.ks")),
    ("bpf_cgrp_storage_get", (6, 2), include_str!("scripts/checking_main_5.ks")),
    ("tracepoint/sched/sched_switch", (5, 15), include_str!("scripts/checking_main_6.ks")),
];

fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).expect("a release starts with two numbers");
    (next(), next())
}

#[test]
fn root_check_says_what_the_load_says() {
    let folder = Folder::new();
    for (number, (name, since, script)) in CASES.iter().enumerate() {
        let script = script.replace("PID", &std::process::id().to_string());
        let file = folder.write(&format!("case{number}.wasm"), compile("checked", &script).plugin);
        let checked = finish(command("ks-host").args(["check", "--json"]).arg(&file));
        // A registration would keep the plugin running.
        let ran = finish(allowed().arg("--no-wait").arg(&file));
        let has = kernel() >= *since;
        assert_eq!(ran.code == 0, has, "{name}: {ran:#?}");
        // The report names a kernel function that a loop needs, and the kernels that have it.
        if !has && *name == "bpf_iter_num_new" {
            assert!(ran.stderr.contains("kernels have it since Linux 6.4"), "{ran:#?}");
        }
        assert_eq!(checked.code, i32::from(!has), "{name}: {checked:#?}");
        let needs: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
        let mut needs = needs.as_array().expect("a list").iter();
        let missing: Vec<_> = needs.clone().filter(|need| need["state"] == "missing").collect();
        assert_eq!(missing.is_empty(), has, "{name}: {checked:#?}");
        // Requirements that are met are listed too.
        assert!(needs.any(|need| need["name"] == *name), "{name}: {checked:#?}");
        let (major, minor) = since;
        for need in missing {
            let version = format!("{major}.{minor}");
            assert_eq!(need["since"], *version, "{name}: {need:#}");
            assert!(need["do"].as_str().is_some_and(|text| text.contains(&version)), "{name}: {need:#}");
            assert!(need["because"].is_string(), "{name}: {need:#}");
        }
    }
}

#[test]
fn root_check_names_what_no_kernel_has() {
    let script = include_str!("scripts/checking_check_names_what_no_kernel_has.ks");
    let folder = Folder::new();
    let mut plugin = compile("case", script).plugin;
    let fine = finish(command("ks-host").arg("check").arg(folder.write("case.wasm", &plugin)));
    assert_eq!((fine.code, fine.stderr.as_str()), (0, ""), "{fine:#?}");
    assert!(fine.stdout.contains("attach point  tracepoint/sched/sched_switch"), "{fine:#?}");
    // A plugin of another kernel may name a tracepoint that no longer exists.
    replace(&mut plugin, b"tracepoint/sched/sched_switch\0", b"tracepoint/sched/sched_swimch\0");
    let gone = finish(command("ks-host").arg("check").arg(folder.write("gone.wasm", plugin)));
    assert_eq!(gone.code, 1, "{gone:#?}");
    assert!(gone.stdout.contains("the kernel has no tracepoint `sched/sched_swimch`"), "{gone:#?}");
}

#[test]
fn root_check_names_a_member_that_the_kernel_lacks() {
    let mut types = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
    replace(&mut types, b"\0nr_migrations\0", b"\0nr_migrationz\0");
    let kernel = KernelTypes::from_btf(types).expect("BTF");
    let options = Options { kernel: Arc::new(kernel), ..Options::new("gone") };
    let script = include_str!("scripts/checking_member.ks");
    let mut checked = pipeline::parse("gone.ks", script.as_bytes(), options).expect("it is short").check();
    let plugin = checked.build(Target::default()).expect("these types have the member").plugin;
    let folder = Folder::new();
    let file = folder.write("gone.wasm", plugin);
    let expected = "the kernel has no member `nr_migrationz` in `sched_entity`";

    let checked = finish(command("ks-host").args(["check", "--json"]).arg(&file));
    assert_eq!(checked.code, 1, "{checked:#?}");
    let needs: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let missing: Vec<_> =
        needs.as_array().expect("a list").iter().filter(|need| need["state"] == "missing").collect();
    let [member] = missing.as_slice() else { panic!("{needs:#}") };
    assert_eq!(
        (&member["what"], &member["name"]),
        (&"member".into(), &"task_struct.se.nr_migrationz".into())
    );
    assert_eq!(member["because"], format!("{expected}, which gone.ks:5 reads"));

    let ran = finish(allowed().arg(&file));
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(
        ran.stderr.contains(expected) && ran.stderr.contains("moved = prev->se.nr_migrationz"),
        "{ran:#?}"
    );
    assert!(!ran.stderr.contains("mistake of the compiler"), "{ran:#?}");
}

#[test]
fn check_wants_a_plugin() {
    let folder = Folder::new();
    let refused = finish(command("ks-host").arg("check").arg(folder.write("no.wasm", b"nothing")));
    assert_eq!((refused.code, refused.stdout.as_str()), (127, ""), "{refused:#?}");
    let plain = finish(
        command("ks-host").arg("check").arg(folder.write("plain.ks", "fn main() -> i32 { return 0 }\n")),
    );
    assert_eq!(plain.code, 0, "{plain:#?}");
    assert!(plain.stdout.contains("needs nothing"), "{plain:#?}");
}

/// Replaces every occurrence of some bytes by others of the same length.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let offsets: Vec<usize> =
        (0..=bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!offsets.is_empty() && from.len() == to.len());
    for at in offsets {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}
