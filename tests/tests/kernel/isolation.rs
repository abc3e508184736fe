//! What a plugin sees is the same on a thread and in a process of its own. These tests need root.

use std::process::Command;

use ks_tests::{Folder, Outcome, binary, command, compile, finish};

/// Runs a script on a thread and in a process of its own.
fn in_both_forms(name: &str, script: &str, options: &[&str]) -> [Outcome; 2] {
    let folder = Folder::new();
    let file = folder.write(&format!("{name}.wasm"), compile(name, script).plugin);
    ["thread", "process"].map(|isolation| {
        let outcome = finish(command("ks-host").args(["--isolation", isolation]).args(options).arg(&file));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{isolation}: {outcome:#?}");
        outcome
    })
}

const IN_ORDER: &str = include_str!("scripts/isolation_in_order.ks");

/// The kernel half prints while the plugin updates a map, which a worker does itself.
#[test]
fn root_lines_of_both_halves_stand_in_order() {
    let expected: String =
        (0..100).map(|iteration| format!("before {iteration}\nin the kernel\nafter {iteration}\n")).collect();
    for outcome in in_both_forms("ksord", IN_ORDER, &[]) {
        assert_eq!(outcome.stdout, expected);
    }
}

/// Programs see the plugin by its name.
#[test]
fn root_a_worker_is_called_like_a_thread() {
    let script = "var is_on : u32 = 0
        var is_own : u32 = 0
        @syscall_enter(\"bpf\")
        fn seen(cmd: i32) -> i32 {
            if (is_on == 1 && comm() == \"ks:kscalled.was\") { is_own = 1 }
            return 0
        }
        var numbers : hash<u32, u64>(4)
        fn main() -> i32 {
            if (attach(load(seen), \"syscalls/sys_enter_bpf\", 0) != 0) { return 1 }
            is_on = 1
            numbers[1] = 2
            print(\"{}\", is_own)
            return 0
        }";
    let [thread, process] = in_both_forms("kscalled", script, &[]).map(|outcome| outcome.stdout);
    assert_eq!((thread.as_str(), process.as_str()), ("1\n", "1\n"));
}

/// Whatever looks after its limits, nothing wakes a plugin that waits.
#[test]
fn root_a_waiting_worker_is_not_woken() {
    let script = "fn main() -> i32 {
            var switches = attach(perf_options { event: context_switches, pid: 0, cpu: -1 })
            var before = read(switches).raw
            sleep(1500)
            print(\"{}\", read(switches).raw - before)
            return 0
        }";
    let limits = ["--limit", "compute_ms=100"];
    for outcome in in_both_forms("kswoken", script, &limits) {
        let switches: u64 = outcome.stdout.trim().parse().expect("a number");
        // One to wait; a busy machine may add some, and a look each 25 ms would be 60.
        assert!((1..20).contains(&switches), "{switches}");
    }
}

#[test]
fn root_a_worker_has_the_stack_of_a_thread() {
    let folder = Folder::new();
    let script =
        "fn deep(n: u64) -> u64 { return deep(n + 1) + n }\nfn main() -> i32 { return deep(0) as i32 }";
    let file = folder.write("deep.wasm", compile("deep", script).plugin);
    for isolation in ["thread", "process"] {
        let line = format!(
            "ulimit -s 256; exec {} --isolation {isolation} {}",
            binary("ks-host").display(),
            file.display()
        );
        let outcome = finish(Command::new("sh").args(["-c", &line]));
        // Where nobody may raise the hard limit, it is refused.
        let has_said = ["KS-TRAP stack", "do: raise the limit (ulimit -s)"]
            .iter()
            .any(|text| outcome.stderr.contains(text));
        assert!(outcome.code == 125 && has_said, "{isolation}: {outcome:#?}");
    }
}

/// The own thread is 0 in them.
#[test]
fn root_errors_name_the_own_thread_alike() {
    let script = "fn main() -> i32 {
            var first = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
            var second = attach(perf_options { event: page_faults, pid: 0, cpu: 0, group: first })
            return 0
        }";
    let folder = Folder::new();
    let file = folder.write("ksowner.wasm", compile("ksowner", script).plugin);
    let said = ["thread", "process"]
        .map(|isolation| finish(command("ks-host").args(["--isolation", isolation]).arg(&file)).stderr);
    assert!(!said[0].is_empty());
    assert_eq!(said[0], said[1]);
}

/// Neither a thread nor a process writes anything to read counters of CPUs.
#[test]
fn root_readings_of_cpus_take_no_message() {
    let script = "fn main() -> i32 {
            var writes = attach(perf_options { event: tracepoint(\"syscalls/sys_enter_write\"), pid: 0, cpu: -1 })
            var one = attach(perf_options { event: cpu_clock, pid: -1, cpu: 0 })
            var member = attach(perf_options { event: page_faults, pid: -1, cpu: 0, group: one })
            var all = attach(perf_options { event: cpu_clock, pid: -1, cpu: all })
            if (writes == null || one == null || member == null || all == null) { return 1 }
            var sum : u64 = 0
            var before = read(writes).raw
            for (i in 0..100) {
                sum += read(one).raw + read(member).values[1] + read(all).raw + read(all).values[0]
            }
            print(\"{} {}\", read(writes).raw - before, sum > 0)
            return 0
        }";
    for outcome in in_both_forms("kswrites", script, &[]) {
        assert_eq!(outcome.stdout, "0 true\n");
    }
}

/// Neither writes anything to iterate over a map, to its end or not.
#[test]
fn root_map_iterations_take_no_message() {
    let script = "var table : hash<u32, u64>(4096)
        @perf_event
        fn keep(ctx: *bpf_perf_event_data) -> i32 { table[1] = 1  return 0 }
        fn main() -> i32 {
            var writes = attach(perf_options { event: tracepoint(\"syscalls/sys_enter_write\"), pid: 0, cpu: -1 })
            if (writes == null || load(keep) == null) { return 1 }
            for (i in 0..4000) { table[i] = 1 }
            var met : u64 = 0
            var before = read(writes).raw
            for (i in 0..10) {
                for (key, value in table) { met += value }
                for (key, value in table) { met += value  break }
            }
            var written = read(writes).raw - before
            for (key, value in table) { delete table[key] }
            var left : u64 = 0
            for (key, value in table) { left += value }
            print(\"{} {} {} {}\", written, met, left, read(writes).raw - before)
            return 0
        }";
    for outcome in in_both_forms("kswalks", script, &[]) {
        assert_eq!(outcome.stdout, "0 40010 0 0\n");
    }
}

/// A ring buffer that is full of records takes no message for each batch: one to ask whether the plugin is to stop, and
/// one more each 10 ms.
#[test]
fn root_records_that_wait_take_no_message_each_time() {
    let script = "struct Event { n: u64, rest: u64[127] }
        var events : ringbuf<Event>(4194304)
        var emitted : u64 = 0
        var handled : u64 = 0
        @tracepoint(\"sched/sched_switch\")
        fn emit(ctx: *trace_event_raw_sched_switch) -> i32 {
            for (i in 0..256) {
                if (emitted >= 3000) { return 0 }
                var e = events.reserve()
                if (e != null) { e->n = emitted  emitted += 1  events.submit(e) }
            }
            return 0
        }
        fn events_callback(e: *Event) -> i32 { handled += 1  return 0 }
        fn main() -> i32 {
            var writes = attach(perf_options { event: tracepoint(\"syscalls/sys_enter_write\"), pid: 0, cpu: -1 })
            var program = load(emit)
            if (writes == null || attach(program, \"sched/sched_switch\", 0) != 0) { return 1 }
            for (i in 0..100) { if (emitted < 3000) { sleep(5) } }
            detach(program)
            var before = read(writes).raw
            var polls : u64 = 0
            while (dispatch(events, 0) > 0) { polls += 1 }
            print(\"{} {} {} {}\", read(writes).raw - before, polls, handled, emitted)
            return 0
        }";
    for outcome in in_both_forms("ksdrain", script, &[]) {
        let numbers = outcome.stdout.split_whitespace().map(|number| number.parse().expect("a number"));
        let [messages, polls, handled, emitted] = numbers.collect::<Vec<u64>>()[..] else {
            panic!("{outcome:?}")
        };
        assert!(polls > 20 && messages < polls / 2 && handled == emitted && emitted >= 3000, "{outcome:?}");
    }
}
