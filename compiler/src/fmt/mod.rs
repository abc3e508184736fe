//! The formatter: one style for all scripts.
//!
//! Writes the tokens of a tree again, in order, with blanks and line ends of its own. Nothing is added or
//! removed but commas at the end of lists and `;` between statements, so the tree stays the same. Comments
//! stay between the tokens where they were written; literals stay as they were written. A list or block that
//! the author broke after its opening bracket stays broken; else it is broken only if it does not fit. Lines
//! are broken after operators, so that none of them looks like a statement of its own.

mod exprs;
mod items;
mod layout;
mod lists;
mod stmts;
mod types;
mod writer;

use crate::ast::{File, without_spans};
use crate::diag::Diagnostics;
use crate::lex::{self, Token};
use crate::parse;
use writer::Writer;

/// The error for a new text with another meaning. Always a defect of the formatter.
#[derive(Debug, thiserror::Error)]
#[error("this text cannot be formatted without changing what it says; please report it")]
pub struct Changed;

/// Formats a script. `tokens` and `file` are those of `text`, which must have no errors.
///
/// # Errors
/// If the new text would not have the same tree.
pub fn format(tokens: &[Token], text: &[u8], file: &File) -> Result<Vec<u8>, Changed> {
    let mut writer = Writer::of_source(tokens, text);
    writer.file(file);
    if !writer.is_complete() {
        return Err(Changed);
    }
    let formatted = layout::layout(&mut writer.ops);
    if reads_as(&formatted, file) { Ok(formatted) } else { Err(Changed) }
}

/// Prints a tree as text; the only comments are documentation.
pub fn print(file: &File) -> Vec<u8> {
    let mut writer = Writer::plain();
    writer.file(file);
    layout::layout(&mut writer.ops)
}

/// Whether a text parses to this tree.
fn reads_as(text: &[u8], file: &File) -> bool {
    let mut diagnostics = Diagnostics::default();
    let again = parse::parse(&lex::scan(file.end.file, text), text, &mut diagnostics);
    !diagnostics.has_errors() && without_spans::same(file, &again)
}
