//! Mutated objects: libbpf opens and prepares whatever the strict reader accepts and the writer writes,
//! without a fault that the sanitizers of the C compiler detect.
//!
//! `make mutants` runs more of them: `KS_MUTANTS`, `KS_INSPECTED` and `KS_MUTANTS_SEED`.

mod corpus;
mod inspected;
mod loader;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ks_compiler::kernel::{Cpu, Machine};
use ks_compiler::object::model::KsymKind;
use ks_compiler::object::table::{MapKind, ProgramType};
use ks_compiler::object::testing::{Mutant, Mutator, Part};
use ks_compiler::object::{Object, read, write};
use ks_compiler_testing::random::Compiled;
use ks_tests::guests::target_folder;
use ks_tests::{number, repository};
use ks_wit::section::Arch;

use loader::{LoadOutcome, Loader};

/// Objects of clang and of rustc, whose sources are next to them in the compiler's tests.
const FOREIGN: [(&str, &[u8]); 3] = [
    ("clang", include_bytes!("../../../../compiler/src/object/tests/objects/features.o")),
    ("struct_ops", include_bytes!("../../../../compiler/src/object/tests/objects/struct_ops.o")),
    ("aya", include_bytes!("../../../../compiler/src/object/tests/objects/aya.o")),
];

/// Default number of mutants.
const MUTANTS: u64 = 4000;

/// Objects that need the types of the running kernel take a tenth of a second to prepare; one of this many is
/// prepared.
const OF_KERNEL: u64 = 100;

/// The same for those with a changed CO-RE record, which libbpf reads when it prepares.
const OF_KERNEL_WITH_CORE: u64 = 5;

/// Factor of mutants for objects with CO-RE records, because few objects have them.
const CORE_WEIGHT: u64 = 15;

/// Limit of an object's maps, in bytes; larger ones are not created.
const MAP_BYTES: u64 = 64 << 20;

/// Returns the kernel halves of all test cases, and objects of other compilers.
fn objects() -> Vec<(String, Vec<u8>)> {
    let cases = repository().join("compiler/tests/cases/kernel");
    let mut paths: Vec<_> =
        fs::read_dir(cases).expect("readable").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let scripts = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "ks"));
    let compiled = scripts.map(|path| {
        let script = fs::read_to_string(path).expect("readable");
        let object = ks_compiler_testing::kernel_half::object_for(&script, Cpu::V3);
        (path.display().to_string(), object.elf().to_vec())
    });
    let foreign = FOREIGN.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    let aya = ks_tests::aya::OBJECTS.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    compiled.chain(examples()).chain(foreign).chain(aya).collect()
}

/// Returns the kernel halves of the examples that read structs of the running kernel, which needs CO-RE
/// records.
fn examples() -> Vec<(String, Vec<u8>)> {
    let folder = repository().join("examples/trace");
    let paths = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    let mut scripts: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "ks")).collect();
    scripts.sort();
    let object = |path: &PathBuf| {
        let script = fs::read_to_string(path).expect("readable");
        let machine = Machine { cpu: Cpu::V3, ..Arch::X86_64.into() };
        match ks_compiler_testing::random::compile(&script, machine) {
            Ok(Compiled::Object(elf)) => Some((path.display().to_string(), elf)),
            _ => None,
        }
    };
    scripts.iter().filter_map(object).filter(|(_, elf)| has_core(elf)).collect()
}

/// Returns whether preparing the object makes libbpf read the types of the running kernel.
fn asks_kernel(object: &Object) -> bool {
    let typed = |kind| matches!(kind, KsymKind::Function(_) | KsymKind::Variable(_));
    let kinds = [ProgramType::Tracing, ProgramType::Lsm, ProgramType::StructOps];
    object.ksyms.iter().any(|ksym| typed(ksym.kind))
        || !object.struct_ops.is_empty()
        || object.programs.iter().any(|program| kinds.contains(&program.section.kind.program))
}

