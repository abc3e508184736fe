//! `@timer`: functions that the kernel runs again and again, on the running kernel and on emulated ones. These tests need root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, command, compile, finish, run_script, try_compile_for, wait_until_gone};

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(&["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(&["root_"]);
}

fn ran(project: &str, script: &str) -> Outcome {
    let outcome = run_script::<&str>(project, script, &[]);
    wait_until_gone(project);
    outcome
}

/// Turns come at whole periods after the load, so there are never more of them than periods.
#[test]
fn root_turns_come_from_the_load_on_and_until_the_detach() {
    let script = "
        var turns : u64 = 0
        @timer(\"2ms\")
        fn tmr_tick() -> void { turns += 1 }
        fn main() -> i32 {
            var began = time_ns()
            var tick = load(tmr_tick)
            if (tick == null) { return 1 }
            while (turns < 20) { sleep(1) }
            detach(tick)
            var seen = turns
            if (seen > (time_ns() - began) / 2000000) { return 2 }
            sleep(20)
            if (turns != seen) { return 3 }
            if (attach(tick, \"\", 0) != 0) { return 4 }
            while (turns < seen + 5) { sleep(1) }
            if (attach(tick, \"\", 0) != 17) { return 5 }
            return 0
        }";
    let outcome = ran("tmr_tick", script);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("`tmr_tick` is already attached"), "{outcome:#?}");
}

/// Every kind of map and loop, a large frame, functions, lines and records; a second timer beside the first.
#[test]
fn root_what_other_programs_do_a_timer_does_too() {
    let script = "
        struct Record { turn: u64, sum: u64 }
        struct Prefix { prefix: u32, address: u32 }
        var seen : hash<u64, u64>(64)
        var recent : lru_hash<u64, u64>(64)
        var here : percpu_array<u32, u64>(1)
        var first : queue<u64>(1024)
        var last : stack<u64>(1024)
        var known : bloom<u64>(64)
        var routes : lpm_trie<Prefix, u64>(16)
        var records : ringbuf<Record>(65536)
        var turns : u64 = 0
        var others : u64 = 0
        var handled : u64 = 0

        @helper
        fn busy(n: u64) -> u64 {
            var sum : u64 = 0
            for (i in 0..10) { sum += i * n }
            return sum
        }

        @timer(\"2ms\")
        fn tmr_all() -> void {
            turns += 1
            seen[turns % 16] = turns
            recent[turns % 16] = turns
            here[0] += 1
            first.push(turns)
            last.push(turns)
            known.add(turns)
            var prefix = Prefix { prefix: 32, address: 7 }
            routes[prefix] = turns
            var many : u64[48] = [0]
            for (i in 0..48) { many[i] = turns * i }
            var record = records.reserve()
            if (record != null) {
                record->turn = turns
                record->sum = busy(turns) + many[turns % 48]
                records.submit(record)
            }
            if (turns == 3) { print(\"turn %llu\", turns) }
            if (turns % 2 == 0) { return }
            others += 0
        }

        @timer(\"3ms\")
        fn tmr_other() { others += 1 }

        fn on_record(record: *Record) -> i32 {
            handled += 1
            return 0
        }

        fn main() -> i32 {
            records.on_event(on_record)
            if (load(tmr_all) == null || load(tmr_other) == null) { return 1 }
            while (turns < 20 || others < 5 || handled < 10) { dispatch(records, 5) }
            if (seen[3] == 0) { return 2 }
            return 0
        }";
    let outcome = ran("tmr_all", script);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "turn 3\n"), "{outcome:#?}");
}

/// The timer is armed when its script leaves by an error, and is gone with it.
#[test]
fn root_a_timer_ends_with_its_script() {
    let script = "
        var turns : u64 = 0
        @timer(\"1ms\")
        fn tmr_left() -> void { turns += 1 }
        fn main() -> i32 {
            if (load(tmr_left) == null) { return 1 }
            while (turns < 3) { sleep(1) }
            throw 7
        }";
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
fn kernels_without_timers_are_told_of_at_compile_time() {
    let script = "@timer(\"1ms\") fn old() -> void { }\nfn main() -> i32 { var p = load(old) return 0 }";
    let older = Target { kernel: Some(KernelVersion::new(5, 14)), ..Target::default() };
    let Err(refused) = try_compile_for("old", script, older) else { panic!("5.14 has no timers") };
    assert!(refused.contains("KS1005") && refused.contains("a timer needs Linux 5.15"), "{refused}");
    let first = Target { kernel: Some(KernelVersion::new(5, 15)), ..Target::default() };
    assert!(try_compile_for("old", script, first).is_ok());
}
