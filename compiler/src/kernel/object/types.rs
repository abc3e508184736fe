//! Types of the language in BTF.

use super::Assembly;
use crate::bpf::KfuncRef;
use crate::defect::narrow;
use crate::hir::ExternId;
use crate::object::btf::{self, Enumerator, IntEncoding, Member, Signedness};
use crate::object::model::Presence;
use crate::types::{IntType, TypeId, TypeKind};

impl Assembly<'_> {
    /// The BTF type of a type of the language.
    pub(super) fn ty(&mut self, id: TypeId) -> btf::TypeId {
        let types = &self.hir.types;
        match types.kind(id) {
            TypeKind::Bool => self.builder.btf().int("bool", 1, IntEncoding::Bool),
            TypeKind::Char => self.builder.btf().int("char", 1, IntEncoding::Char),
            TypeKind::Int(int) => self.int(*int),
            TypeKind::Str(size) => {
                let char = self.builder.btf().int("char", 1, IntEncoding::Char);
                self.builder.btf().array(char, *size)
            }
            TypeKind::Array(element, len) => {
                let element = self.ty(*element);
                self.builder.btf().array(element, narrow(*len))
            }
            TypeKind::Struct(def) => {
                let def = types.struct_def(*def);
                let fields: Vec<_> = def.fields.iter().map(|field| self.ty(field.ty)).collect();
                let TypeKind::Struct(key) = types.kind(id) else { return btf::TypeId::VOID };
                let members: Vec<_> = (def.fields.iter().zip(fields).enumerate())
                    .map(|(index, (field, ty))| {
                        let offset = types.field_offset(*key, index);
                        Member::at(&field.name, ty, narrow(offset))
                    })
                    .collect();
                let bytes = narrow(types.size(id));
                self.builder.btf().structure(&identifier(&def.name), bytes, &members)
            }
            TypeKind::Enum(def) => {
                let def = types.enum_def(*def);
                let (repr, sign) =
                    (def.repr, if def.repr.signed { Signedness::Signed } else { Signedness::Unsigned });
                let values: Vec<_> = (def.enumerators.iter())
                    .map(|(name, bits)| Enumerator { name, value: repr.value(*bits) as i64 })
                    .collect();
                self.builder.btf().enumeration(&def.name, repr.bytes() as u32, sign, &values)
            }
            _ => self.int(IntType { bits: 64, signed: false }),
        }
    }

    /// The BTF of a kernel function as the script declares it. libbpf compares it with the kernel's: a struct
    /// matches any struct, a number any number.
    pub(super) fn external(&mut self, id: ExternId) -> KfuncRef {
        if let Some(found) = self.externals.get(&id) {
            return *found;
        }
        let hir = self.hir;
        let one = &hir.externs[id];
        let names: Vec<String> = (0..one.params.len()).map(|index| format!("arg{index}")).collect();
        let types: Vec<_> = one.params.iter().map(|ty| self.foreign(*ty)).collect();
        let params: Vec<_> = names.iter().map(String::as_str).zip(types).collect();
        let ret = self.foreign(one.ret);
        let proto = self.builder.btf().func_proto(ret, &params);
        let presence = if one.optional { Presence::Optional } else { Presence::Required };
        let added = self.builder.add_kfunc(&one.name, proto, presence);
        self.externals.insert(id, added);
        added
    }

    /// The BTF type of a parameter or result of a kernel function.
    fn foreign(&mut self, id: TypeId) -> btf::TypeId {
        let hir = self.hir;
        match hir.types.kind(id) {
            TypeKind::Void => btf::TypeId::VOID,
            TypeKind::Ptr(_) => {
                let to = self.pointee(id);
                self.builder.btf().ptr(to)
            }
            _ => self.ty(id),
        }
    }

    /// The BTF type that a pointer of the kernel points to; a struct has its name alone.
    pub(super) fn pointee(&mut self, pointer: TypeId) -> btf::TypeId {
        let hir = self.hir;
        let TypeKind::Ptr(to) = hir.types.kind(pointer) else { return btf::TypeId::VOID };
        match hir.types.kind(*to) {
            TypeKind::Struct(def) => {
                let name = &hir.types.struct_def(*def).name;
                self.builder.btf().structure(name, 0, &[])
            }
            _ => self.foreign(*to),
        }
    }

    fn int(&mut self, int: IntType) -> btf::TypeId {
        let encoding = if int.signed { IntEncoding::Signed } else { IntEncoding::Unsigned };
        self.builder.btf().int(&int.to_string(), int.bytes() as u32, encoding)
    }
}

/// The name of a type as an identifier, as the kernel wants it: the name of a histogram has its arguments. Source:
/// kernel/bpf/btf.c, `btf_name_valid_identifier`, v6.12.
fn identifier(name: &str) -> String {
    let words = name.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}
