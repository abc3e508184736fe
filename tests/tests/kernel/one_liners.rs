//! Scripts of the command line, which have no `main`. Each count is compared with what the observed command does.

mod stacks;
mod tables;
mod tutorial;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ks_tests::net::{LEFT, Wire};
use ks_tests::{Folder, Outcome, command, finish, is_within, kernel_objects};
use serde_json::{Value, json};

use crate::tools::RunningTool;

const HELLO: &str = r#"@begin { print("hello world") }"#;

/// Runs a script of the command line around a command.
fn observed(script: &str, exec: &[&str]) -> Outcome {
    let outcome = finish(command("ks-host").args(["-e", script, "--exec"]).args(exec));
    assert_eq!(outcome.code, 0, "{script}: {outcome:#?}");
    outcome
}

/// A copy of `dd` under a name that no other test observes.
struct Dd {
    folder: Folder,
    name: String,
}

impl Dd {
    fn new() -> Dd {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = Folder::new();
        let name = format!("dd{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        ks_tests::copy_program("/bin/dd", folder.path(&name));
        Dd { folder, name }
    }

    /// The command that reads and writes so many times one byte, and nothing else.
    fn command(&self, times: u32) -> [String; 6] {
        let program = self.folder.path(&self.name).display().to_string();
        let count = format!("count={times}");
        let rest = ["if=/dev/zero", "of=/dev/null", "bs=1", &count, "status=none"].map(str::to_owned);
        let [input, output, block, count, status] = rest;
        [program, input, output, block, count, status]
    }

    /// Runs a script around the command; `NAME` in the script is the name of the command.
    fn observed(&self, script: &str, times: u32) -> Outcome {
        let script = script.replace("NAME", &self.name);
        observed(&script, &self.command(times).each_ref().map(String::as_str))
    }
}

#[test]
fn hello_world_needs_no_program() {
    let outcome = finish(command("ks-host").args(["-e", HELLO]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "hello world\n"), "{outcome:#?}");
}

#[test]
fn root_files_that_a_command_opens_are_printed() {
    let folder = Folder::new();
    let file = folder.write("opened", "text");
    let path = file.to_str().expect("plain names");
    let outcome =
        observed(r#"@syscall_enter("openat") { print("%s %s", comm(), filename) }"#, &["cat", path]);
    assert!(outcome.stdout.contains(&format!("cat {path}\n")), "{outcome:#?}");
}

#[test]
fn root_system_calls_are_counted_by_command() {
    let script = r#"@tracepoint("raw_syscalls/sys_enter") { n[comm()] += 1 }"#;
    let dd = Dd::new();
    let few = dd.observed(script, 100);
    let outcome = dd.observed(script, 600);
    // What starts and ends the process is the same in both, and as long as the environment makes it.
    let calls = |outcome: &Outcome| outcome.numbers(&dd.name)[0];
    assert_eq!(calls(&outcome) - calls(&few), 2 * 500, "{few:#?}\n{outcome:#?}");
    let rows: Vec<&str> = outcome.stdout.lines().skip(2).collect();
    let counts: Vec<u64> = rows
        .iter()
        .map(|row| row.split_whitespace().last().expect("a count").parse().expect("a number"))
        .collect();
    assert!(counts.is_sorted_by(|one, next| one >= next), "{outcome:#?}");
    assert!(outcome.stdout.starts_with("n\nkey "), "{outcome:#?}");
}

#[test]
fn root_a_count_is_that_of_the_command() {
    let script = r#"@syscall_enter("write") { n[comm()] += count }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 321);
    assert_eq!(outcome.numbers(&dd.name), [321], "{outcome:#?}");
    let script = r#"@syscall_exit("write") { n[comm()] += ret; calls[comm()] += 1 }"#;
    let outcome = dd.observed(script, 123);
    let rows: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with(&dd.name)).collect();
    assert_eq!(rows.len(), 2, "{outcome:#?}");
    assert!(rows.iter().all(|row| row.ends_with(" 123")), "{outcome:#?}");
}

#[test]
fn root_calls_of_a_function_are_counted_exactly() {
    let folder = Folder::new();
    let source = folder.write(
        "calls.c",
        "__attribute__((noinline)) int twice(int n) { __asm__ volatile(\"\"); return 2 * n; }\n\
         int main(void) { int all = 0; for (int i = 0; i < 77; i++) all += twice(i); return all == 0; }\n",
    );
    let program: PathBuf = folder.path("calls");
    let built =
        Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).status().expect("cc starts");
    assert!(built.success());
    let path = program.to_str().expect("plain names");
    let script = format!(
        "@uprobe(\"{path}:twice\") {{ calls[comm()] += 1 }}
         @uretprobe(\"{path}:twice\") {{ sums[comm()] += ret }}"
    );
    let outcome = observed(&script, &[path]);
    let expected = "calls\nkey    value\ncalls     77\nsums\nkey    value\ncalls   5852\n";
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
}

#[test]
fn root_events_of_a_command_are_counted() {
    let script = r#"@perf_event("page-faults", period: 1, command: true) { faults[comm()] += 1 }"#;
    // Each page of 16 MiB is written once.
    let outcome =
        observed(script, &["dd", "if=/dev/zero", "of=/dev/null", "bs=16M", "count=1", "status=none"]);
    assert!((4096..6000).contains(&outcome.numbers("dd")[0]), "{outcome:#?}");
}

#[test]
fn root_userspace_functions_run_before_between_and_after() {
    let script = r#"
        struct Args { times: u32 = 3 }
        var seen : u64 = 0
        local var hidden : u64 = 0
        @perf_event("cpu_clock", freq: 999) { all[0] += 1; sleep[cpu()] = 1; seen += 1; hidden += 1 }
        @begin { print("begins %u %llu", args.times, seen) }
        @interval("20ms") fn again() -> void {
            ticks += 1
            if (ticks == args.times) { exit(7) }
        }
        var ticks : u32 = 0
        @end { print("ends %u", ticks) }"#;
    let outcome = finish(command("ks-host").args(["-e", script, "--", "--times", "5"]));
    assert_eq!(outcome.code, 7, "{outcome:#?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[..2], ["begins 5 0", "ends 5"], "{outcome:#?}");
    // `seen` and `ticks` are read by functions, and `hidden` is the kernel half's.
    assert_eq!((lines[2], lines[5]), ("all", "sleep"), "{outcome:#?}");
    assert!(!outcome.stdout.contains("seen") && !outcome.stdout.contains("hidden"), "{outcome:#?}");
}

#[test]
fn root_a_map_is_printed_by_name() {
    let script = r#"
        @syscall_exit("write") { if (comm() == "NAME") { bytes[comm()] += ret; sizes[comm()].add(ret) } }
        @end { print_map(bytes); print("between"); print_map(sizes); print_map(bytes) }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 20);
    let name = &dd.name;
    let table = format!("bytes\n{:<2$}  value\n{name}  {:>5}\n", "key", 20, name.len());
    let title = format!("sizes[{name}]");
    let bars = format!(
        "{title}  count  20 values, sum 20, mean 1\n{:>2$}     20  |{}|\n",
        "1 - 1",
        "#".repeat(40),
        title.len()
    );
    assert_eq!(outcome.stdout, format!("{table}between\n{bars}{table}"), "{outcome:#?}");
}

#[test]
fn root_shared_variables_are_one_row() {
    let script = r#"
        struct Last { code: i64, name: str(16) }
        struct Pair { one: u64, three: u32 }
        percpu var twice : u64
        percpu var pair : Pair
        var calls : u64 = 0
        var bytes : i64 = 0
        var last : Last
        var slots : u64[4]
        @syscall_exit("write") {
            if (comm() == "NAME") {
                calls += 1
                bytes += ret
                slots[calls & 1] += 1
                last = Last { code: ret, name: comm() }
                twice += 2
                pair.one += 1
                pair.three += 3
            }
        }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 10);
    let lines: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    // Of those with a value for each CPU the sums.
    let expected = [
        vec!["calls", "bytes", "last.code", "last.name", "twice", "pair.one", "pair.three"],
        vec!["10", "10", "1", &dd.name, "20", "10", "30"],
        vec!["slots"],
        vec!["index", "value"],
        vec!["0", "5"],
        vec!["1", "5"],
    ];
    assert_eq!(lines, expected, "{outcome:#?}");
}

#[test]
fn root_keys_with_arrays_have_columns() {
    let script = r#"
        struct Call { of: str(16), bytes: u8[2], at: u16[2] }
        @syscall_exit("write") {
            if (comm() == "NAME") {
                calls[Call { of: comm(), bytes: [7, 9], at: [1, 3] }] += 1
                var key: u8[3] = [1, 4, 5]
                plain[key] += ret
            }
        }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 20);
    let lines: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec!["calls"],
        vec!["of", "bytes[0]", "bytes[1]", "at[0]", "at[1]", "value"],
        vec![&dd.name, "7", "9", "1", "3", "20"],
        vec!["plain"],
        vec!["key[0]", "key[1]", "key[2]", "value"],
        vec!["1", "4", "5", "20"],
    ];
    assert_eq!(lines, expected, "{outcome:#?}");
}

