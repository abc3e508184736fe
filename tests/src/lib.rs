//! Shared code of the whole-program tests: compiling scripts, running `ks` and `ks-host`, components from
//! WAT, and listing the objects that the kernel holds.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ks_compiler::diag::render;
use ks_compiler::kernel::Checks;
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Built, Options, Target};
use ks_wit::manifest::{FORMAT, Manifest, Source};
use ks_wit::section::BpfRecord;

pub mod alone;
pub mod aya;
pub mod cgroup;
pub mod cpus;
pub mod emulated;
pub mod fuzzed;
pub mod growing_scripts;
pub mod growth;
pub mod guest;
pub mod guests;
mod held;
pub mod loads;
pub mod mirror;
pub mod net;
pub mod plugins;
pub mod prepared;
pub mod refused;
pub mod row;
pub mod runs;
pub mod tools;
mod usage;
pub mod watched;

/// Returns a command of this build: `ks` or `ks-host`, next to the tests.
pub fn command(name: &str) -> Command {
    Command::new(binary(name))
}

/// Returns `ks-host` with everything allowed, for tests that do not concern the policy.
pub fn allowed() -> Command {
    let mut host = command("ks-host");
    host.args(["--allow", "all"]);
    host
}

/// Returns a script that runs these lines in a program at the context switches of one CPU (two at once would
/// write each other's globals), and prints the globals `a`, `b` and `c`.
pub fn at_switches(declared: &str, body: &str) -> String {
    format!(
        "{declared}
        var a: i64 = -1
        var b: i64 = -1
        var c: i64 = -1
        var runs: u64 = 0
        @tracepoint(\"sched/sched_switch\")
        fn switched(ctx: *trace_event_raw_sched_switch) -> i32 {{
            if (cpu() != 0) {{ return 0 }}
            {body}
            runs += 1
            return 0
        }}
        fn main() -> i32 {{
            var p = load(switched)
            if (attach(p, \"\", 0) != 0) {{ return 1 }}
            for (i in 0..10000) {{
                if (runs > 3) {{ break }}
                sleep(1)
            }}
            detach(p)
            print(\"{{}} {{}} {{}}\", a, b, c)
            return 0
        }}"
    )
}

/// Returns the path of a command of this build.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.parent().and_then(Path::parent).expect("tests lie two folders below the target folder");
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built: run `make test`, or `cargo build` first", path.display());
    path
}

/// Copies a program that is to be run, in another process: what other threads start meanwhile would inherit a descriptor of
/// ours that is open for writing, and execve(2) fails with ETXTBSY until they have closed it.
pub fn copy_program(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
    let copied = finish(Command::new("cp").arg("--").arg(from).arg(to));
    assert_eq!(copied.code, 0, "{copied:#?}");
}

/// Returns the number in an environment variable that enlarges a test run, or `default` if it is not set.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        text.parse().unwrap_or_else(|error| panic!("{variable} is {text:?}: {error}"))
    })
}

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns every fenced block of a language in a page.
pub fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    text.split(opening.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// A temporary folder for one test, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder that every user may read.
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into the folder and returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Folder::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that remains is harmless; a second panic during unwinding would hide the first one's
        // message.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output and exit status of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The whole standard output, as UTF-8.
    pub stdout: String,
    /// The whole standard error, as UTF-8.
    pub stderr: String,
    /// The exit code; 128 plus the signal's number if a signal ended it.
    pub code: i32,
    /// The signal that ended it; none if it exited.
    pub signal: Option<i32>,
    /// Peak resident memory in KiB; none where it was not measured.
    pub most_memory_kib: Option<i64>,
}

impl Outcome {
    /// Creates an outcome from an exit status and both outputs.
    pub fn of(status: ExitStatus, stdout: String, stderr: &[u8]) -> Outcome {
        let signal = status.signal();
        let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
        let stderr = String::from_utf8_lossy(stderr).into_owned();
        Outcome { stdout, stderr, code, signal, most_memory_kib: None }
    }

