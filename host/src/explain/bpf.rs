//! Explains refusals of BPF objects, programs, maps and links. Pure, except for [`explain`], which reads the
//! facts of this machine when the kernel denied something.

use std::fmt::Write as _;
use std::fs;

use ks_wit::kfunc;
use nix::errno::Errno;

use super::{Capability, Explanation, Facts, FailureKind, OUTSIDE, filtered, unprobed};
use crate::bpf::{
    BpfError, FIND_PROBES, Lack, LoadError, OPEN_GROUP, OPEN_PROBE, Occupant, PACKET_SOCKET, UPDATE_ENTRY,
};
use crate::text::visible;
use crate::tracefs;

/// Limit on the similar names in a message when a name is not found.
const MAX_NAMES: usize = 8;

/// Limit on the bytes of a name that others chose.
const MAX_NAME_BYTES: usize = 64;

/// Text of a libbpf message that is ignored: libbpf suggests a higher memlock limit whenever a load fails.
/// Kernels since 5.11 do not charge maps to that limit, so the real reason is another one.
const MEMLOCK_COMPLAINT: &str = "RLIMIT_MEMLOCK";

/// The first kernel with links of struct_ops. Source: include/uapi/linux/bpf.h, `BPF_F_LINK`.
const STRUCT_OPS_LINKS_SINCE: (u32, u32) = (6, 4);

/// Returns the cause of a failure and a remedy.
pub fn explain(error: &BpfError) -> Explanation {
    match error {
        BpfError::NoObject => because(
            FailureKind::NotFound,
            "the plugin file has no program or map for this machine's architecture",
            "build the plugin again without `--arch`",
        ),
        BpfError::NotFound { what, known, .. } => {
            Explanation { kind: FailureKind::NotFound, because: Some(known_names(what, known)), remedy: None }
        }
        BpfError::Unsound(_) | BpfError::LastLook(_) => plain(FailureKind::Invalid),
        BpfError::NoLoader(_) => plain(FailureKind::Kernel),
        BpfError::PidNamespace(_) | BpfError::KernelFunctions(_) => plain(FailureKind::Unsupported),
        BpfError::Settle(Errno::EINVAL | Errno::ENOSYS) => because(
            FailureKind::Unsupported,
            "the kernel has no membarrier(2), or CPUs in `nohz_full`",
            "do not exchange maps with `take`: print and clear them",
        ),
        BpfError::Settle(_) => plain(FailureKind::Kernel),
        BpfError::Load(load) => explain_load(load),
        BpfError::UnsupportedKind { .. } => plain(FailureKind::Unsupported),
        BpfError::NeedsEvent { .. }
        | BpfError::NotForEvents { .. }
        | BpfError::OtherKind { .. }
        | BpfError::NoTarget { .. }
        | BpfError::Target { .. }
        | BpfError::Size { .. }
        | BpfError::NotWhole { .. }
        | BpfError::NotOfMaps { .. }
        | BpfError::NotPerCpu { .. }
        | BpfError::NotBloom { .. }
        | BpfError::PacketSize { .. }
        | BpfError::TestRun { .. }
        | BpfError::NotOfEvents { .. }
        | BpfError::Batch => plain(FailureKind::Invalid),
        BpfError::NoCookie { since, .. } => Explanation {
            kind: FailureKind::Unsupported,
            because: Some(match since {
                Some(since) => format!("programs of its kind have one since Linux {since}"),
                None => "programs of its kind have none".to_owned(),
            }),
            remedy: Some("pass 0".into()),
        },
        BpfError::ProbeAttachPoint { error, .. } => {
            Explanation { kind: error.kind(), because: None, remedy: Some(error.remedy().into()) }
        }
        BpfError::NoTracefs => Explanation {
            kind: FailureKind::Unsupported,
            because: None,
            remedy: Some("mount -t tracefs tracefs /sys/kernel/tracing".into()),
        },
        BpfError::NoTracepoint { near, .. } => Explanation {
            kind: FailureKind::NotFound,
            because: Some("this kernel has none of that name".into()),
            remedy: crate::near::remedy(near),
        },
        BpfError::TracefsClosed { .. } => Explanation {
            kind: FailureKind::NotPermitted,
            because: None,
            remedy: Some(tracefs::READ_REMEDY.into()),
        },
        BpfError::NoBpffs => Explanation {
            kind: FailureKind::NotFound,
            because: None,
            remedy: Some("mount -t bpf bpf /sys/fs/bpf".into()),
        },
        BpfError::PinShape { path, .. } => Explanation {
            kind: FailureKind::Invalid,
            because: None,
            remedy: Some(format!("remove {} or change the name", path.display())),
        },
        BpfError::AlreadyAttached { .. } | BpfError::ArrayInUse { .. } => plain(FailureKind::Busy),
        BpfError::Created { .. } => plain(FailureKind::Stale),
        BpfError::TooManyEntries { .. } | BpfError::HostBytes(_) | BpfError::OverLimits(_) => {
            plain(FailureKind::Limit)
        }
        BpfError::Constant { .. } | BpfError::OfDescriptors { .. } | BpfError::Frozen { .. } => {
            plain(FailureKind::NotPermitted)
        }
        BpfError::NotMapped { .. }
        | BpfError::NoEntries { .. }
        | BpfError::NoOperation { .. }
        | BpfError::NoTestRun { .. } => plain(FailureKind::Unsupported),
        BpfError::Occupied { occupant, .. } => Explanation {
            kind: FailureKind::Busy,
            because: Some(format!(
                "the interface takes one xdp program and has one: program {}",
                occupant.program
            )),
            remedy: None,
        },
        BpfError::XdpMode { .. } => because(
            FailureKind::Unsupported,
            "the interface's driver or device does not run xdp programs in this mode",
            "attach it in the mode `best` or `generic`, which every interface has",
        ),
        BpfError::Crowded { most, .. } => because(
            FailureKind::Limit,
            format!("{most} programs are attached there, which are as many as the kernel takes"),
            "detach one of them (`bpftool net`, `bpftool cgroup show`)",
        ),
        BpfError::LockedMemory { .. } => because(
            FailureKind::NotPermitted,
            "the rings take more locked memory than kernel.perf_event_mlock_kb and the limit of locked memory \
             (`ulimit -l`) give this user",
            "make the rings smaller, raise one of the two, or give ks-host CAP_IPC_LOCK",
        ),
        BpfError::Registered { .. } => because(
            FailureKind::Busy,
            "the kernel has one already, of this name or instead of it: of another process, or of a pinned link",
            "end that process or remove the pin (`bpftool struct_ops list`, `bpftool link list`), or take another \
             name",
        ),
        BpfError::Kernel { call, errno, .. } => explain_call(call, *errno),
    }
}

