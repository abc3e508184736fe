//! The userspace half with the real host: what a script can ask of the machine, and what it is refused.

use ks_tests::{Folder, command, compile, finish, run_script};

const NO_WORDS: &[&str] = &[];

#[test]
fn tasks_and_cpus_are_those_of_the_machine() {
    let script = "fn main() -> i32 {\n    var own = comm_of(pid_of(\"ks-host\"))\n    \
                  print(\"%s %d %u\", own, pid_of(\"no such task\"), cpu_count())\n    return 0\n}\n";
    let outcome = run_script("tasks", script, NO_WORDS);
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").expect("sysfs is mounted");
    // A list of ranges that begins with 0 and ends with the highest number.
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok());
    let expected = format!("ks-host -1 {}\n", last.expect("a number") + 1);
    assert_eq!((outcome.code, outcome.stdout), (0, expected), "{}", outcome.stderr);
}

#[test]
fn lf_110_nothing_runs_outside_of_the_sandbox() {
    let folder = Folder::new();
    let mark = folder.path("ran");
    folder.write("report.py", format!("open({:?}, 'w').close()\ndef f():\n    return 7\n", mark.display()));
    let script = "import report from \"report.py\"\nfn main() -> i32 {\n    exec(\"./report.py\")\n    \
                  print(\"after %u\", report.f())\n    return 3\n}\n";
    let plugin = folder.write("runs.wasm", compile("runs", script).plugin);
    let outcome = finish(command("ks-host").arg(plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "after 0\n"));
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("runs.ks:3: cannot run `./report.py`"), "{lines:?}");
    assert!(lines[1].contains("runs.ks:4: cannot call `f` of the Python module `report.py`"), "{lines:?}");
    assert!(!mark.exists());
}