/// Returns whether the object has CO-RE records.
fn has_core(elf: &[u8]) -> bool {
    let object = read(elf).unwrap_or_else(|error| panic!("{error}"));
    let programs = object.programs.iter().map(|one| &one.body);
    programs.chain(object.subprograms.iter().map(|one| &one.body)).any(|body| !body.core.is_empty())
}

/// Returns whether the object's maps are within the limit.
fn has_small_maps(object: &Object) -> bool {
    let memory = object.memory(2);
    memory.map_bytes.saturating_add(memory.ring_bytes) <= MAP_BYTES
}

/// Returns the canonical object of one that is accepted.
fn canonical(elf: &[u8]) -> Vec<u8> {
    let object = read(elf).unwrap_or_else(|error| panic!("{error}"));
    write(&object).unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers of mutants.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    generated: u64,
    accepted: u64,
    /// Accepted, and the canonical object differs from the original's.
    altered: u64,
    opened: u64,
    /// Given to libbpf to prepare, which may fail: it refuses most changed CO-RE records, whose instructions
    /// have another offset.
    attempted: u64,
    prepared: u64,
}

/// Numbers of mutants by the parts that they change; one mutant may change several.
#[derive(Debug, Default)]
struct Tally {
    parts: BTreeMap<Part, Row>,
    all: Row,
    /// Mutants that change something other than instructions and data.
    records: Row,
}

impl Tally {
    /// Counts a mutant in all rows to which it belongs.
    fn count(&mut self, parts: &BTreeSet<Part>, count: impl Fn(&mut Row)) {
        count(&mut self.all);
        if parts.iter().any(|part| !matches!(part, Part::Code | Part::Data)) {
            count(&mut self.records);
        }
        for part in parts {
            count(self.parts.entry(*part).or_default());
        }
    }

    fn print(&self) {
        let parts = self.parts.iter().map(|(part, row)| (format!("{part:?}"), row));
        for (name, row) in parts.chain([("records".into(), &self.records), ("all".into(), &self.all)]) {
            println!(
                "{name:<10}{:>9} mutants{:>9} accepted ({:>5.1} %){:>9} altered ({:>5.1} %){:>9} opened{:>9} \
                 attempted ({:>5.1} %){:>9} prepared",
                row.generated,
                row.accepted,
                100.0 * row.accepted as f64 / self.records.accepted.max(1) as f64,
                row.altered,
                100.0 * row.altered as f64 / self.records.altered.max(1) as f64,
                row.opened,
                row.attempted,
                100.0 * row.attempted as f64 / self.records.attempted.max(1) as f64,
                row.prepared
            );
        }
    }

    /// Asserts that each kind of records has a share of what libbpf gets: a mutator whose changes are all
    /// refused tests only the reader.
    fn assert_shares(&self) {
        for part in Part::RECORDS {
            let row = self.parts.get(&part).copied().unwrap_or_default();
            let shares = [
                (row.accepted, self.records.accepted),
                (row.altered, self.records.altered),
                (row.attempted, self.records.attempted),
            ];
            let has_share = shares.iter().all(|(some, all)| some * 20 >= *all);
            assert!(has_share, "{part:?} is changed in less than 5 %: {self:#?}");
        }
    }
}

/// Passes mutants of one object to the loader.
struct Run<'r> {
    name: &'r str,
    loader: &'r mut Loader,
    /// Path of the object, in which CO-RE finds the types.
    types: &'r str,
    /// The canonical object without a change.
    canonical: Vec<u8>,
    /// Number of mutants so far that need the kernel's types, without and with a changed CO-RE record.
    of_kernel: &'r mut [u64; 2],
}

