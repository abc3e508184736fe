//! Program kinds: the attributes of a script's programs, and what each one means to the kernel. This is the
//! only such table: the compiler checks and lowers by it, editors and the grammar are made from it, and the
//! host finds by it which kernels have the programs of a section.
//!
//! A kind with another form of context or attach point also needs code: see
//! docs/contributing/add-a-program-kind.md.

use crate::helper::Version;

/// The event that makes the kernel run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProgramKind {
    /// An overflow of a perf event: `@perf_event`.
    PerfEvent,
    /// A packet, before the network stack: `@xdp`.
    Xdp,
    /// A packet, at an interface's ingress or egress: `@tc`.
    Tc,
    /// A kernel function, at its entry or at an offset: `@probe`.
    Probe,
    /// A kernel function's return: `@retprobe`.
    Retprobe,
    /// A tracepoint, with its record: `@tracepoint`.
    Tracepoint,
    /// A tracepoint, with its own arguments: `@raw_tracepoint`.
    RawTracepoint,
    /// A system call's entry: `@syscall_enter`.
    SyscallEnter,
    /// A system call's return: `@syscall_exit`.
    SyscallExit,
    /// A hook of the security module: `@lsm`.
    Lsm,
    /// A function of a user program: `@uprobe`.
    Uprobe,
    /// A return of a function of a user program: `@uretprobe`.
    Uretprobe,
    /// An operation of a task in a cgroup: `@cgroup`.
    Cgroup,
    /// A packet that reaches a socket: `@socket_filter`.
    SocketFilter,
    /// A timer expires: `@timer`.
    Timer,
}

impl ProgramKind {
    /// All kinds of programs, in the order of the table.
    pub const ALL: &[ProgramKind] = &{
        let mut all = [ProgramKind::PerfEvent; PROGRAM_KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = PROGRAM_KINDS[at].kind;
            at += 1;
        }
        all
    };

    /// Returns the facts of the kind.
    #[must_use]
    pub fn row(self) -> &'static ProgramKindRow {
        &PROGRAM_KINDS[self as usize]
    }

    /// Returns the name of the attribute, without `@`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether the kernel can run it on test input (BPF_PROG_TEST_RUN with a packet).
    #[must_use]
    pub fn has_test_run(self) -> bool {
        self.row().has_test_run
    }
}

/// The form of an attribute's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// No argument.
    None,
    /// `"ingress"` or `"egress"`.
    Direction,
    /// The name of a kernel function.
    Function,
    /// The name of a kernel function, or `"name+offset"`.
    FunctionAndOffset,
    /// `"category/event"`.
    Event,
    /// A name alone; the text is an example.
    Name(&'static str),
    /// A place in a program or library: `"path:symbol"` or `"path:+0xoffset"`.
    UserLocation,
    /// A hook of a cgroup.
    Hook,
    /// A time with its unit.
    Period,
}

impl Argument {
    /// Returns an argument of this form, for messages.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Argument::None => "",
            Argument::Direction => "ingress",
            Argument::Function | Argument::FunctionAndOffset => "vfs_read",
            Argument::Event => "sched/sched_switch",
            Argument::Name(example) => example,
            Argument::UserLocation => "/bin/sh:main",
            Argument::Hook => "connect4",
            Argument::Period => "10ms",
        }
    }
}

/// What the kernel passes to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A pointer to this struct; the program returns the result type.
    Struct {
        /// The name of the struct.
        name: &'static str,
        /// The name of the result type.
        result: &'static str,
    },
    /// A packet or a socket's address: the hook of the cgroup decides.
    Hook,
    /// The record of a tracepoint, as perf would write it.
    Record,
    /// The parameters or the result of what is called, with their types.
    Arguments,
    /// Nothing.
    Nothing,
}

const SKB: Context = Context::Struct { name: "__sk_buff", result: "i32" };

