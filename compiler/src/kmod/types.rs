//! Writes types in C. Arrays and strings are structs, so that they can be assigned and passed like any value.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::refused;
use crate::diag::Diagnostic;
use crate::index::Id as _;
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind, Types};

/// The types that a module defines, each before the types that contain it.
pub struct Definitions<'a> {
    types: &'a Types,
    known: BTreeSet<TypeId>,
    text: String,
}

impl<'a> Definitions<'a> {
    pub fn new(types: &'a Types) -> Definitions<'a> {
        Definitions { types, known: BTreeSet::new(), text: String::new() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name of a type, which is defined on first use.
    ///
    /// # Errors
    /// If it is or contains a pointer, a function, or a struct in the kernel's memory.
    pub fn name(&mut self, ty: TypeId, span: Span) -> Result<String, Box<Diagnostic>> {
        let types = self.types;
        let members = match types.kind(ty) {
            TypeKind::Void => return Ok("void".into()),
            TypeKind::Bool => return Ok("bool".into()),
            TypeKind::Char => return Ok("u8".into()),
            TypeKind::Int(int) => return Ok(int_name(*int)),
            TypeKind::Enum(id) => return Ok(int_name(types.enum_def(*id).repr)),
            TypeKind::Str(size) => format!("u8 e[{size}];"),
            TypeKind::Array(element, len) => format!("{} e[{len}];", self.name(*element, span)?),
            TypeKind::Struct(id) => {
                let mut members = String::new();
                for (index, field) in types.struct_def(*id).fields.iter().enumerate() {
                    // Writing to a string cannot fail.
                    let _ = write!(members, "{} f{index}; ", self.name(field.ty, span)?);
                }
                members
            }
            _ => return refused(span, &format!("a value of type `{}` is", types.name(ty))),
        };
        let name = format!("ks_t{}", ty.index());
        if self.known.insert(ty) {
            let _ = writeln!(self.text, "typedef struct {{ {members} }} {name};");
        }
        Ok(name)
    }
}

/// Returns the kernel's name of an integer type.
pub fn int_name(int: IntType) -> String {
    format!("{}{}", if int.signed { 's' } else { 'u' }, int.bits)
}
