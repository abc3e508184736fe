//! Names with the characters of patterns: a policy that is written for such a plugin allows nothing else, and
//! none of its names stands for others.

use ks_compiler::object::model::{Ksym, KsymKind, Pinning, Presence};
use ks_compiler::object::table::MapKind;
use ks_compiler::object::{Object, write};
use ks_tests::guest::core_module;
use ks_tests::plugins::elf;
use ks_tests::plugins::models::{map, name, program};
use ks_tests::plugins::with_object;
use ks_tests::{Folder, Outcome, command, component, finish};
use ks_wit::section::{Arch, BpfRecord};

use super::super::{contained, function};
use super::{loads, traced};

/// Returns a plugin that does nothing, with an object of this name.
fn named(record: &str, object: &Object) -> Vec<u8> {
    let elf = write(object).expect("a sound object");
    let record = BpfRecord { name: record.into(), arch: Arch::Any, elf };
    let module = core_module(2, &function("(i32.const 0)"));
    component("hostile", &module, &[record]).expect("it fits the world")
}

fn pinned(text: &str) -> Object {
    let mut one = map(text, MapKind::Array, 8, 1);
    one.pinning = Pinning::ByName;
    Object { maps: vec![one], ..program("tracepoint/oom/mark_victim", &[]) }
}

/// Runs a plugin to its start under the policy that was written for another one.
fn under(folder: &Folder, policy: &Outcome, plugin: Vec<u8>) -> Outcome {
    let policy = folder.write("policy.toml", &policy.stdout);
    let file = folder.write("other.wasm", plugin);
    let outcome = finish(command("ks-host").arg("--policy").arg(policy).arg(file));
    contained(&outcome);
    outcome
}

#[test]
fn root_a_section_with_a_pattern_is_no_target() {
    let folder = Folder::new();
    for section in [
        "fentry/*",
        "?fentry/*",
        "fexit/vfs_*",
        "?lsm/*",
        "lsm.s/file_?pen",
        "fmod_ret/*",
        "tp_btf/*",
        "kprobe/*",
        "?kretprobe/vfs_*",
        "tracepoint/*/*",
        "tp/sched/*",
        "raw_tp/*",
        "struct_ops/*",
        "iter/*",
    ] {
        let file = folder.write("pattern.wasm", with_object(loads("count"), elf::counting(section)));
        let (outcome, trace) = traced(&["--no-cache", "--allow", "all"], &file);
        assert!(matches!(outcome.code, 126 | 127), "{section}: {outcome:#?}");
        assert!(outcome.stderr.contains("is refused"), "{section}: {outcome:#?}");
        assert_eq!(trace.creates(), 0, "{section}: {trace:?}");
        // Neither does a policy that is written for it allow anything.
        let policy = finish(command("ks-host").args(["inspect", "--policy"]).arg(&file));
        let other = with_object(loads("count"), elf::counting("fmod_ret/security_file_open"));
        let ran = under(&folder, &policy, other);
        assert_eq!(ran.code, 126, "{section}: {policy:#?} {ran:#?}");
    }
}

/// The name of an object is the folder of its pins.
#[test]
fn root_a_policy_for_names_with_stars_allows_no_other_pin() {
    let folder = Folder::new();
    for record in ["*", "?", "[a-z]*", "\\*"] {
        let own = folder.write("wild.wasm", named(record, &pinned("m")));
        let denied = finish(command("ks-host").arg(&own));
        assert!(denied.code == 126 && denied.stderr.contains("--allow pin="), "{record}: {denied:#?}");
        let policy = finish(command("ks-host").args(["inspect", "--policy"]).arg(&own));
        assert_eq!(policy.code, 0, "{record}: {policy:#?}");
        let ran = under(&folder, &policy, named(record, &pinned("m")));
        assert_eq!(ran.code, 0, "{record}: {policy:#?} {ran:#?}");
        for (other, map) in [("victim", "m"), ("v", "m"), (record, "n")] {
            let ran = under(&folder, &policy, named(other, &pinned(map)));
            assert!(ran.code == 126 && ran.stderr.contains("--allow pin="), "{record} {other}: {ran:#?}");
        }
    }
}

/// Names of maps and of functions of the kernel have no such characters at all.
#[test]
fn root_names_in_objects_are_no_patterns() {
    let folder = Folder::new();
    let sound = Object {
        ksyms: vec![Ksym { name: name("one_kfunc"), kind: KsymKind::Address, presence: Presence::Optional }],
        ..pinned("one_map")
    };
    // Names of types are shown, and compared with names of symbols, as the kernel takes them.
    for (text, reason) in [("one_kfunc", "****"), ("one_map", "map `_______`: its definition")] {
        let mut elf = write(&sound).expect("a sound object");
        let offsets: Vec<usize> =
            (0..elf.len()).filter(|at| elf[*at..].starts_with(text.as_bytes())).collect();
        assert!(!offsets.is_empty(), "{text}");
        offsets.into_iter().for_each(|at| elf[at..at + text.len()].fill(b'*'));
        let file = folder.write("pattern.wasm", with_object(loads("one"), elf));
        let (outcome, trace) = traced(&["--no-cache", "--allow", "all"], &file);
        assert!(outcome.code == 127 && outcome.stderr.contains(reason), "{text}: {outcome:#?}");
        assert_eq!(trace.creates(), 0, "{text}: {trace:?}");
    }
}
