//! Facts about this machine and this process that explain refusals.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::str::FromStr;

/// A capability that perf and BPF ask for. The numbers are those of `include/uapi/linux/capability.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// CAP_NET_ADMIN, for network programs.
    NetAdmin = 12,
    /// CAP_SYS_ADMIN: replaces the newer, finer capabilities.
    SysAdmin = 21,
    /// CAP_PERFMON: perf events and tracing programs; since Linux 5.8.
    Perfmon = 38,
    /// CAP_BPF: BPF programs and maps; since Linux 5.8.
    Bpf = 39,
}

/// Facts about this machine. None means that a fact could not be determined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `kernel.perf_event_paranoid`: -1 allows everything, 2 only user space of own tasks, 3 (Debian)
    /// nothing.
    pub paranoid: Option<i32>,
    /// Effective capabilities of the calling thread, one bit for each capability number.
    pub capabilities: Option<u64>,
    /// Whether the process is in a user namespace other than the initial one: perf and BPF check capabilities
    /// in the initial one.
    pub in_user_namespace: Option<bool>,
    /// Online CPUs, as the kernel writes them: `0-3,8`.
    pub online_cpus: Option<String>,
    /// Whether the kernel publishes a PMU of a CPU core.
    pub hardware_pmu: Option<bool>,
    /// Whether the observed task exists; true for the calling thread.
    pub task_exists: Option<bool>,
    /// Limit on the open descriptors of this process.
    pub descriptor_limit: Option<u64>,
    /// Limit on the bytes of this process's address space, if there is one.
    pub address_space_limit: Option<u64>,
    /// `kernel.perf_event_max_sample_rate`, samples per second.
    pub max_sample_rate: Option<u64>,
    /// Major and minor version of the kernel.
    pub kernel: Option<(u32, u32)>,
    /// Whether somebody else's seccomp filter holds the whole process. The host's own filters apply to
    /// plugins' threads only, never to the first thread.
    pub is_filtered: Option<bool>,
}

impl Capability {
    /// Returns the kernel's name of the capability, `CAP_BPF`.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

impl Facts {
    /// Reads the facts, with `pid` as the observed task (0 and -1: no particular one).
    ///
    /// Source: proc(5); `Documentation/admin-guide/perf-security.rst`; `/sys/devices/system/cpu/online`.
    pub fn read(pid: i32) -> Facts {
        Facts {
            paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            capabilities: effective_capabilities(),
            in_user_namespace: in_user_namespace(),
            online_cpus: text("/sys/devices/system/cpu/online"),
            hardware_pmu: core_pmu(),
            task_exists: Some(pid <= 0 || Path::new("/proc").join(pid.to_string()).exists()),
            descriptor_limit: limit("Max open files"),
            address_space_limit: limit("Max address space"),
            max_sample_rate: number("/proc/sys/kernel/perf_event_max_sample_rate"),
            kernel: text("/proc/sys/kernel/osrelease").as_deref().and_then(version),
            is_filtered: text("/proc/self/status").as_deref().and_then(is_filtered),
        }
    }

    /// Whether the host has a capability that perf and BPF accept, or CAP_SYS_ADMIN, which the kernel
    /// accepts instead.
    pub(super) fn has(&self, capability: Capability) -> Option<bool> {
        if self.in_user_namespace == Some(true) { Some(false) } else { self.holds(capability) }
    }

    /// Whether the host has a capability or CAP_SYS_ADMIN in its own user namespace.
    pub(super) fn holds(&self, capability: Capability) -> Option<bool> {
        let bits = 1 << capability as u64 | 1 << Capability::SysAdmin as u64;
        self.capabilities.map(|effective| effective & bits != 0)
    }

