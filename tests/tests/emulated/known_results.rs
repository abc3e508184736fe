//! Random scripts with known results: constants of all widths in every syntactic position, and members of the
//! current task that userspace knows as well, each read on its own path (`script::compared`). They are built
//! once and run on the running kernel, on 6.1 and on 6.12. These tests need root.
//!
//! A large run is `make known-results SCRIPTS=2000`; `SEED=7` starts at that seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_compiler_testing::random::{self, Defaults};
use ks_compiler_testing::script::compared::{self, Compared, Expected, FACTS};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::{Folder, finish_within, number};
use libbpf_rs::{MapCore as _, MapFlags, ObjectBuilder, ProgramInput, ProgramType};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, umask};
use nix::sys::statfs::fstatfs;
use nix::unistd::{Whence, geteuid, getgid, getpid, getppid, gettid, getuid, lseek};

/// Number of scripts in a plain test run, whose seeds never change.
const FIXED: u64 = 60;
/// The environment variable with the folder of objects, for the process that runs them.
const OBJECTS: &str = "KS_KNOWN_OBJECTS";
/// The folder of objects in an emulated machine.
const INSIDE: &str = "/known";

#[test]
fn kernel_6_1() {
    let folder = Folder::new();
    let count = build(&folder, |defaults| match defaults {
        Defaults::Objects { older: Some(older), uses_iterators: true, .. } => Some(older),
        Defaults::Objects { newest, .. } => newest,
        Defaults::Refused(_) => None,
    });
    run_inside(Kernel::V6_1, &folder, count);
}

#[test]
fn kernel_6_12() {
    let folder = Folder::new();
    let count = build(&folder, newest);
    run_inside(Kernel::V6_12, &folder, count);
}

#[test]
fn root_results_are_what_userspace_knows() {
    let folder = Folder::new();
    let count = build(&folder, newest);
    // A process of its own, because it opens files under fixed numbers.
    let [test, arguments @ ..] = command();
    let mut command = Command::new(test);
    command.args(arguments).env(OBJECTS, folder.path(""));
    let outcome = finish_within(&mut command, Duration::from_secs(60 + count as u64));
    println!("{}", outcome.stdout);
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains(&format!("{count} scripts find")), "{}", outcome.stdout);
}

fn newest(defaults: Defaults) -> Option<Vec<u8>> {
    match defaults {
        Defaults::Objects { newest, .. } => newest,
        Defaults::Refused(_) => None,
    }
}

/// Returns the command that runs the objects.
fn command() -> [OsString; 4] {
    let (_, module) = module_path!().split_once("::").expect("a module of a test binary");
    let test = std::env::current_exe().expect("a test knows its own path");
    let name = format!("{module}::objects_find_what_is_known");
    [test.into_os_string(), "--exact".into(), name.into(), "--nocapture".into()]
}

fn run_inside(kernel: Kernel, folder: &Folder, count: usize) {
    if inside().is_some() {
        return;
    }
    let machine = Machine::new(kernel).file_as(folder.path(""), INSIDE).env(OBJECTS, INSIDE);
    let outcome = machine.seconds(120 + count as u64).run(&command());
    println!("{}", outcome.stdout);
    let passed = outcome.code == 0 && outcome.stdout.contains(&format!("{count} scripts find"));
    assert!(passed, "in kernel {}:\n{}{}", kernel.version(), outcome.stdout, outcome.stderr);
}

/// Writes an object for each seed, named after it. Returns the number of objects.
fn build(folder: &Folder, pick: impl Fn(Defaults) -> Option<Vec<u8>>) -> usize {
    let start = number("KS_KNOWN_SEED", 0);
    let count = number("KS_KNOWN_SCRIPTS", FIXED);
    println!("seeds from {start}");
    let built = (start..start + count).filter(|seed| {
        let text = compared::script(*seed).script.text();
        let defaults = random::compile_by_default(&text)
            .unwrap_or_else(|failure| panic!("seed {seed}: {}\n{}\n{text}", failure.kind, failure.text));
        let object = pick(defaults).unwrap_or_else(|| panic!("seed {seed} has no object\n{text}"));
        folder.write(&format!("{seed}.o"), object);
        true
    });
    built.count()
}

