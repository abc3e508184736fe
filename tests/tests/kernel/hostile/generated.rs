//! Random guests (`wasm-smith`): any valid code that calls the contract's functions, memories and tables of
//! any shape, and an allocator that does anything; and whole components whose imports no host has.
//!
//! Each guest runs or is refused, for a reason that is reported. The test prints its seed; the large run is
//! `make generated GUESTS=10000`, with `SEED` for another seed.

use std::time::Duration;

use arbitrary::Unstructured;
use ks_host::plugin::Outcome;
use ks_tests::fuzzed::Rng;
use ks_tests::guest::imports;
use ks_tests::number;
use wasm_smith::{Component, Config, Module};

use super::{prepare, run_file, run_prepared};

/// Number of random bytes from which a guest is generated.
const BYTES: usize = 8 << 10;

/// Number of guests in a plain test run.
const GUESTS: u64 = 60;

/// The exports of a plugin, whose bodies are generated.
const EXPORTS: &str = r#"(module
    (memory (export "memory") 2)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "run") (result i32) unreachable))"#;

/// Returns this many random bytes.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    (0..BYTES).map(|_| rng.below(256) as u8).collect()
}

/// Returns the shape of guests: features of the engine, and sometimes any feature that a validator supports.
fn config(rng: &mut Rng) -> Config {
    let imported: String = imports().iter().map(|import| import.text()).collect();
    let anything = rng.below(8) == 0;
    let parsed = |text: &str| wat::parse_str(text).expect("a module");
    Config {
        available_imports: Some(parsed(&format!("(module\n{imported})"))),
        exports: Some(parsed(EXPORTS)),
        max_imports: 1 + rng.below(20),
        max_memories: 1 + rng.below(3),
        max_tables: 1 + rng.below(3),
        max_instructions: 20 + rng.below(400),
        // Random traps end most guests in their first block.
        disallow_traps: rng.below(2) == 0,
        reference_types_enabled: anything,
        gc_enabled: anything,
        exceptions_enabled: anything,
        memory64_enabled: anything,
        threads_enabled: anything,
        relaxed_simd_enabled: anything,
        custom_page_sizes_enabled: anything,
        shared_everything_threads_enabled: anything,
        ..Config::default()
    }
}

/// Returns the file of a guest, or none if its code fits no component.
fn guest(rng: &mut Rng) -> Option<Vec<u8>> {
    let (config, bytes) = (config(rng), bytes(rng));
    let module = Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    ks_tests::component_of("generated", &module.to_bytes(), &[]).ok()
}

/// Counts of the different outcomes.
#[derive(Debug, Default)]
struct Ends {
    refused: u32,
    returned: u32,
    trapped: u32,
    stopped: u32,
}

impl Ends {
    /// Runs a guest in this process and counts its outcome; every failure must have a reason.
    fn add(&mut self, file: Vec<u8>) {
        let prepared = match prepare(file) {
            Ok(prepared) => prepared,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.refused += 1;
                return;
            }
        };
        match run_prepared(&prepared, &["compute_ms=50"], Duration::from_millis(200)) {
            Outcome::Returned(_) | Outcome::Exited(_) => self.returned += 1,
            Outcome::Trapped(reason) | Outcome::Denied(reason) => {
                assert!(!reason.is_empty());
                self.trapped += 1;
            }
            Outcome::TimedOut | Outcome::Killed => self.stopped += 1,
            Outcome::Failed(defect) => panic!("{defect}"),
        }
    }
}

#[test]
fn generated_guests_are_contained() {
    let seed = number("KS_SEED", std::process::id().into());
    eprintln!("KS_SEED={seed}");
    let (mut rng, mut ends) = (Rng::new(seed), Ends::default());
    let count = number("KS_GENERATED", GUESTS);
    for _ in 0..count {
        if let Some(file) = guest(&mut rng) {
            ends.add(file);
        }
    }
    eprintln!("of {count} generated guests: {ends:?}");
    assert!(ends.returned > 0 && ends.trapped > 0, "most of them run: {ends:?}");
}

/// Runs a few guests by the command: a signal or an internal error would show in its exit code.
#[test]
fn generated_guests_end_with_a_reason() {
    let seed = number("KS_SEED", std::process::id().into());
    eprintln!("KS_SEED={seed}");
    let mut rng = Rng::new(seed ^ 1);
    for _ in 0..12 {
        let Some(file) = guest(&mut rng) else { continue };
        let outcome = run_file(&file, &["--limit", "compute_ms=50", "--timeout", "0.5"]);
        assert!(!matches!(outcome.code, 125..=127) || !outcome.stderr.is_empty(), "{outcome:#?}");
    }
}

#[test]
fn generated_components_are_reported_to_be_no_plugins() {
    let seed = number("KS_SEED", std::process::id().into());
    eprintln!("KS_SEED={seed}");
    let mut rng = Rng::new(seed ^ 2);
    let mut refused = 0;
    for _ in 0..number("KS_GENERATED", GUESTS) {
        let bytes = bytes(&mut rng);
        let Ok(component) = Component::new(Config::default(), &mut Unstructured::new(&bytes)) else {
            continue;
        };
        let error = prepare(component.to_bytes()).err().expect("it has no `run`");
        assert!(!error.to_string().is_empty());
        refused += 1;
    }
    assert!(refused > 0);
}
