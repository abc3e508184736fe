//! Mutated objects in plugin files: `ks-host inspect` shows them or says what is wrong, and never ends by a
//! signal or a panic.

use std::sync::atomic::{AtomicU64, Ordering};

use ks_compiler::object::read;
use ks_compiler::object::testing::{Mutant, Mutator};
use ks_tests::guests::target_folder;
use ks_tests::plugins::{component, with_object};
use ks_tests::{Folder, command, finish};
use serde_json::Value;

use super::objects;

/// Default number of inspected mutants.
const INSPECTED: u64 = 100;

/// Processes at a time: each waits for its child without rights.
const THREADS: u64 = 4;

#[test]
fn root_inspect_survives_mutated_objects() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let mutants = number("KS_INSPECTED").unwrap_or(INSPECTED);
    let seed = number("KS_MUTANTS_SEED").unwrap_or(0);
    let objects = objects();
    let guest = component("(func (export \"run\") (result i32) (i32.const 0))");
    let (shown, rejected) = (AtomicU64::new(0), AtomicU64::new(0));
    let folder = Folder::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (objects, guest, folder, shown, rejected) = (&objects, &guest, &folder, &shown, &rejected);
            scope.spawn(move || {
                let mut mutator = Mutator::new(seed.wrapping_mul(1_000_003) ^ 0x1235 ^ thread << 32);
                for at in (thread..mutants).step_by(THREADS as usize) {
                    let (name, object) = &objects[at as usize % objects.len()];
                    let Mutant { bytes: mutant, parts } = mutator.mutate(object);
                    let plugin = folder
                        .write(&format!("mutant{thread}.wasm"), with_object(guest.clone(), mutant.clone()));
                    let outcome = finish(command("ks-host").args(["inspect", "--json"]).arg(plugin));
                    let inspected: Option<Value> = serde_json::from_str(&outcome.stdout).ok();
                    let Some(inspected) =
                        inspected.filter(|_| outcome.code == 0 && outcome.stderr.is_empty())
                    else {
                        let kept = target_folder().join("inspect-fault.o");
                        std::fs::write(&kept, mutant).expect("the folder is ours");
                        panic!("{name}, {parts:?}, mutant {at}, {}: {outcome:#?}", kept.display())
                    };
                    // The reader's answer here is that of the process without rights.
                    let refused = !inspected["objects"][0]["refused"].is_null();
                    assert!(refused || read(&mutant).is_ok(), "{name}, {parts:?}, mutant {at}");
                    if refused { rejected } else { shown }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (shown, rejected) = (shown.into_inner(), rejected.into_inner());
    println!("{mutants} mutants inspected: {shown} shown, {rejected} rejected");
    assert!(shown * 20 > mutants && rejected * 20 > mutants, "{shown} shown, {rejected} rejected");
}
