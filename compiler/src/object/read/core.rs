//! CO-RE records: checks that their paths are valid in the object's own types, and that their instructions
//! can be adjusted.
//!
//! Source: tools/lib/bpf/relo_core.c, `bpf_core_parse_spec` and `bpf_core_patch_insn`, v1.7.

use super::super::error::Reason;
use super::super::model::Type;
use super::btf::RawTypes;
use super::functions::RawCore;
use crate::bpf::{Imm64, Insn, Operand};
use crate::object::btf::{CoreReloKind, TypeId};

/// Maximum index of an array of unknown length. Bounds sums of offsets.
const MAX_OPEN_INDEX: u32 = 1 << 20;

/// Subject of a record's question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Field,
    Type,
    Enumerator,
}

fn subject(kind: CoreReloKind) -> Subject {
    match kind {
        CoreReloKind::FieldByteOffset
        | CoreReloKind::FieldByteSize
        | CoreReloKind::FieldExists
        | CoreReloKind::FieldSigned
        | CoreReloKind::FieldLshift
        | CoreReloKind::FieldRshift => Subject::Field,
        CoreReloKind::TypeIdLocal
        | CoreReloKind::TypeIdTarget
        | CoreReloKind::TypeExists
        | CoreReloKind::TypeSize
        | CoreReloKind::TypeMatches => Subject::Type,
        CoreReloKind::EnumeratorExists | CoreReloKind::EnumeratorValue => Subject::Enumerator,
    }
}

/// Checks the root and path of a record.
pub(super) fn check(types: &RawTypes<'_>, core: &RawCore) -> Result<(), Reason> {
    if types.ty(core.root).is_none() {
        return Err(Reason::Core("its root is not a type"));
    }
    match subject(core.kind) {
        Subject::Type if core.path == [0] => Ok(()),
        Subject::Type => Err(Reason::Core("a question about a type has a path")),
        Subject::Enumerator => match (types.resolve(core.root), &core.path[..]) {
            (Some((_, Type::Enum { values, .. })), [index]) if (*index as usize) < values.len() => Ok(()),
            _ => Err(Reason::Core("its path leads to no enumerator")),
        },
        Subject::Field => check_field(types, core.root, &core.path),
    }
}

fn check_field(types: &RawTypes<'_>, root: TypeId, path: &[u32]) -> Result<(), Reason> {
    const ASTRAY: Reason = Reason::Core("its path leads to no member");
    let (first, members) = path.split_first().ok_or(ASTRAY)?;
    let mut id = root;
    let mut bits = bits(types, id, *first)?;
    for &index in members {
        let (step, next) = match types.resolve(id).ok_or(ASTRAY)?.1 {
            Type::Composite { members, .. } => {
                let member = members.get(index as usize).ok_or(ASTRAY)?;
                (member.bit_offset.into(), member.ty)
            }
            // The length of an array of one or none is often not the true one.
            Type::Array { element, len } if index < *len || *len <= 1 && index <= MAX_OPEN_INDEX => {
                (self::bits(types, *element, index)?, *element)
            }
            _ => return Err(ASTRAY),
        };
        bits += step;
        id = next;
    }
    if u32::try_from(bits).is_err() { Err(Reason::Core("its path leads too far")) } else { Ok(()) }
}

/// Returns the bits of `index` values of a type; the path has few numbers, so that sums fit.
fn bits(types: &RawTypes<'_>, id: TypeId, index: u32) -> Result<u64, Reason> {
    let bytes = types.bytes(id).ok_or(Reason::Core("its path leads through a type without a size"))?;
    let bits = u64::from(bytes) * 8 * u64::from(index);
    if u32::try_from(bits).is_err() { Err(Reason::Core("its path leads too far")) } else { Ok(bits) }
}

/// Returns the instruction as it is stored. An instruction with the id of a type gets 0: ids are those of the
/// file, and the loader inserts its own.
pub(super) fn instruction(kind: CoreReloKind, insn: Insn) -> Result<Insn, Reason> {
    let is_id = matches!(kind, CoreReloKind::TypeIdLocal | CoreReloKind::TypeIdTarget);
    match insn {
        Insn::LoadImm64 { dst, value: Imm64::Value(value) } => {
            let value = if is_id { 0 } else { value };
            Ok(Insn::LoadImm64 { dst, value: Imm64::Value(value) })
        }
        Insn::Mov { width, dst, src: Operand::Imm(value) } => {
            Ok(Insn::Mov { width, dst, src: Operand::Imm(if is_id { 0 } else { value }) })
        }
        Insn::Alu { src: Operand::Imm(_), .. } if !is_id => Ok(insn),
        Insn::Load { .. } | Insn::LoadSx { .. } | Insn::Store { .. } if subject(kind) == Subject::Field => {
            Ok(insn)
        }
        _ => Err(Reason::Core("its instruction has nothing that could be adjusted")),
    }
}
