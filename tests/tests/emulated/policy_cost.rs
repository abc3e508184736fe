//! The cost of a policy on the read path: instructions of one read, counted on the emulated arm64 machine,
//! whose PMU counts them exactly.
//!
//! The host is built for that machine first, which takes minutes, so only `make policy-cost` runs this.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, compile, finish_within, repository};

/// Reads in the first loop; the second loop has twice as many.
const READS: u32 = 20_000;

/// Prints whether a policy denied it the events of a CPU, and the instructions of its thread before, between
/// and after two loops of reads, in user code and with the kernel. READS and TWICE are filled in.
const SCRIPT: &str = include_str!("scripts/policy_cost.ks");

/// Prints how many instructions of user code a loop has.
const LOOP: &str = "fn main() -> i32 {
    var user = attach(perf_options { event: instructions, pid: 0, cpu: -1, exclude_kernel: true })
    if (user == null) { return 1 }
    var sum: u64 = 0
    var before = read(user).raw
    for (turn in 0..100000) {
        sum = sum * 3 + 1
    }
    var after = read(user).raw
    print(\"%lld\", after - before)
    if (sum == 0) { return 2 }
    return 0
}
";

/// A policy that denies something that the script asks for and does not need.
const SOME: &str = r#"[allow]
import = ["*"]
event = ["hardware", "software"]
scope = ["own"]
"#;

/// The cost of one read, in instructions.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    /// Instructions in user code.
    user: f64,
    /// Instructions in user code and in the kernel.
    all: f64,
}

impl Cost {
    /// Computes the cost from the script's output, as the difference between the second loop and the first.
    fn of(outcome: &Outcome, name: &str) -> Cost {
        let fields = outcome.row(name);
        let [_, _, once_user, twice_user, once_all, twice_all] = fields[..] else { panic!("{outcome:#?}") };
        let number = |field: &str| field.parse::<f64>().expect("a number");
        let one = |once, twice| (number(twice) - number(once)) / f64::from(READS);
        Cost { user: one(once_user, twice_user), all: one(once_all, twice_all) }
    }

    /// Returns the relative increase over another cost.
    fn above(self, other: Cost) -> Cost {
        Cost { user: self.user / other.user - 1.0, all: self.all / other.all - 1.0 }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.3} % in user code, {:+.3} % with the kernel", 100.0 * self.user, 100.0 * self.all)
    }
}

/// Builds the host for that machine, and returns its path.
pub(super) fn host() -> String {
    let mut build = Command::new(repository().join("scripts/arm64-build"));
    let built = finish_within(build.arg("ks-host"), Duration::from_secs(3600));
    assert_eq!(built.code, 0, "the host cannot be built for arm64: {}", built.stderr);
    built.stdout.trim().to_owned()
}

/// What a plugin counts of itself has nothing of the host's in it that differs from run to run, wherever it runs.
#[test]
fn arm64_kernel_6_12_a_loop_has_the_same_instructions_in_each_run() {
    if std::env::var_os("KS_POLICY_COST").is_none() {
        eprintln!("not run here: the host must be built for arm64, which takes minutes: `make policy-cost`");
        return;
    }
    let folder = Folder::new();
    let plugin = folder.write("loop.wasm", compile("loop", LOOP).plugin);
    let runs = ["thread", "process"].map(|form| {
        format!(
            "for run in 1 2 3 4 5 6 7 8 9 10; do echo {form} $(/ks-host --isolation {form} /loop.wasm); done"
        )
    });
    let machine = Machine::new(Kernel::V6_12Arm64)
        .file_as(host(), "/ks-host")
        .file_as(plugin, "/loop.wasm")
        .seconds(300);
    let outcome = machine.run(&["sh", "-c", &runs.join("; ")]);
    for form in ["thread", "process"] {
        let of_form = outcome.stdout.lines().filter_map(|line| line.strip_prefix(form));
        let number = |count: &str| count.trim().parse().unwrap_or_else(|_| panic!("{outcome:#?}"));
        let counts: Vec<u64> = of_form.map(number).collect();
        println!("{form}: {counts:?}");
        assert_eq!(counts.len(), 10, "{outcome:#?}");
        assert!(counts[0] > 100_000 && counts.iter().all(|count| *count == counts[0]), "{form}: {counts:?}");
    }
}

#[test]
fn arm64_kernel_6_12_denying_costs_a_read_nothing() {
    if std::env::var_os("KS_POLICY_COST").is_none() {
        eprintln!("not run here: the host must be built for arm64, which takes minutes: `make policy-cost`");
        return;
    }
    let built = host();
    let folder = Folder::new();
    let script = SCRIPT.replace("READS", &READS.to_string()).replace("TWICE", &(2 * READS).to_string());
    let plugin = folder.write("reads.wasm", compile("reads", &script).plugin);
    let some = folder.write("some.toml", SOME);
    let rows = [
        ("all", "--isolation thread --allow all"),
        ("none", "--isolation thread"),
        ("some", "--isolation thread --policy /some.toml"),
        ("unconfined", "--isolation thread --unconfined --allow all"),
        ("process", "--allow all"),
    ];
    let runs = rows.map(|(name, options)| format!("echo {name} $(/ks-host {options} /reads.wasm)"));
    let machine = Machine::new(Kernel::V6_12Arm64)
        .file_as(built, "/ks-host")
        .file_as(plugin, "/reads.wasm")
        .file_as(some, "/some.toml")
        .seconds(300);
    let outcome = machine.run(&["sh", "-c", &runs.join("; ")]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let [all, none, some, unconfined, process] = rows.map(|(name, _)| Cost::of(&outcome, name));
    assert_eq!(outcome.row("some")[1], "1", "the policy denies something: {outcome:#?}");
    assert_eq!((outcome.row("all")[1], outcome.row("none")[1]), ("0", "0"), "{outcome:#?}");
    println!("a read with everything allowed: {:.1} instructions, with the kernel {:.1}", all.user, all.all);
    println!("a policy that denies something: {}", some.above(all));
    println!("no policy but that of a start by hand: {}", none.above(all));
    println!("confinement of the thread: {}", all.above(unconfined));
    println!("a process of its own: {}", process.above(all));
    for cost in [some.above(all), none.above(all)] {
        assert!(cost.user.abs() < 0.01 && cost.all.abs() < 0.01, "{cost}");
    }
}
