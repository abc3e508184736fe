//! The kernel structs in the object's BTF: only the used members, and a CO-RE relocation for each instruction
//! that depends on their layout.

use std::collections::BTreeMap;

use super::super::mir::core::{CoreComposite, CoreField, CoreQuestion, CoreStep, CoreType, CoreTypes};
use super::super::mir::{self, Op};
use crate::bpf::InsnIndex;
use crate::defect::narrow;
use crate::object::btf::{
    BtfBuilder, CoreRelo, CoreReloKind, Enumerator, IntEncoding, Member, Signedness, TypeId,
};

/// The kernel members that an object uses, and their BTF types.
#[derive(Debug, Default)]
pub struct Core {
    types: CoreTypes,
    written: BTreeMap<CoreComposite, TypeId>,
}

impl Core {
    /// Collects the members that functions use.
    pub fn of(functions: &[mir::MirFunction]) -> Core {
        let mut types = CoreTypes::default();
        for function in functions {
            for inst in function.blocks.iter().flat_map(|block| &block.insts) {
                if let Op::Core(field, _) | Op::LoadField { field, .. } = &inst.op {
                    types.add(field);
                }
            }
        }
        Core { types, written: BTreeMap::new() }
    }

    /// The answer of the object's own types to a question, and the relocation for the loader.
    pub fn relocation(
        &mut self,
        btf: &mut BtfBuilder,
        at: InsnIndex,
        field: &CoreField,
        question: CoreQuestion,
    ) -> (i32, CoreRelo) {
        if let [CoreStep::Enumerator { name, value, .. }] = field.steps.as_slice() {
            let found = self.types.enumeration(&field.root.name);
            let sign = if found.signed { Signedness::Signed } else { Signedness::Unsigned };
            let values: Vec<_> =
                found.values.iter().map(|(name, value)| Enumerator { name, value: *value }).collect();
            let root = btf.enumeration(&field.root.name, found.bytes, sign, &values);
            let path = vec![narrow(found.values.keys().position(|one| one == name).unwrap_or_default())];
            // The low half, as the loader writes it.
            let value = *value as i32;
            return (value, CoreRelo { at, root, path, kind: CoreReloKind::EnumeratorValue });
        }
        let (offset, bytes, path) = self.types.find(field);
        let shift = 64u32.saturating_sub(8 * bytes);
        let (value, kind) = match question {
            CoreQuestion::Offset => (offset, CoreReloKind::FieldByteOffset),
            CoreQuestion::Size => (bytes, CoreReloKind::FieldByteSize),
            CoreQuestion::TypeSize => (self.types.composite_bytes(&field.root), CoreReloKind::TypeSize),
            CoreQuestion::Exists | CoreQuestion::Enumerator => (1, CoreReloKind::FieldExists),
            CoreQuestion::ShiftLeft => (shift, CoreReloKind::FieldLshift),
            CoreQuestion::ShiftRight => (shift, CoreReloKind::FieldRshift),
        };
        let root = self.composite(btf, &field.root);
        (narrow(value), CoreRelo { at, root, path, kind })
    }

    fn composite(&mut self, btf: &mut BtfBuilder, composite: &CoreComposite) -> TypeId {
        if let Some(written) = self.written.get(composite) {
            return *written;
        }
        let members: Vec<_> = (self.types.members(composite).into_iter())
            .map(|(name, ty, at)| (name.to_owned(), ty.clone(), at))
            .collect();
        let types: Vec<_> = members.iter().map(|(_, ty, _)| self.ty(btf, ty)).collect();
        let members: Vec<_> =
            (members.iter().zip(types)).map(|((name, _, at), ty)| Member::at(name, ty, *at)).collect();
        let bytes = self.types.composite_bytes(composite);
        // The loader looks for a type of the same name and kind.
        let name = if composite.is_typedef { "" } else { &composite.name };
        let written = if composite.is_union {
            btf.union(name, bytes, &members)
        } else {
            btf.structure(name, bytes, &members)
        };
        let written = if composite.is_typedef { btf.typedef(&composite.name, written) } else { written };
        self.written.insert(composite.clone(), written);
        written
    }

    fn ty(&mut self, btf: &mut BtfBuilder, ty: &CoreType) -> TypeId {
        match ty {
            CoreType::Int { bytes, signed } => {
                let (sign, encoding) =
                    if *signed { ('i', IntEncoding::Signed) } else { ('u', IntEncoding::Unsigned) };
                btf.int(&format!("{sign}{}", 8 * bytes), *bytes, encoding)
            }
            // The loader accepts any enum for one without a name.
            CoreType::Enum { bytes, signed } => {
                let sign = if *signed { Signedness::Signed } else { Signedness::Unsigned };
                btf.enumeration("", *bytes, sign, &[])
            }
            CoreType::Pointer => btf.ptr(TypeId::VOID),
            CoreType::Array(element, len) => {
                let element = self.ty(btf, element);
                btf.array(element, *len)
            }
            CoreType::Composite(composite) => self.composite(btf, composite),
        }
    }
}
