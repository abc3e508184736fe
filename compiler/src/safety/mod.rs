//! Rules about control flow rather than single expressions, one file per rule.
//!
//! In: a typed tree in which the checker found no error. Out: diagnostics, the functions that a throw may leave
//! ([`HirFunction::throws`](crate::hir::HirFunction::throws)), and the maps whose entries are locked
//! ([`Map::locked`](crate::hir::Map::locked)). The tree is not changed otherwise.

mod calls;
mod contexts;
mod dangling;
mod dataflow;
mod events;
mod locals;
mod locks;
mod null;
mod ownership;
mod recursion;
mod stack;
mod throws;
mod unreachable;
mod unused;
mod values;

use crate::diag::Diagnostics;
use crate::hir::Hir;
use crate::options::Options;
use crate::source::{SourceMap, Span};
use calls::Calls;

/// The inputs of every rule.
struct Program<'a> {
    hir: &'a Hir,
    calls: Calls,
    sources: &'a SourceMap,
    /// Accepts only the language of 0.1.1, in which some run-time errors are not reported here.
    strict_011: bool,
}

impl Program<'_> {
    fn text(&self, span: Span) -> &[u8] {
        self.sources.file(span.file).text().get(span.range()).unwrap_or_default()
    }

    /// Returns the part of a span on its first line: enough to point at a statement with a block.
    fn first_line(&self, span: Span) -> Span {
        let line = self.text(span).split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
        Span { end: span.start + line.trim_ascii_end().len() as u32, ..span }
    }

    /// Returns the text of a span if it is a name.
    fn name_at(&self, span: Span) -> Option<&str> {
        let text = std::str::from_utf8(self.text(span)).ok()?;
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (text.bytes().all(letter) && text.starts_with(|first: char| !first.is_ascii_digit())).then_some(text)
    }
}

/// Applies all rules. None if one of them found an error; the reasons are in `diagnostics`, which otherwise
/// may contain warnings.
pub fn check(
    mut hir: Hir,
    sources: &SourceMap,
    options: &Options,
    diagnostics: &mut Diagnostics,
) -> Option<Hir> {
    let calls = Calls::of(&hir);
    let program = Program { hir: &hir, calls, sources, strict_011: options.strict_011 };
    let throwing = throws::check(&program, diagnostics);
    let locked = locks::check(&program, diagnostics);
    recursion::check(&program, diagnostics);
    contexts::check(&program, diagnostics);
    events::check(&program, diagnostics);
    stack::check(&program, diagnostics);
    unused::check(&program, diagnostics);
    unreachable::check(&program, diagnostics);
    ownership::check(&program, &throwing, diagnostics);
    dangling::check(&program, diagnostics);
    null::check(&program, diagnostics);
    values::check(&program, diagnostics);
    for (function, throws) in hir.functions.iter_mut().zip(throwing.iter()) {
        function.throws = *throws;
    }
    for map in locked {
        hir.maps[map].locked = true;
    }
    (!diagnostics.has_errors()).then_some(hir)
}

#[cfg(test)]
mod tests;