/// The facts of a program kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramKindRow {
    /// The kind.
    pub kind: ProgramKind,
    /// The name of the attribute, without `@`.
    pub name: &'static str,
    /// Whether KernelScript 0.1.1 has it.
    pub in_011: bool,
    /// The form of the attribute's argument.
    pub argument: Argument,
    /// What the kernel passes to the program, and the result.
    pub context: Context,
    /// Whether the kernel can run it on test input.
    pub has_test_run: bool,
    /// Whether the verifier knows pointers in the context as pointers to objects of the kernel.
    pub has_object_pointers: bool,
    /// The ELF section that libbpf derives the program type from, up to the target that the attribute names.
    pub section: &'static str,
    /// The attribute as it is written, with its argument, for editors.
    pub form: &'static str,
    /// The head of the function after it, as far as it is fixed, for editors.
    pub signature: &'static str,
    /// The documentation in Markdown, for editors.
    pub docs: &'static str,
    /// A declaration as a snippet, with placeholders `${1:word}`; empty if there is none.
    pub snippet: &'static str,
}

/// All program kinds, in the order of [`ProgramKind`].
pub const PROGRAM_KINDS: &[ProgramKindRow] = &[
    ProgramKindRow {
        kind: ProgramKind::PerfEvent,
        name: "perf_event",
        in_011: true,
        argument: Argument::None,
        context: Context::Struct { name: "bpf_perf_event_data", result: "i32" },
        has_test_run: false,
        has_object_pointers: false,
        section: "perf_event",
        form: "@perf_event",
        signature: "fn name(ctx: *bpf_perf_event_data) -> i32",
        docs: "The kernel enters the function on each overflow of a performance event: every `period` \
               events. Attach it with `perf_options`.",
        snippet: "@perf_event\nfn ${1:name}(ctx: *bpf_perf_event_data) -> i32 {\n    $0\n    return 0\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::Xdp,
        name: "xdp",
        in_011: true,
        argument: Argument::None,
        context: Context::Struct { name: "xdp_md", result: "xdp_action" },
        has_test_run: true,
        has_object_pointers: false,
        section: "xdp",
        form: "@xdp",
        signature: "fn name(ctx: *xdp_md) -> xdp_action",
        docs: "The kernel enters the function for every packet that an interface receives, before its \
               own network code. Attach it to an interface by name.",
        snippet: "@xdp\nfn ${1:name}(ctx: *xdp_md) -> xdp_action {\n    $0\n    return XDP_PASS\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::Tc,
        name: "tc",
        in_011: true,
        argument: Argument::Direction,
        context: SKB,
        has_test_run: true,
        has_object_pointers: true,
        section: "tcx",
        form: "@tc(\"ingress\") or @tc(\"egress\")",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "The kernel enters the function for every packet that comes in or goes out. Attach it to \
               an interface by name.",
        snippet: "@tc(\"${1|ingress,egress|}\")\nfn ${2:name}(ctx: *__sk_buff) -> i32 {\n    $0\n    \
                  return TC_ACT_OK\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::Probe,
        name: "probe",
        in_011: true,
        argument: Argument::FunctionAndOffset,
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: true,
        section: "fentry",
        form: "@probe(\"function\") or @probe(\"function+offset\")",
        signature: "fn name(the function's parameters) -> i32",
        docs: "The kernel enters the function whenever it calls its own function of that name. The \
               parameters are those of the kernel's function, at most 6.",
        snippet: "@probe(\"${1:function}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::Retprobe,
        name: "retprobe",
        in_011: false,
        argument: Argument::Function,
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: true,
        section: "fexit",
        form: "@retprobe(\"function\")",
        signature: "fn name(the function's parameters, its result) -> i32",
        docs: "The kernel enters the function whenever its own function of that name returns.",
        snippet: "@retprobe(\"${1:function}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::Tracepoint,
        name: "tracepoint",
        in_011: true,
        argument: Argument::Event,
        context: Context::Record,
        has_test_run: false,
        has_object_pointers: false,
        section: "tracepoint",
        form: "@tracepoint(\"category/event\")",
        signature: "fn name(ctx: *trace_event_raw_EVENT) -> i32",
        docs: "The kernel enters the function at a tracepoint.",
        snippet: "@tracepoint(\"${1:category}/${2:event}\")\nfn ${3:name}(ctx: \
                  *trace_event_raw_${2:event}) -> i32 {\n    $0\n    return 0\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::RawTracepoint,
        name: "raw_tracepoint",
        in_011: false,
        argument: Argument::Name("sched_switch"),
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: true,
        section: "tp_btf",
        form: "@raw_tracepoint(\"event\")",
        signature: "fn name(the event's arguments) -> i32",
        docs: "The kernel enters the function at a tracepoint, with the typed arguments of the event.",
        snippet: "@raw_tracepoint(\"${1:event}\")\nfn ${2:name}($3) -> i32 {\n    $0\n    return 0\n}",
    },
    ProgramKindRow {
        kind: ProgramKind::SyscallEnter,
        name: "syscall_enter",
        in_011: false,
        argument: Argument::Name("openat"),
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: false,
        section: "tracepoint/syscalls/sys_enter",
        form: "@syscall_enter(\"name\")",
        signature: "fn name(the call's parameters) -> i32",
        docs: "The kernel enters the function at the entry of a system call.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::SyscallExit,
        name: "syscall_exit",
        in_011: false,
        argument: Argument::Name("openat"),
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: false,
        section: "tracepoint/syscalls/sys_exit",
        form: "@syscall_exit(\"name\")",
        signature: "fn name(the call's result) -> i32",
        docs: "The kernel enters the function when a system call returns.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::Lsm,
        name: "lsm",
        in_011: false,
        argument: Argument::Name("file_open"),
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: true,
        section: "lsm",
        form: "@lsm(\"hook\")",
        signature: "fn name(the hook's parameters) -> i32",
        docs: "Decides at a security hook: 0 allows, a negative error number denies.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::Uprobe,
        name: "uprobe",
        in_011: false,
        argument: Argument::UserLocation,
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: false,
        section: "uprobe",
        form: "@uprobe(\"path:symbol\")",
        signature: "fn name(up to 6 integers or pointers) -> i32",
        docs: "The kernel enters the function whenever a program in user space calls a function of its own.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::Uretprobe,
        name: "uretprobe",
        in_011: false,
        argument: Argument::UserLocation,
        context: Context::Arguments,
        has_test_run: false,
        has_object_pointers: false,
        section: "uretprobe",
        form: "@uretprobe(\"path:symbol\")",
        signature: "fn name(the result) -> i32",
        docs: "The kernel enters the function whenever a function of a program in user space returns.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::Cgroup,
        name: "cgroup",
        in_011: false,
        argument: Argument::Hook,
        context: Context::Hook,
        has_test_run: true,
        has_object_pointers: true,
        section: "cgroup",
        form: "@cgroup(\"ingress\"), @cgroup(\"connect4\"), ...",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "Decides for the tasks of a cgroup: 1 allows, 0 denies.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::SocketFilter,
        name: "socket_filter",
        in_011: false,
        argument: Argument::None,
        context: SKB,
        has_test_run: true,
        has_object_pointers: true,
        section: "socket",
        form: "@socket_filter",
        signature: "fn name(ctx: *__sk_buff) -> i32",
        docs: "Says how many bytes of each packet a socket gets.",
        snippet: "",
    },
    ProgramKindRow {
        kind: ProgramKind::Timer,
        name: "timer",
        in_011: false,
        argument: Argument::Period,
        context: Context::Nothing,
        has_test_run: false,
        has_object_pointers: false,
        // A type that may use timers, never sleeps and needs no privileges on any interface.
        section: "socket",
        form: "@timer(\"10ms\")",
        signature: "fn name() -> void",
        docs: "The kernel enters the function again and again, from the load on.",
        snippet: "",
    },
];

