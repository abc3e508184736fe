//! Output of commands on standard output, and messages on standard error.

use std::fmt;
use std::io::{self, Write};

use anyhow::Context;
use ks_host::text::{MOST_BYTES, lines, visible};
use ks_host::world::{Said, said_as_json};
use serde::Serialize;

/// Writes a message of one or more lines to standard error. A failed write cannot be reported anywhere.
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}

/// Reports something about a plugin on standard error, with this name as the prefix. Text of the plugin can
/// neither add a line with another prefix nor control the terminal.
pub(crate) fn report(name: &str, message: &str) {
    report_lines(name, message, "  ");
}

/// Reports the same as a JSON object.
pub(crate) fn report_json(name: &str, message: &str) {
    let line = said_as_json(name, Said::Error, lines(message).trim_end());
    // A failed write cannot be reported anywhere.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Reports where several plugins run: each line begins with the name.
pub(crate) fn report_among_others(name: &str, message: &str) {
    report_lines(name, message, &format!("{}: ", printable(name)));
}

/// Writes a message whose continuation lines begin with `following`, unless they are indented already.
fn report_lines(name: &str, message: &str, following: &str) {
    let mut text = format!("{}: ", printable(name));
    for (at, line) in message.lines().enumerate() {
        let is_indented = line.starts_with("  ") && following.trim().is_empty();
        text.push_str(if at == 0 || is_indented { "" } else { following });
        text.push_str(&visible(line, MOST_BYTES));
        text.push('\n');
    }
    // A failed write cannot be reported anywhere.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Formats an error with its causes, each once: some errors include the text of their cause.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Writes the output of a command. A reader that closes the pipe early (`| head`) is no failure.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write"),
        _ => Ok(()),
    }
}

/// Writes a value as JSON for tools.
pub(crate) fn show_json(value: &impl Serialize) -> anyhow::Result<()> {
    show(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Escapes text of a plugin, so that it cannot move the cursor or colour the terminal.
pub(crate) fn printable(text: &str) -> String {
    visible(text, usize::MAX).into_owned()
}

/// Formats rows with aligned columns, separated by two spaces.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("  {cell:<width$}"));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_reported_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read it: {0}")]
        struct Unreadable(#[from] io::Error);
        let error = anyhow::Error::from(Unreadable(io::Error::other("it is torn"))).context("cannot use x");
        assert_eq!(format!("{error:#}"), "cannot use x: cannot read it: it is torn: it is torn");
        assert_eq!(with_causes(&error), "cannot use x: cannot read it: it is torn");
    }

    #[test]
    fn columns_are_aligned_and_control_characters_escaped() {
        let rows = [vec!["a".into(), "bb".into()], vec!["long\x1b".into(), "c".into()]];
        assert_eq!(aligned(&rows), "  a           bb\n  long\\u{1b}  c\n");
    }
}
