//! `symbol`: functions of the kernel and of processes, by their addresses. Some of these tests need root.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use ks_tests::{Folder, Outcome, binary, compile, finish, run_script};

/// The id of a user that owns nothing.
const NOBODY: u32 = 65534;

/// Prints the names of three addresses: one of the kernel, one of a task, and one of nothing.
const SCRIPT: &str = include_str!("scripts/symbols.ks");

/// A function whose address the test looks up.
#[inline(never)]
fn marker() -> u32 {
    std::hint::black_box(7)
}

fn arguments(kernel: u64, task: u32, own: u64) -> [String; 3] {
    [format!("--kernel={kernel:#x}"), format!("--task={task}"), format!("--own={own:#x}")]
}

/// Returns the addresses and names of kallsyms.
fn kallsyms() -> Vec<(u64, String)> {
    let listed = fs::read_to_string("/proc/kallsyms").expect("procfs is mounted");
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((address, fields.nth(1)?.to_owned()))
    };
    listed.lines().filter_map(row).collect()
}

fn schedule() -> u64 {
    kallsyms().iter().find(|(_, name)| name == "schedule").expect("every kernel has it").0
}

#[test]
fn root_addresses_have_the_names_of_their_functions() {
    let own = marker as fn() -> u32 as usize as u64 + 2;
    let outcome = run_script("symbols", SCRIPT, &arguments(schedule() + 5, std::process::id(), own));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.row("kernel")[1], "schedule+0x5");
    assert_eq!(outcome.row("again")[1], "schedule+0x6");
    let task = outcome.row("task")[1];
    assert!(task.contains("marker") && task.ends_with("+0x2"), "{task}");
    assert_eq!(outcome.row("low")[1..], ["0x1", "0x5000"]);
    assert_eq!(outcome.row("none")[1..], ["0x1234", "0x1"]);
    assert_eq!(marker(), 7);
}

/// kallsyms has no sizes: an address far after the last symbol does not belong to it.
#[test]
fn root_a_gap_between_symbols_has_no_name() {
    let mut addresses: Vec<u64> = kallsyms().into_iter().map(|(address, _)| address).collect();
    addresses.sort_unstable();
    let above_half = addresses.partition_point(|address| *address < 1 << 63);
    let gap = addresses[above_half..].windows(2).find(|pair| pair[1] - pair[0] > 16 << 20);
    let last = addresses.last().expect("there are symbols");
    let inside = gap.map_or(last.saturating_add(8 << 20), |pair| pair[0] + (8 << 20));
    let outcome = run_script("gap", SCRIPT, &arguments(inside, std::process::id(), 1));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.row("kernel")[1], format!("{inside:#x}"));
}

/// Runs the script as a user that owns nothing but its own task, which sleeps.
fn run_as_nobody(task: u32, own: u64) -> Outcome {
    run_script_as_nobody(SCRIPT, task, own)
}

/// Runs a script with the same arguments as that user.
fn run_script_as_nobody(script: &str, task: u32, own: u64) -> Outcome {
    let folder = Folder::new();
    let plugin = folder.write("symbols.wasm", compile("symbols", script).plugin);
    let host = folder.path("ks-host");
    // Other users may have no access to the build folder.
    ks_tests::copy_program(binary("ks-host"), &host);
    let mut command = Command::new(host);
    command
        .arg("--no-cache")
        .arg(plugin)
        .arg("--")
        .args(arguments(schedule(), task, own))
        .uid(NOBODY)
        .gid(NOBODY);
    finish(&mut command)
}

/// Returns whether this kernel shows its addresses to users without rights.
fn kallsyms_are_open() -> bool {
    let output = finish(Command::new("head").args(["-n", "1", "/proc/kallsyms"]).uid(NOBODY).gid(NOBODY));
    !output.stdout.starts_with("0000000000000000")
}

/// A sleeping task, killed when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new(user: u32) -> Sleeper {
        let mut command = Command::new("/bin/sleep");
        Sleeper(command.arg("60").uid(user).gid(user).stdin(Stdio::null()).spawn().expect("sleep is there"))
    }

    /// Returns the first address of code from the file that it runs.
    fn code(&self) -> u64 {
        let file = fs::canonicalize("/bin/sleep").expect("sleep is there");
        let file = file.to_string_lossy().into_owned();
        loop {
            let maps = fs::read_to_string(format!("/proc/{}/maps", self.0.id())).expect("it lives");
            let line = maps.lines().find(|line| line.contains("r-xp") && line.ends_with(&file));
            let start = line.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
            match start {
                Some(start) => return start,
                // The task has not reached its exec yet.
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_missing_rights_for_names_are_reported_once() {
    let foreign = Sleeper::new(0);
    let code = foreign.code();
    let outcome = run_as_nobody(foreign.0.id(), code);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.row("task")[1], format!("{code:#x}"));
    let task = format!("cannot name functions of task {}: permission denied", foreign.0.id());
    let mut expected = vec![(task.as_str(), "CAP_SYS_PTRACE")];
    if kallsyms_are_open() {
        assert_eq!(outcome.row("kernel")[1], "schedule+0x0");
    } else {
        assert_eq!(outcome.row("kernel")[1], format!("{:#x}", schedule()));
        expected.insert(0, ("cannot name functions of the kernel", "CAP_SYSLOG"));
    }
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{outcome:#?}");
    for (line, (what, advice)) in lines.iter().zip(expected) {
        assert!(line.contains(what) && line.contains(advice), "{line}");
    }
}

/// Without the right to record what processes map, a process that has ended has no names, and a line says why.
#[test]
fn root_an_ended_process_without_a_record_is_reported() {
    let mut ended = Command::new("/bin/true").spawn().expect("it is there");
    let pid = ended.id();
    ended.wait().expect("it is ours");
    let script = SCRIPT.replace("symbol(args.task, args.own)", "usym(args.task, args.own)");
    let outcome = run_script_as_nobody(&script, pid, 0x1000);
    assert_eq!((outcome.code, outcome.row("task")[1]), (0, "0x1000"), "{outcome:#?}");
    let line = outcome.stderr.lines().find(|line| line.contains("processes that have ended"));
    assert!(line.is_some_and(|line| line.contains("CAP_PERFMON")), "{outcome:#?}");
}

/// A user without rights can read its own tasks. This task's file may have no symbols, which is not a
/// failure.
#[test]
fn root_own_tasks_need_no_rights() {
    let own = Sleeper::new(NOBODY);
    let outcome = run_as_nobody(own.0.id(), own.code());
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(!outcome.stderr.contains("task"), "{outcome:#?}");
}
