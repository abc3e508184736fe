//! Plugins with a BPF object, on the running kernel. They need root (CAP_BPF and CAP_PERFMON).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ks_host::bpf::{BpfError, Object, TestInput};
use ks_host::plugin::Outcome;
use ks_tests::plugins::{OWN_EVENT, component, elf, run_with, with_object};
use ks_tests::{Folder, allowed, compile, finish};

/// Loads `count` and leaves its handle on the stack.
const LOAD: &str = r#"
    (data (i32.const 16) "count")
    (data (i32.const 32) "counter")
    (func $load_count (result i32)
      (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
      (call $ok))
    (func $counter (result i32)
      (call $variable (i32.const 32) (i32.const 7) (i32.const 1024))
      (call $ok))"#;

fn trapped(outcome: Outcome) -> String {
    match outcome {
        Outcome::Trapped(message) => message,
        other => panic!("not trapped: {other:?}"),
    }
}

#[test]
fn root_a_program_runs_on_every_overflow_and_shares_its_variable() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32)
          (local $counter i32)
          ;; What is stored before the load is what the program finds.
          (local.set $counter (call $counter))
          (call $set (local.get $counter) (i64.const 1000000) (i32.const 1024))
          (drop (call $own_page_faults (i32.const 1) (call $load_count)))
          (call $fault)
          (i32.and
            (i64.gt_u (call $get (local.get $counter)) (i64.const 1000000))
            (i64.lt_u (call $get (local.get $counter)) (i64.const 1100000))))"#
    ));
    let ran = run_with(with_object(guest, elf::counting("perf_event")), |_| {});
    assert_eq!(ran.outcome, Outcome::Returned(1), "{}", ran.stderr);
}

#[test]
fn root_detach_all_stops_the_program() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32)
          (local $counter i32) (local $program i32) (local $before i64)
          (local.set $counter (call $counter))
          (local.set $program (call $load_count))
          (drop (call $own_page_faults (i32.const 1) (local.get $program)))
          (call $fault)
          (call $detach_all (local.get $program))
          (local.set $before (call $get (local.get $counter)))
          (call $fault)
          (i32.and
            (i64.ne (local.get $before) (i64.const 0))
            (i64.eq (call $get (local.get $counter)) (local.get $before))))"#
    ));
    let ran = run_with(with_object(guest, elf::counting("perf_event")), |_| {});
    assert_eq!(ran.outcome, Outcome::Returned(1), "{}", ran.stderr);
}

#[test]
fn root_a_raw_tracepoint_program_attaches_by_name_and_only_once() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (data (i32.const 64) "sched_switch")
        (func (export "run") (result i32)
          (local $program i32) (local $counter i32)
          (local.set $counter (call $counter))
          (local.set $program (call $load_count))
          (call $attach_raw_tracepoint (local.get $program) (i32.const 64) (i32.const 12) (i64.const 0)
            (i32.const 1024))
          (drop (call $ok))
          (call $sleep (i64.const 20000000) (i32.const 1024))
          (if (i64.eqz (call $get (local.get $counter))) (then (return (i32.const 1))))
          (call $attach_raw_tracepoint (local.get $program) (i32.const 64) (i32.const 12) (i64.const 0)
            (i32.const 1024))
          (call $ok))"#
    ));
    let ran = run_with(with_object(guest, elf::counting("raw_tp")), |_| {});
    assert_eq!(trapped(ran.outcome), "`count` is already attached to `sched_switch`");
}

#[test]
fn root_a_target_that_is_not_there_is_named() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (data (i32.const 64) "sched_swatch")
        (func (export "run") (result i32)
          (call $attach_raw_tracepoint (call $load_count) (i32.const 64) (i32.const 12) (i64.const 0)
            (i32.const 1024))
          (call $ok))"#
    ));
    let message = trapped(run_with(with_object(guest, elf::counting("raw_tp")), |_| {}).outcome);
    assert!(message.contains("raw tracepoint `sched_swatch`"), "{message}");
    assert!(message.contains("bpf(BPF_RAW_TRACEPOINT_OPEN): ENOENT"), "{message}");
}

