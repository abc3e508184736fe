//! Plugins that together use every interface of the host to the kernel, and the namespaces that they run in.

use std::ffi::CStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::{io, ptr};

use ks_tests::allowed;
use ks_tests::cgroup::Group;
use nix::libc;
use nix::sched::{CloneFlags, unshare};

/// A script, and its output if nothing is refused. `NAME` is filled in, and `GROUP` with a control group of
/// its own.
pub struct Scenario {
    /// The scenario's name in failure messages.
    pub name: &'static str,
    pub script: &'static str,
    pub expected: &'static str,
    /// The observed command; empty for none.
    pub exec: &'static [&'static str],
    /// Number of runs without KS_REFUSED=all.
    pub some: usize,
}

pub const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "events",
        script: EVENTS,
        expected: "faults 1, hits 1, entry 7, positive 1\n",
        exec: &[],
        some: 180,
    },
    Scenario {
        name: "places",
        script: KERNEL_OBJECTS,
        expected: "sum 40, kept 6, pins 1, taken 1, hits 1, entry 7\n",
        exec: &[],
        some: 180,
    },
    Scenario { name: "symbols", script: SYMBOLS, expected: "named 1, other 0x1000\n", exec: &[], some: 60 },
    Scenario { name: "command", script: COMMAND, expected: "ran 1\n", exec: &["/bin/true"], some: 60 },
];

/// Loads, attaches, counts, reads, waits, detaches, with the same output in every run. One or two of the
/// pages that it touches may already be mapped.
const EVENTS: &str = include_str!("../scripts/scenarios_events.ks");

/// Pins, pages of maps, batches, records, counters that programs read, a timer, and attach points of programs
/// that steer: uprobe, tcx, control group, struct_ops.
const KERNEL_OBJECTS: &str = include_str!("../scripts/scenarios_places.ks");

/// Names of the kernel's functions, and of a process.
const SYMBOLS: &str = include_str!("../scripts/scenarios_symbols.ks");

/// A command, counted from its exec to its end.
const COMMAND: &str = include_str!("../scripts/scenarios_command.ks");

impl Scenario {
    /// Returns the script with a name and a control group of its own.
    pub fn script(&self, name: &str, group: &Group) -> String {
        let group = group.path().to_str().expect("its path is text");
        self.script.replace("NAME", name).replace("GROUP", group)
    }

    /// Returns the host with a plugin, in its own network namespace and with its own BPF file system: `lo`
    /// and the pins are private.
    pub fn host(&self, plugin: &Path) -> Command {
        let mut host = allowed();
        host.arg("--no-cache").arg(plugin);
        if !self.exec.is_empty() {
            host.arg("--exec").args(self.exec);
        }
        // SAFETY: the closure only makes system calls, on static data.
        #[expect(unsafe_code, reason = "between fork and exec")]
        unsafe {
            host.pre_exec(own_world)
        };
        host
    }
}

/// Enters new network and mount namespaces, and mounts a BPF file system.
#[expect(unsafe_code, reason = "mount(2)")]
fn own_world() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    let mount = |source: &CStr, target: &CStr, kind: &CStr, flags| {
        // SAFETY: three texts that end in a zero, and no data.
        let answer =
            unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, ptr::null()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"bpf", c"/sys/fs/bpf", c"bpf", 0)
}
