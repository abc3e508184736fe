//! The types and enumerators that every script finds declared.

use super::names::{Names, Symbol};
use crate::builtins::perf::{EVENTS, SNAPSHOT_ENTRIES};
use crate::hir::KnownTypes;
use crate::types::{EnumDef, Field, IntType, StructDef, TypeId, TypeKind, Types};

const U64: IntType = IntType { bits: 64, signed: false };

pub(super) fn declare() -> (Types, KnownTypes, Names) {
    let mut types = Types::new();
    let mut names = Names::default();
    let common = types.common();
    names.predeclare("size_t", Symbol::Type(common.u64), false);
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
        perf_context: structure(&mut types, &mut names, "bpf_perf_event_data", &[]),
    };
    let perf_options = options(&mut types, &mut names, known);
    let perf_read = reading(&mut types, &mut names);
    (types, KnownTypes { perf_options, perf_read, ..known }, names)
}

fn perf_event(types: &mut Types, names: &mut Names) -> TypeId {
    let enumerators = EVENTS.iter().map(|event| (event.name.to_owned(), event.value)).collect();
    let id = types.add_enum(EnumDef { name: "perf_event".into(), repr: U64, enumerators });
    let ty = types.intern(TypeKind::Enum(id));
    names.predeclare("perf_event", Symbol::Type(ty), false);
    for event in EVENTS {
        names.predeclare(event.name, Symbol::Enumerator(ty, event.value), event.weak);
    }
    ty
}

/// The order of the fields is that of `builtins::perf::options`.
fn options(types: &mut Types, names: &mut Names, known: KnownTypes) -> TypeId {
    let common = types.common();
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
    ];
    structure(types, names, "perf_options", &fields)
}

/// The order of the fields is that of `builtins::perf::reading`.
fn reading(types: &mut Types, names: &mut Names) -> TypeId {
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

fn structure(types: &mut Types, names: &mut Names, name: &'static str, fields: &[(&str, TypeId)]) -> TypeId {
    let fields = fields.iter().map(|(name, ty)| Field { name: (*name).into(), ty: *ty }).collect();
    let id = types.add_struct(StructDef { name: name.into(), fields, predeclared: true });
    let ty = types.struct_type(id);
    names.predeclare(name, Symbol::Type(ty), false);
    ty
}