    /// Whether a CPU is online.
    pub(super) fn is_online(&self, cpu: i32) -> Option<bool> {
        let ranges = cpu_ranges(self.online_cpus.as_deref()?)?;
        Some(ranges.iter().any(|range| range.contains(&cpu)))
    }
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number<T: FromStr>(path: &str) -> Option<T> {
    text(path)?.parse().ok()
}

/// Returns the capabilities of this thread. A thread that has more filters of system calls than the first one
/// is that of a plugin, which has dropped the capabilities that the plugin does not need: none of these is
/// missing, so it has those of the first thread.
fn effective_capabilities() -> Option<u64> {
    let (own, first) = (text("/proc/thread-self/status")?, text("/proc/self/status")?);
    let filters = |status: &str| {
        let count = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        count("Seccomp_filters:").or_else(|| count("Seccomp:"))
    };
    let status = if filters(&own) == filters(&first) { own } else { first };
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Inode number of the initial user namespace. Source: include/linux/proc_ns.h, `PROC_USER_INIT_INO`, v6.18.
const FIRST_USER_NAMESPACE: u64 = 0xefff_fffd;

fn in_user_namespace() -> Option<bool> {
    fs::metadata("/proc/self/ns/user").ok().map(|found| found.ino() != FIRST_USER_NAMESPACE)
}

/// Reads the seccomp mode from the status of a process's first thread: 0 no filter, 1 the four calls of the
/// strict mode, 2 a filter. Source: proc(5).
fn is_filtered(status: &str) -> Option<bool> {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

/// Returns a resource limit of this process; none if it is unlimited or unknown.
fn limit(name: &str) -> Option<u64> {
    let limits = text("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether the kernel publishes a core PMU. It is `cpu` on most x86 (type 4, PERF_TYPE_RAW), `cpu_core` and
/// `cpu_atom` on hybrid ones; elsewhere it lists its CPUs in a file `cpus`, where an uncore PMU has
/// `cpumask`.
fn core_pmu() -> Option<bool> {
    let mut pmus = fs::read_dir("/sys/bus/event_source/devices").ok()?.flatten();
    Some(pmus.any(|pmu| {
        let path = pmu.path();
        let is_raw = fs::read_to_string(path.join("type")).is_ok_and(|type_| type_.trim() == "4");
        is_raw || path.join("cpus").exists()
    }))
}

/// Parses a release: `6.18.44-fc` is (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Parses a CPU list: `0-3,8` is 0 to 3 and 8.
fn cpu_ranges(list: &str) -> Option<Vec<RangeInclusive<i32>>> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        let facts = Facts { online_cpus: Some("0-3,8,10-11".to_owned()), ..Facts::default() };
        let online: Vec<i32> = (0..13).filter(|cpu| facts.is_online(*cpu) == Some(true)).collect();
        assert_eq!(online, [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(Facts::default().is_online(0), None, "not known");
        assert_eq!(cpu_ranges("0-x"), None);
    }

    #[test]
    fn releases_start_with_two_numbers() {
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("4.12-rc1"), Some((4, 12)));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn sys_admin_stands_for_the_finer_capabilities() {
        let with = |bits| Facts { capabilities: Some(bits), ..Facts::default() }.has(Capability::Perfmon);
        assert_eq!(with(1 << 38), Some(true));
        assert_eq!(with(1 << 21), Some(true));
        assert_eq!(with(1 << 39), Some(false));
        assert_eq!(Facts::default().has(Capability::Perfmon), None);
        let inside =
            Facts { capabilities: Some(u64::MAX), in_user_namespace: Some(true), ..Facts::default() };
        assert_eq!((inside.has(Capability::Bpf), inside.holds(Capability::Bpf)), (Some(false), Some(true)));
    }

    #[test]
    fn this_machine_reports_its_facts() {
        let facts = Facts::read(i32::MAX);
        assert!(facts.paranoid.is_some() && facts.capabilities.is_some() && facts.hardware_pmu.is_some());
        assert_eq!(facts.is_online(0), Some(true));
        assert_eq!(facts.task_exists, Some(false));
        assert!(facts.descriptor_limit.is_some_and(|limit| limit > 2));
        assert!(facts.kernel.is_some_and(|version| version >= (4, 0)));
        assert_eq!(Facts::read(0).task_exists, Some(true));
    }
}
