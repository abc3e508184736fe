//! What somebody reaches who runs code of his own in the worker of a plugin, on the running kernel and on emulated
//! ones. These tests need root.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use ks_host::apart::{Apart, Bounds};
use ks_host::plugin::{Outcome, Plugin, StopHandle};
use ks_host::policy::Policy;
use ks_host::worker::WorkerProgram;
use ks_host::{Host, PreparedPlugin, RunOptions};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::plugins::Capture;
use ks_tests::{binary, compile};
use nix::unistd::{SysconfVar, sysconf};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).program("ks-taken-over").run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).program("ks-taken-over").run_tests(module_path!(), &["root_"]);
}

/// It counts its own page faults.
const COUNTING: &str = "fn main() -> i32 {
    print(\"{}\", read(attach(perf_options { event: page_faults, pid: 0, cpu: -1 })).raw)
    return 0
}
";

/// It has events of its thread and of CPUs, a map and a ring buffer, and does not end by itself: what it has attached would
/// be gone then.
const HOLDING: &str = "struct Event { n: u64 }
var counts: hash<u32, u64>(16)
var events: ringbuf<Event>(65536)

@tracepoint(\"sched/sched_switch\")
fn count(ctx: *trace_event_raw_sched_switch) -> i32 {
    counts[2] = 3
    var e = events.reserve()
    if (e != null) {
        e->n = 1
        events.submit(e)
    }
    return 0
}

fn events_callback(e: *Event) -> i32 {
    return 0
}

fn deep(number: u64) -> u64 {
    return deep(number + 1) + number
}

fn main() -> i32 {
    attach(load(count), \"sched/sched_switch\", 0)
    counts[1] = 2
    var faults = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
    var one = attach(perf_options { event: cpu_clock, pid: -1, cpu: 0 })
    var all = attach(perf_options { event: cpu_clock, pid: -1, cpu: all })
    dispatch(events, 0)
    print(\"{} {} {} {}\", read(faults).raw, counts[1], read(one).raw, read(all).raw)
    return deep(0) as i32
}
";

/// A plugin that may observe, whose workers run attempts when it has trapped.
fn taken_over(script: &str) -> PreparedPlugin {
    let plugin = Plugin::from_bytes(compile("taken", script).plugin).expect("a plugin");
    let host = Host::of_workers(WorkerProgram::of(binary("ks-taken-over")));
    host.prepare(&plugin).expect("a worker")
}

/// What a plugin whose object has this name writes to standard error when it cannot load it.
fn not_loaded(object: &str) -> String {
    let plugin = Plugin::from_bytes(compile(object, HOLDING).plugin).expect("a plugin");
    let host = Host::of_workers(WorkerProgram::of(binary("ks-taken-over")));
    let said = Capture::default();
    let options = RunOptions { stderr: Box::new(said.clone()), ..options() };
    let outcome = host.prepare(&plugin).expect("a worker").run(options);
    assert_eq!(outcome, Outcome::Trapped("the plugin has ended".into()), "{}", said.text());
    said.text()
}

#[test]
fn root_a_loader_makes_no_system_call_that_reaches_anything() {
    let said = not_loaded("ldr_calls");
    assert!(said.contains("is not what was judged: all are refused"), "{said}");
}

#[test]
fn root_a_process_that_compiles_makes_no_system_call_that_reaches_anything() {
    let bounds = Bounds { memory: 1 << 30, time: Duration::from_secs(30), threads: 1, answer: 1 << 16 };
    let said = Apart::new(binary("ks-taken-over")).ask("as-compiler", Vec::new(), bounds).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&said), "all are refused");
}

#[test]
fn root_a_process_that_names_makes_no_system_call_that_reaches_anything() {
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    let mut command = Command::new(binary("ks-taken-over"));
    command.arg("as-resolver").stdin(OwnedFd::from(theirs));
    let mut resolver = command.spawn().expect("it starts");
    // Its end of the socket, which the command keeps.
    drop(command);
    let mut said = String::new();
    ours.read_to_string(&mut said).expect("text");
    assert_eq!((said.as_str(), resolver.wait().expect("our child").code()), ("all are refused", Some(0)));
}

#[test]
fn root_a_loader_that_dies_or_says_nonsense_ends_no_more_than_the_load() {
    for attempt in ["ldr_dies", "ldr_random"] {
        let said = not_loaded(attempt);
        assert!(said.contains("the process that loads BPF objects is gone"), "{said}");
    }
}

fn options() -> RunOptions {
    let mut policy = Policy::observing();
    policy.limit_rule("memory_bytes=64M").expect("a limit");
    RunOptions {
        stdout: Box::new(std::io::sink()),
        stderr: Box::new(std::io::sink()),
        policy,
        timeout: Some(Duration::from_secs(5)),
        grace: Duration::from_millis(100),
        ..RunOptions::new("taken")
    }
}

#[test]
fn root_a_worker_makes_no_system_call_that_reaches_anything() {
    let outcome = taken_over(COUNTING).run_test("calls", options());
    let Outcome::Trapped(said) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(said, "all are refused");
}

/// It reads the counters, changes the map and moves the consumer of the ring buffer, as its plugin may, reads the kernel's
/// number of device events, and nothing else.
#[test]
fn root_a_worker_does_with_its_descriptors_what_its_plugin_may_do() {
    let outcome = taken_over(HOLDING).run_test("descriptors", options());
    let cpus = sysconf(SysconfVar::_NPROCESSORS_ONLN).expect("it is known").expect("it is known");
    let has = format!("{} events, 1 map, 1 ring, 1 file; all others are refused", 2 + cpus);
    assert_eq!(outcome, Outcome::Trapped(has));
}

/// Whatever the broker passes on, a worker keeps no more than its plugin may have.
#[test]
fn root_a_worker_has_as_many_descriptors_as_its_plugin_and_a_few() {
    let mut few = options();
    few.policy.limit_rule("descriptors=100").expect("a limit");
    let outcome = taken_over(COUNTING).run_test("limit", few);
    assert_eq!(outcome, Outcome::Trapped("164 descriptors".into()));
}

#[test]
fn root_a_worker_has_as_much_memory_as_its_plugin_and_little_more() {
    // An emulated machine takes seconds to touch it.
    let limited = RunOptions { timeout: Some(Duration::from_secs(60)), ..options() };
    let outcome = taken_over(COUNTING).run_test("memory", limited);
    // What the plugin may have, and what the process needs itself.
    assert_eq!(outcome, Outcome::Trapped("320 MB".into()));
}

/// The broker ends the plugin, goes on itself, and the next run is none the worse.
#[test]
fn root_messages_that_a_worker_must_not_send_end_its_plugin_alone() {
    let plugin = taken_over(COUNTING);
    // `tells` calls every function without waiting for its end, which only few may be.
    for attempt in ["random", "long", "empty", "half", "unknown", "short", "wide", "tells"] {
        let outcome = plugin.run_test(attempt, options());
        assert!(matches!(outcome, Outcome::Trapped(_) | Outcome::TimedOut), "{attempt}: {outcome:?}");
    }
    // Every function of the contract, with arguments of others: a function that the plugin does not import is none. Some
    // of them where a run takes long.
    let step = if inside().is_some() { 16 } else { 1 };
    // The last ones are those that the contract does not have.
    for number in (0..400).step_by(step).chain(u32::MAX - 5..=u32::MAX) {
        let outcome = plugin.run_test(&number.to_string(), options());
        assert!(matches!(outcome, Outcome::Trapped(_)), "{number}: {outcome:?}");
    }
}

#[test]
fn root_a_worker_that_computes_or_dies_ends_its_plugin_alone() {
    let plugin = taken_over(COUNTING);
    let limited = RunOptions { timeout: Some(Duration::from_millis(300)), ..options() };
    assert_eq!(plugin.run_test("computes", limited), Outcome::TimedOut);
    for (attempt, how) in [("dies", "SIGABRT"), ("leaves", "exit status: 0")] {
        let outcome = plugin.run_test(attempt, options());
        let Outcome::Trapped(reason) = &outcome else { panic!("{attempt}: {outcome:?}") };
        assert!(reason.contains(how), "{attempt}: {reason}");
    }
    let stop = StopHandle::new();
    stop.kill();
    assert_eq!(plugin.run_test("computes", RunOptions { stop, ..options() }), Outcome::Killed);
}
