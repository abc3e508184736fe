//! Program types, and the values that are visible to a function that receives a program's parameters.

use super::types::{I32, I64, Int, U32, U64};

/// A program's access to the packet of its context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    None,
    Read,
    Write,
}

/// A program type, with its generator tables.
pub struct Program {
    pub attribute: &'static str,
    /// The parameters as in a declaration, also of a function that receives them.
    pub params: &'static str,
    /// The parameters as arguments of a call.
    pub args: &'static str,
    ret: &'static str,
    /// The result type; none without a result.
    pub result: Option<Int>,
    /// Whether only an unsigned number may be returned.
    pub is_action: bool,
    pub packet: Packet,
    /// Whether it runs in the context of a task.
    pub has_task: bool,
    /// Whether it can tail-call another program of the type.
    pub has_tail_calls: bool,
    /// Parameters that are pointers to tasks.
    pub tasks: &'static [&'static str],
    /// Number expressions on the parameters.
    pub number_exprs: &'static [(Int, &'static str)],
    /// Calls that return numbers; a `$` stands for a number, a `&` for a pointer.
    pub calls: &'static [(Int, &'static str)],
    /// A type of local storage, and its key.
    pub storage: Option<(&'static str, &'static str)>,
}

const NONE: Program = Program {
    attribute: "",
    params: "",
    args: "ctx",
    ret: "i32",
    result: Some(I32),
    is_action: false,
    packet: Packet::None,
    has_task: false,
    has_tail_calls: true,
    tasks: &[],
    number_exprs: &[],
    calls: &[],
    storage: None,
};

const OF_SOCKET: &[(Int, &str)] = &[
    (U64, "(ctx->data_end - ctx->data)"),
    (U32, "ctx->len"),
    (U32, "ctx->mark"),
    (U32, "ctx->protocol"),
    (U32, "ctx->priority"),
];

const CURRENT_TASK: Option<(&str, &str)> = Some(("task_storage", "bpf_get_current_task_btf()"));

/// Calls that all program types can make.
pub const CALLS: &[(Int, &str)] = &[
    (U32, "bpf_get_prandom_u32()"),
    (U64, "bpf_ktime_get_boot_ns()"),
    (U64, "bpf_jiffies64()"),
    (I64, "bpf_probe_read_kernel(&, 8, &)"),
    (I64, "bpf_probe_read_kernel(&, $, &)"),
    (I64, "bpf_probe_read_user_str(&, 8, &)"),
];

const TRACING_CALLS: &[(Int, &str)] = &[
    (I64, "bpf_get_current_comm(&, 8)"),
    (I64, "bpf_get_current_comm(&, $)"),
    (U64, "bpf_get_current_uid_gid()"),
];

const LOADS: &[(Int, &str)] =
    &[(I64, "bpf_skb_load_bytes(ctx, $, &, 8)"), (I64, "bpf_skb_load_bytes(ctx, $, &, $)")];

const TC_CALLS: &[(Int, &str)] = &[
    LOADS[0],
    LOADS[1],
    (I64, "bpf_skb_store_bytes(ctx, $, &, 8, 0)"),
    (I64, "bpf_skb_pull_data(ctx, $)"),
    (I64, "bpf_skb_change_tail(ctx, $, 0)"),
    (I64, "bpf_skb_adjust_room(ctx, 8, 0, 0)"),
    (I64, "bpf_skb_vlan_pop(ctx)"),
    (I64, "bpf_csum_diff(&, 8, &, 8, $)"),
    (U32, "bpf_get_hash_recalc(ctx)"),
];

/// The program type of scripts for both halves; it is the first.
const PERF_EVENT: Program = Program {
    attribute: "@perf_event",
    params: "ctx: *bpf_perf_event_data",
    has_task: true,
    number_exprs: &[
        (U64, "ctx->sample_period"),
        (U64, "ctx->addr"),
        (U64, "ctx->regs.ip"),
        (U64, "attachment_id(ctx)"),
    ],
    calls: TRACING_CALLS,
    storage: CURRENT_TASK,
    ..NONE
};

const TC: Program = Program {
    attribute: "@tc(\"ingress\")",
    params: "ctx: *__sk_buff",
    packet: Packet::Write,
    number_exprs: OF_SOCKET,
    calls: TC_CALLS,
    storage: Some(("sk_storage", "ctx->sk")),
    ..NONE
};

