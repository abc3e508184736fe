//! Types and names of the kernel in the syntax of the language (9.3).

use std::collections::HashSet;

use crate::kernel_types::{KernelType, Param, Pointee, Spelling};
use crate::lex::{TokenKind, scan};
use crate::source::SourceMap;

/// Names of kernel structs with another meaning in the language (3.1): a pointer to one is written `*u8`.
const OTHER_MEANING: [&str; 2] = ["perf_event", "gfp_flag"];

/// Returns a type, where the language can express it: `char` becomes `i8`, `char[N]` stays, enums become
/// integers of their size, pointers to named structs stay, other pointers become `*u8`, structs become their
/// name. Unions and arrays of anything but numbers have no spelling.
pub(crate) fn type_text(ty: &KernelType) -> Option<String> {
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

/// Returns a pointer type: `*u8` where its pointee has no spelling.
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

/// Returns a neutral value of a type, for a stub's `return`; none for `void`.
#[cfg(feature = "command")]
pub(crate) fn zero_text(ty: &KernelType) -> Option<&'static str> {
    match ty {
        KernelType::Void => None,
        KernelType::Bool => Some("false"),
        KernelType::Pointer(_) => Some("null"),
        _ => Some("0"),
    }
}

/// Whether a word can be the name of a type, a variable or a function in a script.
pub(crate) fn is_name(name: &str) -> bool {
    !OTHER_MEANING.contains(&name) && is_identifier(name)
}

/// Whether a word can be the name of a struct's member: `type` may, too (1.2).
#[cfg(feature = "command")]
pub(crate) fn is_member_name(name: &str) -> bool {
    name == "type" || is_identifier(name)
}

fn is_identifier(name: &str) -> bool {
    let mut sources = SourceMap::default();
    let Some(file) = sources.add("", name.as_bytes()) else { return false };
    let tokens = scan(file, name.as_bytes());
    let whole = tokens.first().is_some_and(|token| token.span.range().len() == name.len());
    whole && tokens.first().is_some_and(|token| token.kind == TokenKind::Ident)
}

/// Returns the parameters as `name: type`, ..., and the reason why the ones after them are left out, if any
/// are.
///
/// A program may declare fewer parameters than its target has, but not skip one (4.5).
pub(crate) fn params_text(params: &[Param], most: usize) -> (String, Option<&'static str>) {
    let mut taken = HashSet::new();
    let mut texts = Vec::new();
    for param in params {
        if texts.len() == most {
            return (texts.join(", "), Some("a program can have no more"));
        }
        let ty = if param.ty.is_aggregate() { None } else { type_text(&param.ty) };
        let Some(ty) = ty else { return (texts.join(", "), Some("the next is a struct by value")) };
        let mut name = param.name.clone();
        // A reserved word, or a second parameter of the same name.
        while !is_identifier(&name) || !taken.insert(name.clone()) {
            name.push('_');
        }
        texts.push(format!("{name}: {ty}"));
    }
    (texts.join(", "), None)
}

/// Returns `wanted`, with as many `_` appended as needed to differ from every parameter: a parameter hides a
/// global.
pub(crate) fn free_name(wanted: &str, params: &[Param]) -> String {
    let mut name = wanted.to_owned();
    while params.iter().any(|param| param.name == name) {
        name.push('_');
    }
    name
}