/// Describes the program that occupies an interface and the remedy, for the person who runs the host. The
/// plugin only gets the errno: names of others' programs and processes are not disclosed to it.
pub fn describe_occupant(interface: &str, occupant: &Occupant) -> String {
    let Occupant { program, name, loaded, holders } = occupant;
    let mut text = format!("the interface `{interface}` has program {program}");
    // Writing to a string cannot fail.
    if let Some(name) = name {
        let _ = write!(text, " `{}`", visible(name, MAX_NAME_BYTES));
    }
    if let Some(loaded) = loaded {
        let _ = write!(text, ", loaded {}", humantime::format_rfc3339_seconds(*loaded));
    }
    let holder = |(pid, name): &(u32, String)| format!("process {pid} `{}`", visible(name, MAX_NAME_BYTES));
    let held = holders.iter().map(holder).collect::<Vec<_>>().join(", ");
    let _ = match holders.as_slice() {
        [] => write!(
            text,
            "; no process holds it; do: take it away: ip link set dev {interface} xdp off; if a pinned link \
             holds it, remove the pin below /sys/fs/bpf"
        ),
        [(pid, _)] if *pid == std::process::id() => {
            write!(text, "; held by this ks-host; do: detach it first")
        }
        [(pid, _), ..] => {
            write!(text, "; held by {held}; do: detach it there, or end that process: kill {pid}")
        }
    };
    text
}

/// Formats the whole message: the attempt, the kernel's answer, the cause, the remedy.
pub fn describe(error: &BpfError, explanation: &Explanation) -> String {
    let mut text = match error {
        BpfError::Load(load) => describe_load(load),
        BpfError::Kernel { tried, call, errno }
        | BpfError::XdpMode { tried, call, errno }
        | BpfError::Crowded { tried, call, errno, .. }
        | BpfError::LockedMemory { tried, call, errno }
        | BpfError::Registered { tried, call, errno }
        | BpfError::Occupied { tried, call, errno, .. } => {
            format!("cannot {tried}\n  kernel: {call}: {errno:?}")
        }
        other => other.to_string(),
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "{explanation}");
    text
}

