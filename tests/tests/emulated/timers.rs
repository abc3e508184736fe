//! `@timer`: functions that the kernel runs periodically, on the running kernel and on emulated ones. These
//! tests need root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, command, compile, finish, run_script, try_compile_for, wait_until_gone};

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_"]);
}

fn ran(project: &str, script: &str) -> Outcome {
    let outcome = run_script::<&str>(project, script, &[]);
    wait_until_gone(project);
    outcome
}

/// Runs come at whole periods after the load, so there are never more runs than periods.
#[test]
fn root_a_timer_runs_from_the_load_until_the_detach() {
    let script = include_str!("scripts/timers_turns_come_from_the_load_on_and_until_the_detach.ks");
    let outcome = ran("tmr_tick", script);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("`tmr_tick` is already attached"), "{outcome:#?}");
}

/// Every kind of map and loop, a large frame, functions, printed lines and records; and a second timer at the
/// same time.
#[test]
fn root_timers_use_the_whole_language() {
    let script = include_str!("scripts/timers_use_the_whole_language.ks");
    let outcome = ran("tmr_all", script);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "turn 3\n"), "{outcome:#?}");
}

/// The timer is armed when its script fails, and ends with it.
#[test]
fn root_a_timer_ends_with_its_script() {
    let script = include_str!("scripts/timers_a_timer_ends_with_its_script.ks");
    let outcome = ran("tmr_left", script);
    assert_ne!(outcome.code, 0, "{outcome:#?}");
}

#[test]
fn a_policy_without_timers_denies_one() {
    let folder = Folder::new();
    let script =
        "@timer(\"1ms\") fn tmr_not() -> void { }\nfn main() -> i32 { var p = load(tmr_not) return 0 }";
    let plugin = folder.write("tmr_not.wasm", compile("tmr_not", script).plugin);
    let policy = folder.write("policy.toml", "[allow]\nimport = [\"*\"]\n");
    let outcome = finish(command("ks-host").arg("--policy").arg(policy).arg(plugin));
    assert_eq!(outcome.code, 126, "{outcome:#?}");
    let reason = "program `tmr_not`: the policy does not allow `timer`: --allow timer=* would";
    assert!(outcome.stderr.contains(reason), "{outcome:#?}");
}

#[test]
fn kernels_without_timers_are_reported_at_compile_time() {
    let script = "@timer(\"1ms\") fn old() -> void { }\nfn main() -> i32 { var p = load(old) return 0 }";
    let older = Target { kernel: Some(KernelVersion::new(5, 14)), ..Target::default() };
    let Err(refused) = try_compile_for("old", script, older) else { panic!("5.14 has no timers") };
    assert!(refused.contains("KS1005") && refused.contains("a timer needs Linux 5.15"), "{refused}");
    let first = Target { kernel: Some(KernelVersion::new(5, 15)), ..Target::default() };
    assert!(try_compile_for("old", script, first).is_ok());
}
