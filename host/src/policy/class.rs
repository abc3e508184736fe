//! Classes of actions that a policy allows or denies.

use super::file::PolicyError;
use crate::near::near;

/// A class of actions that a policy allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Opens a perf event of a family, or an event by name.
    Event,
    /// Counts events in a scope, for example of other tasks.
    Scope,
    /// Loads a program that runs on the overflow of an event.
    PerfEvent,
    /// Loads or attaches a program for a tracepoint.
    Tracepoint,
    /// Has a tracepoint program whose return value may hide hits from all counters.
    FiltersEvents,
    /// Loads or attaches a program for a raw tracepoint, with the arguments as the kernel passes them.
    RawTracepoint,
    /// Loads a program for a kernel function.
    Kprobe,
    /// Loads a program for a function in an executable or library.
    Uprobe,
    /// Probes function returns in a file with Go code; the Go runtime may abort the probed program.
    GoUretprobe,
    /// Loads a program for a kernel function or tracepoint with typed arguments.
    Tracing,
    /// Passes the packets of an interface to a program, for reading.
    SocketFilter,
    /// Runs a program periodically.
    Timer,
    /// Resolves addresses to names.
    Symbols,
    /// Lists the BPF programs of the machine and what they cost; meanwhile each run of them takes more time.
    Programs,
    /// Imports an interface of the contract.
    Import,
    /// Decides about packets before the network stack.
    Xdp,
    /// Decides about packets at an interface's ingress or egress.
    Tc,
    /// Decides about the sockets of a cgroup.
    Cgroup,
    /// Decides about operations at an LSM hook.
    Lsm,
    /// Replaces the return value of a kernel function.
    ModifyReturn,
    /// Implements functions of the kernel (struct_ops).
    StructOps,
    /// Calls a helper that writes memory or sends signals.
    Helper,
    /// Calls a kernel function.
    Kfunc,
    /// Takes the address of a variable of the kernel, to read it.
    KernelVariable,
    /// Leaves a map in the BPF file system.
    Pin,
    /// Sends packets and messages to other interfaces, CPUs and sockets. Their numbers are known only at run
    /// time, so the class has no targets.
    Redirect,
    /// Loads a program of any other kind.
    Other,
}

/// The families of events that only count, out of those of [`crate::perf::Event::family`]. PMUs that trace
/// the execution of others (`aux`) are not among them.
pub(super) const COUNTING_FAMILIES: [&str; 12] = [
    "hardware",
    "cache",
    "raw",
    "software",
    "tracepoint",
    "breakpoint",
    "kprobe",
    "uprobe",
    "pmu",
    "msr",
    "power",
    "uncore",
];

impl Class {
    /// All classes, in the order in which messages list them.
    pub const ALL: [Class; 27] = [
        Class::Event,
        Class::Scope,
        Class::PerfEvent,
        Class::Tracepoint,
        Class::FiltersEvents,
        Class::RawTracepoint,
        Class::Kprobe,
        Class::Uprobe,
        Class::GoUretprobe,
        Class::Tracing,
        Class::SocketFilter,
        Class::Timer,
        Class::Symbols,
        Class::Programs,
        Class::Import,
        Class::Xdp,
        Class::Tc,
        Class::Cgroup,
        Class::Lsm,
        Class::ModifyReturn,
        Class::StructOps,
        Class::Helper,
        Class::Kfunc,
        Class::KernelVariable,
        Class::Pin,
        Class::Redirect,
        Class::Other,
    ];

    /// Returns the class's name in policy files.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Returns the placeholder for a target in messages; `*` if the class has no targets.
    pub(super) fn targets(self) -> &'static str {
        self.texts().1
    }

    /// Returns a description of the action, to follow "to".
    pub(super) fn act(self) -> &'static str {
        self.texts().2
    }

    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Class::Event => ("event", "FAMILY", "open such events"),
            Class::Scope => ("scope", "SCOPE", "count there"),
            Class::PerfEvent => ("perf_event", "*", "run programs on events"),
            Class::Tracepoint => ("tracepoint", "CATEGORY/EVENT", "run programs at tracepoints"),
            Class::FiltersEvents => {
                ("filters_events", "CATEGORY/EVENT", "keep hits of tracepoints from all who count them")
            }
            Class::RawTracepoint => ("raw_tracepoint", "EVENT", "run programs at tracepoints"),
            Class::Kprobe => ("kprobe", "FUNCTION", "run programs in functions of the kernel"),
            Class::Uprobe => ("uprobe", "PATH:FUNCTION", "run programs in functions of others"),
            Class::GoUretprobe => ("go-uretprobe", "/PATH", "end programs in Go"),
            Class::Tracing => ("tracing", "FUNCTION", "run programs in functions of the kernel"),
            Class::SocketFilter => ("socket_filter", "INTERFACE", "see packets"),
            Class::Timer => ("timer", "*", "run programs again and again"),
            Class::Symbols => ("symbols", "OWNER", "read the names of addresses"),
            Class::Programs => ("programs", "*", "list the BPF programs of all"),
            Class::Import => ("import", "INTERFACE", "call the host so"),
            Class::Xdp => ("xdp", "INTERFACE", "drop, change and redirect packets"),
            Class::Tc => ("tc", "INTERFACE", "drop, change and redirect packets"),
            Class::Cgroup => ("cgroup", "PATH", "decide what sockets may do"),
            Class::Lsm => ("lsm", "HOOK", "decide what processes may do"),
            Class::ModifyReturn => ("modify_return", "FUNCTION", "change what the kernel answers"),
            Class::StructOps => ("struct_ops", "NAME", "take the place of functions of the kernel"),
            Class::Helper => ("helper", "NAME", "write or signal so"),
            Class::Kfunc => ("kfunc", "NAME", "call the kernel so"),
            Class::KernelVariable => ("kernel_variable", "NAME", "read variables of the kernel"),
            Class::Pin => ("pin", "PROJECT/*", "leave data in the kernel"),
            Class::Redirect => ("redirect", "*", "send packets and messages anywhere"),
            Class::Other => ("other", "SECTION", "run such programs"),
        }
    }

    /// Returns whether each target must be named exactly: neither patterns nor `all` allow any.
    pub(super) fn is_named_only(self) -> bool {
        self == Class::GoUretprobe
    }

    /// Returns whether actions of this class have targets to choose from.
    pub fn has_targets(self) -> bool {
        self.targets() != "*"
    }

    /// Returns whether the class affects others only by the time it takes. `FiltersEvents` counts as one of
    /// these: programs of other tools at tracepoints mostly return 0 and hide hits from other counters
    /// unintentionally. This is reported, and only a policy without the class denies it.
    pub fn is_observing(self) -> bool {
        matches!(
            self,
            Class::Event
                | Class::Scope
                | Class::PerfEvent
                | Class::Tracepoint
                | Class::FiltersEvents
                | Class::RawTracepoint
                | Class::Kprobe
                | Class::Uprobe
                | Class::Tracing
                | Class::SocketFilter
                | Class::Timer
                | Class::Symbols
                | Class::Programs
                | Class::Import
        )
    }

    /// Finds a class by its name in policy files.
    pub(super) fn named(name: &str) -> Result<Class, PolicyError> {
        let found = Class::ALL.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| {
            let names = Class::ALL.into_iter().map(|class| class.name().to_owned());
            PolicyError::UnknownClass { name: name.into(), near: near(name, names) }
        })
    }
}
