//! The errors that the contract documents, compared with what the host does: each documented kind and reason
//! has a case that provokes it, and nothing else. These tests need root.
//!
//! ```text
//! doc comments of wit/ -> docs::read -> (function, kind, reason) -\
//! the tables, one for each interface -> Case ----------------------+-> the same set
//!                                         \-> ks-host with tests/guests/errors -> kind, errno, message
//! ```
//!
//! A new error: its kind and reason in the doc comment ([`docs`] has the grammar), a row in the table of its
//! interface, and, if no call of the guest is like it, a line there. A new interface: a file like `clock.rs` here
//! and in the guest, a row of [`TABLES`], and a test.

mod bpf;
mod case;
mod clock;
mod console;
mod docs;
mod globals;
mod maps;
mod perf;
mod programs;
mod ring;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use case::{Case, Object};
use docs::{Contract, Documented};
use ks_tests::plugins::with_object;
use ks_tests::{Folder, command, finish, guests, repository};

/// The name of an interface, and its cases.
type Table = (&'static str, fn() -> Vec<Case>);

/// The tables that exist.
const TABLES: [Table; 8] = [
    ("bpf", bpf::cases),
    ("clock", clock::cases),
    ("console", console::cases),
    ("globals", globals::cases),
    ("maps", maps::cases),
    ("perf", perf::cases),
    ("programs", programs::cases),
    ("ring", ring::cases),
];

/// Runs at a time: most of the time of each is that of the kernel.
const WORKERS: usize = 4;

/// The guest with each object.
struct Plugins {
    folder: Folder,
}

impl Plugins {
    /// Builds the guest and its objects, once for all tests.
    fn get() -> &'static Plugins {
        static PLUGINS: LazyLock<Plugins> = LazyLock::new(|| {
            let folder = Folder::new();
            let built = guests::rust(&repository().join("tests/guests/errors"), "guest_errors.wasm", None);
            let (file, shared) = (folder.write("guest.wasm", built), folder.path("shared.wasm"));
            // With a shared memory, for maps that are mapped.
            let made = finish(command("ks").args(["share", "-o"]).args([&shared, &file]));
            assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{made:#?}");
            let guest = std::fs::read(shared).expect("ks wrote it");
            for object in Object::ALL {
                let elf = folder.path("object.o");
                let source = "tests/tests/toolchains/documented_errors/object.c";
                let mut clang = Command::new("clang");
                clang.args(["-target", "bpf", "-mcpu=v3", "-g", "-O2"]);
                clang.args(object.macro_name().map(|name| format!("-D{name}"))).arg("-c");
                let made = finish(clang.arg(repository().join(source)).arg("-o").arg(&elf));
                assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{made:#?}");
                let elf = std::fs::read(&elf).expect("clang wrote it");
                folder.write(&object.file_name(), with_object(guest.clone(), elf));
            }
            Plugins { folder }
        });
        &PLUGINS
    }

    fn path_for(&self, case: &Case) -> PathBuf {
        self.folder.path(case.object.file_name())
    }
}

/// Compares the table of an interface with its documentation, and each case with the host.
fn check(interface: &str) {
    let table = TABLES.iter().find(|(name, _)| *name == interface);
    let cases = table.map(|(_, cases)| cases()).expect("the interface has a table");
    let is_of = |documented: &&Documented| documented.function.split('.').next() == Some(interface);
    let contract = docs::read();
    let documented: BTreeSet<Documented> = contract.errors.iter().filter(is_of).cloned().collect();
    let provoked: BTreeSet<Documented> = cases.iter().flat_map(documented_by).collect();
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend(documented.difference(&provoked).map(|one| format!("documented, without a case: {one:?}")));
    wrong.extend(provoked.difference(&documented).map(|one| format!("a case, not documented: {one:?}")));
    wrong.extend(failures(&cases));
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

fn documented_by(case: &Case) -> impl Iterator<Item = Documented> {
    let (kind, reason) = (case.kind.to_owned(), case.reason.to_owned());
    let one = move |function: &&str| Documented {
        function: (*function).to_owned(),
        kind: kind.clone(),
        reason: reason.clone(),
    };
    case.functions.iter().map(one)
}

/// Runs all cases, and returns those that end otherwise than documented.
fn failures(cases: &[Case]) -> Vec<String> {
    let plugins = Plugins::get();
    let cache = plugins.folder.path("cache");
    let runs: Vec<(&Case, &str)> =
        cases.iter().flat_map(|case| case.functions.iter().map(move |function| (case, *function))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((case, function)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(what) = case.lacks() {
                        println!(
                            "{function}: no `{}` ({}): this machine has no {what}",
                            case.kind, case.reason
                        );
                    } else if let Err(reason) = case.run(function, &plugins.path_for(case), &cache) {
                        wrong.lock().expect("nobody panics").push(reason);
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("nobody panics")
}

#[test]
fn every_function_that_fails_says_how() {
    let Contract { errors, faults } = docs::read();
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    let failing: BTreeSet<&str> = errors.iter().filter_map(|one| one.function.split('.').next()).collect();
    let known: BTreeSet<&str> = TABLES.iter().map(|(name, _)| *name).collect();
    assert_eq!(failing, known, "each interface that has errors has a table");
}

#[test]
fn root_bpf_fails_as_documented() {
    check("bpf");
}

#[test]
fn root_clock_fails_as_documented() {
    check("clock");
}

#[test]
fn root_console_fails_as_documented() {
    check("console");
}

#[test]
fn root_globals_fail_as_documented() {
    check("globals");
}

#[test]
fn root_maps_fail_as_documented() {
    check("maps");
}

#[test]
fn root_perf_fails_as_documented() {
    check("perf");
}

#[test]
fn root_programs_fails_as_documented() {
    check("programs");
}

#[test]
fn root_rings_fail_as_documented() {
    check("ring");
}
