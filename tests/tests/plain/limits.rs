//! Limits: each ends the call or the plugin, and the message names the limit and the setting that raises it.

use std::time::Duration;

use ks_compiler::object::Object;
use ks_compiler::object::model::{DataContent, DataKind, DataSection, Map, Pinning};
use ks_compiler::object::table::MapKind;
use ks_host::Host;
use ks_host::plugin::{Outcome, Plugin};
use ks_host::policy::{Limit, Policy};
use ks_host::worker::WorkerProgram;
use ks_tests::plugins::models::{map, name, request};
use ks_tests::plugins::{RunOutput, component, elf, run_on, run_with, with_object};
use ks_tests::{Folder, binary, command, finish};

/// Runs a guest of these functions with these limits, on a thread and in a process of its own: it ends the same.
fn run(body: &str, limits: &[&str]) -> RunOutput {
    let mut policy = Policy::everything();
    for limit in limits {
        policy.limit_rule(limit).expect("a limit");
    }
    let in_process = Host::of_workers(WorkerProgram::of(binary("ks-host")));
    let [on_thread, in_process] = [Host::new().expect("an engine"), in_process]
        .map(|host| run_on(&host, component(body), |options| options.policy = policy.clone()));
    assert_eq!(in_process.outcome, on_thread.outcome, "{limits:?}");
    on_thread
}

/// Asserts that the limit ended the plugin, and that the message names the setting.
fn ended_by(ran: &RunOutput, limit: &str, number: &str) {
    let Outcome::Trapped(message) = &ran.outcome else { panic!("{limit}: {:?}", ran.outcome) };
    assert!(message.contains(&format!("the limit `{limit}` of the plugin is {number}\n")), "{message}");
    assert!(message.contains(&format!("--limit {limit}=.. allows more")), "{message}");
}

#[test]
fn a_loop_that_never_calls_the_host_is_ended() {
    let endless = r#"(func (export "run") (result i32) (loop $again (br $again)) (unreachable))"#;
    ended_by(&run(endless, &["compute_ms=50"]), "compute_ms", "50");
    // Recursion by calls instead of a loop's branch.
    let calls = r#"(func $one (result i32) (i32.const 1))
        (func (export "run") (result i32) (loop $again (drop (call $one)) (br $again)) (unreachable))"#;
    ended_by(&run(calls, &["compute_ms=50"]), "compute_ms", "50");
}

