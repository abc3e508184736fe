//! Small generated BTF: cases that a real kernel may not have, and malicious bytes.

use proptest::prelude::*;

use ks_compiler::kernel_types::{
    ArgumentPassing, KernelLookupError, KernelType, KernelTypes, OpsMemberKind, Pointee, Record,
};
use ks_compiler::object::btf::{
    BtfBuilder, Enumerator, FuncLinkage, IntEncoding, Member, Signedness, TypeId,
};

fn kernel(btf: &BtfBuilder) -> KernelTypes {
    KernelTypes::from_btf(btf.finish().expect("well-formed")).expect("BTF")
}

#[test]
fn static_functions_of_one_name_agree_as_far_as_they_do() {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let long = btf.int("long", 8, IntEncoding::Signed);
    let one = btf.func_proto(int, &[("a", int), ("b", int), ("c", int)]);
    let other = btf.func_proto(int, &[("x", int), ("y", long), ("z", int)]);
    btf.func("twice", one, FuncLinkage::Static);
    btf.func("twice", other, FuncLinkage::Static);
    btf.func("once", one, FuncLinkage::Static);
    let kernel = kernel(&btf);
    let twice = kernel.function("twice").expect("there are two");
    assert_eq!((twice.proto.params.len(), twice.agreed), (3, 1));
    assert_eq!(kernel.function("once").expect("written").agreed, 3);
}

#[test]
fn types_are_distinguished() {
    let mut btf = BtfBuilder::new();
    let char = btf.int("char", 1, IntEncoding::Unsigned);
    let bool = btf.int("_Bool", 1, IntEncoding::Bool);
    let ulong = btf.int("unsigned long", 8, IntEncoding::Unsigned);
    let size = btf.typedef("__kernel_size_t", ulong);
    let size = btf.typedef("size_t", size);
    let values = [Enumerator { name: "MINUS", value: -1 }];
    let signed = btf.enumeration("direction", 4, Signedness::Signed, &values);
    let text = btf.constant(char);
    let text = btf.ptr(text);
    let anonymous = btf.structure("", 8, &[Member::at("bits", ulong, 0)]);
    let set = btf.typedef("set_t", anonymous);
    let set_pointer = btf.ptr(set);
    let nothing = btf.ptr(TypeId::VOID);
    let name = btf.array(char, 16);
    let params = [
        ("", char),
        ("flag", bool),
        ("size", size),
        ("way", signed),
        ("text", text),
        ("set", set_pointer),
        ("whole", set),
        ("any", nothing),
        ("name", name),
        ("", TypeId::VOID),
    ];
    let proto = btf.func_proto(TypeId::VOID, &params);
    btf.func("everything", proto, FuncLinkage::Global);
    let kernel = kernel(&btf);
    let proto = kernel.function("everything").expect("written").proto;
    let param_texts: Vec<_> =
        proto.params.iter().map(|param| format!("{}: {}", param.name, param.ty)).collect();
    assert_eq!(
        param_texts,
        [
            "arg0: i8",
            "flag: bool",
            "size: size_t",
            "way: enum direction",
            "text: *char",
            "set: *set_t",
            "whole: struct set_t",
            "any: *void",
            "name: char[16]",
        ]
    );
    assert!(proto.variadic);
    assert_eq!(proto.params[3].ty.scalar(), Some((4, true)));
    assert_eq!(proto.params[5].ty, KernelType::Pointer(Pointee::Struct("set_t".into())));
    assert!(proto.params[6].ty.is_aggregate());
    assert_eq!(kernel.member("set_t", "bits").map(|bits| bits.offset), Some(0));
}

