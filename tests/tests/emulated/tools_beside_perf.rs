//! `stat`, `llcstat` and `top` with hardware events, beside Debian's perf, on the emulated arm64 machine. Its PMU counts instructions
//! exactly, and two cycles for each.
//!
//! The host is built for that machine first, which takes minutes, so only `make policy-cost` runs this.

use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, compile, finish_within, repository};

use super::policy_cost::host;

/// A program with a known number of instructions: a loop of two, with two before and three behind it.
const LOOP: &str = "
    .globl _start
_start:
    mov x0, #0x9680
    movk x0, #0x98, lsl #16
again:
    subs x0, x0, #1
    b.ne again
    mov x0, #0
    mov x8, #93
    svc #0
";
const INSTRUCTIONS: u64 = 2 + 2 * 10_000_000 + 3;

/// Runs perf of the machine, with its own libraries.
const PERF: &str = "/perf/lib/ld-linux-aarch64.so.1 --library-path /perf/lib /perf/perf";

/// A machine with the host, perf, and the program.
fn machine(folder: &Folder) -> Machine {
    let source = folder.write("loop.s", LOOP);
    let program = folder.path("loop");
    let mut assembler = Command::new("aarch64-linux-gnu-gcc");
    assembler.args(["-nostdlib", "-static", "-o"]).args([&program, &source]);
    assert_eq!(finish_within(&mut assembler, Duration::from_secs(60)).code, 0);
    let mut fetch = Command::new(repository().join("scripts/arm64-perf"));
    let perf = finish_within(&mut fetch, Duration::from_secs(600));
    assert_eq!(perf.code, 0, "perf for arm64 cannot be had: {}", perf.stderr);
    Machine::new(Kernel::V6_12Arm64)
        .file_as(host(), "/ks-host")
        .file_as(program, "/loop")
        .file_as(perf.stdout.trim(), "/perf")
        .seconds(300)
}

/// Compiles a tool, since the host of this machine has no compiler.
fn tool(folder: &Folder, name: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(repository().join(format!("tools/{name}.ks"))).expect("it is there");
    folder.write(&format!("{name}.wasm"), compile(name, &text).plugin)
}

/// Returns the fields of the line of an event, which is the field at a position.
fn line<'a>(output: &'a str, separator: char, event: (usize, &str)) -> Vec<&'a str> {
    let split = |line: &'a str| line.split(separator).filter(|field| !field.is_empty()).collect();
    let mut lines = output.lines().map(|line| -> Vec<&str> { split(line) });
    let found = lines.find(|fields| fields.get(event.0) == Some(&event.1));
    found.unwrap_or_else(|| panic!("no line of {}: {output}", event.1))
}

fn number(field: &str) -> u64 {
    field.parse().unwrap_or_else(|_| panic!("no number: {field}"))
}

#[test]
fn arm64_kernel_6_12_tools_count_as_perf_does() {
    if std::env::var_os("KS_POLICY_COST").is_none() {
        eprintln!("not run here: the host must be built for arm64, which takes minutes: `make policy-cost`");
        return;
    }
    let folder = Folder::new();
    let mut machine = machine(&folder);
    for name in ["stat", "llcstat", "top"] {
        machine = machine.file_as(tool(&folder, name), &format!("/{name}.wasm"));
    }
    let events = "{cycles,instructions},instructions:u,cycles:u";
    // Seldom enough that the kernel stops no event until the next tick: some 800 samples in 40 ms.
    let sampled = "--period 50000 --exec /loop";
    let runs = [
        format!("mkdir /lib; {PERF} stat -x, -o /perf.csv -e '{events}' /loop; cat /perf.csv"),
        format!("/ks-host /stat.wasm -- --events '{events}' --exec /loop"),
        format!("/ks-host /llcstat.wasm -- --references cycles --misses instructions {sampled}"),
        format!("/ks-host /top.wasm -- --events '{{cycles,instructions}}' {sampled}"),
    ];
    let outcome = machine.run(&["sh", "-c", &runs.join("; echo next; ")]);
    println!("{}", outcome.stdout);
    let parts: Vec<&str> = outcome.stdout.split("next\n").collect();
    let [perf, stat, llcstat, top] = parts[..] else { panic!("{outcome:#?}") };
    let by_perf = |event: &str| number(line(perf, ',', (1, event))[0]);
    let by_stat = |event: &str| number(line(stat, ' ', (4, event))[2]);
    // User code is the program's alone.
    assert_eq!(
        (by_perf("instructions:u"), by_stat("instructions:u")),
        (INSTRUCTIONS, INSTRUCTIONS),
        "{outcome:#?}"
    );
    assert_eq!(
        (by_perf("cycles:u"), by_stat("cycles:u")),
        (2 * INSTRUCTIONS, 2 * INSTRUCTIONS),
        "{outcome:#?}"
    );
    // The kernel's part is that of an exec and an exit, and of the timer's interrupts.
    for event in ["cycles", "instructions"] {
        let (theirs, ours) = (by_perf(event), by_stat(event));
        assert!(theirs.abs_diff(ours) <= theirs / 50, "{event}: {theirs} {ours}");
    }
    assert!(perf.contains(",0.50,insn per cycle"), "{perf}");
    assert!(stat.contains(" 0.50 100.00 instructions per cycle"), "{stat}");
    // Samples: each stands for 50,000 events.
    let cycles = by_perf("cycles");
    let of_llcstat = line(llcstat, ' ', (1, "loop"));
    assert!(number(of_llcstat[2]).abs_diff(cycles) <= cycles / 20, "{outcome:#?}");
    let of_top = line(top, ' ', (1, "loop"));
    assert!(number(of_top[3]).abs_diff(cycles) <= cycles / 20, "{outcome:#?}");
    // Columns are as wide as what is in them.
    let heading = line(top, ' ', (0, "pid")).join(" ");
    assert_eq!(heading, "pid comm cpu (us) cycles instructions instructions per 100 cycles", "{outcome:#?}");
}