impl Run<'_> {
    /// Returns whether a mutant that needs the kernel's types is one of those that are prepared.
    fn is_chosen(&mut self, mutant: &Mutant) -> bool {
        let has_core = mutant.parts.contains(&Part::Core);
        let count = &mut self.of_kernel[usize::from(has_core)];
        *count += 1;
        *count % if has_core { OF_KERNEL_WITH_CORE } else { OF_KERNEL } == 1
    }

    fn mutant(&mut self, mutant: &Mutant, object: &[u8], tally: &mut Tally) {
        tally.count(&mutant.parts, |row| row.generated += 1);
        let Ok(model) = read(&mutant.bytes) else { return };
        let elf = write(&model).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let is_altered = elf != self.canonical;
        let prepare = has_small_maps(&model) && (!asks_kernel(&model) || self.is_chosen(mutant));
        let said = self.loader.load(&elf, self.types, prepare).unwrap_or_else(|| {
            let kept = target_folder().join("libbpf-fault.o");
            fs::write(&kept, &elf).expect("the folder is ours");
            let line = corpus::line("accepted", self.name, object, &mutant.bytes);
            panic!("{}: libbpf ended; the object is {}; for corpus.txt: {line}", self.name, kept.display())
        });
        tally.count(&mutant.parts, |row| {
            row.accepted += 1;
            row.altered += u64::from(is_altered);
            row.opened += u64::from(said != LoadOutcome::NotOpened);
            row.attempted += u64::from(prepare);
            row.prepared += u64::from(said == LoadOutcome::Prepared);
        });
    }
}

#[test]
fn root_accepted_objects_harm_no_loader() {
    let (mutants, seed) = (number("KS_MUTANTS", MUTANTS), number("KS_MUTANTS_SEED", 0));
    let mut loader = Loader::start();
    let folder = ks_tests::Folder::new();
    let objects = objects();
    assert!(objects.len() >= 100, "{}", objects.len());
    let (mut tally, mut of_kernel) = (Tally::default(), [0; 2]);
    let weights: Vec<u64> =
        objects.iter().map(|(_, object)| if has_core(object) { CORE_WEIGHT } else { 1 }).collect();
    let weight: u64 = weights.iter().sum();
    for (index, (name, object)) in (0_u64..).zip(&objects) {
        let types = folder.write("types.o", object).display().to_string();
        let canonical = canonical(object);
        let mut run = Run { name, loader: &mut loader, types: &types, canonical, of_kernel: &mut of_kernel };
        let mut mutator = Mutator::new(seed.wrapping_mul(1_000_003).wrapping_add(index));
        for _ in 0..mutants * weights[usize::try_from(index).expect("few")] / weight {
            run.mutant(&mutator.mutate(object), object, &mut tally);
        }
    }
    tally.print();
    let all = tally.all;
    // libbpf opens every object that the reader accepts and the writer wrote.
    assert_eq!(all.accepted, all.opened, "{tally:#?}");
    assert!(all.accepted * 20 > all.generated && all.prepared * 4 > all.accepted, "{tally:#?}");
    tally.assert_shares();
}

#[test]
fn root_maps_of_mutants_have_a_limit_of_memory() {
    let mut loader = Loader::start();
    if !loader.is_grouped() {
        return;
    }
    let (name, aya) = FOREIGN[2];
    let folder = ks_tests::Folder::new();
    let types = folder.write("types.o", aya).display().to_string();
    let mut with_entries = |entries| {
        let mut model = read(aya).unwrap_or_else(|error| panic!("{name}: {error}"));
        let map = model.maps.iter_mut().find(|map| map.shape.kind == MapKind::PerCpuArray);
        let shape = &mut map.expect("Aya's object has an array").shape;
        (shape.kind, shape.entries) = (MapKind::Array, entries);
        loader.load(&write(&model).expect("the shape is valid"), &types, true)
    };
    // Values have eight bytes.
    assert_eq!(with_entries(1024), Some(LoadOutcome::Prepared));
    assert_eq!(with_entries(1 << 27), Some(LoadOutcome::NotPrepared), "a map of 1 GiB");
    assert_eq!(with_entries(1024), Some(LoadOutcome::Prepared), "after the failure");
}
