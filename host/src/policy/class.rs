//! Classes of acts.

use super::file::PolicyError;
use crate::near::near;

/// A class of acts that a policy decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Opens an event of a family, or one that is named.
    Event,
    /// Counts the events of someone.
    Scope,
    /// Loads a program that runs on the overflow of an event.
    PerfEvent,
    /// Loads or attaches a program for a tracepoint.
    Tracepoint,
    /// Has a program for a tracepoint that may keep hits from everybody's counters.
    FiltersEvents,
    /// Loads or attaches a program for a tracepoint with the arguments as the kernel passes them.
    RawTracepoint,
    /// Loads a program for a function of the kernel.
    Kprobe,
    /// Loads a program for a function of a program or library.
    Uprobe,
    /// Probes returns in a file with code in Go, whose runtime ends the program.
    GoUretprobe,
    /// Loads a program that watches a function or tracepoint of the kernel with typed arguments.
    Tracing,
    /// Shows the packets of an interface to a program.
    SocketFilter,
    /// Runs a program again and again.
    Timer,
    /// Asks for the names of addresses.
    Symbols,
    /// Imports an interface of the contract.
    Import,
    /// Decides about packets before the network stack.
    Xdp,
    /// Decides about packets at an interface.
    Tc,
    /// Decides about the sockets of a control group.
    Cgroup,
    /// Decides at a hook of the security module.
    Lsm,
    /// Changes what a function of the kernel returns.
    ModifyReturn,
    /// Takes the place of functions of the kernel.
    StructOps,
    /// Calls a helper that writes or signals.
    Helper,
    /// Calls a function of the kernel, or takes the address of something in it.
    Kfunc,
    /// Leaves a map in the BPF file system.
    Pin,
    /// Sends packets and messages to other interfaces, CPUs and sockets, whatever they are: the program finds them by
    /// numbers of the run.
    Redirect,
    /// Loads a program of a kind that is none of these.
    Other,
}

/// The families of events that do nothing but count, of those that [`crate::perf::Event::family`] has. PMUs that write
/// traces of what others run (`aux`) are none of them.
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
    /// All, in the order of messages.
    pub const ALL: [Class; 25] = [
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
        Class::Import,
        Class::Xdp,
        Class::Tc,
        Class::Cgroup,
        Class::Lsm,
        Class::ModifyReturn,
        Class::StructOps,
        Class::Helper,
        Class::Kfunc,
        Class::Pin,
        Class::Redirect,
        Class::Other,
    ];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// What stands for a target in messages.
    pub(super) fn targets(self) -> &'static str {
        self.texts().1
    }

    /// What the plugin does, after "to".
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
            Class::Import => ("import", "INTERFACE", "call the host so"),
            Class::Xdp => ("xdp", "INTERFACE", "drop, change and redirect packets"),
            Class::Tc => ("tc", "INTERFACE", "drop, change and redirect packets"),
            Class::Cgroup => ("cgroup", "PATH", "decide what sockets may do"),
            Class::Lsm => ("lsm", "HOOK", "decide what processes may do"),
            Class::ModifyReturn => ("modify_return", "FUNCTION", "change what the kernel answers"),
            Class::StructOps => ("struct_ops", "NAME", "take the place of functions of the kernel"),
            Class::Helper => ("helper", "NAME", "write or signal so"),
            Class::Kfunc => ("kfunc", "NAME", "call the kernel so"),
            Class::Pin => ("pin", "PROJECT/*", "leave data in the kernel"),
            Class::Redirect => ("redirect", "*", "send packets and messages anywhere"),
            Class::Other => ("other", "SECTION", "run such programs"),
        }
    }

    /// Whether each target must be named: patterns and `all` allow none of it.
    pub(super) fn is_named_only(self) -> bool {
        self == Class::GoUretprobe
    }

    /// Whether acts of it have targets to choose from.
    pub(super) fn has_targets(self) -> bool {
        self.targets() != "*"
    }

    /// Whether it changes nothing but the time that others take. Programs of other tools at tracepoints mostly return 0
    /// and hide hits from other counters without meaning to: that is reported, and only a policy that leaves it out
    /// denies it.
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
                | Class::Import
        )
    }

    /// The class of this name.
    pub(super) fn named(name: &str) -> Result<Class, PolicyError> {
        let found = Class::ALL.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| {
            let names = Class::ALL.into_iter().map(|class| class.name().to_owned());
            PolicyError::UnknownClass { name: name.into(), near: near(name, names) }
        })
    }
}
