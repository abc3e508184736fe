//! Plugins with deceptive objects: the policy judges them by their instructions before anything is loaded.
//! Nothing here needs privileges, because nothing reaches the kernel.

use ks_compiler::object::Object;
use ks_compiler::object::model::{Map, Pinning};
use ks_compiler::object::table::MapKind;
use ks_host::plugin::Outcome;
use ks_host::policy::{ObjectError, ObjectSet, PluginObject, Policy, Request};
use ks_tests::plugins::models::{map, program, request};
use ks_tests::plugins::{OWN_EVENT, admitted, component, elf, run_with, with_object, with_section};
use ks_wit::section::Arch;

const DOES_NOTHING: &str = r#"(func (export "run") (result i32) (i32.const 0))"#;
/// Returns the outcome of running a plugin with this object.
fn outcome(body: &str, object: Vec<u8>, policy: Policy) -> Outcome {
    run_with(with_object(component(body), object), |options| options.policy = policy).outcome
}

fn denied(object: Vec<u8>) -> String {
    match outcome(DOES_NOTHING, object, Policy::observing()) {
        Outcome::Denied(reason) => reason,
        other => panic!("not denied: {other:?}"),
    }
}

#[test]
fn helpers_that_write_or_signal_are_found_in_the_instructions() {
    for (number, name) in
        [(36, "probe_write_user"), (58, "override_return"), (109, "send_signal"), (117, "send_signal_thread")]
    {
        let reason = denied(elf::calling(0, number));
        assert!(
            reason.contains("program `count`") && reason.contains(&format!("--allow helper={name}")),
            "{reason}"
        );
        let mut policy = Policy::observing();
        policy.allow_rule(&format!("helper={name}")).expect("a class");
        assert_eq!(outcome(DOES_NOTHING, elf::calling(0, number), policy), Outcome::Returned(0));
    }
    assert_eq!(outcome(DOES_NOTHING, elf::calling(0, 14), Policy::observing()), Outcome::Returned(0));
}

