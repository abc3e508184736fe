//! A flame graph of the stacks with one key, as text: the outermost functions above, each as wide as its part of the sum.
//!
//! ```text
//! count 12 of dd
//! |main                                                    |
//! |read                              |write                |
//! |ksys_read              |fdget     |ksys_write           |
//! ```

use std::collections::BTreeMap;

use ks_host::world::{ShownRow, ShownTable};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::content::NumberedTable;
use super::draw::pad;

/// What stands for a stack that is not there, behind those that are.
const NO_STACK: &str = "[no stack]";

/// Functions of a stack that are drawn, the outermost ones: the kernel's stacks have 127 in each mode at most. Nodes are freed
/// by recursion, and a plugin may call any text a stack.
const MOST_FUNCTIONS: usize = 512;

/// Sums from here on may be rounded: not all integers are numbers of 64-bit floating point.
const FIRST_ROUNDED: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// Left border of a function.
const BORDER: &str = "|";

/// Whether the rows of a table have stacks.
pub(super) fn has_stacks(table: &ShownTable) -> bool {
    table.columns.iter().any(|column| column.is_stack)
}

/// Draws the stacks of those rows that have the key of the chosen one, which is marked. Outermost functions that all have are
/// left out if the others do not fit otherwise.
pub(super) fn lines(
    shown: &NumberedTable,
    rows: &[&ShownRow],
    chosen: &ShownRow,
    sorted: Option<usize>,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let Some(column) = shown.graphed_column(sorted) else {
        return vec![Line::raw("no flame graph: the table has no numbers beside its key")];
    };
    let mut all = Node::default();
    for row in rows.iter().filter(|row| shown.key_of(row).eq(shown.key_of(chosen))) {
        let value = row.cells.get(column).and_then(|cell| cell.number()).unwrap_or_default();
        all.add(row, value, std::ptr::eq(*row, chosen));
    }
    let (left_out, first) = all.outermost_shown(height.saturating_sub(1));
    let about = if all.value < FIRST_ROUNDED { "" } else { "about " };
    let mut parts = vec![format!("{} {about}{}", shown.table.columns[column].heading, all.value)];
    let key: Vec<&str> = shown.key_of(chosen).collect();
    if !key.is_empty() {
        parts.push(format!("of {}", key.join(" ")));
    }
    if left_out > 0 {
        parts.push(format!("inside of {left_out} more functions"));
    }
    let mut lines = vec![Line::raw(parts.join(" "))];
    let mut level: Vec<Placed<'_>> = first.placed(0, width);
    while !level.is_empty() && lines.len() < height {
        lines.push(line(&level));
        level = level.iter().flat_map(|one| one.node.placed(one.begin, one.end)).collect();
    }
    lines
}

/// A function, with what was counted in it and in those that it called.
#[derive(Default)]
struct Node {
    value: f64,
    /// Whether the chosen stack leads through it.
    is_chosen: bool,
    called: BTreeMap<String, Node>,
}

/// A function with the columns that it takes on the terminal.
struct Placed<'a> {
    name: &'a str,
    node: &'a Node,
    begin: usize,
    end: usize,
}

impl Node {
    /// Adds the stack of a row, whose lines begin with the innermost function.
    fn add(&mut self, row: &ShownRow, value: f64, is_chosen: bool) {
        // Counts are never below zero; other numbers have no width.
        let value = value.max(0.0);
        let mut node = self;
        node.value += value;
        let has_other = row.lines.iter().any(|line| line != NO_STACK);
        let functions = row.lines.iter().rev().filter(|line| !has_other || *line != NO_STACK);
        for function in functions.take(MOST_FUNCTIONS) {
            node = node.called.entry(function.clone()).or_default();
            node.value += value;
            node.is_chosen |= is_chosen;
        }
    }