#[test]
fn system_calls_of_another_architecture() {
    let mut btf = BtfBuilder::new();
    let long = btf.int("long", 8, IntEncoding::Signed);
    let regs = btf.structure("pt_regs", 336, &[]);
    let regs = btf.ptr(regs);
    let wrapper = btf.func_proto(long, &[("regs", regs)]);
    let body = btf.func_proto(long, &[("first", long), ("second", long)]);
    btf.func("__arm64_sys_brand_new", wrapper, FuncLinkage::Static);
    btf.func("__do_sys_brand_new", body, FuncLinkage::Static);
    btf.func("__arm64_sys_unheard_of", wrapper, FuncLinkage::Static);
    let kernel = kernel(&btf);
    let call = kernel.function("sys_brand_new").expect("written");
    assert_eq!((call.target.as_str(), call.proto.params.len()), ("__arm64_sys_brand_new", 2));
    // Its arguments are unknown.
    let unknown = kernel.function("sys_unheard_of").expect("written");
    assert_eq!((unknown.entry, unknown.proto.params.len()), (ArgumentPassing::Syscall { known: false }, 0));
    assert_eq!(kernel.syscall("unheard_of"), None);
    // The wrapper itself can be used like any other function.
    assert_eq!(kernel.function("__arm64_sys_brand_new").expect("written").entry, ArgumentPassing::Direct);
    assert!(kernel.tracepoint("syscalls", "sys_enter_brand_new").is_ok());
    // The table knows it; this kernel lacks it.
    assert!(matches!(
        kernel.tracepoint("syscalls", "sys_enter_openat"),
        Err(KernelLookupError::Missing { .. })
    ));
}

#[test]
fn an_event_of_a_class_is_known_by_its_arguments() {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let long = btf.int("long", 8, IntEncoding::Signed);
    let data = btf.ptr(TypeId::VOID);
    for (class, ty) in [("fits_well", int), ("other", long), ("fits_too", int)] {
        btf.structure(&format!("trace_event_raw_{class}"), 16, &[]);
        let fill = btf.func_proto(TypeId::VOID, &[("__data", data), ("value", ty)]);
        btf.func(&format!("trace_event_raw_event_{class}"), fill, FuncLinkage::Static);
    }
    let raw = btf.func_proto(TypeId::VOID, &[("", data), ("", int)]);
    let raw = btf.ptr(raw);
    btf.typedef("btf_trace_fits_best", raw);
    // The longest common prefix, but of a separate event.
    btf.structure("trace_event_raw_fits_bes", 16, &[]);
    let fill = btf.func_proto(TypeId::VOID, &[("__data", data), ("value", int)]);
    btf.func("trace_event_raw_event_fits_bes", fill, FuncLinkage::Static);
    btf.typedef("btf_trace_fits_bes", raw);
    let kernel = kernel(&btf);
    let found = kernel.tracepoint("any", "fits_best").expect("written").record;
    let class = |name: &str| format!("trace_event_raw_{name}");
    assert_eq!(found, Record::Class);
    assert_eq!(kernel.class_records("fits_best"), [class("fits_too"), class("fits_well"), class("fits_bes")]);
    let params = kernel.raw_tracepoint("fits_best").expect("written");
    assert_eq!(params.iter().map(|param| param.name.as_str()).collect::<Vec<_>>(), ["arg0"]);
}

#[test]
fn marked_kfuncs_and_tables() {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let proto = btf.func_proto(int, &[("value", int)]);
    let marked = btf.func("bpf_marked", proto, FuncLinkage::Static);
    btf.decl_tag("bpf_kfunc", marked, None);
    btf.func("bpf_plain", proto, FuncLinkage::Static);
    let method = btf.ptr(proto);
    let ops = btf.structure("my_ops", 16, &[Member::at("go", method, 0), Member::at("flags", int, 8)]);
    btf.structure("bpf_struct_ops_my_ops", 24, &[Member::at("common", int, 0), Member::at("data", ops, 8)]);
    btf.structure("other_ops", 16, &[Member::at("go", method, 0)]);
    btf.structure("bpf_struct_ops_other_ops", 24, &[Member::at("count", int, 0)]);
    let kernel = kernel(&btf);
    assert_eq!(kernel.kfunc_names(), ["bpf_marked"]);
    assert!(!kernel.kfunc("bpf_plain").expect("written").marked);
    assert_eq!(kernel.struct_ops_names(), ["my_ops"]);
    assert!(!kernel.struct_ops("other_ops").expect("written").registrable);
    let go = kernel.struct_ops("my_ops").expect("written").members.swap_remove(0);
    assert!(matches!(go.kind, OpsMemberKind::Function(proto) if proto.params.len() == 1));
}

