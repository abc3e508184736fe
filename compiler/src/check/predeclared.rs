//! The types and enumerators that are declared in every script.

use ks_wit::event::EVENTS;

use super::aggregates;
use super::names::{Redeclaration, Symbol, SymbolTable};
use super::stats;
use crate::builtins::context::REGISTERS;
use crate::builtins::context_members::{self, ContextStruct, MemberType};
use crate::builtins::perf::{OPTION_TEXT, SNAPSHOT_ENTRIES};
use crate::builtins::programs;
use crate::hir::KnownTypes;
use crate::types::{EnumDef, Field, IntType, STATS, StructDef, StructOrigin, TypeId, TypeKind, Types};

/// The histogram of powers of two.
const LOG2_HIST: &str = "log2_hist";

const U64: IntType = IntType { bits: 64, signed: false };

pub(super) fn declare() -> (Types, KnownTypes, SymbolTable) {
    let mut types = Types::new();
    let mut names = SymbolTable::default();
    let common = types.common();
    names.predeclare("size_t", Symbol::Type(common.u64), Redeclaration::Forbidden);
    let regs = registers(&mut types, &mut names);
    let known = KnownTypes {
        perf_event: perf_event(&mut types, &mut names),
        perf_attachment: structure(
            &mut types,
            &mut names,
            "perf_attachment",
            &[
                ("perf_fd", common.i32),
                ("link_id", common.i32),
                ("prog_fd", common.i32),
                ("generation", common.u64),
            ],
        ),
        perf_options: common.error,
        perf_read: common.error,
        perf_context: context(
            &mut types,
            &mut names,
            "bpf_perf_event_data",
            &[("regs", regs), ("sample_period", common.u64), ("addr", common.u64)],
        ),
        xdp_context: packet_context(
            &mut types,
            &mut names,
            &context_members::XDP_MD,
            Redeclaration::Forbidden,
        ),
        skb_context: packet_context(
            &mut types,
            &mut names,
            &context_members::SK_BUFF,
            Redeclaration::Forbidden,
        ),
        xdp_action: enumeration(&mut types, &mut names, "xdp_action", XDP_ACTIONS),
        gfp_flag: enumeration(&mut types, &mut names, "gfp_flag", GFP_FLAGS),
        bpf_program_info: program_info(&mut types, &mut names),
        log2_hist: aggregates::histogram(&mut types, LOG2_HIST, aggregates::LOG2_SLOTS),
    };
    let log2_hist = types.struct_type(known.log2_hist);
    names.predeclare(LOG2_HIST, Symbol::Type(log2_hist), Redeclaration::Allowed);
    let statistics = stats::stats(&mut types);
    names.predeclare(STATS, Symbol::Type(statistics), Redeclaration::Allowed);
    packet_context(&mut types, &mut names, &context_members::SOCK_ADDR, Redeclaration::Allowed);
    enumeration(&mut types, &mut names, "tc_action", TC_ACTIONS);
    let perf_options = options(&mut types, &mut names, known);
    let perf_read = reading(&mut types, &mut names);
    (types, KnownTypes { perf_options, perf_read, ..known }, names)
}

/// `include/uapi/linux/bpf.h`, `enum xdp_action`, v6.12.
const XDP_ACTIONS: &[(&str, i32)] =
    &[("XDP_ABORTED", 0), ("XDP_DROP", 1), ("XDP_PASS", 2), ("XDP_TX", 3), ("XDP_REDIRECT", 4)];

/// `include/uapi/linux/pkt_cls.h`, `TC_ACT_...`, v6.12.
const TC_ACTIONS: &[(&str, i32)] = &[
    ("TC_ACT_UNSPEC", -1),
    ("TC_ACT_OK", 0),
    ("TC_ACT_RECLASSIFY", 1),
    ("TC_ACT_SHOT", 2),
    ("TC_ACT_PIPE", 3),
    ("TC_ACT_STOLEN", 4),
    ("TC_ACT_QUEUED", 5),
    ("TC_ACT_REPEAT", 6),
    ("TC_ACT_REDIRECT", 7),
    ("TC_ACT_TRAP", 8),
];

/// The flags of `new`, with the language's own numbers.
const GFP_FLAGS: &[(&str, i32)] = &[("GFP_KERNEL", 1), ("GFP_ATOMIC", 2)];

