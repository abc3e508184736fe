//! Declares structs of the kernel in the language (9.3).

use std::fmt::Write;

use crate::kernel_types::{KernelType, KernelTypes, Member, Struct};
use crate::spelling::{is_member_name, type_text};

/// Maximum nesting of structs by value; structs of the kernel stay far below.
const MAX_DEPTH: usize = 16;

/// Returns the struct of a name, after the structs that it contains by value; `None` if the kernel has no
/// such struct.
pub(super) fn structures(name: &str, kernel: &KernelTypes) -> Option<String> {
    let mut declared = Declared { kernel, names: Vec::new(), text: String::new() };
    declared.structure(name, 0).then_some(declared.text)
}

struct Declared<'a> {
    kernel: &'a KernelTypes,
    names: Vec<String>,
    text: String,
}

impl Declared<'_> {
    /// Declares a struct unless it already is; returns whether it can be declared.
    fn structure(&mut self, name: &str, depth: usize) -> bool {
        if self.names.iter().any(|known| known == name) {
            return true;
        }
        let found = self.kernel.structure(name).filter(|found| !found.is_union);
        let Some(found) = found.filter(|_| depth < MAX_DEPTH) else { return false };
        let lines: Vec<_> = found.members.iter().map(|member| self.member(member, depth)).collect();
        self.names.push(name.to_owned());
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        declare(&mut self.text, &found, &lines);
        true
    }

    /// Returns the line of a member: its declaration, or a comment with the reason why it is left out.
    fn member(&mut self, member: &Member, depth: usize) -> String {
        let name = &member.name;
        let nested = |ty: &KernelType| match ty {
            KernelType::Struct { name, .. } => Some(name.clone()),
            _ => None,
        };
        let left_out = if member.bitfield.is_some() {
            "a bit-field"
        } else if member.in_union || matches!(member.ty, KernelType::Union { .. }) {
            "part of a union"
        } else if !is_member_name(name) {
            "its name is a reserved word"
        } else if let Some(inner) = nested(&member.ty)
            && !self.structure(&inner, depth + 1)
        {
            "a struct without a name"
        } else if let Some(ty) = type_text(&member.ty) {
            return format!("    {name}: {ty},");
        } else if matches!(member.ty, KernelType::Array { len: 0, .. }) {
            "an array without a length"
        } else {
            "its type has no spelling in the language"
        };
        format!("    // {name} is left out: {left_out}")
    }
}

fn declare(text: &mut String, found: &Struct, lines: &[String]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "struct {} {{\n{}\n}}", found.name, lines.join("\n"));
}