/// Runs every object, in a process of its own or in an emulated machine.
#[test]
fn objects_find_what_is_known() {
    let Some(folder) = std::env::var_os(OBJECTS) else { return };
    let opened = Opened::new();
    let facts = opened.facts();
    for (name, _) in FACTS {
        assert!(facts.contains_key(name), "nobody knows the {name}");
    }
    let entries = fs::read_dir(folder).expect("the objects are there");
    let (mut scripts, mut checks, mut wrong) = (0, 0, Vec::new());
    let mut found = BTreeSet::new();
    for entry in entries {
        let path = entry.expect("readable").path();
        let seed = path.file_stem().and_then(|name| name.to_str()?.parse().ok()).expect("named by a seed");
        let compared = compared::script(seed);
        compared.script.add_constructs(&mut found);
        let seen = match run(&path, &compared) {
            Ok(seen) => seen,
            Err(error) => {
                wrong.push(format!("seed {seed}: {error:#}\n{}", compared.script.text()));
                continue;
            }
        };
        scripts += 1;
        for (at, (seen, expected)) in seen.iter().zip(&compared.expected).enumerate() {
            let number = match expected {
                Expected::Number(number) => *number,
                Expected::Fact(name) => facts[name],
            };
            checks += 1;
            if *seen != number {
                let text = compared.script.text();
                wrong.push(format!(
                    "seed {seed}: seen[{at}] is {seen:#x}, not {number:#x} ({expected:?})\n{text}"
                ));
            }
        }
    }
    println!(
        "{}",
        wrong.iter().map(|one| one.lines().next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
    );
    println!("{}", wrong.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n"));
    assert!(wrong.is_empty(), "{} of {checks} results are wrong", wrong.len());
    println!("{scripts} scripts find the {checks} results that are known, by {} constructs", found.len());
}

/// Loads an object, runs its program once and returns its results.
fn run(path: &Path, compared: &Compared) -> libbpf_rs::Result<Vec<u64>> {
    let mut open = ObjectBuilder::default().open_file(path)?;
    if compared.kind == "@perf_event" {
        // The kernel has no test runs of perf programs. Raw tracepoint programs have all helpers that perf
        // programs have.
        open.progs_mut().for_each(|mut program| program.set_prog_type(ProgramType::RawTracepoint));
    }
    let object = open.load()?;
    if compared.has_config {
        // The userspace half of a plugin does this at its start.
        for (name, value) in random::configs(&compared.script.text()) {
            let map = object.maps().find(|map| map.name() == name.as_str()).expect("the object has it");
            map.update(&[0; 4], &value, MapFlags::ANY)?;
        }
    }
    let program = object.progs_mut().next().expect("scripts have one program");
    let packet = [0; 64];
    let mut input = ProgramInput::default();
    if compared.kind != "@perf_event" {
        input.data_in = Some(&packet);
    }
    program.test_run(input)?;
    let seen = object.maps().find(|map| map.name() == "seen").expect("scripts have it");
    let entry = |at: usize| -> libbpf_rs::Result<u64> {
        let value = seen.lookup(&(at as u32).to_ne_bytes(), MapFlags::ANY)?.expect("arrays have all entries");
        Ok(u64::from_ne_bytes(value.try_into().expect("a number of 64 bits")))
    };
    (0..compared.expected.len()).map(entry).collect()
}

/// The open files, under the numbers that [`FACTS`] names.
struct Opened {
    sized: File,
    far: File,
    foreign: File,
}

impl Opened {
    fn new() -> Opened {
        let memory = || File::from(memfd_create(c"known", MFdFlags::empty()).expect("memory for a file"));
        let opened = Opened {
            sized: memory(),
            far: memory(),
            foreign: File::open("/proc/self/status").expect("procfs is mounted"),
        };
        opened.sized.set_len((3 << 30) + 1).expect("a file of memory may be large");
        lseek(&opened.far, 5_000_000_000, Whence::SeekSet).expect("a file of memory has any position");
        lseek(&opened.foreign, 7, Whence::SeekSet).expect("a file of procfs has a position");
        for (number, file) in [(40, &opened.sized), (41, &opened.far), (42, &opened.foreign)] {
            // Duplicates the open file to a fixed number, which is free because this process opens few. It
            // stays open until the process ends.
            assert_eq!(fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(number)), Ok(number), "the number is free");
        }
        opened
    }

    /// Returns the values that userspace knows, by the names of [`FACTS`].
    fn facts(&self) -> BTreeMap<&'static str, u64> {
        let status = |file: &File| file.metadata().expect("an open file has a status");
        let position = |file: &File| lseek(file, 0, Whence::SeekCur).expect("a position") as u64;
        let [sized, far, foreign] = [&self.sized, &self.far, &self.foreign].map(status);
        let system = fstatfs(&self.foreign).expect("an open file has a file system");
        let mask = umask(Mode::empty());
        umask(mask);
        let process = fs::read_to_string("/proc/thread-self/stat").expect("procfs is mounted");
        let (_, numbers) = process.rsplit_once(')').expect("a name in parentheses");
        // Source: proc_pid_stat(5); the first number after the name is the third field.
        let field = |at: usize| {
            let text = numbers.split_whitespace().nth(at - 3).expect("a field of stat");
            text.parse().expect("a number")
        };
        let text = |path: &str| fs::read_to_string(path).expect("procfs is mounted");
        let number = |path: &str| text(path).trim().parse::<i64>().expect("a number") as u64;
        let letter = |path: &str, at: usize| u64::from(text(path).as_bytes()[at]);
        BTreeMap::from([
            ("tid", gettid().as_raw() as u64),
            ("pid", getpid().as_raw() as u64),
            ("parent", getppid().as_raw() as u64),
            ("umask", mask.bits().into()),
            ("root", fs::metadata("/").expect("there is a root").ino()),
            ("uid", getuid().as_raw().into()),
            ("gid", getgid().as_raw().into()),
            ("euid", geteuid().as_raw().into()),
            ("size of 40", sized.size()),
            ("mode of 40", sized.mode().into()),
            ("inode of 40", sized.ino()),
            ("inode of 41", far.ino()),
            ("position of 41", position(&self.far)),
            ("position of 42", position(&self.foreign)),
            ("file system of 42", system.filesystem_type().0 as u64),
            ("block size of 42", foreign.blksize()),
            ("uid of 42", foreign.uid().into()),
            ("start of the arguments", field(48)),
            ("end of the arguments", field(49)),
            ("start of the environment", field(50)),
            ("second letter of the name", letter("/proc/thread-self/comm", 1)),
            ("second letter of the system", letter("/proc/sys/kernel/ostype", 1)),
            ("third letter of the release", letter("/proc/sys/kernel/osrelease", 2)),
            ("timer slack", number("/proc/self/timerslack_ns")),
            ("score", number("/proc/self/oom_score_adj")),
        ])
    }
}
