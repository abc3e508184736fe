//! Output of commands on standard output, and messages on standard error.

use std::io::{self, Write};

use ks_host::text::{MOST_BYTES, lines, visible};
use ks_host::world::{Said, said_as_json};
use ks_wit::command_output::write_stdout;
use serde::Serialize;

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

/// Writes a value as JSON for tools.
pub(crate) fn show_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    Ok(write_stdout(text.as_bytes())?)
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
    fn columns_are_aligned_and_control_characters_escaped() {
        let rows = [vec!["a".into(), "bb".into()], vec!["long\x1b".into(), "c".into()]];
        assert_eq!(aligned(&rows), "  a           bb\n  long\\u{1b}  c\n");
    }
}
