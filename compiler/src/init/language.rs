//! The kernel's types and names as the language writes them (9.3).

use std::collections::HashSet;

use crate::kernel_types::{KernelType, Param, Pointee, Spelling};
use crate::lex::{TokenKind, scan};
use crate::source::SourceMap;

/// Names of kernel structs that mean something else in the language (3.1): a pointer to one is written `*u8`.
const OTHER_MEANING: [&str; 2] = ["perf_event", "gfp_flag"];

/// A type, where the language can write it: `char`→`i8`, `char[N]`, enums as integers of their size, pointers to named
/// structs, `*u8` for other pointers, structs by their name. Unions and arrays of anything but numbers have no spelling.
pub(super) fn type_text(ty: &KernelType) -> Option<String> {
    match ty {
        KernelType::Int { spelling: Spelling::Size, .. } => Some("size_t".to_owned()),
        KernelType::Int { bytes, signed, .. } => int_text(*bytes, *signed),
        KernelType::Enum { bytes, .. } => int_text(*bytes, false),
        KernelType::Bool => Some("bool".to_owned()),
        KernelType::Pointer(to) => Some(pointer_text(to)),
        KernelType::Struct { name, .. } if is_name(name) => Some(name.clone()),
        KernelType::Array { element, len } if *len > 0 => match **element {
            KernelType::Int { spelling: Spelling::Char, .. } => Some(format!("char[{len}]")),
            KernelType::Int { .. } | KernelType::Enum { .. } | KernelType::Bool => {
                Some(format!("{}[{len}]", type_text(element)?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A pointer: `*u8` where what it leads to has no spelling.
fn pointer_text(to: &Pointee) -> String {
    match to {
        Pointee::Struct(name) if is_name(name) => format!("*{name}"),
        Pointee::Pointer(inner) => format!("*{}", pointer_text(inner)),
        _ => "*u8".to_owned(),
    }
}

fn int_text(bytes: u32, signed: bool) -> Option<String> {
    matches!(bytes, 1 | 2 | 4 | 8).then(|| format!("{}{}", if signed { 'i' } else { 'u' }, bytes * 8))
}

/// A value of a type that means "nothing", for a stub's `return`; none for `void`.
pub(super) fn zero_text(ty: &KernelType) -> Option<&'static str> {
    match ty {
        KernelType::Void => None,
        KernelType::Bool => Some("false"),
        KernelType::Pointer(_) => Some("null"),
        _ => Some("0"),
    }
}

/// Whether a word can name a type, a variable or a function in a script.
pub(super) fn is_name(name: &str) -> bool {
    !OTHER_MEANING.contains(&name) && is_identifier(name)
}

/// Whether a word can name the member of a struct: `type` may, too (1.2).
pub(super) fn is_member_name(name: &str) -> bool {
    name == "type" || is_identifier(name)
}

fn is_identifier(name: &str) -> bool {
    let mut sources = SourceMap::default();
    let Some(file) = sources.add("", name.as_bytes()) else { return false };
    let tokens = scan(file, name.as_bytes());
    let whole = tokens.first().is_some_and(|token| token.span.range().len() == name.len());
    whole && tokens.first().is_some_and(|token| token.kind == TokenKind::Ident)
}

/// `name: type`, ... for the parameters, and the reason why those after them are left out, if any are.
///
/// A program may declare fewer parameters than its target has, not skip one (4.5).
pub(super) fn params_text(params: &[Param], most: usize) -> (String, Option<&'static str>) {
    let mut taken = HashSet::new();
    let mut texts = Vec::new();
    for param in params {
        if texts.len() == most {
            return (texts.join(", "), Some("a program can have no more"));
        }
        let ty = if param.ty.is_aggregate() { None } else { type_text(&param.ty) };
        let Some(ty) = ty else { return (texts.join(", "), Some("the next is a struct by value")) };
        let mut name = param.name.clone();
        // A reserved word, or a second parameter of this name.
        while !is_identifier(&name) || !taken.insert(name.clone()) {
            name.push('_');
        }
        texts.push(format!("{name}: {ty}"));
    }
    (texts.join(", "), None)
}

/// `wanted`, or with `_` behind it as often as needed to differ from every parameter: a parameter hides a global.
pub(super) fn free_name(wanted: &str, params: &[Param]) -> String {
    let mut name = wanted.to_owned();
    while params.iter().any(|param| param.name == name) {
        name.push('_');
    }
    name
}
