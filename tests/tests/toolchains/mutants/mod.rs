//! Mutated objects: libbpf opens and prepares whatever the strict reader accepts and the writer writes,
//! without a fault that the sanitizers of the C compiler detect.
//!
//! `make mutants` runs more of them: `KS_MUTANTS`, `KS_INSPECTED` and `KS_MUTANTS_SEED`.

mod inspected;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use ks_compiler::kernel::{Cpu, Machine};
use ks_compiler::object::model::KsymKind;
use ks_compiler::object::table::ProgramType;
use ks_compiler::object::testing::{Mutator, Part};
use ks_compiler::object::{Object, read, write};
use ks_compiler_testing::random::Compiled;
use ks_tests::guests::target_folder;
use ks_tests::{finish, finish_within, repository};
use ks_wit::section::Arch;

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

/// Factor of mutants for objects with CO-RE records, because few objects have them.
const CORE_WEIGHT: u64 = 60;

/// Limit of an object's maps, in bytes; larger ones are not created.
const MAP_BYTES: u64 = 64 << 20;

/// Builds the loader with this host's version of libbpf and sanitizers, and returns its path.
fn loader() -> PathBuf {
    // Packages for other platforms need not have been fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let asked =
        ["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", &platform];
    let outcome = finish(Command::new(env!("CARGO")).current_dir(repository()).args(asked));
    let metadata: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package =
        packages.iter().find(|package| package["name"] == "libbpf-sys").expect("it is a dependency");
    let (version, manifest) = (package["version"].as_str(), package["manifest_path"].as_str());
    let source = Path::new(manifest.expect("a path")).parent().expect("a folder").join("libbpf/src");
    let folder = target_folder().join(format!("libbpf-sanitized-{}", version.expect("a version")));
    let program = folder.join("loader");
    if !program.exists() {
        build(&source, &folder, &program);
    }
    program
}

fn build(source: &Path, folder: &Path, program: &Path) {
    let headers = folder.join("include/bpf");
    fs::create_dir_all(&headers).expect("the folder is ours");
    let mut files = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/toolchains/mutants/loader.c")];
    for entry in fs::read_dir(source).expect("the sources of libbpf are there").flatten() {
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("c") => files.push(path),
            Some("h") => _ = fs::copy(&path, headers.join(entry.file_name())).expect("the folder is ours"),
            _ => {}
        }
    }
    let include = |folder: PathBuf| format!("-I{}", folder.display());
    // Built next to its final path and renamed: another run sees the whole program or none.
    let part = folder.join("loader.part");
    let built = finish_within(
        Command::new("cc")
            .args(["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"])
            .args(["-D_LARGEFILE64_SOURCE", "-D_FILE_OFFSET_BITS=64"])
            .args([include(source.to_owned()), include(source.join("../include"))])
            .args([include(source.join("../include/uapi")), include(folder.join("include"))])
            .args(files)
            .args(["-lelf", "-lz", "-o"])
            .arg(&part),
        Duration::from_secs(600),
    );
    assert_eq!(built.code, 0, "{built:#?}");
    fs::rename(part, program).expect("the folder is ours");
}

/// A running loader, killed when dropped.
struct Loader {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

/// The loader's result for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadOutcome {
    Prepared,
    Opened,
    NotPrepared,
    NotOpened,
}

impl Loader {
    fn start(program: &Path) -> Loader {
        let mut child = Command::new(program)
            // Leaks are ignored because they end with the process; the test looks for memory errors.
            .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was built");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Loader { child, to, from }
    }

    fn load(&mut self, elf: &[u8], types: &str, prepare: bool) -> Option<LoadOutcome> {
        let len = |bytes: usize| u32::try_from(bytes).expect("objects are small").to_le_bytes();
        let head = [u32::from(prepare).to_le_bytes(), len(types.len()), len(elf.len()), [0; 4]].concat();
        let mut said = [0];
        let answered = [&head[..], types.as_bytes(), elf].iter().try_for_each(|part| self.to.write_all(part));
        answered.and_then(|()| self.from.read_exact(&mut said)).ok()?;
        [LoadOutcome::Prepared, LoadOutcome::Opened, LoadOutcome::NotPrepared, LoadOutcome::NotOpened]
            .get(usize::from(said[0]))
            .copied()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Cleans up after a failed test; a child that has ended cannot be killed.
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}

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
    compiled.chain(examples()).chain(foreign).collect()
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

/// Numbers of mutants of one part: all, accepted, opened and prepared.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    generated: u64,
    accepted: u64,
    opened: u64,
    prepared: u64,
}

#[test]
fn root_accepted_objects_harm_no_loader() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (mutants, seed) = (number("KS_MUTANTS").unwrap_or(MUTANTS), number("KS_MUTANTS_SEED").unwrap_or(0));
    let program = loader();
    let mut loader = Loader::start(&program);
    let folder = ks_tests::Folder::new();
    let objects = objects();
    assert!(objects.len() >= 100, "{}", objects.len());
    let mut rows: BTreeMap<Part, Row> = BTreeMap::new();
    let mut of_kernel = 0;
    let weights: Vec<u64> =
        objects.iter().map(|(_, object)| if has_core(object) { CORE_WEIGHT } else { 1 }).collect();
    let weight: u64 = weights.iter().sum();
    for (index, (name, object)) in (0_u64..).zip(&objects) {
        // CO-RE finds the types in the object itself.
        let types = folder.write("types.o", object).display().to_string();
        let mut mutator = Mutator::new(seed.wrapping_mul(1_000_003).wrapping_add(index));
        let share = mutants * weights[usize::try_from(index).expect("few")] / weight;
        for _ in 0..share {
            let (mutant, part) = mutator.mutate(object);
            let row = rows.entry(part).or_default();
            row.generated += 1;
            let Ok(model) = read(&mutant) else { continue };
            row.accepted += 1;
            let elf = write(&model).unwrap_or_else(|error| panic!("{name}: {error}"));
            let memory = model.memory(2);
            let is_small = memory.map_bytes.saturating_add(memory.ring_bytes) <= MAP_BYTES;
            let prepare = is_small
                && (!asks_kernel(&model) || {
                    of_kernel += 1;
                    of_kernel % OF_KERNEL == 1
                });
            let said = loader.load(&elf, &types, prepare).unwrap_or_else(|| {
                let kept = target_folder().join("libbpf-fault.o");
                fs::write(&kept, &elf).expect("the folder is ours");
                panic!("{name}: libbpf ended; the object is {}", kept.display())
            });
            row.opened += u64::from(said != LoadOutcome::NotOpened);
            row.prepared += u64::from(said == LoadOutcome::Prepared);
        }
    }
    let all = rows.values().fold(Row::default(), |sum, row| Row {
        generated: sum.generated + row.generated,
        accepted: sum.accepted + row.accepted,
        opened: sum.opened + row.opened,
        prepared: sum.prepared + row.prepared,
    });
    for (name, row) in rows.iter().map(|(part, row)| (format!("{part:?}"), row)).chain([("all".into(), &all)])
    {
        let share = 100.0 * row.accepted as f64 / all.accepted.max(1) as f64;
        println!(
            "{name:<12}{:>9} mutants{:>9} accepted ({share:>5.1} %){:>9} opened{:>9} prepared",
            row.generated, row.accepted, row.opened, row.prepared
        );
    }
    // libbpf opens every object that the reader accepts and the writer wrote.
    assert_eq!(all.accepted, all.opened, "{rows:#?}");
    assert!(all.accepted * 20 > all.generated && all.prepared * 4 > all.accepted, "{rows:#?}");
}
