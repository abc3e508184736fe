//! Renders diagnostics: for people ([`render`]), on one line each ([`concise`]), and for programs ([`json`]).

mod human;
mod json;

pub use human::render;
pub use json::{json, omitted_json};

use ks_wit::text;

use super::{Diagnostic, Severity, Suggestion};
use crate::source::{SourceMap, Span};

/// Whether the output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text without escape sequences.
    Plain,
    /// Colours as ANSI escape sequences.
    Coloured,
}

/// Renders one visible line: `file:line:column: error[KS0417]: message`.
pub fn concise(diagnostic: &Diagnostic, sources: &SourceMap) -> String {
    let (file, line, column) = sources.position(display_span(diagnostic.primary.span, sources));
    let severity = severity_name(diagnostic.severity);
    let line = format!("{file}:{line}:{column}: {severity}[{}]: {}", diagnostic.code, diagnostic.message);
    text::visible(&line, text::MOST_MESSAGE_BYTES).into_owned()
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Returns the part of a span that lies in its file's text.
fn clamped(span: Span, sources: &SourceMap) -> Span {
    let len = sources.file(span.file).text().len() as u32;
    let start = span.start.min(len);
    Span { start, end: span.end.clamp(start, len), ..span }
}

/// Returns the range that is shown for a span: the end of the file is the end of its last line, not a line
/// after it that no editor shows.
fn display_span(span: Span, sources: &SourceMap) -> Span {
    let span = clamped(span, sources);
    let text = sources.file(span.file).text();
    let line_end = match text {
        [.., b'\r', b'\n'] => 2,
        [.., b'\r' | b'\n'] => 1,
        _ => 0,
    };
    let last = text.len() as u32 - line_end;
    Span { start: span.start.min(last), end: span.end.min(last), ..span }
}

/// Returns the help lines, then the suggestions as text: suggestions with the same message at the same range
/// share a line.
fn help_lines(diagnostic: &Diagnostic) -> Vec<String> {
    let mut lines = diagnostic.help.clone();
    let same = |a: &Suggestion, b: &Suggestion| a.span == b.span && a.message == b.message;
    for choice in diagnostic.suggestions.chunk_by(same) {
        lines.push(suggestion_text(choice));
    }
    lines
}

/// Formats "a similar name exists: `x`", or only the message if it contains the new text or that would not
/// fit a line.
fn suggestion_text(choice: &[Suggestion]) -> String {
    let message = choice.first().map_or("", |one| one.message.as_str());
    let texts: Vec<String> = choice
        .iter()
        .map(|one| one.replacement.trim())
        .filter(|text| !text.is_empty() && !text.contains('\n'))
        .map(|text| format!("`{text}`"))
        .filter(|text| !message.contains(text))
        .collect();
    if texts.is_empty() { message.to_owned() } else { format!("{message}: {}", texts.join(", ")) }
}

#[cfg(test)]
mod tests;