#[test]
fn root_a_kind_that_cannot_be_attached_is_named() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32)
          (call $attach (call $load_count) (i64.const 0) (i32.const 1024))
          (call $ok))"#
    ));
    for (section, expected) in [
        ("perf_event", "`count` is a perf_event program: it is attached by opening an event with it"),
        ("sk_msg", "`count` is a sk_msg program, which this host does not attach"),
    ] {
        let file = with_object(guest.clone(), elf::counting(section));
        assert_eq!(trapped(run_with(file, |_| {}).outcome), expected);
    }
}

/// It also runs where tracefs is not mounted.
#[test]
fn root_a_tracepoint_program_runs() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (data (i32.const 64) "sched/sched_switch")
        (func (export "run") (result i32)
          (local $counter i32)
          (local.set $counter (call $counter))
          (call $attach_tracepoint (call $load_count) (i32.const 64) (i32.const 18) (i64.const 0)
            (i32.const 1024))
          (drop (call $ok))
          (call $sleep (i64.const 20000000) (i32.const 1024))
          (i64.ne (call $get (local.get $counter)) (i64.const 0)))"#
    ));
    let outcome = run_with(with_object(guest, elf::counting("tp")), |_| {}).outcome;
    assert_eq!(outcome, Outcome::Returned(1));
}

/// A program gets the cookie of the call that attached it.
#[test]
fn root_a_program_gets_its_cookie() {
    for (section, attach) in [
        ("tp/sched/sched_switch", "(call $attach (call $load_count) (i64.const 77) (i32.const 1024))"),
        (
            "tp",
            "(call $attach_tracepoint (call $load_count) (i32.const 64) (i32.const 18) (i64.const 77)
               (i32.const 1024))",
        ),
        // Since Linux 6.10.
        (
            "raw_tp",
            "(call $attach_raw_tracepoint (call $load_count) (i32.const 70) (i32.const 12) (i64.const 77)
               (i32.const 1024))",
        ),
    ] {
        let guest = component(&format!(
            r#"{OWN_EVENT}{LOAD}
            (data (i32.const 64) "sched/sched_switch")
            (func (export "run") (result i32)
              (local $counter i32)
              (local.set $counter (call $counter))
              {attach}
              (drop (call $ok))
              (call $sleep (i64.const 20000000) (i32.const 1024))
              (i32.wrap_i64 (call $get (local.get $counter))))"#
        ));
        let ran = run_with(with_object(guest, elf::cookie(section)), |_| {});
        assert_eq!(ran.outcome, Outcome::Returned(77), "{section}: {}", ran.stderr);
    }
}

/// A uprobe whose object names no function: the call does, and the process whose calls it sees.
#[test]
fn root_a_uprobe_is_put_where_the_call_says_in_one_process() {
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn kst_called_by_threads() -> u64 {
        std::hint::black_box(7)
    }
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let calls = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            kst_called_by_threads();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let path = std::env::current_exe().expect("a test knows its own path").display().to_string();
    let own = std::process::id();
    // Process 1 runs no test.
    for (pid, expected) in [
        (format!("(i32.const 1) (i32.const {own})"), 55),
        ("(i32.const 1) (i32.const 1)".into(), 0),
        ("(i32.const 0) (i32.const 0)".into(), 55),
    ] {
        let guest = component(&format!(
            r#"{OWN_EVENT}{LOAD}
            (data (i32.const 64) "kst_called_by_threads{path}")
            (func (export "run") (result i32)
              (local $counter i32)
              (local.set $counter (call $counter))
              (call $attach_uprobe (call $load_count) (i32.const 85) (i32.const {}) (i32.const 64)
                (i32.const 21) (i64.const 0) {pid} (i64.const 55) (i32.const 1024))
              (drop (call $ok))
              (call $sleep (i64.const 50000000) (i32.const 1024))
              (i32.wrap_i64 (call $get (local.get $counter))))"#,
            path.len()
        ));
        let ran = run_with(with_object(guest, elf::cookie("uprobe")), |_| {});
        assert_eq!(ran.outcome, Outcome::Returned(expected), "{pid}: {}", ran.stderr);
    }
    over.store(true, Ordering::Relaxed);
    calls.join().expect("it does not panic");
}

