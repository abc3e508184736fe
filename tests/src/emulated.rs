//! Tests on kernels that this machine does not run: Debian's 6.1 and 6.12 on an emulated x86-64 machine, and
//! 6.12 on an arm64 one with one or two kinds of core.
//!
//! A module whose tests should also pass there has one test per kernel, which runs the others inside:
//!
//! ```no_run
//! use ks_tests::emulated::{Kernel, Machine};
//!
//! #[test]
//! fn kernel_6_1() {
//!     Machine::new(Kernel::V6_1).run_tests(module_path!(), &["attached"]);
//! }
//!
//! mod attached {
//!     #[test]
//!     fn kprobe_counts_calls() {
//!         let has = std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists();
//!         if !ks_tests::emulated::here_or_inside("kprobes", has) {
//!             return;
//!         }
//!         // As on the running kernel: `compile`, `run_script`, `kernel_objects` work inside.
//!     }
//! }
//! ```
//!
//! [`Machine::run`] runs any other command there; `scripts/emulate` describes the machine. Booting takes
//! about 4 seconds, so the first test that needs a kernel boots it, and the kernel serves all tests of the
//! process one after the other. It powers off when the process ends. `scripts/guest-kernel` fetches the
//! kernels from Debian's archive; without it these tests fail and report it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Folder, Outcome, binary, finish, finish_within, number, repository};

/// A kernel that can be emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Debian 12's kernel for x86-64.
    V6_1,
    /// Debian 12's backported kernel for x86-64.
    V6_12,
    /// The same version for arm64: one CPU, with a PMU of 7 counters. It runs programs built for arm64.
    V6_12Arm64,
    /// The same with two CPUs of different kinds, each with its own core PMU.
    V6_12Arm64Hybrid,
}

impl Kernel {
    /// The kernels of this machine's architecture, oldest first.
    pub const ALL: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];

    /// Returns the version as `scripts/emulate` takes it and as [`inside`] returns it.
    pub fn version(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V6_12Arm64 => "6.12:arm64",
            Kernel::V6_12Arm64Hybrid => "6.12:arm64-hybrid",
        }
    }

    /// Returns the folder with the headers for building a module for this kernel, laid out as under `/`.
    /// Fetches them if they are missing.
    pub fn headers(self) -> PathBuf {
        let script = repository().join("scripts/guest-kernel");
        let mut command = Command::new(script);
        let found = finish_within(command.args([self.version(), "headers"]), Duration::from_secs(180));
        assert_eq!(found.code, 0, "there are no headers of kernel {}: {}", self.version(), found.stderr);
        Path::new(found.stdout.trim()).join("headers")
    }
}

/// Returns the emulated kernel that runs this test, as [`Kernel::version`] returns it, or none on the running
/// kernel.
pub fn inside() -> Option<String> {
    std::env::var("KS_EMULATED").ok()
}

/// Returns whether a test that needs `what` can run here; `has` says whether the kernel has it.
///
/// Without it, the test on the running kernel prints that the emulated kernels run it; on an emulated kernel
/// it panics.
pub fn here_or_inside(what: &str, has: bool) -> bool {
    if has {
        return true;
    }
    let kernel = inside();
    assert!(kernel.is_none(), "the emulated kernel {} has no {what}", kernel.unwrap_or_default());
    eprintln!("not run here: this kernel has no {what}; the emulated kernels run it");
    false
}

/// A command for an emulated machine, and the files that it needs there.
pub struct Machine {
    kernel: Kernel,
    /// Files that are copied before the command runs and removed after it.
    files: Folder,
    archived: bool,
    exports: String,
    limit: Duration,
}

/// A permit to keep one CPU busy. An emulated machine runs on one CPU. More machines than CPUs would be
/// slower, and their time limits would depend on each other.
struct Busy;

static BUSY: Mutex<usize> = Mutex::new(0);
static IDLE: Condvar = Condvar::new();

impl Busy {
    /// Waits until a CPU is free.
    fn wait() -> Busy {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        // A poisoned lock means that one test failed; the next must not fail for it.
        let busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        let mut busy = IDLE.wait_while(busy, |busy| *busy >= cpus).unwrap_or_else(PoisonError::into_inner);
        *busy += 1;
        Busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *BUSY.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        IDLE.notify_one();
    }
}

/// A booted machine that serves requests. Source of the protocol: `scripts/emulate`, `--serve`.
struct Session {
    /// The script that runs the emulator. It ends by itself when the socket is closed.
    script: Child,
    requests: UnixStream,
    answers: BufReader<UnixStream>,
}

/// One machine per kernel, booted when first needed. The holder of a lock has exclusive use of that machine.
static SESSIONS: [Mutex<Option<Session>>; 4] = [const { Mutex::new(None) }; 4];

/// Kernel modules that some test needs, loaded in every machine whose kernel supports modules.
const MODULES: [&str; 3] = ["veth", "sch_ingress", "cls_bpf"];