/// Since when the kernel has the programs of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionSupport {
    /// The section's name up to the first slash or dot.
    pub section: &'static str,
    /// The kind of program that a script would use for it, which has the same helpers; none if no script can.
    pub kind: Option<ProgramKind>,
    /// The first kernel with such programs.
    pub since: Version,
    /// The first kernel that attaches them by a link.
    pub links_since: Version,
    /// The kernel configuration options that they need.
    pub config: &'static str,
}

impl SectionSupport {
    /// Looks up the programs of a section such as `fentry/vfs_read`.
    #[must_use]
    pub fn of(section: &str) -> Option<&'static SectionSupport> {
        let name = section.split(['/', '.']).next().unwrap_or_default();
        SECTIONS.iter().find(|row| row.section == name)
    }
}

const fn section(
    section: &'static str,
    kind: Option<ProgramKind>,
    since: Version,
    links_since: Version,
    config: &'static str,
) -> SectionSupport {
    SectionSupport { section, kind, since, links_since, config }
}

/// The sections of programs that this project has a use for.
///
/// Source: the tags that contain the commits which added the numbers to include/uapi/linux/bpf.h (`enum
/// bpf_prog_type`), and the links to kernel/bpf/syscall.c, net/core/dev.c and kernel/bpf/bpf_struct_ops.c.
#[rustfmt::skip]
const SECTIONS: &[SectionSupport] = &[
    section("perf_event", Some(ProgramKind::PerfEvent), (4, 9), (5, 15), "CONFIG_BPF_EVENTS"),
    section("tracepoint", Some(ProgramKind::Tracepoint), (4, 7), (5, 15), "CONFIG_BPF_EVENTS"),
    section("tp", Some(ProgramKind::Tracepoint), (4, 7), (5, 15), "CONFIG_BPF_EVENTS"),
    section("raw_tracepoint", Some(ProgramKind::RawTracepoint), (4, 17), (4, 17), "CONFIG_BPF_EVENTS"),
    section("raw_tp", Some(ProgramKind::RawTracepoint), (4, 17), (4, 17), "CONFIG_BPF_EVENTS"),
    section("tp_btf", Some(ProgramKind::RawTracepoint), (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF"),
    section("fentry", Some(ProgramKind::Probe), (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER"),
    section("fexit", Some(ProgramKind::Retprobe), (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER"),
    section("lsm", Some(ProgramKind::Lsm), (5, 7), (5, 7), "CONFIG_BPF_LSM"),
    section("kprobe", Some(ProgramKind::Probe), (4, 1), (5, 15), "CONFIG_KPROBE_EVENTS"),
    section("kretprobe", Some(ProgramKind::Retprobe), (4, 1), (5, 15), "CONFIG_KPROBE_EVENTS"),
    section("uprobe", Some(ProgramKind::Uprobe), (4, 1), (5, 15), "CONFIG_UPROBE_EVENTS"),
    section("uretprobe", Some(ProgramKind::Uretprobe), (4, 1), (5, 15), "CONFIG_UPROBE_EVENTS"),
    section("xdp", Some(ProgramKind::Xdp), (4, 8), (5, 9), "CONFIG_NET"),
    section("tcx", Some(ProgramKind::Tc), (4, 1), (4, 5), "CONFIG_NET_CLS_BPF"),
    section("tc", Some(ProgramKind::Tc), (4, 1), (6, 6), "CONFIG_NET_XGRESS"),
    section("classifier", Some(ProgramKind::Tc), (4, 1), (6, 6), "CONFIG_NET_XGRESS"),
    section("cgroup_skb", Some(ProgramKind::Cgroup), (4, 10), (5, 7), "CONFIG_CGROUP_BPF"),
    section("cgroup", Some(ProgramKind::Cgroup), (4, 17), (5, 7), "CONFIG_CGROUP_BPF"),
    section("socket", Some(ProgramKind::SocketFilter), (3, 19), (3, 19), "CONFIG_NET"),
    section("struct_ops", None, (5, 6), (6, 4), "CONFIG_BPF_JIT"),
    section("syscall", None, (5, 14), (5, 14), "CONFIG_BPF_SYSCALL"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_kinds() {
        for (at, row) in PROGRAM_KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, at, "{}", row.name);
            assert_eq!(
                PROGRAM_KINDS.iter().filter(|other| other.name == row.name).count(),
                1,
                "{}",
                row.name
            );
            assert!(row.form.starts_with('@') && !row.docs.is_empty(), "{}", row.name);
        }
    }
}
