//! Diagnostics as text for a terminal, in the shape that rustc made familiar.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::{Diagnostic, Label, Severity};
use crate::source::{SourceMap, Span};

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text only.
    Plain,
    /// With ANSI escapes.
    Coloured,
}

/// One diagnostic as text, without a line end behind the last line.
pub fn render(diagnostic: &Diagnostic, sources: &SourceMap, style: Style) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let code = diagnostic.code.to_string();
    let mut snippets = Snippets::new(sources, diagnostic.primary.span);
    snippets.add(&diagnostic.primary, AnnotationKind::Primary);
    for label in &diagnostic.secondary {
        snippets.add(label, AnnotationKind::Context);
    }
    let mut report =
        level.primary_title(diagnostic.message.as_str()).id(code.as_str()).elements(snippets.all());
    for note in &diagnostic.notes {
        report = report.element(Level::NOTE.message(note.as_str()));
    }
    for help in &diagnostic.help {
        report = report.element(Level::HELP.message(help.as_str()));
    }
    let groups: &[Group<'_>] = &[report];
    match style {
        Style::Plain => Renderer::plain().render(groups).to_string(),
        Style::Coloured => Renderer::styled().render(groups).to_string(),
    }
}

/// The source texts with the labels in them: one snippet per file, the primary's first.
struct Snippets<'a> {
    sources: &'a SourceMap,
    snippets: Vec<(Span, Snippet<'a, annotate_snippets::Annotation<'a>>)>,
}

impl<'a> Snippets<'a> {
    fn new(sources: &'a SourceMap, primary: Span) -> Snippets<'a> {
        let mut snippets = Snippets { sources, snippets: Vec::new() };
        snippets.open(primary);
        snippets
    }

    fn open(&mut self, span: Span) {
        let file = self.sources.file(span.file);
        let text = String::from_utf8_lossy(file.text());
        self.snippets.push((span, Snippet::source(text).path(file.name())));
    }

    fn add(&mut self, label: &'a Label, kind: AnnotationKind) {
        if !self.snippets.iter().any(|(span, _)| span.file == label.span.file) {
            self.open(label.span);
        }
        let range = self.shown_range(label.span);
        for (span, snippet) in &mut self.snippets {
            if span.file == label.span.file {
                let annotation = kind.span(range.clone());
                let annotation =
                    if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) };
                *snippet = std::mem::replace(snippet, Snippet::source("")).annotation(annotation);
            }
        }
    }

    /// The range within the shown text, which has a replacement character for bytes that are no UTF-8.
    fn shown_range(&self, span: Span) -> std::ops::Range<usize> {
        let text = self.sources.file(span.file).text();
        let shown = |end: u32| String::from_utf8_lossy(&text[..end as usize]).len();
        let (start, end) = (shown(span.start), shown(span.end));
        start..end.max(start)
    }

    fn all(self) -> impl Iterator<Item = Snippet<'a, annotate_snippets::Annotation<'a>>> {
        self.snippets.into_iter().map(|(_, snippet)| snippet)
    }
}

/// One line: `file:line:column: error[KS0417]: message`.
pub fn concise(diagnostic: &Diagnostic, sources: &SourceMap) -> String {
    let (file, line, column) = sources.place(diagnostic.primary.span);
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("{file}:{line}:{column}: {severity}[{}]: {}", diagnostic.code, diagnostic.message)
}

/// One JSON object: `code`, `severity`, `message`, `file`, `line`, `column`, `end_line`, `end_column` (from 1, in bytes),
/// `label`, `notes`, `help`, and `related` with the same members for the other places.
pub fn json(diagnostic: &Diagnostic, sources: &SourceMap) -> serde_json::Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut object = place_json(&diagnostic.primary, sources);
    object["code"] = diagnostic.code.to_string().into();
    object["severity"] = severity.into();
    object["message"] = diagnostic.message.as_str().into();
    object["notes"] = diagnostic.notes.clone().into();
    object["help"] = diagnostic.help.clone().into();
    object["related"] =
        diagnostic.secondary.iter().map(|label| place_json(label, sources)).collect::<Vec<_>>().into();
    object
}

fn place_json(label: &Label, sources: &SourceMap) -> serde_json::Value {
    let (file, line, column) = sources.place(label.span);
    let (end_line, end_column) = sources.file(label.span.file).line_column(label.span.end);
    serde_json::json!({
        "file": file,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "label": label.text,
    })
}
