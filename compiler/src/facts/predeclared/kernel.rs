//! Definitions of the kernel half that have tables of their own: contexts, registers, helpers.

use ks_wit::helper::{HELPERS, Helper, HelperClass, HelperType, Signature};

use crate::builtins::context::REGISTERS;
use crate::builtins::context_members::{Access, ContextField, MemberType, STRUCTS};
use crate::facts::{DefId, DefKind, Definition, Facts, Ty};

/// Defines registers, members of contexts that the prelude lacks, and the helpers of BPF.
pub(super) fn define(facts: &mut Facts) {
    registers(facts);
    for context in STRUCTS {
        let known = facts.type_named(context.name);
        let parent = known.unwrap_or_else(|| structure(facts, context.name, "A record of the kernel."));
        let described: Vec<String> = named(facts, parent);
        for field in context.fields.iter().filter(|field| !described.iter().any(|name| name == field.name)) {
            member(facts, parent, field);
        }
    }
    for helper in HELPERS {
        if let Some(signature) = &helper.signature {
            define_helper(facts, helper, signature);
        }
    }
}

fn structure(facts: &mut Facts, name: &str, docs: &str) -> DefId {
    facts.define(|| Definition {
        detail: format!("struct {name}"),
        docs: docs.into(),
        ..Definition::new(name, DefKind::Struct)
    })
}

fn named(facts: &Facts, parent: DefId) -> Vec<String> {
    facts.children(parent).iter().filter_map(|id| facts.definition(*id)).map(|one| one.name.clone()).collect()
}

fn member(facts: &mut Facts, parent: DefId, field: &ContextField) {
    let ty = member_type(field.ty);
    let docs = match field.access {
        Access::Read => String::new(),
        Access::ReadWrite => "May be assigned.".into(),
        Access::Refused(reason) => format!("Cannot be read here: {reason}."),
    };
    facts.define(|| Definition {
        detail: format!("{}: {ty}", field.name),
        docs,
        ty,
        parent: Some(parent),
        ..Definition::new(field.name, DefKind::Field)
    });
}

fn member_type(ty: MemberType) -> Ty {
    let array = |element: &str, len: u32| Ty::Array(Box::new(Ty::named(element)), len.to_string());
    match ty {
        MemberType::U8 => Ty::named("u8"),
        MemberType::U16 => Ty::named("u16"),
        MemberType::U32 => Ty::named("u32"),
        MemberType::U64 => Ty::named("u64"),
        MemberType::I32 => Ty::named("i32"),
        MemberType::I64 => Ty::named("i64"),
        MemberType::PacketStart | MemberType::PacketEnd | MemberType::PacketMeta => pointer("u8"),
        MemberType::Pointer(to) => pointer(to),
        MemberType::ArrayU32(len) => array("u32", len),
        MemberType::ArrayU64(len) => array("u64", len),
        MemberType::Chars(len) => array("char", len),
        MemberType::Struct(name) => Ty::named(name),
    }
}

fn pointer(to: &str) -> Ty {
    Ty::Ptr(Box::new(Ty::named(to)))
}

fn registers(facts: &mut Facts) {
    let docs = "The registers of a CPU. `ip`, `sp` and `fp` exist on every architecture.";
    let parent = structure(facts, "pt_regs", docs);
    for register in REGISTERS {
        let docs = match (register.x86_64, register.aarch64) {
            (Some(_), Some(_)) => "On every architecture.",
            (Some(_), None) => "On x86-64; 0 elsewhere.",
            _ => "On aarch64; 0 elsewhere.",
        };
        facts.define(|| Definition {
            detail: format!("{}: u64", register.name),
            docs: docs.into(),
            ty: Ty::named("u64"),
            parent: Some(parent),
            ..Definition::new(register.name, DefKind::Field)
        });
    }
}

fn define_helper(facts: &mut Facts, helper: &Helper, signature: &Signature) {
    let params: Vec<String> = signature.params.iter().map(|ty| helper_type(*ty).to_string()).collect();
    let ret = helper_type(signature.ret);
    let steers = match helper.class {
        HelperClass::Steers(act) => format!(" With it a program can {act}."),
        HelperClass::Redirects => " With it a program can send packets anywhere.".to_owned(),
        _ => String::new(),
    };
    facts.define(|| Definition {
        detail: format!("{}({}) -> {ret}", helper.name, params.join(", ")),
        docs: format!("A helper of BPF, see bpf-helpers(7).{steers}\n\nCallable in: kernel half."),
        ty: ret,
        ..Definition::new(helper.name, DefKind::Builtin)
    });
}

fn helper_type(ty: HelperType) -> Ty {
    match ty {
        HelperType::Void => Ty::named("void"),
        HelperType::U16 => Ty::named("u16"),
        HelperType::U32 => Ty::named("u32"),
        HelperType::U64 => Ty::named("u64"),
        HelperType::I32 => Ty::named("i32"),
        HelperType::I64 => Ty::named("i64"),
        HelperType::Memory => pointer("void"),
        HelperType::Text => pointer("u8"),
        HelperType::PerfContext => pointer("bpf_perf_event_data"),
        HelperType::Xdp => pointer("xdp_md"),
        HelperType::Skb => pointer("__sk_buff"),
        HelperType::Task => pointer("task_struct"),
        HelperType::Registers => pointer("pt_regs"),
    }
}