#[test]
fn waiting_and_host_calls_do_not_count_as_computing() {
    // Computes in short pieces for much longer than the limit, with a call after each, and then waits for
    // longer.
    let calls = r#"(func (export "run") (result i32) (local $turns i32) (local $count i32)
        (loop $turn
          (local.set $count (i32.const 1000))
          (loop $compute (br_if $compute (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
          (drop (call $stopping))
          (br_if $turn (i32.lt_u (local.tee $turns (i32.add (local.get $turns) (i32.const 1))) (i32.const 300000))))
        (call $sleep (i64.const 200000000) (i32.const 1024))
        (i32.load8_u (i32.const 1024)))"#;
    let ran = run(calls, &["compute_ms=40"]);
    assert_eq!(ran.outcome, Outcome::Returned(0), "{}", ran.stderr);
}

#[test]
fn a_memory_that_may_not_grow_is_named_when_the_guest_aborts() {
    let grows = r#"(func (export "run") (result i32)
        (if (i32.eq (memory.grow (i32.const 1022)) (i32.const -1)) (then (unreachable))) (i32.const 0))"#;
    ended_by(&run(grows, &["memory_bytes=1048576"]), "memory_bytes", "1048576");
    assert_eq!(run(grows, &[]).outcome, Outcome::Returned(0));
    // The setting also raises the default limit.
    let larger = grows.replace("1022", "2000");
    ended_by(&run(&larger, &["memory_bytes=67108864"]), "memory_bytes", "67108864");
    assert_eq!(run(&larger, &[]).outcome, Outcome::Returned(0));
    let largest = grows.replace("1022", "3000");
    ended_by(&run(&largest, &[]), "memory_bytes", "134217728");
    assert_eq!(run(&largest, &["memory_bytes=268435456"]).outcome, Outcome::Returned(0));
    // The two pages with which the guest starts.
    ended_by(&run(grows, &["memory_bytes=65536"]), "memory_bytes", "65536");
}

#[test]
fn a_guest_that_aborts_by_itself_reports_no_limit() {
    let ran = run(r#"(func (export "run") (result i32) (unreachable))"#, &[]);
    assert!(
        matches!(&ran.outcome, Outcome::Trapped(message) if !message.contains("--limit")),
        "{:?}",
        ran.outcome
    );
}

#[test]
fn a_table_that_may_not_grow_is_named() {
    let grows = r#"(table $table 1 funcref)
        (func (export "run") (result i32)
          (if (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)) (then (unreachable)))
          (i32.const 0))"#;
    ended_by(&run(grows, &["table_elements=500"]), "table_elements", "500");
    assert_eq!(run(grows, &["table_elements=5000"]).outcome, Outcome::Returned(0));
}

/// The sizes of all memories and tables add up; a refused one does not count.
#[test]
fn memories_and_tables_are_limited_together() {
    let memories = |pages: u32| {
        format!(
            r#"(memory $second 1) (memory $third 0 4)
            (func (export "run") (result i32)
              (drop (memory.grow $third (i32.const 5)))
              (drop (memory.grow $second (i32.const 9)))
              (if (i32.eq (memory.grow $second (i32.const {pages})) (i32.const -1)) (then (unreachable)))
              (if (i32.eq (memory.grow $third (i32.const 2)) (i32.const -1)) (then (unreachable)))
              (i32.const 0))"#
        )
    };
    // Two pages that every guest has, one initial page, then 5 and 2.
    assert_eq!(run(&memories(5), &["memory_bytes=655360"]).outcome, Outcome::Returned(0));
    ended_by(&run(&memories(6), &["memory_bytes=655360"]), "memory_bytes", "655360");
    let tables = |elements: u32| {
        format!(
            r#"(table $first 100 funcref) (table $second 0 funcref) (table $third 100 funcref)
            (func (export "run") (result i32)
              (if (i32.eq (table.grow $second (ref.null func) (i32.const {elements})) (i32.const -1))
                (then (unreachable)))
              (i32.const 0))"#
        )
    };
    // The component also has a small table of its own.
    assert_eq!(run(&tables(350), &["table_elements=600"]).outcome, Outcome::Returned(0));
    ended_by(&run(&tables(401), &["table_elements=600"]), "table_elements", "600");
}

#[test]
fn too_many_core_instances_are_named() {
    let returns = r#"(func (export "run") (result i32) (i32.const 0))"#;
    ended_by(&run(returns, &["instances=0"]), "instances", "0");
}

/// One text value, repeated: the guest stores it once.
#[test]
fn too_many_bytes_for_one_call_are_named() {
    let warns = r#"(func (export "run") (result i32)
        (call $warn (i32.const 0) (i32.const 4096)) (i32.const 0))"#;
    ended_by(&run(warns, &["call_bytes=1000"]), "call_bytes", "1000");
    assert_eq!(run(warns, &[]).outcome, Outcome::Returned(0));
}

/// Each function that writes to standard output or standard error.
#[test]
fn whatever_is_written_counts_as_output() {
    let line = "0123456789";
    for write in [
        "(call $print (i32.const 16) (i32.const 10) (i32.const 0) (i32.const 0))",
        "(call $warn (i32.const 16) (i32.const 10))",
        "(call $warn_once (i64.extend_i32_u (local.get $turn)) (i32.const 16) (i32.const 10))",
    ] {
        let body = format!(
            r#"(data (i32.const 16) "{line}")
            (func (export "run") (result i32) (local $turn i32)
              (loop $again
                {write}
                (br_if $again (i32.lt_u
                  (local.tee $turn (i32.add (local.get $turn) (i32.const 1))) (i32.const 1000))))
              (i32.const 3))"#
        );
        let ran = run(&body, &["print_bytes_per_second=95"]);
        assert_eq!(ran.outcome, Outcome::Returned(3));
        let written = ran.stdout.matches(line).count() + ran.stderr.matches(line).count();
        // Four lines per second or, without the plugin's name, eight; a slow machine may take some seconds.
        assert!((4..400).contains(&written), "{write}: {written}");
        assert_eq!(ran.stderr.matches("--limit print_bytes_per_second=").count(), 1, "{}", ran.stderr);
        let unlimited = run(&body, &[]);
        assert_eq!(unlimited.stdout.matches(line).count() + unlimited.stderr.matches(line).count(), 1000);
    }
}