#[test]
fn root_several_values_are_a_key() {
    let script = r#"
        @syscall_enter("write") {
            if (comm() == "NAME") {
                calls[comm(), count, fd as u32] += 1
                sizes[fd as u32 + 7, "all"].add(count)
                if (calls["nobody", 1, 1] != null) { delete calls["nobody", 1, 1] }
            }
        }
        @end {
            for (key, number in calls) { print("%s wrote %u %lld times", key.comm, key.count, number) }
            print_map(calls)
        }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 20);
    let lines: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec![&dd.name, "wrote", "1", "20", "times"],
        vec!["calls"],
        vec!["comm", "count", "fd", "value"],
        vec![&dd.name, "1", "1", "20"],
        vec!["sizes[8,", "all]", "count", "20", "values,", "sum", "20,", "mean", "1"],
    ];
    assert_eq!(lines[..5], expected, "{outcome:#?}");
    let script = r#"@syscall_enter("write") { n[comm(), count] += 1 }"#;
    let outcome = finish(command("ks-host").args(["--json", "-e", script, "--exec"]).args(dd.command(50)));
    let row = format!(r#""table":"n","row":{{"comm":"{}","count":1,"value":50}}"#, dd.name);
    assert!(outcome.stdout.contains(&row), "{row}: {outcome:#?}");
}

