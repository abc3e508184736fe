//! Running plugins: their output, their end, their counts.

use std::time::Duration;

use ks_host::plugin::{Outcome, Plugin, StopHandle, StopReason};
use ks_tests::plugins::{OWN_EVENT, PRINTS_BOOTTIME, component, run, run_with};
use nix::time::{ClockId, clock_gettime};

#[test]
fn a_plugin_prints_and_returns() {
    // One value: discriminant 2 (unsigned32) at 128, the number at 136.
    let ran = run(r#"
        (data (i32.const 16) "count: %u")
        (func (export "run") (result i32)
          (i32.store8 (i32.const 128) (i32.const 2))
          (i32.store (i32.const 136) (i32.const 42))
          (call $print (i32.const 16) (i32.const 9) (i32.const 128) (i32.const 1))
          (i32.const 3))"#);
    assert_eq!((ran.outcome, ran.stdout.as_str()), (Outcome::Returned(3), "count: 42\n"));
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_warning_carries_the_plugins_name() {
    let ran = run(r#"
        (data (i32.const 16) "take care")
        (func (export "run") (result i32)
          (call $warn (i32.const 16) (i32.const 9)) (i32.const 0))"#);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "test.wasm: take care\n"));
}

#[test]
fn only_the_low_bits_of_the_result_are_the_exit_code() {
    let ran = run(r#"(func (export "run") (result i32) (i32.const -1))"#);
    assert_eq!((ran.outcome.clone(), ran.outcome.exit_code()), (Outcome::Returned(255), 255));
}

#[test]
fn exit_ends_the_plugin_with_its_code() {
    let ran = run(r#"(func (export "run") (result i32) (call $exit (i32.const 7)) (unreachable))"#);
    assert_eq!((ran.outcome.clone(), ran.outcome.exit_code()), (Outcome::Exited(7), 7));
}

#[test]
fn a_trap_is_reported_as_text() {
    let ran = run(r#"(func (export "run") (result i32) (unreachable))"#);
    assert_eq!(ran.outcome.exit_code(), 125);
    let Outcome::Trapped(message) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert!(message.contains("unreachable"), "{message}");
}

#[test]
fn an_abort_says_what_the_plugin_says() {
    let ran = run(r#"
        (data (i32.const 16) "a.ks:7: out of range")
        (func (export "run") (result i32) (call $abort (i32.const 16) (i32.const 20)) (unreachable))"#);
    assert_eq!(ran.outcome, Outcome::Trapped("a.ks:7: out of range".into()));
}

#[test]
fn an_endless_loop_ends_at_the_time_limit() {
    let endless = component(r#"(func (export "run") (result i32) (loop $again (br $again)) (unreachable))"#);
    let ran = run_with(endless, |options| {
        options.timeout = Some(Duration::from_millis(50));
        options.grace = Duration::from_millis(50);
    });
    assert_eq!((ran.outcome.clone(), ran.outcome.exit_code()), (Outcome::TimedOut, 124));
}

#[test]
fn endless_recursion_is_a_trap() {
    let ran = run(r#"
        (func $deeper (param i32) (result i32)
          (i32.add (call $deeper (local.get 0)) (i32.const 1)))
        (func (export "run") (result i32) (call $deeper (i32.const 0)))"#);
    let Outcome::Trapped(message) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert!(message.contains("stack"), "{message}");
}

#[test]
fn memory_beyond_the_limit_is_refused_to_the_guest() {
    // 128 MiB are 2048 pages; `memory.grow` returns -1 above that.
    let ran = run(r#"
        (func (export "run") (result i32) (memory.grow (i32.const 2047)))"#);
    assert_eq!(ran.outcome, Outcome::Returned(255), "the low 8 bits");
}

/// Sleeps for an hour, then returns 0; 5 if the sleep was interrupted and `stopping` is true.
const SLEEPER: &str = r#"
    (func (export "run") (result i32)
      (call $sleep (i64.const 3600000000000) (i32.const 1024))
      (if (i32.and (i32.load8_u (i32.const 1024)) (call $stopping)) (then (return (i32.const 5))))
      (i32.const 0))"#;

#[test]
fn a_sleeping_plugin_wakes_when_it_is_asked_to_stop() {
    let stop = StopHandle::new();
    stop.ask(StopReason::Asked);
    let ran = run_with(component(SLEEPER), |options| options.stop = stop);
    assert_eq!(ran.outcome, Outcome::Returned(5));
}

#[test]
fn boottime_is_the_time_of_the_kernels_clock() {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("the kernel has this clock"));
    let before = now();
    let ran = run(PRINTS_BOOTTIME);
    let after = now();
    assert_eq!(ran.outcome, Outcome::Returned(0), "{}", ran.stderr);
    let time = Duration::from_nanos(ran.stdout.trim_end().parse().expect(&ran.stdout));
    assert!(before <= time && time <= after, "{before:?} {time:?} {after:?}");
}

#[test]
fn a_plugin_that_does_not_stop_is_killed_after_its_grace() {
    let stop = StopHandle::new();
    stop.ask(StopReason::Asked);
    let endless = component(r#"(func (export "run") (result i32) (loop $again (br $again)) (unreachable))"#);
    let ran = run_with(endless, |options| {
        options.stop = stop;
        options.grace = Duration::from_millis(50);
    });
    assert_eq!((ran.outcome.clone(), ran.outcome.exit_code()), (Outcome::Killed, 130));
}

#[test]
fn a_plugin_counts_page_faults_of_its_own_thread() {
    let ran = run_with(
        component(&format!(
            r#"{OWN_EVENT}
            (data (i32.const 16) "%u faults, state %u")
            (func (export "run") (result i32)
              (local $attachment i32)
              (local.set $attachment (call $own_page_faults (i32.const 0) (i32.const 0)))
              (call $fault)
              (call $read (local.get $attachment) (i32.const 1024))
              ;; Two values: the raw count as unsigned64 (discriminant 3), the state as unsigned8 (0).
              (i32.store8 (i32.const 128) (i32.const 3))
              (i64.store (i32.const 136) (i64.load (i32.const 1032)))
              (i32.store8 (i32.const 144) (i32.const 0))
              (i32.store8 (i32.const 152) (i32.load8_u (i32.const 1072)))
              (call $print (i32.const 16) (i32.const 19) (i32.const 128) (i32.const 2))
              (i32.load8_u (i32.const 1024)))"#
        )),
        |_| {},
    );
    assert_eq!(ran.outcome, Outcome::Returned(0), "{}", ran.stderr);
    let count: u64 = ran.stdout.split(' ').next().and_then(|count| count.parse().ok()).expect(&ran.stdout);
    // 64 pages were touched for the first time; transparent huge pages may need fewer faults.
    assert!(count > 0, "{}", ran.stdout);
    assert!(ran.stdout.ends_with("state 0\n"), "not counted all the time: {}", ran.stdout);
}

#[test]
fn a_dropped_handle_traps_the_next_use() {
    let ran = run(&format!(
        r#"{OWN_EVENT}
        (func (export "run") (result i32)
          (local $attachment i32)
          (local.set $attachment (call $own_page_faults (i32.const 0) (i32.const 0)))
          (call $drop_attachment (local.get $attachment))
          (call $read (local.get $attachment) (i32.const 1024))
          (i32.const 0))"#
    ));
    let Outcome::Trapped(message) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert!(message.contains("handle"), "{message}");
}

#[test]
fn a_program_that_no_object_contains_is_reported() {
    let ran = run(&format!(
        r#"{OWN_EVENT}
        (data (i32.const 16) "count")
        (func (export "run") (result i32)
          (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
          (call $ok))"#
    ));
    let Outcome::Trapped(message) = ran.outcome else { panic!("{:?}", ran.outcome) };
    assert!(message.starts_with("the plugin file holds no BPF object"), "{message}");
}

/// Returns a component in which each level instantiates the previous one twice.
fn doubling(levels: usize) -> Vec<u8> {
    let mut text = String::from("(component (component $c0)");
    for level in 1..=levels {
        let before = format!("(alias outer 1 {} (component $b))", level - 1);
        text += &format!("(component {before} (instance (instantiate $b)) (instance (instantiate $b)))");
    }
    text += &format!("(instance (instantiate {levels})))");
    wat::parse_str(text).expect("a component")
}

/// Two thousand bytes whose compilation would need more memory than the machine has.
#[test]
fn a_component_that_doubles_itself_is_refused_before_it_is_compiled() {
    Plugin::from_bytes(doubling(8)).expect("some hundred instances");
    let refused = Plugin::from_bytes(doubling(30)).expect_err("some thousand million");
    assert!(refused.to_string().contains("more than 1000 instances"), "{refused}");
    let given = "(component (component (import \"c\" (component $c)) (instance (instantiate $c))))";
    let refused = Plugin::from_bytes(wat::parse_str(given).expect("a component")).expect_err("who knows");
    assert!(refused.to_string().contains("comes from outside"), "{refused}");
}
