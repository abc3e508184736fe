//! Examines which features of plugins this machine supports, and what to change where it does not.
//!
//! In: a [`Machine`], which is read once. Out: a [`Finding`] for each thing that plugins depend on. The rules
//! are pure, so that the answer for any machine can be tested on this one.

use serde::Serialize;

use super::machine::{FileSystem, Machine};
use super::{Capability, Facts, OUTSIDE};
#[cfg(feature = "plugins")]
use crate::bpf::feature::Answer;
use crate::procfs;

/// Inode number of the initial PID namespace. Source: include/linux/proc_ns.h, `PROC_PID_INIT_INO`, v6.18.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// A descriptor limit below this is reported: each event, program, map and link takes one descriptor.
const FEW_DESCRIPTORS: u64 = 4096;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything works.
    Good,
    /// Some features of plugins do not work, or work less well.
    Limited,
    /// The examined thing does not exist.
    Missing,
    /// The state could not be determined.
    Unknown,
}

/// The result of one examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The examined thing, for example `kernel.perf_event_paranoid`.
    pub topic: String,
    /// Severity of the finding.
    pub state: State,
    /// The observed value. One line.
    pub found: String,
    /// The consequence for plugins. One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<String>,
    /// A remedy for the person who runs the host. One line.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(topic: &str, state: State, found: impl Into<String>) -> Finding {
        Finding { topic: topic.into(), state, found: found.into(), means: None, remedy: None }
    }

    fn means(self, means: impl Into<String>) -> Finding {
        Finding { means: Some(means.into()), ..self }
    }

    fn remedy(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}

/// Examines everything, in the order in which a plugin would need it.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let facts = &machine.facts;
    let mut findings = vec![kernel(facts), lockdown(machine)];
    findings.extend(
        [
            (Capability::Bpf, "load BPF programs"),
            (Capability::Perfmon, "count other tasks, whole CPUs or the kernel, or attach to tracepoints"),
            (Capability::NetAdmin, "attach to network interfaces (@xdp, @tc)"),
        ]
        .map(|(which, without)| capability(facts, which, without)),
    );
    findings.extend([
        seccomp(facts),
        paranoid(facts),
        pmu(machine),
        watchdog(machine),
        btf(machine),
        jit(machine),
    ]);
    findings.extend(machine.file_systems.iter().map(file_system));
    findings.extend([
        descriptors(facts),
        address_space(facts),
        addresses(machine),
        namespace(machine),
        statistics(machine),
    ]);
    findings
}

/// Reports how many events of this name a PMU can count in addition to the current ones.
pub fn free_counters(pmu: &str, event: &str, counters: u32) -> Finding {
    let topic = format!("free counters of {pmu}");
    match counters {
        0 => Finding::new(&topic, State::Limited, format!("none for {event}"))
            .means("what is pinned gets no counter, and all else takes turns with what others count")
            .remedy("end the other profilers; sysctl kernel.nmi_watchdog=0 while you count"),
        _ => Finding::new(&topic, State::Good, format!("{counters} for {event}")),
    }
}

/// Reports the result of a trial system call: success, or the reason of the refusal.
pub fn call(name: &str, refused: Option<String>) -> Finding {
    match refused {
        None => Finding::new(name, State::Good, "works, as tried"),
        Some(because) => Finding::new(name, State::Missing, format!("refused: {because}"))
            .means(format!("nothing that takes {name} works here"))
            .remedy("look at what is missing above: capabilities, seccomp, settings of the kernel"),
    }
}

/// Reports whether programs can be linked to perf events.
#[cfg(feature = "plugins")]
pub fn event_links(seen: Answer) -> Finding {
    let topic = "programs at events";
    match seen {
        Answer::Yes => Finding::new(topic, State::Good, "can be linked to perf events"),
        Answer::No(because) => Finding::new(topic, State::Missing, because)
            .means("no program can be linked to a perf event, a tracepoint or a probe")
            .remedy("run Linux 5.15 or newer"),
        Answer::Unknown(because) => Finding::new(topic, State::Unknown, because),
    }
}

