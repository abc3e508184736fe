//! Random content of global variables.

use ks_compiler::hir::Hir;
use ks_compiler::types::{TypeId, TypeKind};

use ks_compiler_testing::script::rng::Rng;

/// Returns a small number, a boundary value of any width, or a number of any size.
fn number(rng: &mut Rng) -> u64 {
    let any = rng.draw();
    match rng.below(4) {
        0 => (any % 5).wrapping_sub(2),
        1 => (1u64 << rng.below(64)).wrapping_sub(any % 3),
        _ => any >> rng.below(64),
    }
}

/// Returns a random value of a type in its memory representation.
pub fn value(hir: &Hir, ty: TypeId, rng: &mut Rng) -> Vec<u8> {
    let types = &hir.types;
    let bytes = types.size(ty) as usize;
    match types.kind(ty) {
        TypeKind::Bool => vec![rng.below(2) as u8],
        TypeKind::Str(size) => {
            let len = rng.below(*size as usize);
            let mut text: Vec<u8> = (0..len).map(|_| b'a' + rng.below(26) as u8).collect();
            text.resize(bytes, 0);
            text
        }
        TypeKind::Array(element, len) => (0..*len).flat_map(|_| value(hir, *element, rng)).collect(),
        TypeKind::Enum(id) => {
            let (_, bits) = rng.pick(&types.enum_def(*id).enumerators).clone();
            bits.to_le_bytes()[..bytes].to_vec()
        }
        TypeKind::Struct(id) => {
            let mut content = vec![0; bytes];
            for (position, field) in types.struct_def(*id).fields.iter().enumerate() {
                let start = types.field_offset(*id, position) as usize;
                let part = value(hir, field.ty, rng);
                content[start..start + part.len()].copy_from_slice(&part);
            }
            content
        }
        _ => number(rng).to_le_bytes()[..bytes].to_vec(),
    }
}