#[test]
fn root_entries_are_taken_once() {
    let script = r#"
        var slow : hash<u32, u64>(16)
        var late : u64 = 0
        @syscall_enter("write") { if (comm() == "NAME") { started[tid(), fd] = count; slow[tid()] = count } }
        @syscall_exit("write") if (var bytes = started.take(tid(), 1)) {
            returned[comm()] += bytes
            var again = slow.take(tid())
            if (var gone = slow.take(tid())) { late += gone } else if (var more = slow.take(tid())) { late += more }
            late += again - 1
        }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 30);
    // What nothing declares and is removed from is not printed; what is declared is, and is empty.
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let expected = ["late", "0", "slow", "key", "value", "returned", "key", "value", &dd.name, "30"];
    assert_eq!(words, expected, "{outcome:#?}");
}

#[test]
fn root_options_are_read_in_the_kernel_half() {
    let script = r#"
        struct Args { name: str(16) = "nobody", least: u64 = 1 }
        @syscall_enter("write") if (comm() == args.name && count >= args.least) { n[fd] += 1 }
        @begin { print("of %s", args.name) }"#;
    let dd = Dd::new();
    let observed = |options: &[&str]| {
        let mut host = command("ks-host");
        host.args(["-e", script, "--"]).args(options).arg("--exec").args(dd.command(40));
        finish(&mut host).stdout
    };
    assert_eq!(observed(&[]), "of nobody\nn\nkey  value\n");
    let of = format!("of {}\nn\nkey  value\n", dd.name);
    assert_eq!(observed(&["--name", &dd.name]), format!("{of}  1     40\n"));
    assert_eq!(observed(&["--name", &dd.name, "--least", "2"]), of);
}