/// Reports whether programs at functions of the kernel (fentry) can be loaded.
#[cfg(feature = "plugins")]
pub fn function_programs(seen: Answer) -> Finding {
    let topic = "programs at functions";
    match seen {
        Answer::Yes => Finding::new(topic, State::Good, "fentry, as tried"),
        Answer::No(because) | Answer::Unknown(because) => Finding::new(
            topic,
            State::Missing,
            format!("fentry is refused: {because}"),
        )
        .means("`@probe` and `@retprobe` of functions with types cannot be loaded")
        .remedy("use a tracepoint, or run a kernel whose functions can be traced (CONFIG_FUNCTION_TRACER)"),
    }
}

/// Reports how programs run loops: by the kernel function `bpf_iter_num_new` (Linux 6.4) or by the helper
/// `bpf_loop` (Linux 5.17), of which plugins have a form each.
#[cfg(feature = "plugins")]
pub fn loops(iterator: Answer, callback: Answer) -> Finding {
    let topic = "loops in programs";
    match (iterator, callback) {
        (Answer::Yes, _) => Finding::new(topic, State::Good, "bpf_iter_num_new, as tried"),
        (_, Answer::Yes) => Finding::new(topic, State::Good, "bpf_loop, as tried"),
        (Answer::Unknown(because), _) | (_, Answer::Unknown(because)) => {
            Finding::new(topic, State::Unknown, because)
        }
        (Answer::No(_), Answer::No(because)) => Finding::new(topic, State::Limited, because)
            .means("programs with loops of more than a few iterations are refused")
            .remedy("run Linux 5.17 or newer for scripts with loops in the kernel half"),
    }
}

fn seccomp(facts: &Facts) -> Finding {
    let topic = "seccomp";
    match facts.is_filtered {
        None => Finding::new(topic, State::Unknown, "whether calls are filtered cannot be read"),
        Some(false) => Finding::new(topic, State::Good, "no filter of system calls"),
        Some(true) => {
            Finding::new(topic, State::Limited, "a filter of system calls that ks-host was started with")
                .means("what it refuses looks as if a right or a part of the kernel was missing")
                .remedy(
                    "start ks-host outside of the container or service, or with a profile that lets \
                     perf_event_open and bpf pass",
                )
        }
    }
}

fn kernel(facts: &Facts) -> Finding {
    let topic = "kernel";
    let Some((major, minor)) = facts.kernel else {
        return Finding::new(topic, State::Unknown, "its version cannot be read");
    };
    // What it can do is tried: distributions bring parts of later versions to older ones.
    Finding::new(topic, State::Good, format!("Linux {major}.{minor}"))
}

fn lockdown(machine: &Machine) -> Finding {
    let topic = "kernel lockdown";
    match machine.lockdown.as_deref() {
        None => Finding::new(topic, State::Good, "not offered by this kernel, or not to be seen from here"),
        Some("none") => Finding::new(topic, State::Good, "none"),
        Some("confidentiality") => Finding::new(topic, State::Missing, "confidentiality")
            .means("the kernel lets no BPF program read its memory and no event count it")
            .remedy("start the kernel with lockdown=integrity or without lockdown="),
        Some(mode) => Finding::new(topic, State::Limited, mode)
            .means("programs cannot write user memory (bpf_probe_write_user)")
            .remedy("nothing, unless a plugin needs it; then start the kernel without lockdown="),
    }
}

fn capability(facts: &Facts, which: Capability, without: &str) -> Finding {
    let topic = which.name();
    if facts.in_user_namespace == Some(true) {
        let held =
            if facts.holds(which) == Some(true) { "held in a user namespace only" } else { "not held" };
        return Finding::new(topic, State::Missing, held)
            .means(format!("the kernel asks for it in the first user namespace: plugins cannot {without}"))
            .remedy(OUTSIDE);
    }
    match facts.has(which) {
        None => Finding::new(topic, State::Unknown, "the capabilities of this process cannot be read"),
        Some(true) => Finding::new(topic, State::Good, "held"),
        Some(false) => Finding::new(topic, State::Missing, "not held")
            .means(format!("plugins cannot {without}"))
            // A second setcap would remove the capabilities of the first.
            .remedy("run ks-host as root, or: setcap cap_bpf,cap_perfmon,cap_net_admin+ep ks-host"),
    }
}