/// Each call attaches programs of one kind; the error says which.
#[test]
fn root_a_call_for_another_kind_is_refused() {
    let text = "(i32.const 64) (i32.const 2)";
    for (call, wanted) in [
        (
            format!("$attach_tracepoint (call $load_count) {text} (i64.const 0)"),
            "attach-tracepoint is for tracepoints",
        ),
        (
            format!("$attach_kprobe (call $load_count) {text} (i64.const 0) (i64.const 0)"),
            "attach-kprobe is for probes",
        ),
        (
            format!(
                "$attach_uprobe (call $load_count) {text} {text} (i64.const 0) (i32.const 0) (i32.const 0) \
                 (i64.const 0)"
            ),
            "attach-uprobe is for probes",
        ),
        (format!("$attach_xdp (call $load_count) {text} (i32.const 0)"), "attach-xdp is for xdp"),
        (
            format!(
                "$attach_tc (call $load_count) {text} (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)"
            ),
            "attach-tc is for tc",
        ),
        (format!("$attach_cgroup (call $load_count) {text}"), "attach-cgroup is for hooks of control groups"),
        (
            format!("$attach_socket_filter (call $load_count) {text}"),
            "attach-socket-filter is for socket filters",
        ),
    ] {
        let guest = component(&format!(
            r#"{OWN_EVENT}{LOAD}
            (data (i32.const 64) "lo")
            (func (export "run") (result i32) (call {call} (i32.const 1024)) (call $ok))"#
        ));
        let message = trapped(run_with(with_object(guest, elf::counting("raw_tp")), |_| {}).outcome);
        assert!(
            message.starts_with("`count` is a raw_tracepoint program, and ") && message.contains(wanted),
            "{message}"
        );
    }
    let own = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32) (call $attach (call $load_count) (i64.const 0) (i32.const 1024)) (call $ok))"#
    ));
    for section in ["raw_tp", "tp", "uprobe", "xdp", "tc", "cgroup_skb/egress"] {
        let message = trapped(run_with(with_object(own.clone(), elf::counting(section)), |_| {}).outcome);
        assert!(
            message.starts_with("the object does not say what `count` is attached to"),
            "{section}: {message}"
        );
    }
}

#[test]
fn root_the_verifiers_reason_is_printed() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32) (call $load_count))"#
    ));
    let message = trapped(run_with(with_object(guest, elf::unverifiable()), |_| {}).outcome);
    assert!(message.starts_with("cannot load the program `count`: the verifier refused it"), "{message}");
    assert!(message.contains("verifier: R6 !read_ok"), "{message}");
}

