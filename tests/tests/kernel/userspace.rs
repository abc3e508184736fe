//! The userspace half with the real host: state shared with the kernel half, queries of the machine, and
//! refusals.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use ks_tests::net::{LEFT, Wire};
use ks_tests::{Folder, allowed, compile, finish, run_script, wait_until, wait_until_gone};

const NO_ARGUMENTS: &[&str] = &[];

#[test]
fn tasks_and_cpus_are_those_of_the_machine() {
    let folder = Folder::new();
    let name = format!("kstask{}", std::process::id());
    let program = folder.path(&name);
    ks_tests::copy_program("/bin/sleep", &program);
    let mut task = Command::new(program).arg("60").spawn().expect("it starts");
    let script = format!(
        "fn main() -> i32 {{
            var pid = pid_of(\"{name}\")
            print(\"%d %s %d %u\", pid, comm_of(pid), pid_of(\"no such task\"), cpu_count())
            return 0
        }}"
    );
    let outcome = run_script("tasks", &script, NO_ARGUMENTS);
    task.kill().expect("it is ours");
    task.wait().expect("it is ours");
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").expect("sysfs is mounted");
    // A list of ranges that begins with 0 and ends with the highest number.
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok());
    let expected = format!("{} {name} -1 {}\n", task.id(), last.expect("a number") + 1);
    assert_eq!((outcome.code, outcome.stdout), (0, expected), "{}", outcome.stderr);
}

#[test]
fn lf_105_printed_text() {
    let script = include_str!("scripts/userspace_lf_105_printed_text.ks");
    let expected = "-1 -2147483649 18446744073709551615 ff FF 10\n\
                    -1 18446744071562067967 18446744073709551615 18446744073709551615\n\
                    [   42|42   |-0042|+42|0xff| 42|007]\n[text|    text|text    |te|x|A] 100%\nraw 1 0 1\n\n\
                    own end\ntext 18446744073709551615 -1 true c GREEN\n7 7 GREEN\ntext\n";
    let outcome = run_script("printed", script, NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
}

#[test]
fn lf_106_values_and_conversions() {
    let script = "fn main() -> i32 {\n    var n: u32 = 7\n    var s: str(4) = \"ab\"\n    \
                  print(\"n\", n, s, true)\n    \
                  print(\"{} and {}\", s, n)\n    print(\"end %u\\n\", n, s)\n    print(\"%y %u\", n)\n    \
                  return 0\n}\n";
    let outcome = run_script("surplus", script, NO_ARGUMENTS);
    let expected = "n 7 ab true\nab and 7\nend 7 ab\n%y 7\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
}

#[test]
fn lf_110_plugins_run_only_in_the_sandbox() {
    let folder = Folder::new();
    let mark = folder.path("ran");
    folder.write("report.py", format!("open({:?}, 'w').close()\ndef f():\n    return 7\n", mark.display()));
    let script = "import report from \"report.py\"\nfn main() -> i32 {\n    exec(\"./report.py\")\n    \
                  print(\"after %u\", report.f())\n    return 3\n}\n";
    let plugin = folder.write("runs.wasm", compile("runs", script).plugin);
    let outcome = finish(allowed().arg(plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "after 0\n"));
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("runs.ks:3: cannot run `./report.py`"), "{lines:?}");
    assert!(lines[1].contains("runs.ks:4: cannot call `f` of the Python module `report.py`"), "{lines:?}");
    assert!(!mark.exists());
}

