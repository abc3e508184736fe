//! Diagnostics in the form of the protocol, and code actions for their suggestions.

use lsp_types::{
    CodeAction, CodeActionKind, DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, Location,
    NumberOrString, PublishDiagnosticsParams, Range, TextEdit, Uri, WorkspaceEdit,
};
use serde_json::Value;

use super::position::{Encoding, Lines};
use super::workspace::Workspace;
use super::{protocol, uri};
use crate::ast::{self, ItemKind};
use crate::diag::{Diagnostic, DiagnosticCode, Severity, Suggestion};
use crate::facts::{Facts, typed};
use crate::pipeline::{self, Checked, Target};
use crate::source::{FileId, SourceMap, Span};

/// The warning for an unused declaration.
const UNUSED: DiagnosticCode = DiagnosticCode(312);

/// Diagnostics of a file without an entry point, from which no other item is reached.
const ENTRIES: &[DiagnosticCode] = &[DiagnosticCode(307), DiagnosticCode(309), UNUSED];

/// The role of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has a `main`, a program or a test.
    Script,
    /// It has functions for other files to import.
    Module,
    /// It has declarations for other files to include; they only have a meaning there.
    Header,
}

impl Role {
    fn of(path: &str, ast: &ast::File) -> Role {
        if path.ends_with(".kh") {
            return Role::Header;
        }
        let entry = |item: &ast::Item| match &item.kind {
            ItemKind::Function(function) => {
                let starts = |name: &str| !matches!(name, "helper" | "kfunc" | "private");
                function.name.name == "main"
                    || function.attributes.iter().any(|attribute| starts(&attribute.name.name))
            }
            ItemKind::Impl { .. } => true,
            _ => false,
        };
        if ast.items.iter().any(entry) { Role::Script } else { Role::Module }
    }
}

/// The results of a check of one text.
#[derive(Debug)]
pub struct Report {
    /// The version of the text that was checked.
    pub version: i32,
    /// The diagnostics in the form of the protocol.
    pub published: Vec<lsp_types::Diagnostic>,
    /// The compiler's diagnostics in the text itself.
    pub found: Vec<Diagnostic>,
    /// The types of the text; none if it has errors.
    pub types: Option<Facts>,
    /// The file id of the text in `found` and `types`.
    pub file: FileId,
}

/// A text with resolved names and types, before its back ends have run: those may take seconds.
#[derive(Debug)]
pub struct Compilation {
    /// The path of the text.
    pub(super) path: String,
    version: i32,
    role: Role,
    borrowed: Vec<(String, Span)>,
    checked: Checked,
}

impl Compilation {
    /// Compiles the text, as `ks build` does.
    pub fn run(&mut self) {
        // Errors are in the diagnostics; the plugin itself is not needed.
        let _ = self.checked.build(Target::default().for_users());
    }

    /// Returns the results so far; `None` if the text has changed since.
    pub(super) fn report(&self, workspace: &Workspace) -> Option<Report> {
        let document = workspace.document(&self.path).filter(|one| one.version == self.version)?;
        let Compilation { version, role, borrowed, checked, .. } = self;
        let file = checked.file;
        let view = View {
            sources: &checked.sources,
            main: file,
            lines: &document.lines,
            encoding: workspace.encoding,
            borrowed,
        };
        let types = checked.hir.as_ref().map(|hir| typed::types_of(hir, file));
        let mut report = Report { version: *version, published: Vec::new(), found: Vec::new(), types, file };
        for one in checked.diagnostics.sorted() {
            if *role == Role::Module && ENTRIES.contains(&one.code) {
                continue;
            }
            report.published.extend(view.diagnostic(one));
            if one.primary.span.file == file {
                report.found.push(one.clone());
            }
        }
        Some(report)
    }

    /// Whether the back ends still have to run.
    pub(super) fn is_waiting(&self) -> bool {
        self.role == Role::Script && self.checked.hir.is_some()
    }
}

/// Checks an open text with all files that it includes and imports, up to its types.
pub fn check(workspace: &Workspace, path: &str) -> Option<Compilation> {
    let document = workspace.document(path)?;
    let parsed = pipeline::parse(path, &document.text, workspace.options(path)).ok()?;
    let borrowed = borrowed_from(&parsed.ast, path);
    let role = Role::of(path, &parsed.ast);
    let checked = match role {
        Role::Header => parsed.unchecked(),
        Role::Script | Role::Module => parsed.check(),
    };
    Some(Compilation { path: path.to_owned(), version: document.version, role, borrowed, checked })
}

/// Returns the notification that publishes diagnostics.
pub fn publish(uri: &Uri, version: Option<i32>, diagnostics: Vec<lsp_types::Diagnostic>) -> Value {
    let params = PublishDiagnosticsParams { uri: uri.clone(), diagnostics, version };
    protocol::notification("textDocument/publishDiagnostics", params)
}