/// No compilation takes zero time.
#[test]
fn compiling_has_an_end() {
    let plugin = Plugin::from_bytes(component(r#"(func (export "run") (result i32) (i32.const 0))"#));
    let plugin = plugin.expect("a plugin");
    let host = Host::new().expect("an engine");
    let error =
        host.with_compile_time(Duration::ZERO).prepare(&plugin).err().expect("it takes longer").to_string();
    assert!(error.contains("the limit `compile_ms` of the plugin is 0\n"), "{error}");
    assert!(error.contains("--limit compile_ms=.. allows more"), "{error}");
    let host = Host::new().expect("an engine").with_compile_time(Duration::MAX);
    assert!(host.prepare(&plugin).is_ok());
}

#[test]
fn the_run_has_an_end() {
    let sleeps = r#"(func (export "run") (result i32)
        (call $sleep (i64.const 3600000000000) (i32.const 1024)) (i32.load8_u (i32.const 1024)))"#;
    assert_eq!(run(sleeps, &["run_ms=50"]).outcome, Outcome::TimedOut);
    // The shorter of the two limits applies.
    let mut policy = Policy::everything();
    policy.limit_rule("run_ms=3600000").expect("a limit");
    let ran = run_with(component(sleeps), |options| {
        options.policy = policy;
        options.timeout = Some(Duration::from_millis(50));
    });
    assert_eq!(ran.outcome, Outcome::TimedOut);
}

#[test]
fn ring_buffers_and_maps_are_limited_apart() {
    let ring = |name| map(name, MapKind::RingBuf, 0, 4096);
    let maps = vec![map("m", MapKind::Array, 1000, 1), ring("r"), ring("s")];
    let model = Object { maps, ..Object::default() };
    let judged = |rules: &[&str]| {
        let mut policy = Policy::nothing();
        rules.iter().for_each(|rule| policy.limit_rule(rule).expect("a limit"));
        policy.admit(request(model.clone(), &[]), 1)
    };
    // The sizes that fdinfo of Linux 6.18 shows for these maps.
    assert!(judged(&["map_bytes=1312", "ring_bytes=33456"]).is_ok());
    let reason = judged(&["ring_bytes=33455"]).expect_err("they have one more");
    assert!(
        reason.contains("ring_bytes is 33456") && reason.contains("--limit ring_bytes=33456"),
        "{reason}"
    );
    let reason = judged(&["map_bytes=1311"]).expect_err("it has one more");
    assert!(reason.contains("--limit map_bytes=1312"), "{reason}");
    assert!(judged(&["maps=2"]).expect_err("there are 3").contains("--limit maps=3"));
}

#[test]
fn maps_and_the_section_of_variables_count_as_pins() {
    let pinned = |number: u64| {
        let called = format!("m{number}");
        Map { pinning: Pinning::ByName, ..map(&called, MapKind::Array, 8, 1) }
    };
    let variables = DataSection {
        kind: DataKind::Data,
        suffix: Some(name("pinned")),
        content: DataContent::Bytes(vec![0; 16]),
        variables: Vec::new(),
    };
    // One pin is that of the section. Another map has no pin.
    let judged = |policy: &Policy, pins: u64| {
        let maps = (1..pins).map(pinned).chain([map("other", MapKind::Array, 8, 1)]).collect();
        let model = Object { maps, data: vec![variables.clone()], ..Object::default() };
        policy.admit(request(model, &[]), 1).map(|_| ())
    };
    let mut policy = Policy::everything();
    assert_eq!(judged(&policy, 64), Ok(()));
    let reason = "its maps: pins is 65, and the limit is 64: --limit pins=65 would allow it";
    assert_eq!(judged(&policy, 65), Err(reason.to_owned()));
    policy.limit_rule("pins=65").expect("a limit");
    assert_eq!(judged(&policy, 65), Ok(()));
}

/// The policy that `inspect` writes allows exactly the pins of the object.
#[test]
fn a_plugin_with_too_many_pins_is_not_started() {
    let returns = r#"(func (export "run") (result i32) (i32.const 0))"#;
    let plugin = with_object(component(returns), elf::pinned_map());
    let outcome = |pins: &str| {
        let mut policy = Policy::everything();
        policy.limit_rule(pins).expect("a limit");
        run_with(plugin.clone(), |options| options.policy = policy).outcome
    };
    assert_eq!(outcome("pins=1"), Outcome::Returned(0));
    let reason = "its maps: pins is 1, and the limit is 0: --limit pins=1 would allow it";
    assert_eq!(outcome("pins=0"), Outcome::Denied(reason.to_owned()));
    let folder = Folder::new();
    let file = folder.write("pins.wasm", &plugin);
    let inspected = finish(command("ks-host").args(["inspect", "--policy"]).arg(file));
    let policy = Policy::from_toml(&inspected.stdout).expect("a policy");
    assert_eq!(policy.limit(Limit::Pins), 1, "{inspected:#?}");
}

#[test]
fn every_limit_is_in_the_help_and_in_policies() {
    for verb in ["run", "test"] {
        let help = std::process::Command::new(ks_tests::binary("ks-host")).args([verb, "--help"]).output();
        let help = String::from_utf8(help.expect("ks-host starts").stdout).expect("text");
        for limit in Limit::ALL {
            assert!(help.contains(&format!("`{}`", limit.name())), "{verb}: {limit:?}");
            assert!(Policy::from_toml(&format!("[limits]\n{} = 7\n", limit.name())).is_ok());
        }
    }
}
