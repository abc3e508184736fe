//! A small kernel: the functions, events and hooks that the tests name, with the members and parameters of
//! Linux 6.12.

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::object::btf::{BtfBuilder, FuncLinkage, IntEncoding, Member, TypeId};

/// Returns the types of the small kernel.
pub fn types() -> KernelTypes {
    KernelTypes::from_btf(btf()).expect("the small kernel can be read")
}

fn btf() -> Vec<u8> {
    let mut kernel = Kernel::new();
    kernel.functions();
    kernel.system_calls();
    kernel.events();
    kernel.congestion_control();
    kernel.btf.finish().expect("the small kernel is well-formed")
}

struct Kernel {
    btf: BtfBuilder,
    char: TypeId,
    bool: TypeId,
    int: TypeId,
    u8: TypeId,
    u16: TypeId,
    u32: TypeId,
    long: TypeId,
    ulong: TypeId,
    size: TypeId,
    any: TypeId,
    text: TypeId,
}

impl Kernel {
    fn new() -> Kernel {
        let mut btf = BtfBuilder::new();
        let char = btf.int("char", 1, IntEncoding::Signed);
        let u8 = btf.int("unsigned char", 1, IntEncoding::Unsigned);
        let u16 = btf.int("unsigned short", 2, IntEncoding::Unsigned);
        let u32 = btf.int("unsigned int", 4, IntEncoding::Unsigned);
        let ulong = btf.int("unsigned long", 8, IntEncoding::Unsigned);
        let bool = btf.int("_Bool", 1, IntEncoding::Bool);
        let int = btf.int("int", 4, IntEncoding::Signed);
        let long = btf.int("long", 8, IntEncoding::Signed);
        let size = btf.typedef("size_t", ulong);
        let any = btf.ptr(TypeId::VOID);
        let text = btf.ptr(char);
        Kernel { btf, char, bool, int, u8, u16, u32, long, ulong, size, any, text }
    }

    fn pointer_to_struct(&mut self, name: &str) -> TypeId {
        let declared = self.btf.declare_struct(name);
        self.btf.define_struct(declared, 0, &[]);
        self.btf.ptr(declared)
    }

    fn function(&mut self, name: &str, result: TypeId, parameters: &[(&str, TypeId)]) {
        let proto = self.btf.func_proto(result, parameters);
        self.btf.func(name, proto, FuncLinkage::Static);
    }

    fn functions(&mut self) {
        let file = self.pointer_to_struct("file");
        let skb = self.pointer_to_struct("sk_buff");
        let position = self.btf.ptr(self.long);
        let (text, size, long, int) = (self.text, self.size, self.long, self.int);
        let transfer = [("file", file), ("buf", text), ("count", size), ("pos", position)];
        self.function("vfs_read", long, &transfer);
        self.function("vfs_write", long, &transfer);
        self.function("do_exit", TypeId::VOID, &[("code", long)]);
        self.function("tcp_v4_rcv", int, &[("skb", skb)]);
    }

    fn system_calls(&mut self) {
        let registers = self.pointer_to_struct("pt_regs");
        for name in ["openat", "read", "write", "close", "sendto"] {
            self.function(&format!("__x64_sys_{name}"), self.long, &[("regs", registers)]);
        }
        let (int, text, u16, u32, size) = (self.int, self.text, self.u16, self.u32, self.size);
        let body = [("dfd", int), ("filename", text), ("flags", int), ("mode", u16)];
        self.function("__do_sys_openat", self.long, &body);
        self.function("__do_sys_read", self.long, &[("fd", u32), ("buf", text), ("count", size)]);
    }

    fn events(&mut self) {
        let head = [
            Member::at("type", self.u16, 0),
            Member::at("flags", self.u8, 2),
            Member::at("preempt_count", self.u8, 3),
            Member::at("pid", self.int, 4),
        ];
        let entry = self.btf.structure("trace_entry", 8, &head);
        let six = self.btf.array(self.ulong, 6);
        let name = self.btf.array(self.char, 16);
        let enter =
            [Member::at("ent", entry, 0), Member::at("id", self.long, 8), Member::at("args", six, 16)];
        self.btf.structure("trace_event_raw_sys_enter", 64, &enter);
        let exit =
            [Member::at("ent", entry, 0), Member::at("id", self.long, 8), Member::at("ret", self.long, 16)];
        self.btf.structure("trace_event_raw_sys_exit", 24, &exit);
        let switch = [
            Member::at("ent", entry, 0),
            Member::at("prev_comm", name, 8),
            Member::at("prev_pid", self.int, 24),
            Member::at("prev_prio", self.int, 28),
            Member::at("prev_state", self.long, 32),
            Member::at("next_comm", name, 40),
            Member::at("next_pid", self.int, 56),
            Member::at("next_prio", self.int, 60),
        ];
        self.btf.structure("trace_event_raw_sched_switch", 64, &switch);
        let task = self.pointer_to_struct("task_struct");
        let (any, bool, u32) = (self.any, self.bool, self.u32);
        let raw = [("__data", any), ("preempt", bool), ("prev", task), ("next", task), ("prev_state", u32)];
        let proto = self.btf.func_proto(TypeId::VOID, &raw);
        let pointer = self.btf.ptr(proto);
        self.btf.typedef("btf_trace_sched_switch", pointer);
    }

    fn congestion_control(&mut self) {
        let sock = self.pointer_to_struct("sock");
        let (u32, u8) = (self.u32, self.u8);
        let queries = self.method(u32, &[("sk", sock)]);
        let notify = self.method(TypeId::VOID, &[("sk", sock)]);
        let avoids = self.method(TypeId::VOID, &[("sk", sock), ("ack", u32), ("acked", u32)]);
        let states = self.method(TypeId::VOID, &[("sk", sock), ("new_state", u8)]);
        let name = self.btf.array(self.char, 16);
        let module = self.pointer_to_struct("module");
        let members = [
            Member::at("ssthresh", queries, 0),
            Member::at("cong_avoid", avoids, 8),
            Member::at("set_state", states, 16),
            Member::at("undo_cwnd", queries, 24),
            Member::at("init", notify, 32),
            Member::at("release", notify, 40),
            Member::at("name", name, 48),
            Member::at("owner", module, 64),
            Member::at("flags", self.u32, 72),
        ];
        let ops = self.btf.structure("tcp_congestion_ops", 80, &members);
        let common = self.btf.structure("bpf_struct_ops_common", 8, &[Member::at("refcnt", self.int, 0)]);
        let value = [Member::at("common", common, 0), Member::at("data", ops, 8)];
        self.btf.structure("bpf_struct_ops_tcp_congestion_ops", 88, &value);
    }

    fn method(&mut self, result: TypeId, parameters: &[(&str, TypeId)]) -> TypeId {
        let proto = self.btf.func_proto(result, parameters);
        self.btf.ptr(proto)
    }
}
