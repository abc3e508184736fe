//! Only links and events that the policy allows reach the kernel: a plugin tries each of its acts under any
//! policy, and the test reads the target of every link and the numbers of every event before the kernel creates
//! it. What the policy allows is created, too.
//!
//! Of the PMUs with numbers of their own it tries `msr`, where the machine has it: others differ from machine to machine.
//! Kprobes are tried on an emulated kernel, which has no interfaces and no programs to probe.
//!
//! `PROPTEST_CASES=5000` sets the number of cases.

mod acts;
mod asked;

use std::collections::BTreeSet;
use std::sync::Mutex;

use ks_compiler::object::model::Program;
use ks_compiler::object::{Object, write};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::guest::core_module;
use ks_tests::plugins::models::{name, program};
use ks_tests::refused::{Call, observe};
use ks_tests::{Folder, component};
use ks_wit::section::{Arch, BpfRecord};
use nix::libc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use acts::{Act, Targets, Texts, letter};
use asked::{Asked, look};

/// The programs of the plugin: name and section.
const PROGRAMS: [(&str, &str); 10] = [
    ("xdps", "xdp"),
    ("taps", "socket"),
    ("cgrp", "cgroup/connect4"),
    ("rawt", "raw_tp"),
    ("trac", "tp"),
    ("tcin", "tcx/ingress"),
    ("tceg", "tcx/egress"),
    ("prob", "uprobe"),
    ("kpro", "kprobe"),
    ("kret", "kretprobe"),
];

fn object() -> Object {
    let programs: Vec<Program> = PROGRAMS
        .iter()
        .map(|(text, section)| {
            let mut one = program(section, &[]).programs.swap_remove(0);
            one.name = name(text);
            one
        })
        .collect();
    Object { license: Some("GPL".into()), programs, ..Object::default() }
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_"]);
}

#[test]
fn root_links_and_events_are_those_that_the_policy_allows() {
    let folder = Folder::new();
    let targets = Targets::new(&folder);
    let mut texts = Texts::default();
    let acts = targets.acts(&mut texts);
    let code: String = (2048..).zip(&acts).map(|(at, act)| act.code.clone() + &letter(at)).collect();
    let body = format!(
        "{} (func (export \"run\") (result i32) {code}
           (call $console.print (i32.const 2048) (i32.const {}) (i32.const 0) (i32.const 0)) (i32.const 0))",
        texts.0,
        acts.len()
    );
    let elf = write(&object()).expect("a sound object");
    let record = BpfRecord { name: "attached".into(), arch: Arch::Any, elf };
    let plugin = component("attached", &core_module(8, &body), &[record]).expect("it fits the world");
    let file = folder.write("acts.wasm", plugin);
    let empty = folder.write("policy.toml", "");
    let rules: BTreeSet<String> = acts.iter().flat_map(|act| &act.rules).cloned().collect();
    let rules: Vec<String> = rules.into_iter().collect();
    let counts = Mutex::new((0, 0));
    let check = |left_out: &BTreeSet<String>| -> Result<(), TestCaseError> {
        let mut command = targets.host();
        command.arg("--policy").arg(&empty).args(["--allow", "import"]);
        // A class with no target at all ends the start: none of these is chosen by the plugin.
        let classes = [
            "xdp",
            "socket_filter",
            "cgroup",
            "raw_tracepoint",
            "tracepoint",
            "filters_events",
            "tc",
            "uprobe",
            "kprobe",
        ];
        classes.iter().for_each(|class| _ = command.args(["--allow", &format!("{class}=none")]));
        let allowed = rules.iter().filter(|rule| !left_out.contains(*rule));
        allowed.for_each(|rule| _ = command.args(["--allow", rule]));
        let watched = [
            Call { name: "bpf", number: libc::SYS_bpf },
            Call { name: "perf_event_open", number: libc::SYS_perf_event_open },
            Call { name: "bind", number: libc::SYS_bind },
        ];
        let mut seen = Vec::new();
        let outcome = observe(command.arg(&file), &watched, |pending| {
            look(pending, &mut seen);
            None
        });
        let outcome = outcome.expect("the kernel has notifications");
        prop_assert_eq!(outcome.code, 0, "{:?}", outcome);
        let is_allowed = |act: &&Act| act.rules.iter().all(|rule| !left_out.contains(rule));
        let expected = acts.iter().filter(is_allowed).map(|act| act.asked.clone()).collect::<BTreeSet<_>>();
        let seen: BTreeSet<Asked> = seen.into_iter().collect();
        prop_assert_eq!(&seen, &expected, "without {:?}: {:?}", left_out, outcome);
        prop_assert_eq!(outcome.stdout.trim_end().len(), acts.len(), "{:?}", outcome);
        for (act, letter) in acts.iter().zip(outcome.stdout.chars()) {
            let is_expected = match letter {
                '.' => is_allowed(&act),
                'D' => !is_allowed(&act),
                _ => is_allowed(&act) && act.may_fail,
            };
            prop_assert!(
                is_expected,
                "{:?} gave {} without {:?}: {:?}",
                act.asked,
                letter,
                left_out,
                outcome
            );
        }
        let mut counts = counts.lock().expect("nobody panics");
        *counts = (counts.0 + expected.len(), counts.1 + acts.len() - expected.len());
        Ok(())
    };
    // A case takes seconds on an emulated machine.
    let few = if inside().is_some() { 5 } else { 24 };
    let cases = std::env::var("PROPTEST_CASES").map_or(few, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let left_out = prop_oneof![
        1 => Just(BTreeSet::new()),
        5 => prop::collection::btree_set(prop::sample::select(rules.clone()), 0..rules.len()),
    ];
    let result = TestRunner::new(config).run(&left_out, |left_out| check(&left_out));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (allowed, denied) = counts.into_inner().expect("nobody panics");
    assert!(allowed > 0 && denied > 0, "{allowed} {denied}");
}
