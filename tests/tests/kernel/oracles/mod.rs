//! Differential test of three executors: the interpreter of the MIR before any pass, the BPF interpreter
//! `rbpf` on the very object that the kernel gets, and the running kernel's test-run. From the same global
//! variables and empty maps, they must return the same result and leave the same global variables and the
//! same map entries. These tests need root.
//!
//! A large run is `make oracles INPUTS=100000`. `KS_ORACLES_SEED=7` starts at that seed, so that with
//! `KS_ORACLES_INPUTS=1` one script runs again.
//!
//! Functions of the test implement the instructions that `rbpf` lacks, one by one (`stub.rs`); `rbpf` runs
//! all others unchanged from the file. The scripts leave out features that differ between runs or machines by
//! nature: the clock, the control group, which entry a full `lru_hash` drops, and ring buffers, of which only
//! the kernel's has a reader. They also leave out members of a perf program's sample, because the kernel
//! test-runs no perf programs: they are loaded as raw tracepoint programs, which have the same helpers. The
//! interpreter of the MIR has no packets and no kernel types; `random` and the tests of each kind cover
//! programs on those. Inputs that take more than 200,000 steps are not counted.

mod arena;
mod compare;
mod image;
mod inputs;
mod kernel;
mod machine;
mod maps;
mod mir;
mod state;
mod stub;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ks_tests::{cpus, number};
use nix::unistd::{getgid, getpid, gettid, getuid};

use crate::halves::generator::Generator;
use compare::Script;
use ks_compiler_testing::script::{self, Halves};
use state::Facts;

/// Number of functions in a script, and of inputs for each script.
const FUNCTIONS: usize = 4;
const INPUTS: usize = 100;
/// Number of inputs in a plain test run.
const FEW_INPUTS: u64 = 2_000;

/// Returns the kernel's data about this thread.
fn facts(cpu: usize) -> Facts {
    let comm = std::fs::read("/proc/thread-self/comm").expect("a thread has a name");
    Facts {
        cpu: cpu as u64,
        process: (getpid().as_raw() as u64) << 32 | gettid().as_raw() as u64,
        user: u64::from(getgid().as_raw()) << 32 | u64::from(getuid().as_raw()),
        comm: comm.trim_ascii_end().to_vec(),
    }
}

/// Runs scripts of new seeds on every CPU until this many inputs were compared.
fn agree(kind: &str, script: impl Fn(u64) -> Script + Sync) {
    let wanted = number("KS_ORACLES_INPUTS", FEW_INPUTS) as usize;
    let seeds = AtomicU64::new(number("KS_ORACLES_SEED", 1));
    let first = seeds.load(Ordering::Relaxed);
    let compared = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for cpu in cpus::allowed() {
            let (script, seeds, compared, failures) = (&script, &seeds, &compared, &failures);
            let inputs = INPUTS.min(wanted);
            scope.spawn(move || {
                cpus::stay_on(cpu);
                let facts = facts(cpu);
                while compared.load(Ordering::Relaxed) < wanted {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    let outcome = compare::run(&script(seed), seed, inputs, &facts);
                    let mut failures = failures.lock().expect("no thread panics");
                    match outcome {
                        Ok(count) => drop(compared.fetch_add(count, Ordering::Relaxed)),
                        Err(failure) => failures.push(format!("{kind}, seed {seed}: {failure}")),
                    }
                    if failures.len() >= 3 {
                        return;
                    }
                }
            });
        }
    });
    let (compared, last) = (compared.into_inner(), seeds.into_inner());
    println!("{kind}: {compared} inputs of {} scripts", last - first);
    let failures = failures.into_inner().expect("no thread panics");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn root_generated_functions_do_the_same_wherever_they_run() {
    agree("functions", |seed| Script {
        text: Generator::new(seed).kernel_script(FUNCTIONS),
        program: "program",
    });
}

#[test]
fn root_random_scripts_do_the_same_wherever_they_run() {
    agree("scripts", random_script);
}

/// Features whose results differ between calls or executors, or that drop entries arbitrarily, with their
/// replacements.
const REPLACED: [(&str, &str); 7] = [
    ("time_ns()", "gclock"),
    ("cgroup_id()", "gclock"),
    ("ctx->sample_period", "gclock"),
    ("ctx->addr", "gclock"),
    ("ctx->regs.ip", "gclock"),
    ("lru_hash", "hash"),
    ("lru_percpu_hash", "percpu_hash"),
];

/// Features that scripts do not use: ring buffers and lines printed into one; map iterations, whose order
/// differs between executors; addresses as numbers, and what lies there; kernel functions, other kinds of kernel maps, and a
/// second program.
const APART: [&str; 12] = [
    "ringbuf<",
    "print(",
    "for (w",
    script::forms::BYTES,
    script::forms::TEXT_END,
    "buf(",
    "bpf_",
    "attachment_id(",
    ": queue<",
    ": stack<",
    ": bloom<",
    "fn after(",
];

/// Returns a script of all statement and expression forms except [`APART`], with one perf program.
fn random_script(seed: u64) -> Script {
    let halves = if seed.is_multiple_of(2) { Halves::Kernel } else { Halves::Both };
    let scripts = (0..).map(|attempt| script::items::script(seed + (attempt << 32), halves).text());
    let fits = |script: &String| {
        let text = script.replace("*bpf_perf_event_data", "");
        script.contains("@perf_event") && !APART.iter().any(|apart| text.contains(apart))
    };
    let script = scripts.into_iter().find(fits).expect("such scripts are frequent");
    let text = REPLACED.iter().fold(script, |text, (from, to)| text.replace(from, to));
    Script { text: format!("var gclock: u64 = 0\n{text}"), program: "watch" }
}
