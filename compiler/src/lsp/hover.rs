//! Hover: the declaration and documentation of the word under the pointer.

use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};

use super::Server;
use super::answer::TextPosition;
use super::cursor::Cursor;
use super::workspace::Analysis;
use crate::diag::{Diagnostic, codes};
use crate::facts::tables::keywords;
use crate::facts::{DefKind, Definition, FoundSymbol};
use crate::lex::{Token, TokenKind};

/// Maximum number of fields or enumerators that are shown with a type.
const MAX_MEMBERS: usize = 16;

/// Returns the hover text of a position.
pub(super) fn hover(server: &mut Server, position: &TextPosition) -> Option<Hover> {
    let analysis = server.workspace.analysis(&position.path)?;
    let token = token_at(&analysis, position.offset)?;
    let meaning = match (found(server, &analysis, position), token.kind) {
        (Some((analysis, found)), _) => described(server, &analysis, found),
        (None, TokenKind::Keyword(keyword)) => keywords::keyword_docs(keyword.text()).map(str::to_owned),
        (None, TokenKind::Blank | TokenKind::LineEnd | TokenKind::Comment) => None,
        (None, _) => server.type_at(&position.path, position.offset).map(fence),
    };
    let errors = server.found_at(&position.path, position.offset).map(explained);
    let parts: Vec<String> = meaning.into_iter().chain(errors).collect();
    if parts.is_empty() {
        return None;
    }
    let text = parts.join("\n\n---\n\n");
    Some(Hover {
        contents: HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value: text }),
        range: Some(analysis.main.range(token.span)),
    })
}

/// Returns the definition that the name at a position refers to. In a part of the text with a syntax error,
/// its meaning without the rest of that part.
pub(super) fn found(
    server: &mut Server,
    analysis: &std::rc::Rc<Analysis>,
    position: &TextPosition,
) -> Option<(std::rc::Rc<Analysis>, FoundSymbol)> {
    let unit = &analysis.main.unit;
    if let Some(found) = analysis.facts.at(unit.file, position.offset) {
        return Some((std::rc::Rc::clone(analysis), found));
    }
    let token =
        token_at(analysis, position.offset).filter(|token| unit.broken && token.kind == TokenKind::Ident)?;
    let text = Cursor::new(unit, token.span.end).repaired(token.span.end);
    let repaired = server.workspace.analysis_of(&position.path, text)?;
    let found = repaired.facts.at(unit.file, position.offset)?;
    Some((std::rc::Rc::new(repaired), found))
}

/// Returns the word that covers a byte or ends there.
pub(super) fn token_at(analysis: &Analysis, offset: u32) -> Option<Token> {
    let tokens = &analysis.main.unit.tokens;
    let after = tokens.partition_point(|token| token.span.start <= offset);
    let is_name = |token: &&Token| matches!(token.kind, TokenKind::Ident | TokenKind::Keyword(_));
    let here = tokens.get(after.checked_sub(1)?)?;
    let before = after.checked_sub(2).and_then(|at| tokens.get(at)).filter(is_name);
    let touching = before.filter(|token| token.span.end == offset && !is_name(&here));
    Some(*touching.unwrap_or(here))
}

fn described(server: &Server, analysis: &Analysis, found: FoundSymbol) -> Option<String> {
    let one = analysis.facts.definition(found.def)?;
    let mut parts = vec![fence(&heading(server, analysis, found, one))];
    if !one.docs.is_empty() {
        parts.push(one.docs.clone());
    }
    if let Some(parent) = one.parent.and_then(|parent| analysis.facts.definition(parent)) {
        parts.push(format!("of {} `{}`", noun(parent.kind), parent.name));
    }
    Some(parts.join("\n\n"))
}

/// Returns the declaration; for a type with its members, for a variable with the checker's type.
fn heading(server: &Server, analysis: &Analysis, found: FoundSymbol, one: &Definition) -> String {
    match one.kind {
        DefKind::Struct | DefKind::Enum | DefKind::Config => {
            let members = analysis.facts.children(found.def);
            let listed = members.iter().take(MAX_MEMBERS).filter_map(|id| analysis.facts.definition(*id));
            let mut text = format!("{} {{\n", one.detail);
            listed.for_each(|member| text += &format!("    {},\n", member.detail));
            if members.len() > MAX_MEMBERS {
                text += &format!("    // and {} more\n", members.len() - MAX_MEMBERS);
            }
            text + "}"
        }
        DefKind::Variable | DefKind::Constant | DefKind::Global if one.inferred => {
            let here = one.span.filter(|span| span.file == analysis.main.unit.file);
            let known = here.and_then(|span| server.type_of(&analysis.main.path, span));
            known.map_or_else(|| one.detail.clone(), |ty| with_type(&one.detail, ty))
        }
        _ => one.detail.clone(),
    }
}

/// Returns `var x` or `var x: u32` with the checker's type.
fn with_type(detail: &str, ty: &str) -> String {
    let name = detail.split([':', '=']).next().unwrap_or(detail).trim_end();
    let value = detail.split_once(" = ").map(|(_, value)| format!(" = {value}")).unwrap_or_default();
    format!("{name}: {ty}{value}")
}

/// Formats a diagnostic with its rule.
fn explained(one: &Diagnostic) -> String {
    let rule = codes::page(one.code).map_or("", codes::Page::prose);
    format!("**{}** {}\n\n{rule}", one.code, one.message).trim_end().to_owned()
}

fn fence(text: &str) -> String {
    format!("```kernelscript\n{text}\n```")
}

/// Returns the word for a kind of definition.
pub(super) fn noun(kind: DefKind) -> &'static str {
    match kind {
        DefKind::Function => "function",
        DefKind::Program => "program",
        DefKind::Helper => "helper",
        DefKind::Method => "method",
        DefKind::Type => "type",
        DefKind::Struct => "struct",
        DefKind::Enum => "enum",
        DefKind::Enumerator => "enumerator",
        DefKind::Field => "field",
        DefKind::Global => "global variable",
        DefKind::Map => "map",
        DefKind::Ring => "ring buffer",
        DefKind::Config => "config",
        DefKind::Counter => "counter",
        DefKind::Impl => "impl",
        DefKind::Extern => "kernel function",
        DefKind::Module => "module",
        DefKind::Param => "parameter",
        DefKind::Variable => "variable",
        DefKind::Constant => "constant",
        DefKind::Builtin => "builtin",
        DefKind::Event => "event",
        DefKind::Attribute => "attribute",
        DefKind::MapKind => "map kind",
    }
}
