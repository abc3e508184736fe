//! Our programs next to counters of other processes: these counters read the same numbers as without. These
//! tests need root.

use std::path::{Path, PathBuf};
use std::process::Command;

use ks_compiler::bpf;
use ks_host::perf::{AttachmentId, Attachments, Catalog, Event, Options};
use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, command, compile, finish};

use crate::perf_support::{fault, named, own_thread};

/// One program of each kind; the program of KIND is attached. PROGRAM is an executable with a function
/// `worker`.
const SCRIPT: &str = include_str!("scripts/beside_kinds.ks");

/// Number of counted events of each kind.
const TIMES: u32 = 200;

/// Builds a program that calls `worker` and getppid(2) [`TIMES`] times each.
fn worker(folder: &Folder) -> PathBuf {
    let source = folder.write(
        "worker.c",
        "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((noinline)) int worker(int n) { asm volatile(\"\"); return n + \
         1; }\n\
         int main(int count, char **words) { int sum = 0; for (int i = atoi(words[1]); i; i--) sum += \
         worker(i) + getppid(); return sum & 0; }\n",
    );
    let built = folder.path("worker");
    let outcome = finish(Command::new("cc").args(["-O1", "-o"]).arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built
}

/// Returns the calls and returns of getppid(2) that `perf stat` counts for a command; none without perf, which CI
/// does not allow.
fn counted_by_perf(folder: &Folder, program: &Path) -> Option<[u64; 2]> {
    let events = ["syscalls:sys_enter_getppid", "syscalls:sys_exit_getppid"];
    // perf needs tracefs, which may not be mounted: it is mounted for this one command.
    let mounted =
        "mount -t tracefs t /sys/kernel/tracing 2>/dev/null; exec perf stat -x ';' -o \"$0\" -e $1 -- $2";
    let file = folder.path("stat");
    let outcome = finish(
        Command::new("unshare")
            .args(["-m", "sh", "-c", mounted])
            .arg(&file)
            .arg(events.join(","))
            .arg(format!("{} {TIMES}", program.display())),
    );
    if outcome.code != 0 {
        assert!(std::env::var_os("CI").is_none(), "`scripts/packages perf` installs perf: {outcome:#?}");
        eprintln!("NOT TESTED: `perf stat` does not run here");
        return None;
    }
    let text = std::fs::read_to_string(file).expect("perf wrote it");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    Some(events.map(|event| {
        let row = rows.iter().find(|row| row.get(2) == Some(&event));
        row.and_then(|row| row[0].parse().ok()).unwrap_or_else(|| panic!("no count of {event}: {text}"))
    }))
}

/// Opens a counter in this process, which is not the host.
fn counter(attachments: &mut Attachments, event: &Event, options: &Options) -> AttachmentId {
    attachments.open(event, options, None, None).unwrap_or_else(|error| panic!("{error}"))
}

fn read(attachments: &mut Attachments, id: AttachmentId) -> u64 {
    attachments.read(id).unwrap_or_else(|error| panic!("{error}")).raw
}

#[test]
fn root_other_processes_count_the_same_next_to_a_program_of_each_kind() {
    let folder = Folder::new();
    let program = worker(&folder);
    let script = SCRIPT.replace("PROGRAM", &program.display().to_string());
    let mut attachments = Attachments::new();
    let catalog = Catalog::default();
    let calls = catalog.tracepoint("syscalls/sys_enter_getppid").expect("the kernel has it");
    let calls = counter(&mut attachments, &calls, &own_thread());
    let returns = catalog.tracepoint("syscalls/sys_exit_getppid").expect("the kernel has it");
    let returns = counter(&mut attachments, &returns, &own_thread());
    let worked = catalog.uprobe(&format!("{}:worker", program.display())).expect("it has one");
    let everywhere = Options { pid: -1, cpu: -1, every_cpu: true, ..Options::default() };
    let worked = counter(&mut attachments, &worked, &everywhere);
    let faults = counter(&mut attachments, &named("page_faults"), &own_thread());
    let counted = |attachments: &mut Attachments| {
        let before = [calls, returns, worked].map(|id| read(attachments, id));
        for _ in 0..TIMES {
            nix::unistd::getppid();
        }
        let outcome = finish(Command::new(&program).arg(TIMES.to_string()));
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        let after = [calls, returns, worked].map(|id| read(attachments, id));
        let of_faults = read(attachments, faults);
        fault(TIMES as usize);
        let of_faults = read(attachments, faults) - of_faults;
        let by_perf = counted_by_perf(&folder, &program).unwrap_or([TIMES.into(); 2]);
        (([0, 1, 2].map(|at| after[at] - before[at]), of_faults), by_perf)
    };
    let alone = counted(&mut attachments);
    assert_eq!(alone, (([u64::from(TIMES); 3], u64::from(TIMES)), [u64::from(TIMES); 2]));
    for kind in
        ["zero", "even", "nothing", "early", "thrown", "tail", "enter", "exit", "raw", "probe", "returns"]
    {
        let running = Running::start("beside", &script.replace("KIND", kind), &[] as &[&str]);
        let with_program = counted(&mut attachments);
        let outcome = running.stop();
        assert_eq!(with_program, alone, "{kind}: {outcome:#?}");
        assert_eq!(outcome.code, 0, "{kind}: {outcome:#?}");
        let [runs, own, samples] = outcome.numbers("runs")[..] else { panic!("{kind}: {outcome:#?}") };
        // The raw tracepoint is a different one.
        let least = if kind == "raw" { 1 } else { i64::from(TIMES) };
        assert!(runs >= least && own >= i64::from(TIMES), "{kind}: {outcome:#?}");
        // A program runs at each page fault of the machine.
        assert!(samples >= i64::from(TIMES), "{kind}: {outcome:#?}");
        assert!(!outcome.stderr.contains("may return an even number"), "{kind}: {outcome:#?}");
    }
}

/// A plugin's counter of a tracepoint equals the number of runs of its own program there.
#[test]
fn root_a_plugin_counts_a_tracepoint_that_its_own_program_is_attached_to() {
    // No other test makes this call.
    let script = include_str!("scripts/beside_own.ks");
    let running = Running::start("own", script, &[] as &[&str]);
    for _ in 0..TIMES {
        nix::unistd::getpgid(None).expect("it has one");
    }
    let outcome = running.stop();
    let [runs, own] = outcome.numbers("runs")[..] else { panic!("{outcome:#?}") };
    assert_eq!([runs, own], [i64::from(TIMES); 2], "{outcome:#?}");
}

/// Returns a plugin with a program as others might have written it: it returns 0. No other test counts this
/// call, which the program hides from all counters.
fn foreign() -> Vec<u8> {
    let script = "@tracepoint(\"syscalls/sys_enter_getsid\")\n\
                  fn hides(ctx: *trace_event_raw_sys_enter) -> i32 { return 1 }\n\
                  fn main() -> i32 {\n if (attach(load(hides), \"\", 0) != 0) { return 1 }\n \
                  print(\"ready\")\n\
                  while (!stopping()) { sleep(20) }\n return 0 }";
    let mut plugin = compile("foreign", script).plugin;
    let returns = |number: i32| {
        let code = [bpf::Insn::mov32(bpf::Reg::R0, bpf::Operand::Imm(number)), bpf::Insn::Exit];
        bpf::encode(&code).expect("two instructions")
    };
    let wide = |number: i32| {
        let code = [bpf::Insn::mov(bpf::Reg::R0, bpf::Operand::Imm(number)), bpf::Insn::Exit];
        bpf::encode(&code).expect("two instructions")
    };
    let mut changed = 0;
    for (from, to) in [(returns(1), returns(0)), (wide(1), wide(0))] {
        while let Some(at) = plugin.windows(from.len()).position(|bytes| bytes == from) {
            plugin[at..at + to.len()].copy_from_slice(&to);
            changed += 1;
        }
    }
    assert!(changed > 0, "the program is in the file");
    plugin
}

#[test]
fn root_a_program_that_hides_hits_from_others_is_named_and_can_be_denied() {
    let folder = Folder::new();
    let file = folder.write("foreign.wasm", foreign());
    let inspected = finish(command("ks-host").arg("inspect").arg(&file));
    assert!(inspected.stdout.contains("may keep hits from all counters"), "{inspected:#?}");
    let own = finish(command("ks-host").arg("inspect").arg(folder.write("own.ks", SCRIPT)));
    assert!(!own.stdout.contains("may keep hits"), "{own:#?}");
    let policy = finish(command("ks-host").args(["inspect", "--policy"]).arg(&file));
    let class = "filters_events = [\"syscalls/sys_enter_getsid\"]";
    assert!(policy.stdout.contains(class), "{policy:#?}");
    // A policy without a rule for it denies it.
    let narrow = folder.write("narrow.toml", policy.stdout.replace(class, ""));
    let denied = finish(command("ks-host").arg("--policy").arg(narrow).arg(&file));
    assert_eq!(denied.code, 126, "{denied:#?}");
    assert!(denied.stderr.contains("--allow filters_events=syscalls/sys_enter_getsid"), "{denied:#?}");
    // It runs when a user starts it, with a warning.
    let mut attachments = Attachments::new();
    let calls = Catalog::default().tracepoint("syscalls/sys_enter_getsid").expect("the kernel has it");
    let calls = counter(&mut attachments, &calls, &own_thread());
    let running = Running::of(allowed().arg(&file), "ready");
    for _ in 0..TIMES {
        nix::unistd::getsid(None).expect("it has one");
    }
    assert_eq!(read(&mut attachments, calls), 0, "the kernel drops them");
    let outcome = running.stop();
    let warnings = outcome.stderr.matches("may return an even number").count();
    assert_eq!((outcome.code, warnings), (0, 1), "{outcome:#?}");
}

/// Hits while another program runs on that CPU are counted for no event; the kernel counts how many it
/// skipped.
#[test]
fn root_hits_that_the_kernel_skips_are_reported_with_the_readings() {
    let running = Running::start("skipped", include_str!("scripts/beside_skipped.ks"), &[] as &[&str]);
    for _ in 0..TIMES {
        nix::unistd::getresuid().expect("it has them");
    }
    let outcome = running.stop();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let [seen, counted] = outcome.numbers("seen")[..] else { panic!("{outcome:#?}") };
    // The counter misses the hits that the program missed; the two are read one after the other.
    let between = 20.max(seen.unsigned_abs() / 100);
    assert!(seen > 0 && seen.abs_diff(counted) < between, "{outcome:#?}");
    let reports = outcome.stderr.lines().filter(|line| line.contains("were skipped by the kernel")).count();
    assert!((1..10).contains(&reports), "{outcome:#?}");
    assert!(outcome.stderr.contains("`timer/hrtimer_expire_entry`"), "{outcome:#?}");
}