fn describe_load(load: &LoadError) -> String {
    let Some((program, log)) = &load.verifier else {
        let mut text = format!("cannot load the BPF object `{}`", load.object);
        if let Some(lacks) = &load.lacks {
            let _ = write!(text, ": {lacks}");
            return text;
        }
        let _ = write!(text, "\n  kernel: {:?}", load.errno);
        // libbpf's first message of a failure names the map or program; earlier ones are warnings, later ones
        // are consequences.
        let mut complaints = load.libbpf.iter().filter(|line| !line.contains(MEMLOCK_COMPLAINT));
        let failure = complaints.clone().find(|line| line.contains("failed"));
        if let Some(first) = failure.or_else(|| complaints.next()) {
            let _ = write!(text, "\n  libbpf: {first}");
        }
        return text;
    };
    let mut text = format!("cannot load the program `{program}`: ");
    match &load.lacks {
        Some(lacks) => {
            let _ = write!(text, "{lacks}");
        }
        None => {
            let _ = write!(text, "the verifier refused it\n  verifier: {}", log.reason());
        }
    }
    if let Some(line) = log.source_line() {
        let _ = write!(text, "\n  at: {line}");
    }
    if log.lines() > 1 {
        let _ = write!(text, "\n  ({} more lines; -v shows the whole log)", log.lines() - 1);
    }
    text
}

fn explain_load(load: &LoadError) -> Explanation {
    match &load.lacks {
        Some(Lack::Member(_)) => {
            return because(
                FailureKind::Unsupported,
                "the program reads it, and its struct has other members in the kernel that it was compiled \
                 for",
                "run a kernel that has it, or leave it out",
            );
        }
        Some(Lack::Function(name)) => return lacks_function(name),
        Some(Lack::Variable(_)) => {
            return because(
                FailureKind::Unsupported,
                "it has no variable of this name, or was built without CONFIG_KALLSYMS_ALL and lists functions only",
                "run a kernel that lists it",
            );
        }
        Some(Lack::PerCpuVariable(_)) => {
            return because(
                FailureKind::Unsupported,
                "it has no variable of this name, or one value for all CPUs",
                "run a kernel that has it, or declare it without `percpu`",
            );
        }
        None => {}
    }
    match (&load.verifier, load.errno) {
        (_, Errno::EPERM | Errno::EACCES) if !has(Capability::Bpf) || !has(Capability::Perfmon) => denied(),
        // Such a map cannot be created, whatever its members are.
        (None, Errno::EINVAL) if load.registers && before(STRUCT_OPS_LINKS_SINCE) => because(
            FailureKind::Unsupported,
            "structs of the kernel are registered by links since Linux 6.4; without one they would outlive \
             this host",
            "use a newer kernel",
        ),
        (Some(_), _) if load.is_script => because(
            FailureKind::Kernel,
            "what `ks` compiles is meant to load: this is a mistake of the compiler, not of the script",
            "please report it with the script and the whole log (-v)",
        ),
        (Some(_), _) => plain(FailureKind::Kernel),
        // libbpf's own errno for an object that it cannot read.
        (None, errno) if load.needs_net_admin => explain_errno(errno, NetAdmin::Required, "bpf"),
        (None, errno) => explain_errno(errno, NetAdmin::NotRequired, "bpf"),
    }
}

/// Explains that a kernel function is missing.
fn lacks_function(name: &str) -> Explanation {
    match kfunc::observing(name).map(|kfunc| kfunc.since) {
        Some((major, minor)) => because(
            FailureKind::Unsupported,
            format!("kernels have it since Linux {major}.{minor}"),
            &format!("run Linux {major}.{minor} or newer; `ks build --target-kernel` tells what asks for it"),
        ),
        None => Explanation {
            kind: FailureKind::Unsupported,
            because: None,
            remedy: Some("load the module that has it, or run a kernel that has it".into()),
        },
    }
}

/// Whether this kernel is known to be older than the version.
fn before(version: (u32, u32)) -> bool {
    Facts::read(0).kernel.is_some_and(|kernel| kernel < version)
}

