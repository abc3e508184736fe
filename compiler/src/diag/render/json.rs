//! Renders diagnostics for programs: one object per diagnostic.

use serde_json::{Value, json};

use super::{clamped, display_span, severity_name};
use crate::diag::{Diagnostic, Label, Omitted};
use crate::source::{SourceMap, Span};

/// Returns one diagnostic as a JSON object; `ks check --format json` prints one per line.
///
/// | member | meaning |
/// |---|---|
/// | `code` | `"KS0301"` |
/// | `severity` | `"error"` or `"warning"` |
/// | `message` | the headline |
/// | `file` | the file's name as on the command line, or as the script names it relative to the main file |
/// | `start`, `end` | byte offsets in the file, from 0, `end` excluded; equal where something is missing |
/// | `line`, `column`, `end_line`, `end_column` | the same from 1, columns in bytes, `end_column` excluded |
/// | `label` | text next to the range; may be empty |
/// | `labels` | the other ranges: objects with `file` ... `label` as above |
/// | `notes` | rules and reasons, an array of lines |
/// | `help` | advice, an array of lines |
/// | `suggestions` | alternative changes of the text: `file`, `start`, `end`, `replacement`, `message` |
///
/// Members may be added; those above stay.
pub fn json(diagnostic: &Diagnostic, sources: &SourceMap) -> Value {
    let mut object = label_json(&diagnostic.primary, sources);
    object["code"] = diagnostic.code.to_string().into();
    object["severity"] = severity_name(diagnostic.severity).into();
    object["message"] = diagnostic.message.as_str().into();
    object["labels"] = diagnostic.secondary.iter().map(|label| label_json(label, sources)).collect();
    object["notes"] = diagnostic.notes.clone().into();
    object["help"] = diagnostic.help.clone().into();
    object["suggestions"] = diagnostic
        .suggestions
        .iter()
        .map(|one| {
            let mut object = bytes(clamped(one.span, sources), sources);
            object["replacement"] = one.replacement.as_str().into();
            object["message"] = one.message.as_str().into();
            object
        })
        .collect();
    object
}

/// Returns the last line of the output if diagnostics were not kept: `omitted_errors` and `omitted_warnings`.
pub fn omitted_json(omitted: Omitted) -> Value {
    json!({ "omitted_errors": omitted.errors, "omitted_warnings": omitted.warnings })
}

fn bytes(span: Span, sources: &SourceMap) -> Value {
    json!({ "file": sources.file(span.file).name(), "start": span.start, "end": span.end })
}

fn label_json(label: &Label, sources: &SourceMap) -> Value {
    let span = display_span(label.span, sources);
    let file = sources.file(span.file);
    let mut object = bytes(span, sources);
    let ((line, column), (end_line, end_column)) = (file.line_column(span.start), file.line_column(span.end));
    object["line"] = line.into();
    object["column"] = column.into();
    object["end_line"] = end_line.into();
    object["end_column"] = end_column.into();
    object["label"] = label.text.as_str().into();
    object
}