#[test]
fn types_that_contain_themselves_end() {
    let mut btf = BtfBuilder::new();
    let outer = btf.declare_struct("outer");
    let array = btf.array(outer, 2);
    btf.define_struct(outer, 8, &[Member::at("", outer, 0), Member::at("again", array, 0)]);
    // A nameless struct that contains itself.
    let inner = btf.declare_struct("");
    btf.define_struct(inner, 8, &[Member::at("", inner, 0)]);
    let holder = btf.structure("holder", 8, &[Member::at("", inner, 0)]);
    let proto = btf.func_proto(TypeId::VOID, &[("all", holder)]);
    btf.func("hold", proto, FuncLinkage::Static);
    let kernel = kernel(&btf);
    assert_eq!(kernel.structure("holder"), None);
    assert_eq!(kernel.member("holder", "absent"), None);
    assert!(kernel.function("hold").is_ok());
}

#[test]
fn bytes_that_are_not_btf_are_refused() {
    for bytes in [&b""[..], b"\x9f\xeb", b"not BTF at all, but long enough for a header"] {
        assert!(KernelTypes::from_btf(bytes).is_err());
    }
}

/// Calls every query with names that may be in the BTF.
fn ask_everything(kernel: &KernelTypes) {
    for name in ["twice", "task", "my_ops", "bpf_marked", "size_t", "visit", "sys_brand_new", "event", ""] {
        let _ = (kernel.function(name), kernel.kfunc(name), kernel.lsm_hook(name), kernel.syscall(name));
        let _ = (kernel.structure(name), kernel.has_structure(name), kernel.member(name, "a"));
        let _ = (kernel.tracepoint("any", name), kernel.raw_tracepoint(name), kernel.struct_ops(name));
        let _ = (kernel.near_structures(name), kernel.near_struct_ops(name), kernel.near_syscalls(name));
    }
    let _ = kernel.kfunc_names();
}

fn mixed() -> Vec<u8> {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let data = btf.ptr(TypeId::VOID);
    let task = btf.declare_struct("task");
    let parent = btf.ptr(task);
    let inner = btf.union("", 8, &[Member::at("a", int, 0), Member::at("b", parent, 0)]);
    btf.define_struct(task, 24, &[Member::at("parent", parent, 0), Member::at("", inner, 8)]);
    let size = btf.typedef("size_t", int);
    let proto = btf.func_proto(int, &[("task", parent), ("size", size)]);
    let marked = btf.func("bpf_marked", proto, FuncLinkage::Static);
    btf.decl_tag("bpf_kfunc", marked, None);
    btf.func("twice", proto, FuncLinkage::Static);
    btf.func("twice", proto, FuncLinkage::Static);
    btf.func("bpf_lsm_visit", proto, FuncLinkage::Static);
    btf.func("__x64_sys_brand_new", proto, FuncLinkage::Static);
    btf.func("__do_sys_brand_new", proto, FuncLinkage::Static);
    let method = btf.ptr(proto);
    let ops = btf.structure("my_ops", 16, &[Member::at("go", method, 0), Member::at("flags", int, 8)]);
    btf.structure("bpf_struct_ops_my_ops", 24, &[Member::at("common", int, 0), Member::at("data", ops, 8)]);
    let raw = btf.func_proto(TypeId::VOID, &[("", data), ("", int)]);
    btf.func("trace_event_raw_event_class", raw, FuncLinkage::Static);
    btf.structure("trace_event_raw_class", 8, &[Member::at("ent", int, 0)]);
    let raw = btf.ptr(raw);
    btf.typedef("btf_trace_event", raw);
    btf.finish().expect("well-formed")
}

proptest! {
    #[test]
    fn damaged_types_never_end_the_compiler(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = mixed();
        // The header stays: without it nothing is read at all.
        let (_, body) = bytes.split_at_mut(24);
        for (at, value) in changes {
            let at = at.index(body.len());
            body[at] = value;
        }
        if let Ok(kernel) = KernelTypes::from_btf(bytes) {
            ask_everything(&kernel);
        }
    }
}