fn enumeration(
    types: &mut Types,
    names: &mut SymbolTable,
    name: &'static str,
    enumerators: &[(&'static str, i32)],
) -> TypeId {
    let repr = IntType { bits: 32, signed: enumerators.iter().any(|(_, value)| *value < 0) };
    let listed = enumerators.iter().map(|(name, value)| ((*name).to_owned(), u64::from(*value as u32)));
    let id = types.add_enum(EnumDef { name: name.into(), repr, enumerators: listed.collect() });
    let ty = types.intern(TypeKind::Enum(id));
    names.predeclare(name, Symbol::Type(ty), Redeclaration::Forbidden);
    for (enumerator, value) in enumerators {
        let symbol = Symbol::Enumerator(ty, u64::from(*value as u32));
        names.predeclare(enumerator, symbol, Redeclaration::Forbidden);
    }
    ty
}

/// Declares `pt_regs`: the registers by their names in `builtins::context`.
fn registers(types: &mut Types, names: &mut SymbolTable) -> TypeId {
    let u64 = types.common().u64;
    let fields: Vec<_> = REGISTERS.iter().map(|register| (register.name, u64)).collect();
    let ty = context(types, names, "pt_regs", &fields);
    names.predeclare("pt_regs", Symbol::Type(ty), Redeclaration::Allowed);
    ty
}

/// Declares the context of programs on packets and sockets.
fn packet_context(
    types: &mut Types,
    names: &mut SymbolTable,
    found: &ContextStruct,
    redeclaration: Redeclaration,
) -> TypeId {
    let fields: Vec<_> =
        found.fields.iter().map(|field| (field.name, member_type(types, field.ty))).collect();
    let ty = context(types, names, found.name, &fields);
    names.predeclare(found.name, Symbol::Type(ty), redeclaration);
    ty
}

fn member_type(types: &mut Types, ty: MemberType) -> TypeId {
    let common = types.common();
    match ty {
        MemberType::U8 => common.u8,
        MemberType::U16 => common.u16,
        MemberType::U32 => common.u32,
        MemberType::U64 => common.u64,
        MemberType::I32 => common.i32,
        MemberType::I64 => common.i64,
        // Kernel structs that a context points to are opaque: programs pass them to helpers.
        MemberType::PacketStart
        | MemberType::PacketEnd
        | MemberType::PacketMeta
        | MemberType::Pointer(_)
        | MemberType::Struct(_) => types.intern(TypeKind::Ptr(common.u8)),
        MemberType::ArrayU32(len) => types.intern(TypeKind::Array(common.u32, len.into())),
        MemberType::ArrayU64(len) => types.intern(TypeKind::Array(common.u64, len.into())),
        MemberType::Chars(len) => types.intern(TypeKind::Array(common.char, len.into())),
    }
}

fn perf_event(types: &mut Types, names: &mut SymbolTable) -> TypeId {
    let enumerators = EVENTS.iter().map(|event| (event.name.to_owned(), event.packed())).collect();
    let id = types.add_enum(EnumDef { name: "perf_event".into(), repr: U64, enumerators });
    let ty = types.intern(TypeKind::Enum(id));
    names.predeclare("perf_event", Symbol::Type(ty), Redeclaration::Forbidden);
    for event in EVENTS {
        let redeclaration = if event.in_011 { Redeclaration::Forbidden } else { Redeclaration::Allowed };
        names.predeclare(event.name, Symbol::Enumerator(ty, event.packed()), redeclaration);
    }
    ty
}

/// Declares `perf_options`. The order of the fields is that of `builtins::perf::options`.
fn options(types: &mut Types, names: &mut SymbolTable, known: KnownTypes) -> TypeId {
    let common = types.common();
    let text = types.str_type(OPTION_TEXT);
    let fields = [
        ("event", known.perf_event),
        ("pid", common.i32),
        ("cpu", common.i32),
        ("period", common.u64),
        ("wakeup", common.u32),
        ("inherit", common.bool),
        ("exclude_kernel", common.bool),
        ("exclude_user", common.bool),
        ("group", known.perf_attachment),
        ("freq", common.u64),
        ("exclude_idle", common.bool),
        ("exclude_hv", common.bool),
        ("exclude_host", common.bool),
        ("exclude_guest", common.bool),
        ("every_cpu", common.bool),
        ("process", text),
        ("command", common.bool),
        ("cgroup", text),
        ("pinned", common.bool),
        ("exclusive", common.bool),
        ("precise", common.u32),
        ("follow", common.bool),
        ("weak", common.bool),
        ("event_type", common.u32),
        ("event_config", common.u64),
        ("event_config1", common.u64),
        ("event_config2", common.u64),
        ("event_text", text),
    ];
    structure(types, names, "perf_options", &fields)
}

/// Declares `perf_read`. The order of the fields is that of `builtins::perf::reading`.
fn reading(types: &mut Types, names: &mut SymbolTable) -> TypeId {
    let common = types.common();
    let values = types.intern(TypeKind::Array(common.i64, SNAPSHOT_ENTRIES));
    let ids = types.intern(TypeKind::Array(common.u64, SNAPSHOT_ENTRIES));
    let fields = [
        ("raw", common.i64),
        ("scaled", common.i64),
        ("time_enabled", common.u64),
        ("time_running", common.u64),
        ("count", common.u32),
        ("values", values),
        ("ids", ids),
    ];
    structure(types, names, "perf_read", &fields)
}

/// Declares `bpf_program_info`. The order of the fields is that of `builtins::programs::info`.
fn program_info(types: &mut Types, names: &mut SymbolTable) -> TypeId {
    let u64 = types.common().u64;
    let [name, kind] = [programs::NAME, programs::KIND].map(|size| types.str_type(size));
    let fields = [("name", name), ("kind", kind), ("runs", u64), ("time_ns", u64)];
    of_origin(types, names, StructOrigin::Predeclared, ("bpf_program_info", Redeclaration::Allowed), &fields)
}

fn structure(
    types: &mut Types,
    names: &mut SymbolTable,
    name: &'static str,
    fields: &[(&str, TypeId)],
) -> TypeId {
    of_origin(types, names, StructOrigin::Predeclared, (name, Redeclaration::Forbidden), fields)
}

fn context(
    types: &mut Types,
    names: &mut SymbolTable,
    name: &'static str,
    fields: &[(&str, TypeId)],
) -> TypeId {
    of_origin(types, names, StructOrigin::Context, (name, Redeclaration::Forbidden), fields)
}

fn of_origin(
    types: &mut Types,
    names: &mut SymbolTable,
    origin: StructOrigin,
    (name, redeclaration): (&'static str, Redeclaration),
    fields: &[(&str, TypeId)],
) -> TypeId {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    let id = types.add_struct(StructDef { name: name.into(), fields, origin });
    let ty = types.struct_type(id);
    names.predeclare(name, Symbol::Type(ty), redeclaration);
    ty
}