/// All program types; some stand here more than once, to be drawn more often.
pub static PROGRAMS: &[Program] = &[
    PERF_EVENT,
    PERF_EVENT,
    XDP,
    XDP,
    TC,
    Program { attribute: "@tc(\"egress\")", ..TC },
    Program {
        attribute: "@cgroup(\"egress\")",
        packet: Packet::Read,
        calls: LOADS,
        has_tail_calls: false,
        ..TC
    },
    Program {
        attribute: "@cgroup(\"connect4\")",
        params: "ctx: *bpf_sock_addr",
        has_tail_calls: false,
        number_exprs: &[(U32, "ctx->user_ip4"), (U32, "ctx->user_port"), (U32, "ctx->family")],
        storage: Some(("sk_storage", "ctx->sk")),
        ..NONE
    },
    Program {
        attribute: "@socket_filter",
        params: "ctx: *__sk_buff",
        number_exprs: &[(U32, "ctx->len"), (U32, "ctx->protocol")],
        calls: LOADS,
        ..NONE
    },
    Program {
        attribute: "@timer(\"10ms\")",
        args: "",
        ret: "void",
        result: None,
        has_tail_calls: false,
        ..NONE
    },
    Program {
        attribute: "@tracepoint(\"sched/sched_process_fork\")",
        params: "ctx: *trace_event_raw_sched_process_fork",
        has_task: true,
        number_exprs: &[(U32, "(ctx->child_pid as u32)"), (U32, "(ctx->parent_pid as u32)")],
        calls: TRACING_CALLS,
        storage: CURRENT_TASK,
        ..NONE
    },
    Program {
        attribute: "@uprobe(\"/lib/libc.so.6:malloc\")",
        params: "size: u64, regs: *pt_regs",
        args: "size, regs",
        has_task: true,
        has_tail_calls: false,
        number_exprs: &[(U64, "size"), (U64, "regs->ip"), (U64, "regs->sp")],
        calls: TRACING_CALLS,
        storage: CURRENT_TASK,
        ..NONE
    },
    Program {
        attribute: "@raw_tracepoint(\"sched_switch\")",
        params: "preempt: bool, prev: *task_struct, next: *task_struct",
        args: "preempt, prev, next",
        has_task: true,
        has_tail_calls: false,
        tasks: &["prev", "next"],
        number_exprs: &[
            (U32, "(prev->pid as u32)"),
            (U32, "(next->group_leader->pid as u32)"),
            (U64, "(next->start_time as u64)"),
            (U32, "(preempt as u32)"),
        ],
        calls: TRACING_CALLS,
        storage: Some(("task_storage", "next")),
        ..NONE
    },
];

const XDP: Program = Program {
    attribute: "@xdp",
    params: "ctx: *xdp_md",
    ret: "xdp_action",
    result: Some(U32),
    is_action: true,
    packet: Packet::Write,
    number_exprs: &[
        (U64, "(ctx->data_end - ctx->data)"),
        (U32, "ctx->ingress_ifindex"),
        (U32, "ctx->rx_queue_index"),
    ],
    calls: &[
        (I64, "bpf_xdp_adjust_head(ctx, $ as i32)"),
        (I64, "bpf_xdp_adjust_tail(ctx, $ as i32)"),
        (I64, "bpf_xdp_adjust_meta(ctx, $ as i32)"),
        (I64, "bpf_xdp_load_bytes(ctx, $, &, 8)"),
        (I64, "bpf_xdp_store_bytes(ctx, $, &, $)"),
        (I64, "bpf_csum_diff(&, 8, &, 8, $)"),
    ],
    ..NONE
};

/// Program types that the kernel can test-run. `@perf_event` is loaded as a raw tracepoint program.
pub const RUNNABLE: &[&str] = &["@perf_event", "@xdp", "@tc(\"ingress\")", "@socket_filter"];

/// Looks up the program type of an attribute.
pub fn find(attribute: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|one| one.attribute == attribute)
}

impl Program {
    /// Formats the header of a program, with `$` for its body.
    pub fn header(&self, name: &str) -> String {
        format!("{} fn {name}({}) -> {} $", self.attribute, self.params, self.ret)
    }

    pub fn has_packet(&self) -> bool {
        self.packet != Packet::None
    }
}
