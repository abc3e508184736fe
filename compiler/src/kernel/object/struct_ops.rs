//! Impl blocks: struct_ops maps of kernel structs, with the blocks' methods as programs.

use super::super::section;
use super::Assembly;
use crate::hir::{FuncId, FunctionKind, ImplId, StaticField, StaticLayout, StaticValue};
use crate::object::btf::{self, IntEncoding, Signedness};
use crate::object::build::{StructOpsDef, StructOpsMember, StructOpsValue};
use crate::types::{IntType, TypeKind};

impl Assembly<'_> {
    /// The symbol of a function. Methods are prefixed with the name of their block, so that blocks may have
    /// methods of the same name. A `@kfunc` does not use its plain name, which belongs to the function of the
    /// module.
    pub(super) fn symbol(&self, id: FuncId) -> String {
        let function = &self.hir.functions[id];
        if self.hir.externs.iter().any(|one| one.optional && one.name == function.name) {
            return self.unused_name(&format!("{}_of_the_object", function.name));
        }
        let FunctionKind::Method(block) = function.kind else { return function.name.clone() };
        let method = section::method_name(function);
        self.unused_name(&format!("{}_{method}", self.hir.impls[block].name))
    }

    /// Adds the struct_ops map of a block, whose methods have been declared.
    pub(super) fn add_struct_ops(&mut self, id: ImplId) {
        let hir = self.hir;
        let block = &hir.impls[id];
        let programs = block
            .entries
            .iter()
            .filter_map(|(method, name)| Some((*method, name.clone(), *self.functions.get(method)?)));
        let programs: Vec<_> = programs.collect();
        let mut members = Vec::new();
        for (method, name, program) in programs {
            let ty = self.method_pointer(method);
            members.push(StructOpsMember { name, ty, align: 8, value: StructOpsValue::Program(program) });
        }
        for field in &block.fields {
            members.push(self.static_member(field));
        }
        self.builder.add_struct_ops(StructOpsDef {
            name: block.name.clone(),
            ops: block.ops.clone(),
            members,
        });
    }

    /// The BTF type of a pointer to functions of a method's type.
    fn method_pointer(&mut self, id: FuncId) -> btf::TypeId {
        let function = &self.hir.functions[id];
        let result = match self.hir.types.scalar(function.ret) {
            Some(_) => self.ty(function.ret),
            None => btf::TypeId::VOID,
        };
        let params: Vec<_> = function.params.iter().map(|id| &function.locals[*id]).collect();
        let types = params.iter().map(|local| match self.hir.types.kind(local.ty) {
            TypeKind::Ptr(_) => self.builder.btf().ptr(btf::TypeId::VOID),
            _ => self.ty(local.ty),
        });
        let types: Vec<_> = types.collect();
        let params: Vec<_> = params.iter().map(|local| local.name.as_str()).zip(types).collect();
        let proto = self.builder.btf().func_proto(result, &params);
        self.builder.btf().ptr(proto)
    }

    fn static_member(&mut self, field: &StaticField) -> StructOpsMember {
        let btf = self.builder.btf();
        let (ty, align) = match field.layout {
            StaticLayout::Number(int) => (number(btf, int), int.bytes()),
            // The kernel compares only kind and size of an enum.
            StaticLayout::Enum(int) => {
                let sign = if int.signed { Signedness::Signed } else { Signedness::Unsigned };
                (btf.enumeration("", int.bytes() as u32, sign, &[]), int.bytes())
            }
            StaticLayout::Array { element, len } => {
                let ty = number(btf, element);
                (btf.array(ty, len), element.bytes())
            }
            StaticLayout::Pointer => (btf.ptr(btf::TypeId::VOID), 8),
        };
        StructOpsMember {
            name: field.name.clone(),
            ty,
            align: align as u32,
            value: StructOpsValue::Bytes(bytes_of(field)),
        }
    }
}

fn number(btf: &mut btf::BtfBuilder, int: IntType) -> btf::TypeId {
    let encoding = if int.signed { IntEncoding::Signed } else { IntEncoding::Unsigned };
    btf.int(&int.to_string(), int.bytes() as u32, encoding)
}

/// The bytes of a member with this value, which fits the member.
fn bytes_of(field: &StaticField) -> Vec<u8> {
    let width = match field.layout {
        StaticLayout::Number(int) | StaticLayout::Enum(int) | StaticLayout::Array { element: int, .. } => {
            int.bytes() as usize
        }
        StaticLayout::Pointer => 8,
    };
    let number = |number: &i128| number.to_le_bytes().into_iter().take(width).collect::<Vec<_>>();
    let mut bytes = match &field.value {
        StaticValue::Number(value) => number(value),
        StaticValue::Text(text) => text.clone(),
        StaticValue::Numbers(numbers) => numbers.iter().flat_map(number).collect(),
        StaticValue::Null => Vec::new(),
    };
    bytes.resize(field.layout.bytes() as usize, 0);
    bytes
}