fn paranoid(facts: &Facts) -> Finding {
    let topic = "kernel.perf_event_paranoid";
    let Some(level) = facts.paranoid else {
        return Finding::new(topic, State::Missing, "not there")
            .means("this kernel has no perf events (CONFIG_PERF_EVENTS)");
    };
    let found = level.to_string();
    if facts.has(Capability::Perfmon) == Some(true) {
        return Finding::new(topic, State::Good, format!("{found}, which does not bind CAP_PERFMON"));
    }
    let limited = |means: &str, remedy: &str| {
        Finding::new(topic, State::Limited, found.as_str()).means(means).remedy(remedy)
    };
    match level {
        ..=-1 => Finding::new(topic, State::Good, found),
        0 => limited("raw tracepoint data needs CAP_PERFMON", "sysctl kernel.perf_event_paranoid=-1"),
        1 => limited("own tasks can be counted, whole CPUs cannot", "sysctl kernel.perf_event_paranoid=0"),
        2 => limited(
            "own tasks can be counted in user code only (exclude_kernel)",
            "sysctl kernel.perf_event_paranoid=1",
        ),
        _ => Finding::new(topic, State::Missing, found)
            .means("nothing can be counted without CAP_PERFMON")
            .remedy("sysctl kernel.perf_event_paranoid=2 lets users count their own tasks in user code"),
    }
}

fn pmu(machine: &Machine) -> Finding {
    let topic = "hardware PMU";
    match machine.facts.hardware_pmu {
        Some(true) if machine.core_pmus.is_empty() => {
            Finding::new(topic, State::Good, "published by the kernel")
        }
        Some(true) => Finding::new(topic, State::Good, machine.core_pmus.join(", ")),
        Some(false) => Finding::new(topic, State::Missing, "none")
            .means(
                "cycles, instructions and cache events cannot be counted; software events and \
                    tracepoints can",
            )
            .remedy(
                "in a virtual machine, let it have one (QEMU: -cpu host,pmu=on); else count software events, \
                 for example task_clock, page_faults, context_switches",
            ),
        None => Finding::new(topic, State::Unknown, "/sys/bus/event_source cannot be read"),
    }
}

fn watchdog(machine: &Machine) -> Finding {
    let topic = "kernel.nmi_watchdog";
    match (machine.nmi_watchdog, machine.facts.hardware_pmu) {
        (None, _) => Finding::new(topic, State::Good, "not offered by this kernel"),
        (Some(true), Some(true)) => Finding::new(topic, State::Limited, "1")
            .means("it holds a hardware counter of every CPU, so groups have room for one event less")
            .remedy("sysctl kernel.nmi_watchdog=0 while you count"),
        (Some(on), _) => Finding::new(topic, State::Good, if on { "1, without a PMU to hold" } else { "0" }),
    }
}

fn btf(machine: &Machine) -> Finding {
    let topic = "BTF";
    if machine.btf {
        return Finding::new(topic, State::Good, "/sys/kernel/btf/vmlinux");
    }
    Finding::new(topic, State::Missing, "/sys/kernel/btf/vmlinux is not there")
        .means(
            "programs that read kernel structures cannot be loaded, and `ks` checks names against \
                bundled tables",
        )
        .remedy(
            "run a kernel with CONFIG_DEBUG_INFO_BTF=y; `ks build --btf FILE` checks against another \
                 kernel",
        )
}

