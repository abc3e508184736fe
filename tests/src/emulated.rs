//! Tests on kernels that this machine does not run: Debian's 6.1 and 6.12 on an emulated x86-64 machine, and 6.12 on an
//! arm64 one with one kind of core or two.
//!
//! A test file whose tests should pass there too has one test for each kernel that boots it and runs the others inside:
//!
//! ```no_run
//! use ks_tests::emulated::{Kernel, Machine};
//!
//! #[test]
//! fn kernel_6_1() {
//!     Machine::new(Kernel::V6_1).run_tests(&["attached"]);
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
//! Any other command runs there by [`Machine::run`]: `scripts/emulate` says what the machine has. Booting takes some 4
//! seconds, so a file boots each kernel once and runs many tests. The kernels come from Debian's archive by
//! `scripts/guest-kernel`; without it these tests fail and say so.

use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::{Outcome, binary, finish_within, repository};

/// The kernels that can be emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's own.
    V6_1,
    /// Debian 12's backport.
    V6_12,
    /// The same for arm64: one CPU, with a PMU of 7 counters. It runs what is built for it.
    V6_12Arm64,
    /// The same with two CPUs of two kinds, each with a core PMU of its own.
    V6_12Arm64Hybrid,
}

impl Kernel {
    /// Those of this machine's architecture, older first.
    pub const ALL: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];

    /// The version as `scripts/emulate` takes it and as [`inside`] gives it.
    pub fn version(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V6_12Arm64 => "6.12:arm64",
            Kernel::V6_12Arm64Hybrid => "6.12:arm64-hybrid",
        }
    }

    /// The folder with what building a module for this kernel needs, as under `/`; fetched if need be.
    pub fn headers(self) -> PathBuf {
        let script = repository().join("scripts/guest-kernel");
        let mut command = Command::new(script);
        let found = finish_within(command.args([self.version(), "headers"]), Duration::from_secs(180));
        assert_eq!(found.code, 0, "there are no headers of kernel {}: {}", self.version(), found.stderr);
        Path::new(found.stdout.trim()).join("headers")
    }
}

/// The kernel that runs this test if it is an emulated one, as [`Kernel::version`] gives it.
pub fn inside() -> Option<String> {
    std::env::var("KS_EMULATED").ok()
}

/// Whether a test can run here that needs `what`, which the kernel has or has not.
///
/// If not, the running kernel's test says so and is left to the emulated ones; in those it fails.
pub fn here_or_inside(what: &str, has: bool) -> bool {
    if has {
        return true;
    }
    let kernel = inside();
    assert!(kernel.is_none(), "the emulated kernel {} has no {what}", kernel.unwrap_or_default());
    eprintln!("not run here: this kernel has no {what}; the emulated kernels run it");
    false
}

/// What to put into an emulated machine, and how to run it.
pub struct Machine {
    kernel: Kernel,
    arguments: Vec<OsString>,
    seconds: u64,
}

/// A machine runs on one CPU: as many at a time as there are CPUs. More would be slower, and their time limits would depend
/// on each other.
struct Running;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Running {
    /// Waits for a CPU.
    fn wait() -> Running {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        // A poisoned lock is one failed test, not a reason for the next.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running =
            ENDED.wait_while(running, |running| *running >= cpus).unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

impl Machine {
    /// A machine that has nothing but busybox.
    pub fn new(kernel: Kernel) -> Machine {
        Machine { kernel, arguments: Vec::new(), seconds: 120 }
    }

    /// With a file or folder of this machine, under the same path; a program brings its shared libraries.
    pub fn file(mut self, path: impl AsRef<Path>) -> Machine {
        self.arguments.extend(["--file".into(), path.as_ref().into()]);
        self
    }

    /// The same, under another path.
    pub fn file_as(mut self, path: impl AsRef<Path>, inside: &str) -> Machine {
        let mut both = path.as_ref().as_os_str().to_owned();
        both.push(format!(":{inside}"));
        self.arguments.extend(["--file".into(), both]);
        self
    }

    /// With a kernel module loaded, and those that it needs.
    pub fn module(mut self, name: &str) -> Machine {
        self.arguments.extend(["--module".into(), name.into()]);
        self
    }

    /// With an environment variable for the command.
    pub fn env(mut self, name: &str, value: &str) -> Machine {
        self.arguments.extend(["--env".into(), format!("{name}={value}").into()]);
        self
    }

    /// With more than two minutes, or less.
    pub fn seconds(mut self, seconds: u64) -> Machine {
        self.seconds = seconds;
        self
    }

    /// With the commands of this build and `bpftool`, which the functions of this library call.
    pub fn with_commands(self) -> Machine {
        let bpftool = ["/usr/sbin/bpftool", "/sbin/bpftool", "/usr/bin/bpftool"];
        let bpftool = bpftool.iter().find(|path| Path::new(path).exists());
        let bpftool = bpftool.expect("bpftool is installed: `scripts/packages bpftool`");
        self.file(binary("ks")).file(binary("ks-host")).file(bpftool)
    }

    /// Boots the machine and runs one command to its end.
    ///
    /// Panics if the machine does not get so far: there is no emulator or no kernel, or it is out of time.
    pub fn run<S: AsRef<OsStr>>(self, command: &[S]) -> Outcome {
        let _running = Running::wait();
        let mut emulate = Command::new(repository().join("scripts/emulate"));
        emulate.arg(self.kernel.version()).args(self.arguments);
        emulate.args(["--seconds", &self.seconds.to_string(), "--"]).args(command);
        // Fetching a kernel comes on top; the script itself ends a machine that hangs.
        let outcome = finish_within(&mut emulate, Duration::from_secs(self.seconds + 180));
        assert!(
            !matches!(outcome.code, 124 | 125 | 137),
            "cannot run in kernel {} (scripts/emulate, {}): {}{}",
            self.kernel.version(),
            outcome.code,
            outcome.stdout,
            outcome.stderr
        );
        outcome
    }

    /// Boots the machine and runs the tests of this test binary whose names contain one of these words, one after
    /// another; with the commands that they may call. Panics with their output if one fails or none is found.
    pub fn run_tests(self, filters: &[&str]) {
        if inside().is_some() {
            return;
        }
        let kernel = self.kernel.version();
        let test = std::env::current_exe().expect("a test knows its own path");
        let mut command = vec![test.as_os_str().to_owned()];
        command.extend(["--test-threads=1", "--nocapture"].map(OsString::from));
        command.extend(filters.iter().map(OsString::from));
        let outcome = self.with_commands().file(&test).run(&command);
        let passed = outcome.code == 0 && !outcome.stdout.contains("running 0 tests");
        assert!(passed, "in kernel {kernel}:\n{}{}", outcome.stdout, outcome.stderr);
    }
}