    /// Returns the words of the first line of standard output whose first word is `name`.
    pub fn row(&self, name: &str) -> Vec<&str> {
        let row = self.stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no row `{name}` in {self:#?}")).split_whitespace().collect()
    }

    /// Returns the numbers in the first line of standard output whose first word is `name`.
    pub fn numbers(&self, name: &str) -> Vec<i64> {
        self.row(name).iter().filter_map(|field| field.parse().ok()).collect()
    }

    /// Returns the number before a text in the last line of standard error that has it: counts of losses grow
    /// from line to line.
    pub fn number_before(&self, text: &str) -> u64 {
        let line = self.stderr.lines().rfind(|line| line.contains(text));
        let line = line.unwrap_or_else(|| panic!("no line with `{text}`: {self:#?}"));
        let before = line.split(text).next().and_then(|before| before.split_whitespace().last());
        before.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }
}

/// Runs a command to its end, with a limit of three minutes.
pub fn finish(command: &mut Command) -> Outcome {
    finish_within(command, Duration::from_secs(180))
}

/// Runs a command to its end, and kills it at the limit.
pub fn finish_within(command: &mut Command, limit: Duration) -> Outcome {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let id = nix::unistd::Pid::from_raw(child.id() as i32);
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(limit).is_err() {
            // Kills a command that hangs, so that the test fails with its output.
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let stdout = std::thread::spawn(move || bytes(stdout));
    let stderr = bytes(stderr);
    let stdout = stdout.join().expect("the reader does not panic");
    let (status, most_memory_kib) = usage::wait(child).expect("the child is ours");
    // The guard thread may already have ended.
    let _ = done.send(());
    guard.join().expect("the guard does not panic");
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    Outcome { most_memory_kib: Some(most_memory_kib), ..Outcome::of(status, stdout, &stderr) }
}

fn bytes(mut pipe: impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("a pipe is readable");
    bytes
}

/// Compiles a script; panics with its diagnostics if it has errors.
pub fn compile(project: &str, script: &str) -> Built {
    try_compile(project, script).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Compiles a script; uses the types of the running kernel if the script needs them.
///
/// # Errors
/// The diagnostics, if the script has errors.
pub fn try_compile(project: &str, script: &str) -> Result<Built, String> {
    try_compile_for(project, script, Target::default())
}

/// Compiles a script like [`try_compile`], for a given target.
///
/// # Errors
/// See [`try_compile`].
pub fn try_compile_for(project: &str, script: &str, target: Target) -> Result<Built, String> {
    // Read once: in an emulated machine that takes as long as to compile a script.
    static KERNEL: LazyLock<Arc<KernelTypes>> =
        LazyLock::new(|| Arc::new(KernelTypes::fetched(|| std::fs::read("/sys/kernel/btf/vmlinux").ok())));
    let options = Options { kernel: Arc::clone(&KERNEL), ..Options::new(project) };
    let mut checked = pipeline::parse(&format!("{project}.ks"), script.as_bytes(), options)
        .expect("scripts of tests are short")
        .check();
    let built = checked.build(target);
    built.map_err(|_| {
        let diagnostics = checked.diagnostics.sorted().into_iter();
        let errors: Vec<_> =
            diagnostics.map(|one| render::render(one, &checked.sources, render::Style::Plain)).collect();
        errors.join("\n")
    })
}

/// Compiles a script and runs it with these arguments.
pub fn run_script<S: AsRef<OsStr>>(project: &str, script: &str, arguments: &[S]) -> Outcome {
    run_plugin(project, &compile(project, script).plugin, arguments)
}

/// Runs the bytes of a plugin with these arguments.
pub fn run_plugin<S: AsRef<OsStr>>(project: &str, plugin: &[u8], arguments: &[S]) -> Outcome {
    let folder = Folder::new();
    let file = folder.write(&format!("{project}.wasm"), plugin);
    finish(allowed().arg(file).arg("--").args(arguments))
}

/// Builds a plugin from the text of a core module, which imports and exports by the canonical ABI.
///
/// # Errors
/// If the text is not a module, or the module does not fit the world.
pub fn component(project: &str, wat: &str, objects: &[BpfRecord]) -> Result<Vec<u8>> {
    component_of(project, &wat::parse_str(plugins::with_exit_code(wat))?, objects)
}

/// Builds a plugin from a core module in binary form.
///
/// # Errors
/// If the module does not fit the world.
pub fn component_of(project: &str, core: &[u8], objects: &[BpfRecord]) -> Result<Vec<u8>> {
    let manifest = Manifest {
        format: FORMAT,
        compiler: "wat".into(),
        project: project.into(),
        source: Source { file: format!("{project}.wat"), sha256: String::new() },
        programs: Vec::new(),
        struct_ops: Vec::new(),
        maps: Vec::new(),
        globals: Vec::new(),
        events: Vec::new(),
        tests: Vec::new(),
        configs: Vec::new(),
    };
    Ok(ks_compiler::plugin::assemble(core, objects, &manifest, Checks::EveryStage)?)
}

/// Returns the names of the programs and maps that the kernel holds now and that begin with `prefix`: `prog
/// NAME`, `map NAME`. The kernel cuts names after 15 bytes, so only that much of the prefix counts.
///
/// # Errors
/// If they cannot be listed.
pub fn kernel_objects(prefix: &str) -> Result<Vec<String>> {
    let prefix = prefix.get(..15).unwrap_or(prefix);
    let names = held::names().context("cannot list what the kernel holds")?;
    let named = |one: &String| one.split_once(' ').is_some_and(|(_, name)| name.starts_with(prefix));
    Ok(names.into_iter().filter(named).collect())
}

/// Waits until the kernel holds no object whose name begins with `prefix`; it frees objects with a delay.
/// Panics after two seconds.
pub fn wait_until_gone(prefix: &str) {
    let left = || kernel_objects(prefix).expect("root may list what the kernel holds");
    assert!(is_within(Duration::from_secs(2), || left().is_empty()), "left behind: {:?}", left());
}

/// Waits until a condition holds. Panics with `what` if it does not within the limit.
pub fn wait_until(limit: Duration, what: &str, holds: impl FnMut() -> bool) {
    assert!(is_within(limit, holds), "not within {limit:?}: {what}");
}

/// Returns whether a condition becomes true within the limit. It polls, for conditions without a
/// notification.
pub fn is_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
