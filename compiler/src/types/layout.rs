//! Sizes, alignments and offsets: C layout, natural alignment, little-endian, in both halves and in every BPF
//! map.
//!
//! The layout of a context depends on the architecture and is not here (`builtins`); nor is that of a kernel
//! struct.

use super::{StructId, StructOrigin, TypeId, TypeKind, Types};

/// Alignment of both keys of an entry in a map of maps. Source: wit/maps.wit.
const NESTED_KEY_ALIGN: u64 = 8;

impl Types {
    /// Returns the size of a value in bytes. 0 for void, and for a type with an error that was reported.
    pub fn size(&self, id: TypeId) -> u64 {
        match self.kind(id) {
            TypeKind::Str(size) => u64::from(*size),
            TypeKind::Array(element, len) => self.size(*element).saturating_mul(*len),
            TypeKind::Struct(def) => self.struct_size(*def),
            TypeKind::Void | TypeKind::Error => 0,
            _ => self.scalar(id).map_or(0, |int| int.bytes()),
        }
    }

    /// Returns the alignment of a value in bytes, at least 1.
    pub fn align(&self, id: TypeId) -> u64 {
        match self.kind(id) {
            TypeKind::Str(_) => 1,
            TypeKind::Array(element, _) => self.align(*element),
            TypeKind::Struct(def) => self.struct_align(*def),
            _ => self.scalar(id).map_or(1, |int| int.bytes()),
        }
    }

    /// Returns the offset of a field in bytes, by the field's position.
    pub fn field_offset(&self, id: StructId, field: usize) -> u64 {
        let mut end = 0;
        let least = self.least_align(id);
        for (index, one) in self.struct_def(id).fields.iter().enumerate() {
            let start = round_up(end, self.align(one.ty).max(least));
            if index == field {
                return start;
            }
            end = start.saturating_add(self.size(one.ty));
        }
        end
    }

    /// Computes the layout of a struct once its fields are final. Seal the structs within it first: then
    /// every query takes time linear in the number of fields, however deep the struct is.
    pub fn seal(&mut self, id: StructId) {
        let layout = (self.struct_size(id), self.struct_align(id));
        self.layouts.insert(id, layout);
    }

    /// Computes the layouts of all sealed structs again: structs of the kernel get members when these are
    /// used, and other structs may contain them.
    pub fn seal_again(&mut self) {
        let sealed: Vec<StructId> = self.layouts.drain().map(|(id, _)| id).collect();
        for id in sealed {
            self.seal_inner_first(id);
        }
    }

    /// Seals a struct after those within it. The checker limits the depth of nesting.
    fn seal_inner_first(&mut self, id: StructId) {
        if self.layouts.contains_key(&id) {
            return;
        }
        for index in 0..self.struct_def(id).fields.len() {
            let mut ty = self.struct_def(id).fields[index].ty;
            while let TypeKind::Array(element, _) = self.kind(ty) {
                ty = *element;
            }
            if let TypeKind::Struct(inner) = *self.kind(ty) {
                self.seal_inner_first(inner);
            }
        }
        self.seal(id);
    }

    fn struct_size(&self, id: StructId) -> u64 {
        if let Some((size, _)) = self.layouts.get(&id) {
            return *size;
        }
        let fields = self.struct_def(id).fields.len();
        round_up(self.field_offset(id, fields), self.struct_align(id))
    }

    fn struct_align(&self, id: StructId) -> u64 {
        if let Some((_, align)) = self.layouts.get(&id) {
            return *align;
        }
        let least = self.least_align(id);
        self.struct_def(id).fields.iter().map(|field| self.align(field.ty)).max().unwrap_or(1).max(least)
    }

    /// Returns the alignment that each field of a struct has at least.
    fn least_align(&self, id: StructId) -> u64 {
        if self.struct_def(id).origin == StructOrigin::NestedKey { NESTED_KEY_ALIGN } else { 1 }
    }
}

fn round_up(offset: u64, align: u64) -> u64 {
    offset.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Field, StructDef};
    use super::*;

    #[test]
    fn a_struct_is_padded_as_in_c() {
        let mut types = Types::new();
        let common = types.common();
        let name = types.str_type(5);
        let field = |name: &str, ty| Field::new(name, ty);
        let fields = vec![
            field("flag", common.u8),
            field("count", common.u64),
            field("name", name),
            field("port", common.u16),
        ];
        let id = types.add_struct(StructDef { name: "S".into(), fields, origin: StructOrigin::Script });
        let ty = types.struct_type(id);
        let offsets: Vec<_> = (0..4).map(|index| types.field_offset(id, index)).collect();
        assert_eq!(offsets, [0, 8, 16, 22]);
        assert_eq!((types.size(ty), types.align(ty)), (24, 8));
        let array = types.intern(TypeKind::Array(ty, 3));
        assert_eq!((types.size(array), types.align(array)), (72, 8));
    }
}
