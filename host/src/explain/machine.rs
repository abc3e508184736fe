//! Additional facts for `ks-host doctor`; [`Facts`] has the ones that explain a single refusal.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use super::Facts;
use crate::{procfs, tracefs};

/// The file systems that plugins need: type, usual mount point, and the features that depend on it.
const FILE_SYSTEMS: [(&str, &str, &str); 3] = [
    ("tracefs", "/sys/kernel/tracing", "tracepoints cannot be found by their names"),
    ("bpf", "/sys/fs/bpf", "maps and globals cannot be pinned, so their values do not outlive a plugin"),
    ("cgroup2", "/sys/fs/cgroup", "events cannot be counted for a cgroup, and programs not attached to one"),
];

/// The properties of this machine that plugins depend on. None means unknown or not present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The facts that explain refusals.
    pub facts: Facts,
    /// The PMUs of the CPU's cores, with the CPUs of each where there are several kinds.
    pub core_pmus: Vec<String>,
    /// Whether the NMI watchdog is on: it counts cycles on every CPU.
    pub nmi_watchdog: Option<bool>,
    /// Whether the kernel publishes its BTF types.
    pub btf: bool,
    /// The lockdown mode: none, integrity or confidentiality.
    pub lockdown: Option<String>,
    /// `kernel.kptr_restrict`: 2 hides kernel addresses from everybody.
    pub kptr_restrict: Option<u32>,
    /// `net.core.bpf_jit_enable`: 0 interprets programs.
    pub bpf_jit: Option<u32>,
    /// `kernel.bpf_stats_enabled`: whether runs of programs are counted.
    pub bpf_stats: Option<bool>,
    /// The inode number of the PID namespace of this process.
    pub pid_namespace: Option<u64>,
    /// Whether `/proc` shows the tasks of that namespace.
    pub own_procfs: bool,
    /// The file systems that plugins need, in a fixed order.
    pub file_systems: Vec<FileSystem>,
}

/// A file system that plugins need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, as mount(8) takes it.
    pub kind: &'static str,
    /// Where it is usually mounted.
    pub mount_point: &'static str,
    /// The features of plugins that depend on it.
    pub without: &'static str,
    /// Its mount point; none if it is not mounted.
    pub mounted_at: Option<String>,
    /// The access that this user is denied, and a remedy; none if nothing is denied.
    pub refused: Option<(&'static str, &'static str)>,
}

/// Returns the access to a file system that this user is denied, and a remedy.
fn refused(kind: &str, at: &str) -> Option<(&'static str, &'static str)> {
    let may = |path: &Path, access| {
        // Checked with the effective ids; a missing file denies nothing.
        !matches!(faccessat(AT_FDCWD, path, access, AtFlags::AT_EACCESS), Err(Errno::EACCES | Errno::EPERM))
    };
    match kind {
        "tracefs" if !may(&Path::new(at).join("events/sched/sched_switch/id"), AccessFlags::R_OK) => {
            Some(("this user may not read it", tracefs::READ_REMEDY))
        }
        "bpf" if !may(Path::new(at), AccessFlags::W_OK | AccessFlags::X_OK) => {
            Some(("this user may not write to it", "as root: chown USER /sys/fs/bpf, or run ks-host as root"))
        }
        _ => None,
    }
}

impl Machine {
    /// Reads the properties of this machine, with the core PMUs given by the caller.
    ///
    /// Source: `Documentation/admin-guide/sysctl/kernel.rst`, `net.rst`; proc_pid_mounts(5);
    /// kernel_lockdown(7).
    pub fn read(core_pmus: Vec<String>) -> Machine {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Machine {
            facts: Facts::read(0),
            core_pmus,
            nmi_watchdog: number("/proc/sys/kernel/nmi_watchdog").map(|value| value != 0),
            btf: fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false),
            lockdown: fs::read_to_string("/sys/kernel/security/lockdown").ok().and_then(|text| chosen(&text)),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            bpf_jit: number("/proc/sys/net/core/bpf_jit_enable"),
            bpf_stats: number("/proc/sys/kernel/bpf_stats_enabled").map(|value| value != 0),
            own_procfs: procfs::is_own(),
            pid_namespace: fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino()),
            file_systems: FILE_SYSTEMS
                .map(|(kind, mount_point, without)| {
                    let mounted_at = mounted_at(&mounts, kind, mount_point);
                    let refused = mounted_at.as_deref().and_then(|at| refused(kind, at));
                    FileSystem { kind, mount_point, without, mounted_at, refused }
                })
                .into(),
        }
    }
}

fn number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Parses the selected word of a sysfs choice: `none [integrity] confidentiality` is integrity.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

/// Finds the mount point of a file system type in the mount table (device, mount point, type, and more);
/// prefers the usual one.
fn mounted_at(mounts: &str, kind: &str, usual: &str) -> Option<String> {
    let mut mount_points: Vec<&str> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let mount_point = fields.next()?;
            (fields.next()? == kind).then_some(mount_point)
        })
        .collect();
    mount_points.sort_by_key(|mount_point| *mount_point != usual);
    mount_points.first().map(|mount_point| (*mount_point).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_lockdown_mode_stands_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn mounts_are_found_by_their_type() {
        let mounts = "sysfs /sys sysfs rw 0 0\nnone /tmp/bpf bpf rw 0 0\nnone /sys/fs/bpf bpf rw 0 0\n";
        assert_eq!(mounted_at(mounts, "bpf", "/sys/fs/bpf").as_deref(), Some("/sys/fs/bpf"));
        assert_eq!(mounted_at(mounts, "bpf", "/bpf").as_deref(), Some("/tmp/bpf"));
        assert_eq!(mounted_at(mounts, "tracefs", "/sys/kernel/tracing"), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = Machine::read(Vec::new());
        assert_eq!(machine.file_systems.len(), FILE_SYSTEMS.len());
        assert!(machine.facts.kernel.is_some() && machine.kptr_restrict.is_some());
    }
}