#[test]
fn root_variables_survive_a_load_that_failed() {
    let guest = component(&format!(
        r#"{OWN_EVENT}{LOAD}
        (func (export "run") (result i32)
          (local $counter i32)
          (local.set $counter (call $counter))
          (call $set (local.get $counter) (i64.const 77) (i32.const 1024))
          (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
          (if (i32.eqz (i32.load8_u (i32.const 1024))) (then (return (i32.const 1))))
          (i32.wrap_i64 (call $get (local.get $counter))))"#
    ));
    let ran = run_with(with_object(guest, elf::unverifiable()), |_| {});
    assert_eq!(ran.outcome, Outcome::Returned(77), "{}", ran.stderr);
}

#[test]
fn root_an_unknown_program_is_answered_with_those_there_are() {
    let guest = component(&format!(
        r#"{OWN_EVENT}
        (data (i32.const 16) "cuont")
        (func (export "run") (result i32)
          (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
          (call $ok))"#
    ));
    let message = trapped(run_with(with_object(guest, elf::counting("perf_event")), |_| {}).outcome);
    assert_eq!(message, "the BPF object has no program `cuont`\n  because: the object has `count`");
}

/// An object may have forms of one program for other kernels. This one loads no program of a security hook.
#[test]
fn root_a_program_that_the_kernel_refuses_does_not_stop_the_others() {
    let script = "
        var entries : hash<u32, u64>(4)
        @tracepoint(\"sched/sched_switch\")
        fn ksone_switch(ctx: *trace_event_raw_sched_switch) -> i32 {
            entries[1] = 1
            return 0
        }
        @lsm(\"file_open\")
        fn ksone_refused(file: *file) -> i32 {
            entries[2] = 2
            return 0
        }
        @tracepoint(\"raw_syscalls/sys_enter\")
        fn ksone_calls(ctx: *trace_event_raw_sys_enter) -> i32 {
            entries[3] = 3
            return 0
        }
        fn main() -> i32 {
            var refused = load(ksone_refused)
            var again = load(ksone_refused)
            var one = load(ksone_switch)
            var other = load(ksone_calls)
            if (one == null || other == null) { return 1 }
            attach(one, \"sched/sched_switch\", 0)
            attach(other, \"raw_syscalls/sys_enter\", 0)
            sleep(50)
            print(\"%u %u: %u %u %u\", refused == null, again == null, entries[1], entries[2], entries[3])
            return 0
        }
    ";
    let folder = Folder::new();
    let plugin = folder.write("ksone.wasm", compile("ksone", script).plugin);
    let outcome = finish(allowed().arg("--no-cache").arg(plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "1 1: 1 0 3\n"), "{outcome:#?}");
    assert_eq!(outcome.stderr.matches("prog 'ksone_refused'").count(), 2, "each load says why: {outcome:#?}");
}

#[test]
fn root_a_test_run_gives_the_packet_back_and_repeats() {
    let script = "
        var runs : u64 = 0
        var seen : u64 = 0
        @xdp
        fn kstrun_xdp(ctx: *xdp_md) -> xdp_action {
            runs += 1
            return XDP_TX
        }
        @raw_tracepoint(\"sys_enter\")
        fn kstrun_raw(regs: *pt_regs, id: i64) -> i32 {
            seen = id as u64
            return 7
        }
        fn main() -> i32 {
            var xdp = load(kstrun_xdp)
            var raw = load(kstrun_raw)
            return runs as i32
        }
    ";
    let built = compile("kstrun", script);
    let admitted = ks_tests::plugins::admitted("kstrun", &built.records().swap_remove(0).elf).expect("sound");
    let mut object = Object::open(admitted).expect("sound");
    let input = TestInput { data: vec![7; 20], packet_size: Some(60), repeat: 5, ..TestInput::default() };
    let output =
        object.program("kstrun_xdp").and_then(|xdp| xdp.test_run(&input)).expect("the kernel runs it");
    let mut packet = vec![7; 20];
    packet.resize(60, 0);
    assert_eq!((output.return_value, output.data), (3, packet), "XDP_TX");
    let runs = object.variable("runs").and_then(|runs| object.get(&runs)).expect("a number");
    assert_eq!(runs, 5);
    let typed = object.program("kstrun_raw").and_then(|raw| raw.test_run(&TestInput::default()));
    assert!(matches!(typed, Err(BpfError::NoTestRun { .. })), "{typed:?}");
    for wrong in [
        TestInput { repeat: 0, ..TestInput::default() },
        TestInput { repeat: 10_001, ..TestInput::default() },
        TestInput { arguments: vec![0; 13], ..TestInput::default() },
    ] {
        let refused = object.program("kstrun_raw").and_then(|raw| raw.test_run(&wrong));
        assert!(matches!(refused, Err(BpfError::TestRun { .. })), "{wrong:?}: {refused:?}");
    }

    let admitted = ks_tests::plugins::admitted("kstrun", &elf::counting("raw_tp")).expect("sound");
    let mut object = Object::open(admitted).expect("sound");
    let input = TestInput { arguments: vec![0; 12], ..TestInput::default() };
    let output = object.program("count").and_then(|raw| raw.test_run(&input)).expect("the kernel runs it");
    assert_eq!(output.data, Vec::<u8>::new(), "it has no packet");
    let counter = object.variable("counter").and_then(|counter| object.get(&counter)).expect("a number");
    assert!(counter > 0, "it ran");
}

#[test]
fn root_a_number_of_a_variable_that_is_none_ends_the_plugin() {
    let script = "
        var wide : u8[24] = [1]
        @perf_event
        fn kswide(ctx: *bpf_perf_event_data) -> i32 {
            wide[2] = 7
            return 0
        }
        fn main() -> i32 {
            return 0
        }
    ";
    let object = compile("kswide", script).records().swap_remove(0).elf;
    let guest = component(
        r#"
        (data (i32.const 16) "wide")
        (func (export "run") (result i32)
          (call $variable (i32.const 16) (i32.const 4) (i32.const 1024))
          (drop (call $get (i32.load (i32.const 1028))))
          (i32.const 0))"#,
    );
    let message = trapped(run_with(with_object(guest, object), |_| {}).outcome);
    assert!(message.contains("a number of `wide` has 24 bytes, not 8"), "{message}");
}