/// Default of `KS_MOMENTS` inside: the number of moments at which tests kill a host. Each takes half a
/// second.
const MOMENTS: u64 = 2;

/// Time limit for booting a machine, including the download of its kernel.
const BOOT: Duration = Duration::from_secs(300);

impl Session {
    /// Boots a kernel with the commands of this build, the programs that tests call, and this test's own
    /// binary.
    fn boot(kernel: Kernel) -> Result<Session, String> {
        let folder = Folder::new();
        let socket = folder.path("socket");
        let listener =
            UnixListener::bind(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        let mut script = Command::new(repository().join("scripts/emulate"));
        script.arg(kernel.version()).arg("--serve").arg(&socket).args(["--seconds", "3600"]);
        if Kernel::ALL.contains(&kernel) {
            for (from, to) in programs(&folder) {
                script.arg("--file").arg(format!("{}:{}", from.display(), to.display()));
            }
            MODULES.iter().for_each(|module| {
                script.args(["--module", module]);
            });
        }
        let console = folder.path("console");
        let errors = std::fs::File::create(&console).map_err(|error| error.to_string())?;
        // The script writes nothing to the pipe, which closes when the script ends.
        script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut script = script.spawn().map_err(|error| format!("scripts/emulate: {error}"))?;
        let ended = script.stdout.take().ok_or("no pipe")?;
        let mut events =
            [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(BOOT).map_err(|error| error.to_string())?;
        poll(&mut events, limit).map_err(|error| error.to_string())?;
        if events[0].any() != Some(true) {
            // It may already have ended.
            let _ = script.kill();
            let _ = script.wait();
            let said = std::fs::read_to_string(&console).unwrap_or_default();
            return Err(format!("kernel {} does not boot: {said}", kernel.version()));
        }
        let (requests, _) = listener.accept().map_err(|error| error.to_string())?;
        let answers = requests.try_clone().map_err(|error| error.to_string())?;
        let mut session = Session { script, requests, answers: BufReader::new(answers) };
        let ready = session.line(BOOT).map_err(|error| format!("kernel {}: {error}", kernel.version()))?;
        if ready != "ready" {
            return Err(format!("kernel {} answers {ready:?}", kernel.version()));
        }
        Ok(session)
    }

    /// Reads the next line of an answer, within this time.
    fn line(&mut self, limit: Duration) -> Result<String, String> {
        let mut line = String::new();
        self.requests.set_read_timeout(Some(limit)).map_err(|error| error.to_string())?;
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the machine ended".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("no answer within {limit:?}: {error}")),
        }
    }

    fn send(&mut self, request: &str, bytes: &[u8]) -> Result<(), String> {
        let sent = writeln!(self.requests, "{request} {}", bytes.len());
        sent.and_then(|()| self.requests.write_all(bytes)).map_err(|error| format!("cannot send: {error}"))
    }

    /// Runs a shell script in the machine.
    fn run(&mut self, script: &str, limit: Duration) -> Result<Outcome, String> {
        self.send("run", script.as_bytes())?;
        let answer = self.line(limit)?;
        let numbers: Vec<usize> = answer.split(' ').filter_map(|part| part.parse().ok()).collect();
        let [code, output, errors] = numbers[..] else {
            return Err(format!("the machine answers {answer:?}"));
        };
        let mut read = |len: usize| {
            let mut bytes = vec![0; len];
            self.answers.read_exact(&mut bytes).map(|()| bytes).map_err(|error| error.to_string())
        };
        let (output, errors) = (read(output)?, read(errors)?);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Outcome {
            stdout: text(output),
            stderr: text(errors),
            code: code as i32,
            signal: None,
            most_memory_kib: None,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closing the socket ends the machine; the script kills one that hangs. Only a machine that failed is
        // dropped: the others end with the test's process.
        let _ = kill(Pid::from_raw(self.script.id() as i32), Signal::SIGTERM);
        let _ = self.script.wait();
    }
}

/// Returns the programs that every machine has, and their paths there. The copies are stripped, because debug
/// information is most of their size.
fn programs(folder: &Folder) -> Vec<(PathBuf, PathBuf)> {
    let bpftool = ["/usr/sbin/bpftool", "/sbin/bpftool", "/usr/bin/bpftool"];
    let bpftool = bpftool.iter().find(|path| Path::new(path).exists());
    let bpftool = bpftool.expect("bpftool is installed: `scripts/packages bpftool`");
    let mut programs = vec![(bpftool.into(), bpftool.into()), ("/bin/true".into(), "/bin/true".into())];
    for own in [binary("ks"), binary("ks-host"), own_path()] {
        programs.push((stripped(&own, folder), own));
    }
    programs
}

/// Returns a copy of a program in this folder, without debug information.
fn stripped(program: &Path, folder: &Folder) -> PathBuf {
    let copy = folder.path(program.file_name().expect("a program has a name"));
    let stripped = finish(Command::new("objcopy").arg("--strip-debug").arg(program).arg(&copy));
    assert_eq!(stripped.code, 0, "objcopy {}: {stripped:#?}", program.display());
    copy
}

/// Returns the path of this test's own binary.
fn own_path() -> PathBuf {
    std::env::current_exe().expect("a test knows its own path")
}

fn quoted(part: &OsStr) -> String {
    let text = String::from_utf8_lossy(part.as_bytes());
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Machine {
    /// Creates a command for the machine of a kernel, with a limit of two minutes.
    pub fn new(kernel: Kernel) -> Machine {
        let limit = Duration::from_secs(120);
        Machine { kernel, files: Folder::new(), archived: false, exports: String::new(), limit }
    }

    /// Adds a program of this build under the same path, without its debug information.
    pub fn program(self, name: &str) -> Machine {
        let folder = Folder::new();
        let program = binary(name);
        let inside = program.to_str().expect("a path is text").to_owned();
        self.file_as(stripped(&program, &folder), &inside)
    }

    /// Adds a copy of a file or folder under the same path.
    pub fn file(self, path: impl AsRef<Path>) -> Machine {
        let inside = path.as_ref().to_str().expect("a path is text").to_owned();
        self.file_as(path, &inside)
    }

    /// Adds a copy of a file or folder under another path.
    pub fn file_as(mut self, path: impl AsRef<Path>, inside: &str) -> Machine {
        let target = self.files.path(inside.trim_start_matches('/'));
        let parent = target.parent().expect("it lies in the folder");
        std::fs::create_dir_all(parent).expect("the temporary folder is writable");
        let copied = finish(Command::new("cp").arg("-rL").arg(path.as_ref()).arg(&target));
        assert_eq!(copied.code, 0, "{copied:#?}");
        self.archived = true;
        self
    }

    /// Sets an environment variable for the command.
    pub fn env(mut self, name: &str, value: &str) -> Machine {
        writeln!(self.exports, "export {name}={}", quoted(value.as_ref())).expect("a string grows");
        self
    }

    /// Sets the command's time limit, in seconds.
    pub fn seconds(mut self, seconds: u64) -> Machine {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs one command to its end in the machine that serves this test's process, and boots the machine if
    /// necessary.
    ///
    /// Panics if there is no emulator or no kernel, or the command exceeds its time limit. The next command
    /// then gets a new machine.
    pub fn run<S: AsRef<OsStr>>(self, command: &[S]) -> Outcome {
        let session = &SESSIONS[self.kernel as usize];
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let _busy = Busy::wait();
        let began = Instant::now();
        let booted = session.is_some();
        let ran = self.run_in(&mut session, command);
        let how = if booted { "" } else { ", booted first" };
        println!("kernel {}: {:.1} s{how}", self.kernel.version(), began.elapsed().as_secs_f32());
        ran.unwrap_or_else(|error| {
            *session = None;
            panic!("cannot run in kernel {} (scripts/emulate): {error}", self.kernel.version())
        })
    }

    fn run_in<S: AsRef<OsStr>>(
        &self,
        session: &mut Option<Session>,
        command: &[S],
    ) -> Result<Outcome, String> {
        let session = match session {
            Some(session) => session,
            None => session.insert(Session::boot(self.kernel)?),
        };
        if self.archived {
            let archive =
                Command::new("tar").arg("-C").arg(self.files.path("")).args(["-cf", "-", "."]).output();
            session.send("tar", &archive.map_err(|error| format!("tar: {error}"))?.stdout)?;
        }
        let parts: Vec<_> = command.iter().map(|part| quoted(part.as_ref())).collect();
        session.run(&format!("{}{}\n", self.exports, parts.join(" ")), self.limit)
    }

    /// Runs the tests of a module of this test binary (`module_path!()`) whose names contain one of these
    /// filters, one after another, inside. Panics with their output if one fails or none is found.
    pub fn run_tests(self, module: &str, filters: &[&str]) {
        if inside().is_some() {
            return;
        }
        let listed = finish(Command::new(own_path()).args(["--list", "--format", "terse"]));
        let (_, module) = module.split_once("::").expect("a module of a test binary");
        let names = listed.stdout.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| {
            let inner = name.strip_prefix(module).and_then(|rest| rest.strip_prefix("::"));
            inner.is_some_and(|inner| filters.iter().any(|filter| inner.contains(filter)))
        });
        let names: Vec<&str> = names.collect();
        assert!(!names.is_empty(), "{module} has no tests {filters:?}");
        let mut command = vec![own_path().into_os_string()];
        command.extend(["--test-threads=1", "--nocapture", "--exact"].map(OsString::from));
        command.extend(names.iter().map(OsString::from));
        let kernel = self.kernel.version();
        let moments = number("KS_MOMENTS", MOMENTS);
        let outcome = self.env("KS_MOMENTS", &moments.to_string()).run(&command);
        let all = format!("running {} test", names.len());
        let passed = outcome.code == 0 && outcome.stdout.contains(&all);
        assert!(passed, "in kernel {kernel}:\n{}{}", outcome.stdout, outcome.stderr);
    }
}
