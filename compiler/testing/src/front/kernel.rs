//! A small kernel: the functions, events and structs that the examples name.

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::object::btf::{
    BtfBuilder, DatasecEntry, FuncLinkage, IntEncoding, Member, TypeId, VarLinkage,
};

/// Returns the types of that kernel.
pub fn types() -> KernelTypes {
    let mut btf = BtfBuilder::new();
    let scalars = Scalars::new(&mut btf);
    files(&mut btf, &scalars);
    tasks(&mut btf, &scalars);
    congestion(&mut btf, &scalars);
    variables(&mut btf, &scalars);
    KernelTypes::from_btf(btf.finish().expect("well-formed")).expect("BTF")
}

struct Scalars {
    char: TypeId,
    short: TypeId,
    int: TypeId,
    uint: TypeId,
    long: TypeId,
    ulong: TypeId,
}

impl Scalars {
    fn new(btf: &mut BtfBuilder) -> Scalars {
        Scalars {
            char: btf.int("char", 1, IntEncoding::Unsigned),
            short: btf.int("unsigned short", 2, IntEncoding::Unsigned),
            int: btf.int("int", 4, IntEncoding::Signed),
            uint: btf.int("unsigned int", 4, IntEncoding::Unsigned),
            long: btf.int("long", 8, IntEncoding::Signed),
            ulong: btf.int("unsigned long", 8, IntEncoding::Unsigned),
        }
    }
}

/// Variables with a value for each CPU. Most kernels describe no others.
fn variables(btf: &mut BtfBuilder, scalars: &Scalars) {
    let queue = btf.structure("rq", 4, &[Member::at("nr_running", scalars.uint, 0)]);
    let queues = btf.var("runqueues", queue, VarLinkage::Global);
    let counts = btf.var("process_counts", scalars.ulong, VarLinkage::Global);
    let entry = |var, offset, size| DatasecEntry { var, offset, size };
    btf.datasec(".data..percpu", 16, &[entry(queues, 0, 4), entry(counts, 8, 8)]);
}

/// `vfs_read`, `vfs_write`, and a function for programs.
fn files(btf: &mut BtfBuilder, scalars: &Scalars) {
    let file = btf.structure(
        "file",
        8,
        &[Member::at("f_flags", scalars.uint, 0), Member::at("f_mode", scalars.uint, 4)],
    );
    let file = btf.ptr(file);
    let buffer = btf.ptr(scalars.char);
    let size = btf.typedef("size_t", scalars.ulong);
    let offset = btf.ptr(scalars.long);
    let params = [("file", file), ("buf", buffer), ("count", size), ("pos", offset)];
    let proto = btf.func_proto(scalars.long, &params);
    btf.func("vfs_read", proto, FuncLinkage::Global);
    btf.func("vfs_write", proto, FuncLinkage::Global);
    let any = btf.ptr(TypeId::VOID);
    let length = btf.func_proto(scalars.ulong, &[("p", any)]);
    btf.func("bpf_dynptr_size", length, FuncLinkage::Global);
}

/// `task_struct`, and the events `sched/sched_switch` and of system calls.
fn tasks(btf: &mut BtfBuilder, scalars: &Scalars) {
    let comm = btf.array(scalars.char, 16);
    let task =
        btf.structure("task_struct", 24, &[Member::at("pid", scalars.int, 0), Member::at("comm", comm, 4)]);
    let head = btf.structure(
        "trace_entry",
        8,
        &[
            Member::at("type", scalars.short, 0),
            Member::at("flags", scalars.char, 2),
            Member::at("preempt_count", scalars.char, 3),
            Member::at("pid", scalars.int, 4),
        ],
    );
    let switch = [
        Member::at("ent", head, 0),
        Member::at("prev_comm", comm, 8),
        Member::at("prev_pid", scalars.int, 24),
        Member::at("prev_prio", scalars.int, 28),
        Member::at("prev_state", scalars.long, 32),
        Member::at("next_comm", comm, 40),
        Member::at("next_pid", scalars.int, 56),
        Member::at("next_prio", scalars.int, 60),
    ];
    btf.structure("trace_event_raw_sched_switch", 64, &switch);
    let args = btf.array(scalars.ulong, 6);
    let enter = [Member::at("ent", head, 0), Member::at("id", scalars.long, 8), Member::at("args", args, 16)];
    btf.structure("trace_event_raw_sys_enter", 64, &enter);
    let task = btf.ptr(task);
    let any = btf.ptr(TypeId::VOID);
    for (name, params) in [
        ("btf_trace_sched_switch", [("", any), ("prev", task), ("next", task)]),
        ("btf_trace_sys_enter", [("", any), ("regs", any), ("id", scalars.long)]),
    ] {
        let proto = btf.func_proto(TypeId::VOID, &params);
        let pointer = btf.ptr(proto);
        btf.typedef(name, pointer);
    }
}

/// The struct_ops type `tcp_congestion_ops`.
fn congestion(btf: &mut BtfBuilder, scalars: &Scalars) {
    let sock = btf.structure("sock", 4, &[Member::at("sk_mark", scalars.uint, 0)]);
    let sock = btf.ptr(sock);
    let name = btf.array(scalars.char, 16);
    let query = btf.func_proto(scalars.uint, &[("sk", sock)]);
    let query = btf.ptr(query);
    let avoid = btf.func_proto(TypeId::VOID, &[("sk", sock), ("ack", scalars.uint), ("acked", scalars.uint)]);
    let avoid = btf.ptr(avoid);
    let members = [
        Member::at("ssthresh", query, 0),
        Member::at("undo_cwnd", query, 8),
        Member::at("cong_avoid", avoid, 16),
        Member::at("flags", scalars.uint, 24),
        Member::at("name", name, 28),
    ];
    let ops = btf.structure("tcp_congestion_ops", 48, &members);
    btf.structure("bpf_struct_ops_tcp_congestion_ops", 48, &[Member::at("data", ops, 0)]);
}