/// A call is refused if only libbpf or the running kernel could resolve its callee.
#[test]
fn calls_that_nobody_can_judge_are_refused_whatever_is_allowed() {
    for (object, reason) in [
        (elf::calling(0, 4711), "a call of a helper that Linux 6.18 does not have"),
        (elf::calling(2, 1), "a call of a function of the kernel by a number"),
        (elf::calling(7, 1), "a call of a function of the kernel by a number"),
        (elf::wide_load(1, 5), "by a number"),
        (elf::wide_load(2, 5), "by a number"),
        (elf::wide_load(3, 5), "by a number"),
        (elf::wide_load(5, 0), "by a number"),
        (elf::calling_outside(0, "bpf_any"), "nothing in `.BTF` tells what of the kernel it is"),
        (elf::calling_outside(1, "CONFIG_HZ"), "nothing in `.BTF` tells what of the kernel it is"),
    ] {
        let refused = admitted("test", &object).expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn kinds_come_from_the_object_not_from_the_manifest() {
    let manifest = br#"{"format":1,"compiler":"","project":"x","source":{"file":"x","sha256":""},
        "programs":[{"name":"count","kind":"perf_event"}]}"#;
    for (section, class) in [
        ("xdp", "xdp"),
        ("tcx/egress", "tc"),
        ("cgroup/connect4", "cgroup"),
        ("lsm/file_open", "lsm=file_open"),
        ("fmod_ret/security_file_open", "modify_return=security_file_open"),
        ("?fmod_ret/security_file_open", "modify_return=security_file_open"),
        ("kprobe.multi/*", "other=kprobe.multi/*"),
        ("sk_msg", "other=sk_msg"),
    ] {
        let mut record = (manifest.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(manifest);
        let file = with_object(component(DOES_NOTHING), elf::counting(section));
        let file = with_section(file, "kernelscript:manifest", &record);
        match run_with(file, |options| options.policy = Policy::observing()).outcome {
            Outcome::Denied(reason) => {
                assert!(reason.contains(&format!("--allow {class}")), "{section}: {reason}")
            }
            other => panic!("{section}: {other:?}"),
        }
    }
}

#[test]
fn an_object_that_pins_itself_needs_permission() {
    let reason = denied(elf::pinned_map());
    assert!(reason.contains("--allow pin=test/maps/m"), "{reason}");
    let mut policy = Policy::observing();
    policy.allow_rule("pin=test/*").expect("a class");
    assert_eq!(outcome(DOES_NOTHING, elf::pinned_map(), policy), Outcome::Returned(0));
}

/// The reader returns an object or an error for any bytes.
#[test]
fn no_change_of_a_byte_ends_the_reader() {
    for whole in [elf::calling(0, 109), elf::calling_outside(1, "bpf_any"), elf::map(2), elf::counting("xdp")]
    {
        for at in 0..whole.len() {
            for flipped in [1, 0x80, 0xff] {
                let mut elf = whole.clone();
                elf[at] ^= flipped;
                let _ = admitted("test", &elf);
            }
            let _ = admitted("test", &whole[..at]);
        }
    }
}

#[test]
fn limits_of_events_and_handles_are_reported_by_name() {
    let opens = format!(
        r#"{OWN_EVENT}
        (func (export "run") (result i32)
          (loop $more (drop (call $own_page_faults (i32.const 0) (i32.const 0))) (br $more))
          (unreachable))"#
    );
    for (rule, reason) in [("attachments=3", "--limit attachments="), ("handles=7", "--limit handles=")] {
        let mut policy = Policy::observing();
        policy.limit_rule(rule).expect("a limit");
        match run_with(component(&opens), |options| options.policy = policy).outcome {
            Outcome::Trapped(message) => assert!(message.contains(reason), "{message}"),
            other => panic!("{rule}: {other:?}"),
        }
    }
}

#[test]
fn imports_are_asked_about() {
    let mut policy = Policy::nothing();
    policy.allow_rule("import=console").expect("a class");
    match run_with(component(DOES_NOTHING), |options| options.policy = policy).outcome {
        Outcome::Denied(reason) => assert!(reason.contains("--allow import="), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// Reads several objects of one file.
fn objects(models: &[(Arch, Object)]) -> Result<ObjectSet, ObjectError> {
    let named = |(arch, model): &(Arch, Object)| PluginObject::new("test", *arch, model.clone());
    ObjectSet::new(models.iter().map(named).collect::<Result<_, _>>()?, Some(0))
}

/// Otherwise people could inspect one object, and another machine would run the other.
#[test]
fn objects_of_one_file_are_judged_together() {
    let observes = || program("tracepoint/sched/sched_switch", &[]);
    let another = || program("tracepoint/sched/sched_switch", &[109]);
    objects(&[(Arch::X86_64, observes()), (Arch::Aarch64, observes())]).expect("both do the same");
    for (second, needed) in [
        (program("tracepoint/sched/sched_wakeup", &[]), "tracepoint=sched/sched_wakeup"),
        (program("xdp", &[]), "xdp"),
        (another(), "helper"),
    ] {
        let refused = objects(&[(Arch::X86_64, observes()), (Arch::Aarch64, second)]).expect_err(needed);
        assert!(refused.to_string().contains(&format!("for aarch64 needs {needed}")), "{refused}");
    }
    // The kernel function of a system call is named differently on each machine.
    let call = |machine: &str| program(&format!("fentry/__{machine}_sys_openat"), &[]);
    objects(&[(Arch::X86_64, call("x64")), (Arch::Aarch64, call("arm64"))]).expect("the same call");
    // Objects for other machines may call other helpers of the same class; all of them must be allowed.
    let other = program("tracepoint/sched/sched_switch", &[117]);
    let set = objects(&[(Arch::X86_64, another()), (Arch::Aarch64, other)]).expect("the same classes");
    let mut policy = Policy::observing();
    policy.allow_rule("helper=send_signal").expect("a class");
    let denied = policy.admit(Request::new(set.clone(), &[]), 1).expect_err("the second has another");
    assert!(denied.contains("--allow helper=send_signal_thread"), "{denied}");
    policy.allow_rule("helper=send_signal_thread").expect("a class");
    assert!(policy.admit(Request::new(set, &[]), 1).expect("allowed").is_some());
    // The request for maps is the maximum over the objects.
    let with = |entries| Object { maps: vec![map("m", MapKind::Array, 8, entries)], ..observes() };
    let set = objects(&[(Arch::X86_64, with(1)), (Arch::Aarch64, with(1000))]).expect("the same classes");
    assert_eq!(set.memory(1).map_bytes, 312 + 8000);
    // Only one of the objects is loaded, so the number of pins is the maximum, too.
    let pinned = || Map { pinning: Pinning::ByName, ..map("m", MapKind::Array, 8, 1) };
    let pinning = || Object { maps: vec![pinned()], ..observes() };
    let set = objects(&[(Arch::X86_64, pinning()), (Arch::Aarch64, pinning())]).expect("the same classes");
    assert_eq!(set.pins(), 1);
}

/// The generated policy of a plugin denies it nothing and allows nothing else, whatever its names are.
#[test]
fn the_policy_that_is_written_allows_what_it_shows() {
    for section in ["kprobe.multi/*", "uprobe//bin/*sh:main", "fentry/vfs_read", "tracepoint/a/b", "xdp"] {
        let asked = request(program(section, &[109]), &["perf"]);
        let mut policy = Policy::nothing();
        asked.needs().iter().for_each(|need| policy.allow_need(need));
        let policy = Policy::from_toml(&policy.to_toml()).expect("it is read as it is written");
        assert!(asked.needs().iter().all(|need| policy.allows(need).is_ok()), "{}", policy.to_toml());
        for need in asked.needs() {
            if let Some(target) = &need.target {
                let other = target.replace('*', "x") + if target.contains('*') { "" } else { "x" };
                assert!(policy.check(need.class, &other).is_err(), "{other}: {}", policy.to_toml());
            }
        }
        assert!(policy.admit(asked, 1).is_ok());
    }
    let mut policy = Policy::nothing();
    let refused = policy.allow_rule("perf_event=x").expect_err("there is nothing to choose from");
    assert!(refused.to_string().contains("`x` would allow everything"), "{refused}");
}

#[test]
fn invalid_names_of_objects_are_refused() {
    let long = "n".repeat(256);
    for name in ["", ".", "..", "a/b", "a\nb", long.as_str()] {
        let refused = PluginObject::new(name, Arch::Any, Object::default()).expect_err(name);
        assert!(!refused.to_string().contains('\n'), "{refused}");
    }
    for name in ["a b", "größe", ".hidden", "page-faults"] {
        assert!(PluginObject::new(name, Arch::Any, Object::default()).is_ok(), "{name}");
    }
    let dotted = Object { maps: vec![map("a.data", MapKind::Array, 8, 1)], ..Object::default() };
    assert!(PluginObject::new("test", Arch::Any, dotted).is_err());
}