fn jit(machine: &Machine) -> Finding {
    let topic = "net.core.bpf_jit_enable";
    match machine.bpf_jit {
        Some(0) => Finding::new(topic, State::Limited, "0")
            .means("programs are interpreted, several times slower")
            .remedy("sysctl net.core.bpf_jit_enable=1"),
        Some(value) => Finding::new(topic, State::Good, value.to_string()),
        None => Finding::new(topic, State::Unknown, "cannot be read from here"),
    }
}

fn file_system(found: &FileSystem) -> Finding {
    let FileSystem { kind, mount_point, without, mounted_at, refused } = found;
    match (mounted_at, refused) {
        (Some(at), Some((what, remedy))) => {
            Finding::new(kind, State::Limited, format!("mounted at {at}, and {what}"))
                .means(*without)
                .remedy(*remedy)
        }
        (Some(at), None) => Finding::new(kind, State::Good, format!("mounted at {at}")),
        (None, _) => Finding::new(kind, State::Missing, "not mounted")
            .means(*without)
            .remedy(format!("as root: mkdir -p {mount_point} && mount -t {kind} {kind} {mount_point}")),
    }
}

fn descriptors(facts: &Facts) -> Finding {
    let topic = "descriptors (ulimit -n)";
    match facts.descriptor_limit {
        Some(limit) if limit < FEW_DESCRIPTORS => Finding::new(topic, State::Limited, limit.to_string())
            .means(format!("about {} events, programs, maps and links at a time", limit.saturating_sub(20)))
            .remedy(format!("ulimit -n {FEW_DESCRIPTORS}, or LimitNOFILE= of the service")),
        Some(limit) => Finding::new(topic, State::Good, limit.to_string()),
        None => Finding::new(topic, State::Unknown, "cannot be read"),
    }
}

/// Generated code does not check addresses: each memory of a plugin reserves the whole 32-bit range and a
/// guard.
fn address_space(facts: &Facts) -> Finding {
    let topic = "address space (ulimit -v)";
    match facts.address_space_limit {
        Some(limit) => Finding::new(topic, State::Limited, format!("{limit} bytes"))
            .means(
                "each memory of a plugin reserves 4 GiB and more, of which it uses little: plugins may \
                    not start",
            )
            .remedy("ulimit -v unlimited, or LimitAS=infinity of the service"),
        None => Finding::new(topic, State::Good, "unlimited"),
    }
}

fn addresses(machine: &Machine) -> Finding {
    let topic = "kernel.kptr_restrict";
    match machine.kptr_restrict {
        Some(2..) => Finding::new(topic, State::Limited, "2")
            .means("kernel addresses read as 0, so kernel stacks have no names")
            .remedy("sysctl kernel.kptr_restrict=1"),
        Some(value) => Finding::new(topic, State::Good, value.to_string()),
        None => Finding::new(topic, State::Unknown, "cannot be read"),
    }
}

fn namespace(machine: &Machine) -> Finding {
    let topic = "PID namespace";
    if !machine.own_procfs {
        return Finding::new(topic, State::Limited, "/proc shows another one")
            .means("tasks and functions have no names, and threads and processes cannot be listed")
            .remedy(procfs::REMEDY);
    }
    match machine.pid_namespace {
        Some(FIRST_PID_NAMESPACE) => Finding::new(topic, State::Good, "the first one"),
        Some(number) => Finding::new(topic, State::Limited, format!("pid:[{number}]"))
            .means("tasks outside of it have the number 0 here, and no names")
            .remedy("start ks-host in the first one (docker run --pid=host) to see all tasks"),
        None => Finding::new(topic, State::Unknown, "/proc/self/ns/pid cannot be read"),
    }
}

fn statistics(machine: &Machine) -> Finding {
    let topic = "kernel.bpf_stats_enabled";
    match machine.bpf_stats {
        Some(true) => Finding::new(topic, State::Good, "1: each run of a program costs some 20 ns more"),
        Some(false) => Finding::new(topic, State::Good, "0: `ks-host ps` turns it on while it looks"),
        None => Finding::new(topic, State::Unknown, "cannot be read"),
    }
}

#[cfg(all(test, feature = "plugins"))]
#[path = "doctor/tests.rs"]
mod tests;