#[test]
fn root_an_attribute_has_several_targets() {
    let script = r#"
        @syscall_enter("write", "read") { if (comm() == "NAME") { n[comm(), count] += 1 } }
        @tracepoint("syscalls/sys_exit_write", "syscalls/sys_exit_lseek") {
            if (comm() == "NAME") { left[ctx->ret] += 1 }
        }"#;
    let dd = Dd::new();
    let few = dd.observed(script, 100);
    let outcome = dd.observed(script, 300);
    let of_one_byte = |outcome: &Outcome| {
        let row = outcome.stdout.lines().find(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.len() == 3 && words[..2] == [dd.name.as_str(), "1"]
        });
        let last = row.and_then(|row| row.split_whitespace().last().map(str::to_owned));
        last.unwrap_or_else(|| panic!("{outcome:#?}")).parse::<u64>().expect("a number")
    };
    assert_eq!((of_one_byte(&few), of_one_byte(&outcome)), (200, 600), "{few:#?}\n{outcome:#?}");
}

#[test]
fn root_targets_that_pass_a_program_the_same_share_it() {
    // `dfd` is an argument of one call alone, and `probe` another text at each.
    let script = r#"
        @syscall_exit("write", "read") { if (comm() == "NAME") { results[ret] += 1 } }
        @syscall_enter("write", "lseek") { if (comm() == "NAME") { files[fd] += 1 } }
        @syscall_enter("read", "openat") { if (comm() == "NAME") { calls[probe()] += 1 } }"#;
    let dd = Dd::new();
    let script = dd.folder.write("shared.ks", script.replace("NAME", &dd.name));
    let inspected = |option: &str| finish(command("ks-host").args(["inspect", option]).arg(&script)).stdout;
    let json: Value = serde_json::from_str(&inspected("--json")).expect("JSON");
    let programs = json["objects"][0]["programs"].as_array().expect("a list").iter();
    let targets: BTreeMap<_, _> =
        programs.map(|one| (one["section"].as_str().expect("a text"), one["also"].clone())).collect();
    let expected = [
        ("tracepoint/syscalls/sys_enter_openat", json!([])),
        ("tracepoint/syscalls/sys_enter_read", json!([])),
        ("tracepoint/syscalls/sys_enter_write", json!(["syscalls/sys_enter_lseek"])),
        ("tracepoint/syscalls/sys_exit_write", json!(["syscalls/sys_exit_read"])),
    ];
    assert_eq!(targets, BTreeMap::from(expected));

    let policy = inspected("--policy");
    let run = |policy: &str| {
        let policy = dd.folder.write("policy.toml", policy);
        let mut host = command("ks-host");
        finish(host.arg("--policy").arg(policy).arg(&script).arg("--exec").args(dd.command(50)))
    };
    let outcome = run(&policy);
    let rows: Vec<&str> = outcome.stdout.lines().map(str::trim).collect();
    let calls = |rows: &[&str], start: &str| rows.iter().filter(|row| row.starts_with(start)).count();
    assert!(rows.contains(&"1    100"), "the results of 50 reads and writes: {outcome:#?}");
    assert_eq!(
        (calls(&rows, "syscalls/"), calls(&rows, "read "), calls(&rows, "openat ")),
        (0, 1, 1),
        "{outcome:#?}"
    );
    let outcome = run(&policy.replace("\"syscalls/sys_exit_read\", ", ""));
    assert_eq!(outcome.code, 126, "{outcome:#?}");
    assert!(outcome.stderr.contains("syscalls/sys_exit_read"), "{outcome:#?}");
}