/// Returns the code actions for the suggestions of a diagnostic in the text at `uri`.
pub fn actions(uri: &Uri, text: &[u8], lines: &Lines, one: &Diagnostic) -> Vec<CodeAction> {
    let action = |suggestion: &Suggestion| {
        let edit =
            TextEdit { range: lines.range(text, suggestion.span), new_text: suggestion.replacement.clone() };
        let alone = one.suggestions.len() == 1;
        CodeAction {
            title: title(suggestion),
            kind: Some(CodeActionKind::QUICKFIX),
            edit: Some(WorkspaceEdit::new([(uri.clone(), vec![edit])].into())),
            is_preferred: Some(alone),
            ..CodeAction::default()
        }
    };
    let here = |suggestion: &&Suggestion| suggestion.span.file == one.primary.span.file;
    one.suggestions.iter().filter(here).map(action).collect()
}

fn title(suggestion: &Suggestion) -> String {
    match suggestion.replacement.as_str() {
        "" => suggestion.message.clone(),
        text if text.contains('\n') => suggestion.message.clone(),
        text => format!("{}: `{text}`", suggestion.message),
    }
}

/// Returns the source ranges where the main file names other files: errors in those are shown there.
fn borrowed_from(ast: &crate::ast::File, main: &str) -> Vec<(String, Span)> {
    let named = ast.items.iter().filter_map(|item| match &item.kind {
        ItemKind::Include(path) | ItemKind::Import { path, .. } => {
            Some((uri::sibling_path(main, &String::from_utf8_lossy(&path.bytes)), path.span))
        }
        _ => None,
    });
    named.collect()
}

struct View<'a> {
    sources: &'a SourceMap,
    main: FileId,
    lines: &'a Lines,
    encoding: Encoding,
    borrowed: &'a [(String, Span)],
}

impl View<'_> {
    fn diagnostic(&self, one: &Diagnostic) -> Option<lsp_types::Diagnostic> {
        let here = one.primary.span.file == self.main;
        let (range, message) = if here {
            (self.range(one.primary.span), message(one))
        } else {
            let name = self.sources.file(one.primary.span.file).name();
            let (_, span) = self.borrowed.iter().find(|(path, _)| path == name).or(self.borrowed.first())?;
            (self.range(*span), format!("in {}: {}", name.rsplit('/').next()?, message(one)))
        };
        let mut related: Vec<_> =
            one.secondary.iter().filter_map(|label| self.related(label.span, &label.text)).collect();
        if !here {
            related.insert(0, self.related(one.primary.span, &one.primary.text)?);
        }
        Some(lsp_types::Diagnostic {
            range,
            severity: Some(match one.severity {
                Severity::Error => DiagnosticSeverity::ERROR,
                Severity::Warning => DiagnosticSeverity::WARNING,
            }),
            code: Some(NumberOrString::String(one.code.to_string())),
            source: Some("ks".into()),
            message,
            related_information: Some(related).filter(|related| !related.is_empty()),
            tags: (one.code == UNUSED).then(|| vec![DiagnosticTag::UNNECESSARY]),
            ..lsp_types::Diagnostic::default()
        })
    }

    fn related(&self, span: Span, text: &str) -> Option<DiagnosticRelatedInformation> {
        let uri = uri::of_path(self.sources.file(span.file).name())?;
        let message = if text.is_empty() { "here" } else { text };
        Some(DiagnosticRelatedInformation {
            location: Location::new(uri, self.range(span)),
            message: message.into(),
        })
    }

    fn range(&self, span: Span) -> Range {
        let text = self.sources.file(span.file).text();
        if span.file == self.main {
            return self.lines.range(text, span);
        }
        Lines::of(text, self.encoding).range(text, span)
    }
}

/// Formats headline, label, notes and help, one per line.
fn message(one: &Diagnostic) -> String {
    let label = Some(&one.primary.text).filter(|text| !text.is_empty());
    let lines = std::iter::once(&one.message).chain(label).chain(&one.notes);
    let mut text: String = lines.map(String::as_str).collect::<Vec<_>>().join("\n");
    one.help.iter().for_each(|help| text += &format!("\nhelp: {help}"));
    for suggestion in &one.suggestions {
        text += &format!("\nhelp: {}", title(suggestion));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsp::position::Encoding;

    #[test]
    fn each_suggestion_is_a_change_to_choose() {
        let text = b"a\nbb cc\n";
        let file = SourceMap::default().add("a.ks", &text[..]).expect("short");
        let span = |start, end| Span { file, start, end };
        let one = Diagnostic::error(301, span(2, 4), "no `bb`")
            .suggest(span(2, 4), "dd", "a similar name exists")
            .suggest(span(5, 7), "", "remove it");
        let uri = uri::of_path("/a.ks").expect("an address");
        let lines = Lines::of(text, Encoding::Utf16);
        let actions = actions(&uri, text, &lines, &one);
        let published: Vec<_> =
            actions.iter().map(|action| (action.title.as_str(), action.is_preferred)).collect();
        assert_eq!(published, [("a similar name exists: `dd`", Some(false)), ("remove it", Some(false))]);
        #[expect(clippy::mutable_key_type, reason = "the protocol's own type; its key does not change")]
        let changes = actions[0].edit.as_ref().and_then(|edit| edit.changes.as_ref()).expect("changes");
        let edit = &changes[&uri][0];
        assert_eq!((edit.range.start.line, edit.range.start.character), (1, 0));
        assert_eq!((edit.range.end.character, edit.new_text.as_str()), (2, "dd"));
    }
}