/// Whether the kernel requires CAP_NET_ADMIN for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetAdmin {
    Required,
    MayBeRequired,
    NotRequired,
}

/// Explains the answer of a system call, which the kernel may refuse for reasons of its own.
fn explain_call(call: &str, errno: Errno) -> Explanation {
    match (call, errno) {
        (OPEN_GROUP, Errno::EACCES) => because(
            FailureKind::NotPermitted,
            "this user may not open the folder",
            "run ks-host as root, or as the owner of the folder",
        ),
        (PACKET_SOCKET, Errno::EPERM) if !is_filtered() => because(
            FailureKind::NotPermitted,
            "ks-host does not have CAP_NET_RAW, which the kernel asks for sockets of packets",
            "run it as root, or: setcap cap_bpf,cap_perfmon,cap_net_raw+ep ks-host",
        ),
        // Source: kernel/events/core.c, `perf_uprobe_event_init`, v6.18.
        (OPEN_PROBE, Errno::EACCES) if has(Capability::Perfmon) && !has(Capability::SysAdmin) => because(
            FailureKind::NotPermitted,
            "ks-host does not have CAP_SYS_ADMIN, which newer kernels ask for probes",
            "run it as root, or: setcap cap_sys_admin+ep ks-host",
        ),
        (FIND_PROBES, Errno::EOPNOTSUPP) => because(
            FailureKind::Unsupported,
            "this kernel has no such probes",
            "look for CONFIG_KPROBE_EVENTS and CONFIG_UPROBE_EVENTS in its configuration; tracepoints need neither",
        ),
        (UPDATE_ENTRY, Errno::E2BIG) => because(
            FailureKind::Limit,
            "the map has all the entries that it was declared with, or the index of an array is behind its end",
            "declare the map with more entries, delete some before, or use `lru_hash`, which forgets what was not used for longest",
        ),
        _ => explain_errno(errno, NetAdmin::MayBeRequired, call),
    }
}

/// Explains an errno of a system call, `bpf(BPF_LINK_CREATE)`.
fn explain_errno(errno: Errno, net_admin: NetAdmin, call: &str) -> Explanation {
    let lacks_net_admin = || !has(Capability::NetAdmin);
    match errno {
        Errno::EPERM | Errno::EACCES if !has(Capability::Bpf) || !has(Capability::Perfmon) => denied(),
        Errno::EPERM | Errno::EACCES if net_admin == NetAdmin::Required && lacks_net_admin() => {
            needs_net_admin()
        }
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS if is_filtered() => {
            filtered(call.split('(').next().unwrap_or(call))
        }
        Errno::EPERM | Errno::EACCES if net_admin == NetAdmin::MayBeRequired && lacks_net_admin() => {
            needs_net_admin()
        }
        Errno::EPERM | Errno::EACCES => because(
            FailureKind::NotPermitted,
            "the kernel refuses it although the capabilities are there: kernel lockdown, a security module, or a kernel \
             that has no such programs",
            "run `ks-host doctor`; look at /sys/kernel/security/lockdown and the kernel's log",
        ),
        // ENXIO: the name of an interface that is not there.
        Errno::ENOENT | Errno::ESRCH | Errno::ENODEV | Errno::ENXIO => plain(FailureKind::NotFound),
        Errno::EINVAL => plain(FailureKind::Invalid),
        Errno::EILSEQ | Errno::EADDRNOTAVAIL => unprobed(errno),
        Errno::EBUSY | Errno::EEXIST => plain(FailureKind::Busy),
        Errno::E2BIG | Errno::ENOMEM | Errno::ENOSPC => plain(FailureKind::Limit),
        Errno::EMFILE => because(
            FailureKind::Limit,
            "this process has as many descriptors open as it may",
            "raise the limit with `ulimit -n`",
        ),
        // Of the numbers without a name the kernel returns ENOTSUPP (524), where a machine has no trampolines.
        Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::UnknownErrno => because(
            FailureKind::Unsupported,
            "this kernel was built without it",
            "look for CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS in the kernel's configuration",
        ),
        _ => plain(FailureKind::Kernel),
    }
}