#[test]
fn root_a_program_is_attached_to_all_its_targets_or_to_none() {
    let script = r#"@syscall_exit("write", "read") { results[ret] += 1 }"#;
    let folder = Folder::new();
    let acts = |descriptors: u32| {
        let file = folder.path(format!("audit{descriptors}"));
        let mut host = command("ks-host");
        host.args(["--limit", &format!("descriptors={descriptors}"), "--audit"]).arg(&file);
        let outcome = finish(host.args(["-e", script, "--exec", "true"]));
        let entries = fs::read_to_string(&file).expect("it was written");
        let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let of_tracepoints =
            entries.filter(|one| one["target"].as_str().is_some_and(|text| text.contains(" at ")));
        let acts: Vec<_> = of_tracepoints.map(|one| (one["act"].clone(), one["target"].clone())).collect();
        (outcome.code, acts)
    };
    let run = |codes: &[(&str, &str)]| -> Vec<(Value, Value)> {
        codes
            .iter()
            .map(|(act, call)| ((*act).into(), format!("on_write at syscalls/sys_exit_{call}").into()))
            .collect()
    };
    let none = run(&[("attach", "write"), ("detach", "write")]);
    let all = run(&[("attach", "write"), ("attach", "read"), ("detach", "read"), ("detach", "write")]);
    let seen: Vec<_> = (1..12).map(acts).filter(|(_, acts)| !acts.is_empty()).collect();
    assert!(seen.contains(&(1, none)) && seen.contains(&(0, all)), "{seen:#?}");
    let is_whole = |(code, acts): &(i32, Vec<_>)| *code == 0 || acts.len() == 2;
    assert!(seen.iter().all(is_whole), "{seen:#?}");
}

/// The command has ended before the script first waits, and the records of its calls are in the ring.
#[test]
fn root_records_that_are_in_a_ring_at_the_end_are_handled() {
    let script = r#"
        struct Call { bytes: u64 }
        var calls : ringbuf<Call>(1048576)
        var made : u64 = 0
        var handled : u64 = 0
        @syscall_enter("write") {
            if (comm() == "NAME") {
                made += 1
                var call = calls.reserve()
                if (call == null) { return }
                call->bytes = count
                calls.submit(call)
            }
        }
        fn calls_callback(call: *Call) -> i32 { handled += 1 return 0 }
        @end { print("%llu %llu", made, handled) }"#;
    let dd = Dd::new();
    for _ in 0..5 {
        let outcome = dd.observed(script, 9000);
        assert_eq!(outcome.stdout, "9000 9000\n", "{outcome:#?}");
    }
}

#[test]
fn root_several_programs_of_an_interface_run() {
    let script = r#"@tc("ingress", "lo") { n["one"] += 1 } @tc("ingress", "lo") { n["other"] += 1 }"#;
    let beside = RunningTool::of(command("ks-host").args(["--allow", "tc=lo", "-e", script]));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
    for _ in 0..5 {
        socket.send_to(b"x", socket.local_addr().expect("it is bound")).expect("it is open");
    }
    let ran = beside.end();
    let of = |name: &str| ran.numbers(name).first().copied().unwrap_or_default();
    // Others send as well.
    assert!(of("one") >= 5 && of("one").abs_diff(of("other")) < 5, "{ran:#?}");
}

#[test]
fn root_histograms_count_every_value() {
    let script = r#"
        var widths : linear_hist(0, 10, 3)
        @syscall_exit("write") {
            if (comm() == "NAME") {
                bytes.add(ret)
                by_command[comm()].add(ret)
                by_result["failed"].add(ret - 5)
                widths.add(ret)
            }
        }"#;
    let dd = Dd::new();
    let outcome = dd.observed(script, 64);
    let bar = "#".repeat(40);
    let title = format!("by_command[{}]", dd.name);
    let expected = format!(
        "widths  count  64 values, sum 64, mean 1\n 0 - 9     64  |{bar}|\n\
         bytes  count  64 values, sum 64, mean 1\n1 - 1     64  |{bar}|\n\
         {title}  count  64 values, sum 64, mean 1\n{:>2$}     64  |{bar}|\n\
         by_result[failed]  count  64 values, sum -256, mean -4\n{:>17}     64  |{bar}|\n",
        "1 - 1",
        "below 0",
        title.len()
    );
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
}

