//! Random scripts on kernels that this machine does not run: each is built without flags, and the object that
//! a host picks for the kernel must pass its verifier, on an emulated machine.
//!
//! The scripts are those of `compiler/tests/compiler/random`, and the cases that the tests of the kernel back
//! end keep. A large run is `make random-kernels SCRIPTS=500`; `SEED=7` starts at that seed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ks_compiler_testing::bits;
use ks_compiler_testing::random::{self, Defaults, Failure};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::{Folder, number, repository};

/// Number of scripts in a plain test run, whose seeds never change.
const FIXED: u64 = 40;
/// The folder of objects in the emulated machine.
const OBJECTS: &str = "/objects";
/// Stands for a diagnostic code where a plugin has no object for the kernel.
const NO_OBJECT: &str = "no object";
/// Limit of scripts without an object for a kernel, in percent.
const MOST_REFUSED: usize = 5;

#[test]
fn kernel_6_1() {
    scripts_load(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    scripts_load(Kernel::V6_12);
}

fn scripts_load(kernel: Kernel) {
    if inside().is_some() {
        return;
    }
    let start = number("KS_RANDOM_SEED", 0);
    let count = number("KS_RANDOM_SCRIPTS", FIXED);
    let folder = Folder::new();
    let refused = compile(kernel, start..start + count, &folder);
    let cases = compile_cases(kernel, &folder);
    let began = Instant::now();
    let (_, module) = module_path!().split_once("::").expect("a module of a test binary");
    let test = std::env::current_exe().expect("a test knows its own path");
    let arguments = ["--exact", &format!("{module}::guest_objects_load"), "--nocapture"].map(OsString::from);
    let command: Vec<_> = std::iter::once(test.into_os_string()).chain(arguments).collect();
    let machine = Machine::new(kernel).file_as(folder.path(""), OBJECTS).seconds(120 + count);
    let outcome = machine.run(&command);
    let version = kernel.version();
    let loaded = count as usize - refused.len();
    println!(
        "kernel {version}: {loaded} scripts from seed {start} and {cases} cases loaded in {:.0?}, {} scripts \
         refused for it: seeds {refused:?}",
        began.elapsed(),
        refused.len()
    );
    let passed = outcome.code == 0 && outcome.stdout.contains(&format!("{} objects load", loaded + cases));
    assert!(passed, "in kernel {version}:\n{}{}", outcome.stdout, outcome.stderr);
    let for_kernel = refused.iter().filter(|(_, code)| code == NO_OBJECT).count();
    assert!(for_kernel * 100 <= count as usize * MOST_REFUSED, "kernel {version}: {refused:?} are refused");
}

/// Writes the objects, named after their seeds. Returns the seeds without one, with the reasons.
fn compile(kernel: Kernel, seeds: std::ops::Range<u64>, folder: &Folder) -> Vec<(u64, String)> {
    let code = |seed: u64| refusal(kernel, &seed.to_string(), &bits::script(seed).text(), folder);
    seeds.filter_map(|seed| Some((seed, code(seed)?))).collect()
}

/// Folders of scripts that kernels take: the cases of the kernel back end, and the examples.
const SCRIPTS: [&str; 4] = ["compiler/tests/cases/kernel", "examples/net", "examples/perf", "examples/trace"];

/// Writes the objects of the kept scripts, named by them. Returns how many there are.
fn compile_cases(kernel: Kernel, folder: &Folder) -> usize {
    let files = |folder: &str| {
        let entries = std::fs::read_dir(repository().join(folder)).expect("the scripts are there");
        entries.map(|entry| entry.expect("readable").path())
    };
    let paths = SCRIPTS.iter().flat_map(|folder| files(folder));
    let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "ks"));
    let write = |path: &PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let script = std::fs::read_to_string(path).expect("a case is readable");
        // The loader cannot register structs without a link; the host can.
        let is_loaded = kernel != Kernel::V6_1 || name != "congestion";
        is_loaded && refusal(kernel, &name, &script, folder).is_none()
    };
    paths.filter(write).count()
}

/// Returns the diagnostic code with which a script is refused for the kernel. If there is none, it writes the
/// object.
fn refusal(kernel: Kernel, name: &str, script: &str, folder: &Folder) -> Option<String> {
    match object(kernel, script) {
        Ok(Ok(elf)) => {
            folder.write(&format!("{name}.o"), elf);
            None
        }
        Ok(Err(code)) => Some(code),
        Err(Failure { kind, text }) => panic!("{name}: {kind}\n{text}\n{script}"),
    }
}

/// Returns the object that a host picks for the kernel in a plugin built without flags, or the reason why
/// there is none.
fn object(kernel: Kernel, script: &str) -> Result<Result<Vec<u8>, String>, Failure> {
    Ok(match random::compile_by_default(script)? {
        Defaults::Objects { newest, older, uses_iterators } => {
            let lacks_iterators = kernel == Kernel::V6_1;
            let object = if uses_iterators && lacks_iterators { older } else { newest };
            object.ok_or_else(|| NO_OBJECT.into())
        }
        Defaults::Refused(code) => Err(code),
    })
}

/// Inside: loads every object and lets go of it.
#[test]
fn guest_objects_load() {
    if inside().is_none() {
        return;
    }
    let entries = std::fs::read_dir(OBJECTS).expect("the objects are there");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    libbpf_rs::set_print(None);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if load(path).is_err() {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(path);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    for path in &failures {
        // Once more, alone and aloud: what the verifier says goes through libbpf's print.
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Warn, say)));
        let again = load(path).err().map(|error| format!("{error:#}"));
        let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
        let last: Vec<&str> = said.lines().rev().take(LOG_LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        println!("{}: {}\n{}", path.display(), again.unwrap_or_default(), last.join("\n"));
    }
    assert!(failures.is_empty(), "{} of {} objects do not load", failures.len(), paths.len());
    println!("{} objects load", paths.len());
}

/// Lines of the verifier's log that are shown.
const LOG_LINES: usize = 40;

static SAID: Mutex<String> = Mutex::new(String::new());

fn say(_level: libbpf_rs::PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
}

fn load(path: &Path) -> libbpf_rs::Result<()> {
    libbpf_rs::ObjectBuilder::default().open_file(path)?.load().map(drop)
}