fn needs_net_admin() -> Explanation {
    because(
        FailureKind::NotPermitted,
        "ks-host does not have CAP_NET_ADMIN, which the kernel asks for some kinds of maps and programs",
        "run it as root, or: setcap cap_bpf,cap_perfmon,cap_net_admin+ep ks-host",
    )
}

/// Explains a denial by the missing capability, and by the settings that decide about it.
fn denied() -> Explanation {
    let missing: Vec<&str> = [(Capability::Bpf, "CAP_BPF"), (Capability::Perfmon, "CAP_PERFMON")]
        .into_iter()
        .filter(|(capability, _)| !has(*capability))
        .map(|(_, name)| name)
        .collect();
    let missing = missing.join(" and ");
    if Facts::read(0).in_user_namespace == Some(true) {
        return because(
            FailureKind::NotPermitted,
            format!("ks-host runs in a user namespace, and the kernel asks for {missing} in the first one"),
            OUTSIDE,
        );
    }
    let sysctl = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled")
        .map(|value| format!(" (kernel.unprivileged_bpf_disabled is {})", value.trim()))
        .unwrap_or_default();
    because(
        FailureKind::NotPermitted,
        format!("ks-host does not have {missing}{sysctl}"),
        "run ks-host as root, or give it the capabilities: setcap cap_bpf,cap_perfmon+ep ks-host",
    )
}

/// Whether somebody else's seccomp filter holds the process.
fn is_filtered() -> bool {
    Facts::read(0).is_filtered == Some(true)
}

fn has(capability: Capability) -> bool {
    // An unknown capability counts as present: no cause is better than a wrong one.
    Facts::read(0).has(capability).unwrap_or(true)
}

fn known_names(what: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("the object has no {what} at all");
    }
    let display = known.iter().take(MAX_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match known.len().saturating_sub(MAX_NAMES) {
        0 => format!("the object has {display}"),
        more => format!("the object has {display} and {more} more"),
    }
}

fn plain(kind: FailureKind) -> Explanation {
    Explanation { kind, because: None, remedy: None }
}