#[test]
fn root_statistics_are_those_of_all_values() {
    let script = r#"
        struct Both { calls: u64, left: stats }
        var all : stats
        var none : stats
        var sizes : hash<str(16), stats>(64)
        var both : hash<u32, Both>(64)
        var own : stats
        @syscall_exit("write") {
            if (comm() == "NAME") {
                all.add(ret)
                sizes[comm()].add(ret)
                sizes["less"].add(ret - 5)
                both[1].left.add(ret as u32)
                both[1].calls += 1
            }
        }
        @end {
            for (i in 0..4) { own.add(i as i64 - 2) }
            print("own %llu %lld %lld %lld %lld", own.count, own.sum, own.min, own.max, own.mean)
            if (var less = sizes["less"]) { print("less %lld %lld %lld", less.min, less.max, less.mean) }
            print_map(sizes)
        }"#;
    let dd = Dd::new();
    let program = dd.folder.path(&dd.name).display().to_string();
    // Each process has a size of its own, and all of them write at the same time.
    let exec = format!(
        "for size in 1 2 3 4 5 6 7 8; do {program} if=/dev/zero of=/dev/null bs=$size count=500 status=none & done; wait"
    );
    let script = script.replace("NAME", &dd.name);
    let outcome = observed(&script, &["sh", "-c", &exec]);
    let lines: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let name = dd.name.as_str();
    let expected = [
        vec!["own", "4", "-2", "-2", "1", "-1"],
        vec!["less", "-4", "3", "-1"],
        vec!["sizes"],
        vec!["key", "count", "sum", "min", "max", "mean"],
        vec![name, "4000", "18000", "1", "8", "4"],
        vec!["less", "4000", "-2000", "-4", "3", "-1"],
        "all.count all.sum all.min all.max all.mean none.count none.sum none.min none.max none.mean"
            .split(' ')
            .collect(),
        "4000 18000 1 8 4 0 0 0 0 0".split(' ').collect(),
        vec!["both"],
        vec!["key", "calls", "left.count", "left.sum", "left.min", "left.max", "left.mean"],
        "1 4000 4000 18000 1 8 4".split(' ').collect(),
    ];
    let mut expected = expected.to_vec();
    // Rows of equal counts are sorted by their keys.
    if name > "less" {
        expected.swap(4, 5);
    }
    assert_eq!(lines, expected, "{outcome:#?}");
}

#[test]
fn root_a_sum_that_does_not_fit_is_reported() {
    let script = r#"
        var big : hash<u32, stats>(8)
        var low : stats
        @syscall_exit("write") {
            if (comm() == "NAME") {
                big[0].add(4611686018427387904 + ret as u64)
                big[1].add(4611686018427387904 / 4 + ret as u64)
                low.add(-4611686018427387904 - ret)
            }
        }"#;
    let dd = Dd::new();
    let reports = |outcome: &Outcome| {
        outcome.stdout.lines().filter(|line| line.contains("do not fit 64 bits")).map(str::to_owned).collect()
    };
    let fits: Vec<String> = reports(&dd.observed(script, 1));
    assert_eq!(fits, [""; 0]);
    let outcome = dd.observed(script, 3);
    let expected = [
        "low: 1 sums do not fit 64 bits, nor do their means",
        "big: 1 sums do not fit 64 bits, nor do their means",
    ];
    assert_eq!(reports(&outcome), expected, "{outcome:#?}");
    // 3 * (2^60 + 1)
    assert!(
        outcome.stdout.contains(" 3458764513820540931  1152921504606846977  1152921504606846977"),
        "{outcome:#?}"
    );
}