#[test]
fn root_lf_108_attach_returns_0_or_an_errno() {
    let wire = Wire::new();
    let name = format!("x{}", std::process::id());
    let script = format!(
        "struct Args {{ dev: str(16) }}\n@xdp\nfn {name}(ctx: *xdp_md) -> xdp_action {{\nreturn XDP_PASS\n\
         }}\n\
         fn main(args: Args) -> i32 {{\nvar h = load({name})\nvar none = h\nnone = null\n\
         print(\"%u\", attach(h, args.dev, 2))\nprint(\"%d\", attach(h, args.dev, 2) != 0)\n\
         print(\"%u %u\", attach(h, \"lo\", 2), attach(h, \"nowhere\", 2))\n\
         print(\"%u\", attach(none, \"lo\", 2))\n\
         detach(h)\ndetach(h)\nprint(\"%u\", attach(h, args.dev, 2))\n\
         return 0\n}}\n"
    );
    let folder = Folder::new();
    let plugin = folder.write("results.wasm", compile("results", &script).plugin);
    let outcome = finish(wire.allowed().arg(plugin).args(["--", "--dev", LEFT]));
    // ENODEV or ENOENT for a missing target, EINVAL for no program.
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!((outcome.code, lines.len()), (0, 5), "{outcome:#?}");
    assert_eq!([lines[0], lines[1], lines[3], lines[4]], ["0", "1", "22", "0"], "{outcome:#?}");
    assert!(["0 19", "0 2"].contains(&lines[2]), "{outcome:#?}");
    for said in [LEFT, "nowhere", "the program is not loaded"] {
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    wait_until_gone(&name);
}

#[test]
fn root_flags_without_meaning_are_ignored_with_a_line() {
    let wire = Wire::new();
    let name = format!("t{}", std::process::id());
    let script = format!(
        "struct Args {{ dev: str(16) }}\n@tc(\"ingress\")\nfn {name}(ctx: *__sk_buff) -> i32 {{\nreturn 0\n\
         }}\n\
         fn main(args: Args) -> i32 {{\nvar h = load({name})\nvar wrong: str(8) = \"a\\xff\"\n\
         print(\"%u %u\", attach(h, args.dev, 1), attach(h, wrong, 0))\nreturn 0\n}}\n"
    );
    let folder = Folder::new();
    let plugin = folder.write("flags.wasm", compile("flags", &script).plugin);
    let outcome = finish(wire.allowed().arg(plugin).args(["--", "--dev", LEFT]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "0 22\n"), "{outcome:#?}");
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{outcome:#?}");
    assert!(lines[0].contains(&name) && lines[0].contains("its kind has no flags"), "{outcome:#?}");
    assert!(lines[1].contains("flags.ks:9: cannot attach: the target is not UTF-8"), "{outcome:#?}");
    wait_until_gone(&name);
}

/// A variable of each kind: its type, a value that userspace writes, and one that the kernel half writes.
const KINDS: &[(&str, &str, &str)] = &[
    ("u8", "200", "201"),
    ("u16", "60000", "60001"),
    ("u32", "4000000000", "4000000001"),
    ("u64", "18446744073709551614", "18446744073709551615"),
    ("i8", "-100", "-101"),
    ("i16", "-30000", "-30001"),
    ("i32", "-2000000000", "-2000000001"),
    ("i64", "-2147483649", "-2147483650"),
    ("bool", "true", "false"),
    ("char", "'a'", "'b'"),
    ("Color", "GREEN", "BLUE"),
    ("str(12)", "\"userspace\"", "\"kernel\""),
];

#[test]
fn root_lf_084_globals_are_one_copy() {
    let mut script = String::from(
        "enum Color { RED, GREEN, BLUE = 70000 }\nstruct Inner { a: u8, b: u64 }\n\
         struct Record { n: u16, inner: Inner, name: str(6), list: u32[3] }\n\
         var record : Record\nvar list : i16[5]\nvar nested : Record[2]\nvar armed : bool = false\n\
         var seen : u32 = 0\nvar memory : u8[65536]\n",
    );
    let (mut kernel, mut before, mut after) = (String::new(), String::new(), String::new());
    for (at, (ty, user, of_kernel)) in KINDS.iter().enumerate() {
        let _ = writeln!(script, "var g{at} : {ty}");
        let _ = writeln!(before, "g{at} = {user}");
        let _ = writeln!(
            kernel,
            "var v{at}: {ty} = {user}\nif (g{at} == v{at}) {{ seen += 1 }}\ng{at} = {of_kernel}"
        );
        let _ = writeln!(after, "var v{at}: {ty} = {of_kernel}\nif (g{at} == v{at}) {{ found += 1 }}");
    }
    let _ = write!(
        script,
        "@perf_event\nfn program(ctx: *bpf_perf_event_data) -> i32 {{\nif (!armed) {{ return 0 }}\narmed = \
         false\n\
         {kernel}if (record.inner.b == 7 && record.name == \"ab\" && list[4] == -4 && nested[1].list[2] == \
         9) {{ seen += 1 }}\nrecord.inner.b += 1\nrecord.name = \"cde\"\nlist[4] -= 1\n\
         nested[1].list[2] = 10\n\
         nested[0] = record\nreturn 0\n}}\nfn main() -> i32 {{\nvar found: u32 = 0\nvar h = load(program)\n\
         attach(h, perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 1 }}, 0)\n\
         {before}record = Record {{ n: 1, inner: Inner {{ a: 2, b: 7 }}, name: \"ab\", list: [1, 2, 3] }}\n\
         list[4] = -4\nnested[1].list[2] = 9\narmed = true\nmemory[32768] = 1\n\
         {after}if (record.inner.b == 8 && record.name == \"cde\" && list[4] == -5 && nested[1].list[2] == \
         10 && nested[0].inner.a == 2 && nested[0].list[1] == 2) {{ found += 1 }}\n\
         print(\"%u %u\", seen, found)\nreturn 0\n}}\n"
    );
    let outcome = run_script("shared", &script, &[] as &[&str]);
    let expected = format!("{0} {0}\n", KINDS.len() + 1);
    assert_eq!((outcome.code, outcome.stdout), (0, expected), "{}\n{script}", outcome.stderr);
}

#[test]
fn root_lf_109_detaching_twice_is_harmless_and_nothing_stays() {
    let name = format!("d{}", std::process::id());
    let script = format!(
        "var hits : u64 = 0\nvar memory : u8[1048576]\n@perf_event\nfn {name}(ctx: *bpf_perf_event_data) -> \
         i32 {{\n\
         hits += 1\nreturn 0\n}}\nfn touch(at: u32) {{ memory[at * 65536] = 1 }}\nfn main() -> i32 {{\n\
         var h = load({name})\nvar o = perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 1 }}\n\
         var a = attach(h, o, 0)\nvar b = attach(h, o, 0)\ntouch(1)\nvar first = hits\ndetach(a)\ndetach(a)\n\
         detach(h)\ndetach(h)\ndetach(b)\nvar before = hits\ntouch(2)\n\
         print(\"%d %d %u\", first > 1, hits == before, read(a).raw == -1)\nattach(h, o, 0)\nreturn 0\n}}\n"
    );
    let outcome = run_script("twice", &script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "1 1 1\n"), "{}", outcome.stderr);
    wait_until_gone(&name);
}

#[test]
fn root_every_builtin_can_be_deferred() {
    let script = include_str!("scripts/userspace_every_builtin_can_be_deferred.ks");
    let outcome = run_script("deferring", script, NO_ARGUMENTS);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let (numbers, histogram) = outcome.stdout.split_once("deferred").expect("a histogram at the end");
    assert_eq!(numbers, "3\n0\n1\n0\n7\n");
    assert!(histogram.contains('1') && !histogram.contains('9'), "{histogram}");
}

/// Event descriptions next to `event` work wherever the options are stored.
#[test]
fn root_events_are_assigned_to_options_in_maps_and_shared_variables() {
    let script =
        include_str!("scripts/userspace_events_are_assigned_to_options_in_maps_and_shared_variables.ks");
    let outcome = run_script("described", script, NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "1 1\n"), "{}", outcome.stderr);
}

