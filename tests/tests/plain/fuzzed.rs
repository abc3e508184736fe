//! Any bytes against what reads them, for a second each; inputs are changed by chance from a seed that is printed, and those
//! that once went wrong are kept in `tests/tests/plain/fuzzed`, in a folder for each target.
//!
//! The large run: `make fuzzed SECONDS=300`. Root is needed for calls that open events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ks_tests::fuzzed::{Chance, TARGETS, mutated};
use ks_tests::{number, repository};

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let folder = repository().join("tests/tests/plain/fuzzed").join(name);
    let mut corpus = (target.seeds)();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        corpus.push(std::fs::read(entry.expect("readable").path()).expect("readable"));
    }
    corpus.iter().for_each(|input| (target.body)(input));
    let seed = number("KS_FUZZ_SEED", u64::from(std::process::id()));
    let limit = Duration::from_secs(number("KS_FUZZ_SECONDS", 1));
    let (mut chance, start, mut runs) = (Chance::new(seed), Instant::now(), 0_u64);
    while start.elapsed() < limit {
        let input = mutated(&corpus, &mut chance);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.body)(&input))) {
            let file = std::env::temp_dir().join(format!("ks-fuzz-{name}-{seed}-{runs}"));
            std::fs::write(&file, &input).expect("the temporary folder is writable");
            eprintln!("{name}: the input of run {runs} from seed {seed} is {}", file.display());
            std::panic::resume_unwind(panic);
        }
        runs += 1;
    }
    eprintln!("{name}: {runs} runs from seed {seed} in {} s", limit.as_secs());
}

#[test]
fn sections() {
    run("sections");
}

#[test]
fn manifest() {
    run("manifest");
}

#[test]
fn policy() {
    run("policy");
}

#[test]
fn object() {
    run("object");
}

#[test]
fn root_calls() {
    run("calls");
}