#[test]
fn root_statistics_in_json_are_members() {
    let script = r#"
        var took : hash<str(16), stats>(1024)
        @syscall_exit("write") { took[comm()].add(ret) }"#;
    let dd = Dd::new();
    let outcome = finish(command("ks-host").args(["--json", "-e", script, "--exec"]).args(dd.command(8)));
    let row =
        format!(r#""table":"took","row":{{"count":8,"key":"{}","max":1,"mean":1,"min":1,"sum":8}}"#, dd.name);
    assert!(outcome.stdout.contains(&row), "{row}: {outcome:#?}");
}

#[test]
fn root_histograms_in_json_are_objects() {
    let script = r#"@syscall_exit("write") { took[comm()].add(ret) }"#;
    let dd = Dd::new();
    let outcome = finish(command("ks-host").args(["--json", "-e", script, "--exec"]).args(dd.command(8)));
    let name = &dd.name;
    let row = outcome.stdout.lines().find(|line| line.contains(name.as_str()));
    let row = row.unwrap_or_else(|| panic!("no histogram of dd: {outcome:#?}"));
    let expected = format!(
        r#""title":"took[{name}]","key":["{name}"],"values":8,"sum":8,"below_zero":0,"slots":[{{"low":1,"high":1,"count":8}}]"#
    );
    assert!(row.contains(&expected), "{row}");
}

#[test]
fn root_json_has_an_object_for_each_row() {
    let script = r#"@syscall_enter("write") { n[comm()] += 1 }"#;
    let dd = Dd::new();
    let outcome = finish(command("ks-host").args(["--json", "-e", script, "--exec"]).args(dd.command(50)));
    let row = outcome.stdout.lines().find(|line| line.contains(dd.name.as_str()));
    let row = row.unwrap_or_else(|| panic!("no row of dd: {outcome:#?}"));
    assert!(row.contains(&format!(r#""table":"n","row":{{"key":"{}","value":50}}"#, dd.name)), "{row}");
}

#[test]
fn root_nothing_runs_if_an_attach_point_is_missing() {
    let script = r#"
        @tracepoint("raw_syscalls/sys_enter") { n[comm()] += 1 }
        @uprobe("/bin/no such program:main") { calls[comm()] += 1 }"#;
    let outcome = finish(command("ks-host").args(["-e", script, "--exec", "true"]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{outcome:#?}");
    assert!(outcome.stderr.contains("/bin/no such program"), "{outcome:#?}");
}

#[test]
fn root_optional_programs_are_left_out_where_their_target_is_missing() {
    let script = r#"
        @syscall_enter("write", "no_such_call", optional: true) { if (comm() == "NAME") { n[1] += 1 } }
        @uprobe("/bin/no such program:main", optional: true) { n[2] += 1 }
        @xdp("no such device", optional: true) { n[3] += 1 }
        @cgroup("connect4", "/sys/fs/cgroup/no such group", optional: true) { n[4] += 1 }
        @tracepoint("sched/no_such_event", optional: true) { n[5] += 1 }"#;
    let dd = Dd::new();
    let script = script.replace("NAME", &dd.name);
    let mut host = command("ks-host");
    host.args(["--allow", "xdp=*", "--allow", "cgroup=*", "-e", &script, "--exec"]).args(dd.command(70));
    let outcome = finish(&mut host);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "n\nkey  value\n  1     70\n"), "{outcome:#?}");
    let missing =
        ["no_such_call", "/bin/no such program", "no such device", "no such group", "sched/no_such_event"];
    let unnamed: Vec<_> = missing.iter().filter(|name| !outcome.stderr.contains(**name)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}: {outcome:#?}");
    let lines = ["-e:3: `on_main`", "-e:4: `on_xdp`", "-e:5: `on_connect4`"];
    assert!(lines.iter().all(|line| outcome.stderr.contains(line)), "{outcome:#?}");
    let denied = finish(command("ks-host").args(["-e", &script, "--exec", "true"]));
    assert_eq!((denied.code, denied.stdout.as_str()), (126, ""), "{denied:#?}");
    let checked = finish(command("ks-host").arg("check").arg(dd.folder.write("optional.ks", script)));
    let rows: Vec<Vec<&str>> = checked.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = "optional attach point uprobe//bin/no such program:main+0 of on_main";
    assert!(checked.code == 0 && rows.iter().any(|row| row.join(" ").starts_with(expected)), "{checked:#?}");
}

/// The command runs, and the script waits for it, wherever it shows that nothing is there.
#[test]
fn root_a_script_whose_programs_are_all_left_out_runs_its_command() {
    for attribute in ["@raw_tracepoint(\"no_such_event\"", "@uprobe(\"/bin/no such program:main\""] {
        let outcome =
            observed(&format!("{attribute}, optional: true) {{ n[1] += 1 }}"), &["echo", "it runs"]);
        assert!(outcome.stdout.starts_with("it runs\n"), "{attribute}: {outcome:#?}");
    }
}

/// A user who may not read the kernel's memory passes an address of it.
#[test]
fn root_no_process_shows_the_kernels_memory() {
    let source = "#include <fcntl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n
        int main(void) {
            const char *of_kernel = (const char *)0xffffffff81000000;
            syscall(SYS_openat, AT_FDCWD, of_kernel, 0);
            syscall(SYS_newfstatat, AT_FDCWD, of_kernel, 0, 0);
            return 0;
        }";
    let folder = Folder::new();
    let program = folder.path(format!("kp{}", std::process::id()));
    let file = folder.write("pointer.c", source);
    let built = finish(Command::new("cc").arg("-o").arg(&program).arg(file));
    assert_eq!(built.code, 0, "{built:#?}");
    let (path, name) =
        (program.display().to_string(), program.file_name().expect("a name").to_string_lossy());
    let shown = observed(
        &format!(
            r#"@syscall_enter("openat") {{
                if (comm() == "{name}" && filename as u64 as i64 < 0) {{ print("[%s]", filename) }}
            }}"#
        ),
        &[&path],
    );
    assert_eq!(shown.stdout, "[]\n", "{shown:#?}");
    for tool in ["opensnoop", "statsnoop"] {
        let ran = finish(command("ks-host").args(["tool", tool, "--failed", "--exec", &path]));
        let rows: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(&*name)).collect();
        assert!(rows.iter().any(|row| row.trim_end().ends_with("EFAULT")), "{tool}: {ran:#?}");
    }
}

#[test]
fn root_an_interface_is_one_of_the_attribute() {
    let wire = Wire::new();
    let script = format!("@xdp(\"{LEFT}\") {{ packets[ctx->ingress_ifindex] += 1 }}");
    let denied = finish(wire.command("ks-host").args(["-e", &script, "--timeout", "5"]));
    assert_eq!((denied.code, denied.stdout.as_str()), (126, ""), "{denied:#?}");
    let outcome = finish(wire.allowed().args(["-e", &script, "--exec", "true"]));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stdout.starts_with("packets\nkey  value\n"), "{outcome:#?}");
}

#[test]
fn errors_show_the_script() {
    let outcome = finish(command("ks-host").args(["-e", "@syscall_enter(\"openat\") { n[comm(] += 1 }"]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (127, ""), "{outcome:#?}");
    assert!(outcome.stderr.contains(" --> -e:1:"), "{outcome:#?}");
    assert!(outcome.stderr.contains("1 | @syscall_enter(\"openat\") { n[comm(] += 1 }\n"), "{outcome:#?}");
    let checked = finish(command("ks").args(["check", "-e", "@syscall_enter(\"openat\") { n[comm(] += 1 }"]));
    assert_eq!(checked.code, 1, "{checked:#?}");
    assert!(checked.stderr.contains(" --> -e:1:"), "{checked:#?}");
    assert_eq!(finish(command("ks").args(["check", "-e", HELLO])).code, 0);
}

#[test]
fn a_script_comes_from_standard_input() {
    use std::io::Write as _;
    let mut host = command("ks-host");
    let mut host = host.arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    host.stdin.take().expect("piped").write_all(HELLO.as_bytes()).expect("it is read");
    let output = host.wait_with_output().expect("it is ours");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"hello world\n"[..]));
}

#[test]
fn root_ctrl_c_ends_the_script_with_its_results() {
    let script = r#"@perf_event("cpu_clock", freq: 999) { samples[0] += 1 } @begin { print("begins") }"#;
    let mut host = command("ks-host");
    let mut host = host.args(["-e", script]).stdout(Stdio::piped()).spawn().expect("it starts");
    let id = nix::unistd::Pid::from_raw(host.id() as i32);
    let is_loaded = || kernel_objects("on_cpu_clock").is_ok_and(|found| !found.is_empty());
    assert!(is_within(Duration::from_secs(20), is_loaded), "the program is loaded");
    std::thread::sleep(Duration::from_millis(200));
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).expect("it is ours");
    let stdout = std::io::read_to_string(host.stdout.take().expect("piped")).expect("it is text");
    assert_eq!(host.wait().expect("it is ours").code(), Some(0));
    assert!(stdout.starts_with("begins\nsamples\nkey  value\n"), "{stdout}");
}