/// As a write to a whole element.
#[test]
fn root_a_write_to_a_part_beyond_the_end_of_an_array_is_reported() {
    let script = "struct Pair { x: u32, y: u64 }\nvar pairs : array<u32, Pair>(4)\nfn main() -> i32 {\n    \
                  var i: u32 = 9\n    if (stopping()) { i = 3 }\n    pairs[i].y += 7\n    pairs[i].y = 7\n    \
                  pairs[i] = Pair { x: 1, y: 2 }\n    pairs[3].y = 8\n    print(\"{} {}\", pairs[3].y, pairs[i].y)\n    \
                  return 0\n}\n";
    let outcome = run_script("beyond", script, NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "8 0\n"), "{}", outcome.stderr);
    for line in [6, 7, 8] {
        let text = format!("beyond.ks:{line}: cannot update the map `pairs`");
        assert!(outcome.stderr.contains(&text), "{}", outcome.stderr);
    }
    assert_eq!(outcome.stderr.matches("E2BIG").count(), 3, "{}", outcome.stderr);
}

/// The process of the command waits for a plugin that never lets it run, and whose host is gone before it knows.
#[test]
fn root_a_command_that_never_ran_ends_without_a_word() {
    let folder = Folder::new();
    let plugin = folder.write("now.wasm", compile("now", "fn main() -> i32 {\n    return 1\n}\n").plugin);
    for _ in 0..20 {
        let outcome = finish(allowed().arg(&plugin).args(["--exec", "true"]));
        let said = "now.wasm: `true` was not run: the plugin ended without waiting (`sleep`, `dispatch`)\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1, said));
    }
}

/// The host takes the signals that ask it to stop on a thread of its own, and blocks them on the others.
#[test]
fn root_a_command_begins_with_no_signal_blocked_and_ends_with_its_plugin() {
    let script = r#"@tracepoint("sched/sched_process_exit") { ended[0] += 1 }"#;
    for isolation in ["process", "thread"] {
        let run = |options: &[&str], command: &[&str]| {
            let mut host = allowed();
            host.args(["--isolation", isolation]).args(options).args(["-e", script, "--exec"]).args(command);
            finish(&mut host)
        };
        let outcome = run(&[], &["grep", "SigBlk", "/proc/self/status"]);
        assert!(outcome.stdout.contains("SigBlk:\t0000000000000000\n"), "{isolation}: {outcome:#?}");
        let folder = Folder::new();
        let program = folder.path("sleeping");
        ks_tests::copy_program("/bin/sleep", &program);
        let outcome = run(&["--timeout", "0.3"], &[program.to_str().expect("a plain name"), "777"]);
        assert_eq!(outcome.code, 124, "{isolation}: {outcome:#?}");
        let is_running = || {
            let mut processes = std::fs::read_dir("/proc").expect("procfs is mounted").flatten();
            processes.any(|one| std::fs::read_link(one.path().join("exe")).is_ok_and(|exe| exe == program))
        };
        wait_until(Duration::from_secs(10), "the command has ended", || !is_running());
    }
}
