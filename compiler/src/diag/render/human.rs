//! Renders diagnostics for a terminal, in the form known from rustc.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use ks_wit::text::{self, MOST_BYTES, acts, visible};

use super::{Style, display_span, help_lines};
use crate::diag::{Diagnostic, Label, Severity};
use crate::source::{FileId, SourceFile, SourceMap, Span};

/// Maximum length in bytes of a line that is shown whole. A longer one was not written by hand; only the part
/// around the primary range is shown.
const LONG_LINE_BYTES: usize = 1000;

/// On such a line, the maximum length of a label, and the maximum distance of its start from the primary
/// range, in bytes.
const LONG_LINE_REACH: u32 = 60;

/// Renders one diagnostic, without a line end after the last line.
pub fn render(diagnostic: &Diagnostic, sources: &SourceMap, style: Style) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let code = diagnostic.code.to_string();
    let mut page = Page::new(sources, &diagnostic.primary);
    diagnostic.secondary.iter().for_each(|label| page.add(label, AnnotationKind::Context));
    let snippets: Vec<_> = page.files.iter().map(FileLabels::snippet).collect();
    let mut report =
        level.primary_title(text::lines(&diagnostic.message)).id(code.as_str()).elements(snippets);
    for note in page.aside.iter().chain(&diagnostic.notes) {
        report = report.element(Level::NOTE.message(text::lines(note)));
    }
    for line in help_lines(diagnostic) {
        report = report.element(Level::HELP.message(text::lines(&line)));
    }
    let groups: &[Group<'_>] = &[report];
    match style {
        Style::Plain => Renderer::plain().render(groups).to_string(),
        Style::Coloured => Renderer::styled().render(groups).to_string(),
    }
}

/// The labels by file, the primary's first, and as plain text the labels that do not fit into the snippets.
struct Page<'a> {
    sources: &'a SourceMap,
    primary: Span,
    files: Vec<FileLabels<'a>>,
    aside: Vec<String>,
}

impl<'a> Page<'a> {
    fn new(sources: &'a SourceMap, primary: &'a Label) -> Page<'a> {
        let span = display_span(primary.span, sources);
        let mut page = Page { sources, primary: span, files: Vec::new(), aside: Vec::new() };
        page.add(primary, AnnotationKind::Primary);
        page
    }

    fn add(&mut self, label: &'a Label, kind: AnnotationKind) {
        let span = display_span(label.span, self.sources);
        let file = self.sources.file(span.file);
        let (line, column) = file.line_column(span.start);
        let long = file.line_text(line).len() > LONG_LINE_BYTES;
        let same_line = self.primary.file == span.file && file.line_column(self.primary.start).0 == line;
        if long && same_line && self.primary.start.abs_diff(span.start) > LONG_LINE_REACH {
            self.aside.push(format!("{}:{line}:{column}: {}", file.name(), label.text));
            return;
        }
        let end = if long { span.end.min(span.start + LONG_LINE_REACH) } else { span.end };
        let placed = Placed { range: span.start as usize..end as usize, text: &label.text, kind };
        match self.files.iter_mut().find(|labels| labels.id == span.file) {
            Some(labels) => labels.all.push(placed),
            None => self.files.push(FileLabels { id: span.file, file, all: vec![placed] }),
        }
    }
}

/// A label with its byte range in the file.
struct Placed<'a> {
    range: Range<usize>,
    text: &'a str,
    kind: AnnotationKind,
}

/// The labels of one file.
struct FileLabels<'a> {
    id: FileId,
    file: &'a SourceFile,
    all: Vec<Placed<'a>>,
}

impl<'a> FileLabels<'a> {
    /// The lines from the first label to the last, with the labels.
    fn snippet(&self) -> Snippet<'a, Annotation<'a>> {
        let first = self.all.iter().map(|label| label.range.start).min().unwrap_or(0);
        let last = self.all.iter().map(|label| label.range.end).max().unwrap_or(0);
        let (line, column) = self.file.line_column(first as u32);
        let start = first + 1 - column as usize;
        let lines = Lines::new(&self.file.text()[start..line_end(self.file.text(), last)]);
        let annotations: Vec<_> = self.all.iter().map(|label| lines.annotation(label, start)).collect();
        let path = visible(self.file.name(), MOST_BYTES);
        Snippet::source(lines.text).path(path).line_start(line as usize).annotations(annotations)
    }
}

/// Returns the end of a byte's line, without the line terminator.
fn line_end(text: &[u8], from: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    text[from..].iter().position(is_end).map_or(text.len(), |len| from + len)
}

/// Bytes as printable text: invalid UTF-8 becomes replacement characters, and so do characters that would act
/// on a terminal; a lone CR becomes a line end. The renderer replaces ASCII control characters itself.
struct Lines {
    text: String,
    /// What was replaced by text of another length, in ascending order.
    replaced: Vec<Replaced>,
}

/// A part of the file and its replacement in the printable text, as ranges of bytes.
struct Replaced {
    file: Range<usize>,
    text: Range<usize>,
}

impl Lines {
    fn new(bytes: &[u8]) -> Lines {
        let mut lines = Lines { text: String::new(), replaced: Vec::new() };
        let mut read = 0;
        for chunk in bytes.utf8_chunks() {
            let mut letters = chunk.valid().chars().peekable();
            while let Some(letter) = letters.next() {
                match letter {
                    '\r' if letters.peek() != Some(&'\n') => lines.text.push('\n'),
                    _ if acts(letter) && !letter.is_ascii() => lines.replace(read..read + letter.len_utf8()),
                    _ => lines.text.push(letter),
                }
                read += letter.len_utf8();
            }
            if !chunk.invalid().is_empty() {
                lines.replace(read..read + chunk.invalid().len());
                read += chunk.invalid().len();
            }
        }
        lines
    }

    fn replace(&mut self, file: Range<usize>) {
        let start = self.text.len();
        self.text.push(char::REPLACEMENT_CHARACTER);
        self.replaced.push(Replaced { file, text: start..self.text.len() });
    }

    fn annotation<'a>(&self, label: &Placed<'_>, start: usize) -> Annotation<'a> {
        let from = self.offset(label.range.start - start);
        let annotation = label.kind.span(from..self.offset(label.range.end - start).max(from));
        if label.text.is_empty() { annotation } else { annotation.label(text::lines(label.text)) }
    }

    /// Returns the offset in the printable text of a byte of the file, or of the character that the byte
    /// belongs to.
    fn offset(&self, wanted: usize) -> usize {
        let next = self.replaced.partition_point(|one| one.file.end <= wanted);
        if let Some(one) = self.replaced.get(next).filter(|one| one.file.start <= wanted) {
            return one.text.start;
        }
        let before = next.checked_sub(1).and_then(|last| self.replaced.get(last));
        let (read, written) = before.map_or((0, 0), |one| (one.file.end, one.text.end));
        self.text.floor_char_boundary(written + wanted - read)
    }
}
