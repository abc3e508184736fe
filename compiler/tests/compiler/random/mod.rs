//! Random well-typed scripts: a script that passes the checker must compile, and the running kernel's
//! verifier must accept it.
//!
//! A seed determines one script and one of the instruction sets v1 to v4. `cargo test` tries a few fixed
//! seeds; a large run, with new ones, is `make random-scripts SCRIPTS=20000`. `SEED=7` starts at that seed,
//! so that `SCRIPTS=1` with it repeats one script. A failing script is shrunk as long as it fails in the same
//! way, and written to `random/kept/` as a case to keep. A script that makes the kernel itself fail
//! ends the run and is not shrunk. The final table counts the pairs of construct and program type in the
//! scripts that loaded. `KS_RANDOM_PRINT=1` prints the scripts. `KS_RANDOM_TARGET=6.1` compiles for that
//! kernel, and counts the scripts that are refused for it; `KS_RANDOM_DEFAULT=1` compiles all as `ks build` does without
//! flags, for the newest kernels; `KS_RANDOM_COMPILE_ONLY=1` loads none; `tests/tests/emulated/random_kernels.rs` loads
//! such scripts there.
//!
//! Scripts consist of the productions in `ks_compiler_testing::script`, and a program of `bits`.

mod kernel;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ks_compiler::kernel::{Cpu, Inlining, KernelVersion, Machine};
use ks_compiler_testing::bits;
use ks_compiler_testing::bpffs::BpfFs;
use ks_compiler_testing::random::{self, Compiled, Failure};
use ks_compiler_testing::script::reached::Reached;
use ks_compiler_testing::script::tree::Node;
use ks_compiler_testing::shrink;
use ks_wit::section::Arch;

/// Number of scripts of a plain test run. Their seeds never change, so that only a change of the compiler can
/// make it fail.
const FIXED: u64 = 150;
/// Number of failures after which a run ends.
const MAX_FAILURES: usize = 10;

#[test]
fn root_random_scripts_load() {
    let seeds = seeds();
    let (next, refused) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, usize>::new()));
    let reached = Mutex::new(Reached::default());
    let failures = Mutex::new(Vec::new());
    let progress = Mutex::new(Instant::now());
    let fs = BpfFs::mount();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let name = format!("random{thread}");
            let (fs, seeds, next, refused) = (&fs, &seeds, &next, &refused);
            let (failures, progress, reached) = (&failures, &progress, &reached);
            scope.spawn(move || {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let script = bits::script(*seed);
                    let machine = machine(*seed);
                    if std::env::var_os("KS_RANDOM_PRINT").is_some() {
                        println!("{}", script.text());
                    }
                    match attempt(fs, &name, &script.text(), machine) {
                        Ok(None) => reached.lock().expect("no thread panics").add(&script),
                        Ok(Some(reason)) => {
                            println!("seed {seed}: {reason}");
                            *refused.lock().expect("no thread panics").entry(reason).or_insert(0) += 1;
                        }
                        Err(failure) => {
                            let script = if failure.kind == kernel::DEADLY {
                                next.store(seeds.len(), Ordering::Relaxed);
                                script
                            } else {
                                shrunk(fs, &name, script, machine, &failure.kind)
                            };
                            let kept = keep(*seed, script, &failure);
                            let mut failures = failures.lock().expect("no thread panics");
                            failures.push(format!(
                                "seed {seed}, --cpu {:?}: {} ({})",
                                machine.cpu,
                                failure.kind,
                                kept.display()
                            ));
                            println!("{}", failures.last().expect("just added"));
                            if failures.len() >= MAX_FAILURES {
                                return;
                            }
                        }
                    }
                    let mut last = progress.lock().expect("no thread panics");
                    if last.elapsed() > Duration::from_secs(10) {
                        *last = Instant::now();
                        println!(
                            "{} of {} scripts",
                            next.load(Ordering::Relaxed).min(seeds.len()),
                            seeds.len()
                        );
                    }
                }
            });
        }
    });
    let refused = refused.into_inner().expect("no thread panics");
    println!("{} scripts, refused for the target: {refused:?}", seeds.len());
    println!("{}", reached.into_inner().expect("no thread panics"));
    let failures = failures.into_inner().expect("no thread panics");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn root_kept_scripts_load() {
    let fs = BpfFs::mount();
    let paths: Vec<_> =
        std::fs::read_dir(kept()).expect("it is there").map(|one| one.expect("read").path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let script = std::fs::read_to_string(&path).expect("it is text");
        // One seed for each machine.
        for machine in (0..8).map(machine) {
            if let Err(failure) = attempt(&fs, "kept", &script, machine) {
                panic!("{}, {machine:?}: {}\n{}", path.display(), failure.kind, failure.text);
            }
        }
    }
}

/// Returns the seeds of this run.
fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock runs").as_micros() as u64;
    let start = number("KS_RANDOM_SEED").unwrap_or(now);
    let seeds: Vec<u64> = match number("KS_RANDOM_SCRIPTS") {
        Some(count) => (start..start + count).collect(),
        None => (0..FIXED).collect(),
    };
    println!("seeds from {start}");
    seeds
}

/// Chooses the machine for the script of a seed: one of the instruction sets that the target has.
fn machine(seed: u64) -> Machine {
    if std::env::var_os("KS_RANDOM_DEFAULT").is_some() {
        return Arch::X86_64.into();
    }
    let target = std::env::var("KS_RANDOM_TARGET").ok();
    let kernel: Option<KernelVersion> = target.map(|text| text.parse().expect("a version of the kernel"));
    let mut levels = vec![Cpu::V3, Cpu::V4, Cpu::V1, Cpu::V2];
    levels.retain(|cpu| kernel.is_none_or(|kernel| cpu.since() <= kernel));
    let cpu = levels[(seed % levels.len() as u64) as usize];
    let inlining = if seed % 8 < 4 { Inlining::ByCost } else { Inlining::Once };
    Machine { kernel, cpu, inlining, ..Arch::X86_64.into() }
}

/// Compiles and loads a script; returns the code and the message if it is refused for the target.
fn attempt(fs: &BpfFs, name: &str, script: &str, machine: Machine) -> Result<Option<String>, Failure> {
    match random::compile(script, machine)? {
        Compiled::Object(_) if std::env::var_os("KS_RANDOM_COMPILE_ONLY").is_some() => Ok(None),
        Compiled::Object(object) => kernel::load(fs, name, &object).map(|()| None),
        Compiled::Refused(reason) => Ok(Some(reason)),
    }
}

fn shrunk(fs: &BpfFs, name: &str, script: Node, machine: Machine, kind: &str) -> Node {
    shrink::shrink(script, |candidate| {
        attempt(fs, name, &candidate.text(), machine).is_err_and(|failure| failure.kind == kind)
    })
}

/// The scripts that once failed.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compiler/random/kept")
}

/// Writes a failing script as a case.
fn keep(seed: u64, script: Node, failure: &Failure) -> PathBuf {
    let path = kept().join(format!("random_{seed}.ks"));
    std::fs::write(&path, script.text()).expect("the cases are writable");
    println!("{}\n{}", failure.text, script.text());
    path
}