    /// Returns how many of the outermost functions are left out so that the graph has at most so many lines, and the node whose
    /// callees are the first line. Only functions that are alone on their line are left out.
    fn outermost_shown(&self, height: usize) -> (usize, &Node) {
        let (mut node, mut left_out) = (self, 0);
        let mut depth = self.depth();
        while depth > height && node.called.len() == 1 {
            node = node.called.values().next().expect("there is one");
            (left_out, depth) = (left_out + 1, depth - 1);
        }
        (left_out, node)
    }

    /// Returns the number of lines that its callees take.
    fn depth(&self) -> usize {
        let (mut level, mut depth) = (vec![self], 0);
        loop {
            level = level.iter().flat_map(|node| node.called.values()).collect();
            if level.is_empty() {
                return depth;
            }
            depth += 1;
        }
    }

    /// Returns its callees that have at least one column, between these columns.
    fn placed(&self, begin: usize, end: usize) -> Vec<Placed<'_>> {
        if self.value <= 0.0 {
            return Vec::new();
        }
        let column = |sum: f64| begin + (sum / self.value * (end - begin) as f64) as usize;
        let mut sum = 0.0;
        let mut placed = Vec::new();
        for (name, node) in &self.called {
            let first = column(sum);
            sum += node.value;
            let last = column(sum).min(end);
            if last > first {
                placed.push(Placed { name, node, begin: first, end: last });
            }
        }
        placed
    }
}

/// Writes functions in their places; those of the chosen stack are marked.
fn line(level: &[Placed<'_>]) -> Line<'static> {
    let mut spans = Vec::new();
    let mut at = 0;
    for Placed { name, node, begin, end } in level {
        spans.push(Span::raw(" ".repeat(begin.saturating_sub(at))));
        let mut text = BORDER.to_owned();
        pad(&mut text, name, end - begin - BORDER.len(), false);
        let style = if node.is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::styled(text, style));
        at = *end;
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lines: &[&str]) -> ShownRow {
        ShownRow {
            cells: Vec::new(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            histogram: None,
        }
    }

    fn drawn(node: &Node, width: usize) -> Vec<String> {
        let (mut level, mut lines) = (node.placed(0, width), Vec::new());
        while !level.is_empty() {
            lines.push(line(&level).spans.iter().map(|span| span.content.as_ref()).collect());
            level = level.iter().flat_map(|one| one.node.placed(one.begin, one.end)).collect();
        }
        lines
    }

    #[test]
    fn a_text_of_many_lines_is_drawn_in_part() {
        let mut all = Node::default();
        all.add(&row(&vec!["f"; 1_000_000]), 1.0, false);
        assert_eq!(all.depth(), MOST_FUNCTIONS);
    }

    #[test]
    fn functions_are_as_wide_as_their_part() {
        let mut all = Node::default();
        all.add(&row(&["sys_read", "read", "main"]), 6.0, true);
        all.add(&row(&["write", "main", NO_STACK]), 3.0, false);
        all.add(&row(&["main"]), 1.0, false);
        assert_eq!(drawn(&all, 20), ["|main               ", "|read       |write", "|sys_read   "]);
        // What has no column is not there, and a stack that is missing altogether is one.
        assert_eq!(drawn(&all, 2), ["|m", "|", "|"]);
        let mut none = Node::default();
        none.add(&row(&[NO_STACK]), 2.0, false);
        assert_eq!(drawn(&none, 12), ["|[no stack] "]);
    }

    #[test]
    fn outermost_functions_are_left_out_first() {
        let mut all = Node::default();
        all.add(&row(&["d", "c", "b", "a"]), 1.0, false);
        all.add(&row(&["e", "c", "b", "a"]), 1.0, false);
        let shown = |height| {
            let (left_out, node) = all.outermost_shown(height);
            (left_out, node.called.keys().next().cloned())
        };
        assert_eq!(shown(9), (0, Some("a".to_owned())));
        assert_eq!(shown(2), (2, Some("c".to_owned())));
        // Never one of several.
        assert_eq!(shown(1), (3, Some("d".to_owned())));
        assert_eq!(shown(0), (3, Some("d".to_owned())));
    }
}
