//! Fuzzing of the readers, for a second each. Inputs are changed randomly from a printed seed; inputs of
//! earlier findings are kept in `tests/tests/plain/fuzzed`, in a folder for each target.
//!
//! The large run: `make fuzzed SECONDS=300`. `make fuzz SECONDS=300` is coverage-guided, and starts from
//! these inputs (`KS_FUZZ_CORPUS`). Calls that open events need root.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use ks_tests::fuzzed::{Rng, TARGETS, mutated};
use ks_tests::{number, repository};

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let folder = repository().join("tests/tests/plain/fuzzed").join(name);
    let mut corpus = (target.seeds)();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        corpus.push(std::fs::read(entry.expect("readable").path()).expect("readable"));
    }
    corpus.iter().for_each(|input| (target.body)(input));
    if let Some(folder) = std::env::var_os("KS_FUZZ_CORPUS") {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for (number, input) in corpus.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), input).expect("the folder is writable");
        }
    }
    let seed = number("KS_FUZZ_SEED", u64::from(std::process::id()));
    let limit = Duration::from_secs(number("KS_FUZZ_SECONDS", 1));
    let (mut rng, start, mut runs) = (Rng::new(seed), Instant::now(), 0_u64);
    while start.elapsed() < limit {
        let input = mutated(&corpus, &mut rng);
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
fn model() {
    run("model");
}

#[test]
fn btf() {
    run("btf");
}

#[test]
fn record() {
    run("record");
}

#[test]
fn signature() {
    run("signature");
}

/// The targets of `fuzz/` are exactly those with a body here.
#[test]
fn cargo_fuzz_has_each_target_of_a_reader() {
    let folder = repository().join("fuzz/fuzz_targets");
    let manifest = std::fs::read_to_string(repository().join("fuzz/Cargo.toml")).expect("readable");
    // The bytes of `calls` are calls, which need the privileges of the host.
    for target in TARGETS.iter().filter(|target| target.name != "calls") {
        assert!(
            folder.join(format!("{}.rs", target.name)).exists(),
            "{} is not a target of fuzz/",
            target.name
        );
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}

#[test]
fn message() {
    run("message");
}

#[test]
fn root_calls() {
    run("calls");
}