fn because(kind: FailureKind, because: impl Into<String>, remedy: &str) -> Explanation {
    Explanation { kind, because: Some(because.into()), remedy: Some(remedy.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::VerifierLog;

    fn message(error: &BpfError) -> String {
        describe(error, &explain(error))
    }

    #[test]
    fn a_name_that_is_not_there_is_answered_with_those_that_are() {
        let error = BpfError::NotFound {
            what: "program",
            name: "cuont".into(),
            known: vec!["count".into(), "other".into()],
        };
        assert_eq!(
            message(&error),
            "the BPF object has no program `cuont`\n  because: the object has `count`, `other`"
        );
        assert_eq!(explain(&error).kind, FailureKind::NotFound);
    }

    #[test]
    fn a_refusal_of_the_verifier_shows_its_reason_and_the_scripts_line() {
        let log = VerifierLog::from_buffer(
            b"; x = m[k] @ a.ks:3\n0: (79) r1 = *(u64 *)(r0 +0)\nR0 invalid mem access\nprocessed 1 insns\n",
        )
        .expect("not empty");
        let error = BpfError::Load(Box::new(LoadError {
            object: "a".into(),
            is_script: false,
            registers: false,
            needs_net_admin: false,
            errno: Errno::EINVAL,
            verifier: Some(("count".into(), log)),
            libbpf: vec!["prog 'count': failed to load: -EINVAL".into()],
            lacks: None,
        }));
        assert_eq!(
            message(&error),
            "cannot load the program `count`: the verifier refused it\n  verifier: R0 invalid mem access\n  \
             at: x = m[k] @ a.ks:3\n  (3 more lines; -v shows the whole log)"
        );
        assert_eq!(explain(&error).kind, FailureKind::Kernel);
    }

    #[test]
    fn a_function_that_the_kernel_lacks_is_named_with_the_kernels_that_have_it() {
        let error = |name: &str| {
            BpfError::Load(Box::new(LoadError {
                object: "a".into(),
                is_script: true,
                registers: false,
                needs_net_admin: false,
                errno: Errno::EINVAL,
                verifier: None,
                libbpf: Vec::new(),
                lacks: Some(Lack::Function(name.into())),
            }))
        };
        assert_eq!(
            message(&error("bpf_iter_num_new")),
            "cannot load the BPF object `a`: neither the kernel nor a module that is loaded has \
             `bpf_iter_num_new`\n  \
             because: kernels have it since Linux 6.4\n  \
             do: run Linux 6.4 or newer; `ks build --target-kernel` tells what asks for it"
        );
        assert!(
            message(&error("mine")).ends_with("do: load the module that has it, or run a kernel that has it")
        );
    }

    #[test]
    fn whose_xdp_program_an_interface_has_is_for_the_person_only() {
        let occupant = |holders: Vec<(u32, String)>| Occupant {
            program: 7,
            name: Some("dr\u{1b}op".into()),
            loaded: Some(std::time::SystemTime::UNIX_EPOCH),
            holders,
        };
        let error = BpfError::Occupied {
            tried: "attach to the interface `eth0`: program `p`".into(),
            call: "bpf(BPF_LINK_CREATE)",
            errno: Errno::EBUSY,
            interface: "eth0".into(),
            occupant: Box::new(occupant(vec![(12, "lb".into())])),
        };
        assert_eq!(
            message(&error),
            "cannot attach to the interface `eth0`: program `p`\n  kernel: bpf(BPF_LINK_CREATE): EBUSY\n  \
             because: the interface takes one xdp program and has one: program 7"
        );
        assert_eq!(
            describe_occupant("eth0", &occupant(vec![(12, "lb".into())])),
            "the interface `eth0` has program 7 `dr\\u{1b}op`, loaded 1970-01-01T00:00:00Z; held by process \
             12 `lb`; do: detach it there, or end that process: kill 12"
        );
        let nobody = describe_occupant("eth0", &occupant(Vec::new()));
        assert!(
            nobody.contains("; no process holds it; do: take it away: ip link set dev eth0 xdp off"),
            "{nobody}"
        );
        assert_eq!(explain(&error).kind, FailureKind::Busy);
    }

    /// As of an event that is opened by the name of a tracepoint.
    #[test]
    fn a_tracefs_that_is_not_mounted_is_a_feature_that_is_not_there() {
        let of_perf = crate::perf::PerfError::Tracepoint {
            name: "sched/sched_switch".into(),
            cause: tracefs::TracefsError::NotMounted,
        };
        assert_eq!(explain(&BpfError::NoTracefs).kind, FailureKind::Unsupported);
        assert_eq!(explain(&BpfError::NoTracefs).kind, of_perf.kind());
    }

    #[test]
    fn an_array_that_is_used_otherwise_is_busy() {
        assert_eq!(explain(&BpfError::ArrayInUse { name: "events".into() }).kind, FailureKind::Busy);
    }

    #[test]
    fn a_call_that_is_refused_for_a_reason_of_its_own_is_explained_by_it() {
        let closed = BpfError::Kernel {
            tried: "open the control group `/g`".into(),
            call: OPEN_GROUP,
            errno: Errno::EACCES,
        };
        let locked = BpfError::LockedMemory {
            tried: "open the ring of CPU 0 of the array of events `e`".into(),
            call: "mmap",
            errno: Errno::EPERM,
        };
        for (error, because) in
            [(closed, "this user may not open the folder"), (locked, "kernel.perf_event_mlock_kb")]
        {
            assert_eq!(explain(&error).kind, FailureKind::NotPermitted);
            assert!(message(&error).contains(because), "{}", message(&error));
        }
    }

    #[test]
    fn an_errno_of_the_kernel_keeps_its_kind() {
        let kind = |errno| {
            explain(&BpfError::Kernel { tried: "update the map `m`".into(), call: UPDATE_ENTRY, errno }).kind
        };
        assert_eq!(kind(Errno::E2BIG), FailureKind::Limit);
        assert_eq!(kind(Errno::EEXIST), FailureKind::Busy);
        assert_eq!(kind(Errno::ENOENT), FailureKind::NotFound);
        assert_eq!(kind(Errno::ENXIO), FailureKind::NotFound);
        assert_eq!(kind(Errno::EINVAL), FailureKind::Invalid);
        assert_eq!(kind(Errno::EILSEQ), FailureKind::Invalid);
        assert_eq!(kind(Errno::EADDRNOTAVAIL), FailureKind::Invalid);
        assert_eq!(kind(Errno::EIO), FailureKind::Kernel);
        assert_eq!(kind(Errno::from_raw(524)), FailureKind::Unsupported);
    }
}
