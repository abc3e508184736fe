//! Output of commands on standard output, and messages on standard error.

use std::sync::atomic::{AtomicBool, Ordering};

use ks_host::text::{self, MOST_BYTES, visible};
use ks_host::world::{Said, said_as_json};
use ks_wit::command_output::{write_stderr_lines, write_stderr_raw};

/// Limit on the characters of a cell that widens its column: one long name must not widen every row.
const MAX_COLUMN: usize = 160;

/// Whether messages are JSON objects, as what the plugins print.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes all messages from now on JSON objects.
pub(crate) fn say_as_json() {
    // ORDERING: relaxed. Set before the threads that write messages are started.
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Whether messages are JSON objects.
pub(crate) fn is_json() -> bool {
    // ORDERING: as in `say_as_json`.
    AS_JSON.load(Ordering::Relaxed)
}

/// Reports on standard error why something did not start or has ended, with this name as the prefix. Text of a
/// plugin can neither add a line with another prefix nor control the terminal.
pub(crate) fn report(name: &str, message: &str) {
    say(name, Said::Error, message);
}

/// Reports as [`report`] something about what continues.
pub(crate) fn warn(name: &str, message: &str) {
    say(name, Said::Warning, message);
}

fn say(name: &str, said: Said, message: &str) {
    if is_json() {
        write_stderr_raw(&said_as_json(name, said, &text::message(message, "  ")));
    } else {
        write_stderr_lines(&format!("{}: {message}", printable(name)), "  ");
    }
}

/// Reports where several plugins run: each line begins with the name.
pub(crate) fn report_among_others(name: &str, message: &str) {
    let name = printable(name);
    write_stderr_lines(&format!("{name}: {message}"), &format!("{name}: "));
}

/// Escapes text of a plugin, so that it cannot move the cursor or colour the terminal, and cuts it.
pub(crate) fn printable(text: &str) -> String {
    visible(text, MOST_BYTES).into_owned()
}

/// Formats rows with aligned columns, separated by two spaces.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let widths = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        widths.filter(|width| *width <= MAX_COLUMN).max()
    };
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

    #[test]
    fn a_long_cell_widens_no_other_row() {
        let mut rows = vec![vec!["a".into(), "b".into()]; 1000];
        rows.push(vec!["x".repeat(60 << 20), "b".into()]);
        let text = aligned(&rows);
        assert!(text.starts_with("  a  b\n") && text.len() < 20_000, "{}", text.len());
    }
}
