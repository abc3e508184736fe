//! What the plugin has shown: its last tables, and its last lines.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ks_host::world::{Cell, ShownRow, ShownTable, View};

/// Upper limit of tables; those of further titles are not shown.
const MAX_TABLES: usize = 16;

/// Upper limit of lines; the oldest are dropped.
const MAX_LINES: usize = 1000;

/// Upper limit of a line in bytes; the rest is cut.
const MAX_LINE_BYTES: usize = 1024;

/// What the plugin's thread and that of the view share.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Content>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Content> {
        // A thread that panicked may have left a line out, nothing else.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Shared {
    fn show(&self, table: ShownTable) {
        self.lock().show(table);
    }
}

/// A table as it was shown at some time.
#[derive(Debug, Clone)]
pub(super) struct NumberedTable {
    pub(super) table: ShownTable,
    /// The version of the content that it came with.
    pub(super) version: u64,
    /// The number of columns, from the first on, whose texts name its rows, together with their stacks.
    name_len: usize,
}

impl NumberedTable {
    fn new(table: ShownTable, version: u64) -> NumberedTable {
        let name_len = table.key_len.unwrap_or_else(|| naming_columns(&table));
        NumberedTable { table, version, name_len }
    }

    /// Returns the texts that name a row: the key of a map, or the part of it that tells its entries apart.
    pub(super) fn name_of(&self, row: &ShownRow) -> Vec<String> {
        name(&self.table, row, self.name_len).map(str::to_owned).collect()
    }

    /// Returns the texts of a row's name without its stacks.
    pub(super) fn key_of<'a>(&self, row: &'a ShownRow) -> impl Iterator<Item = &'a str> {
        texts(&row.cells[..self.name_len.min(row.cells.len())])
    }

    /// Returns the column that a graph of the rows shows: the one that sorts, or the last; none without numbers.
    pub(super) fn graphed_column(&self, sorted: Option<usize>) -> Option<usize> {
        let columns = &self.table.columns;
        let is_value = |column: &usize| {
            *column >= self.name_len && columns.get(*column).is_some_and(|column| column.is_number)
        };
        sorted.filter(is_value).or_else(|| (0..columns.len()).rev().find(is_value))
    }
}

/// Returns how many of the first columns tell the rows apart, if the plugin does not say which are the key: up to the last
/// text, and as many more as are needed.
fn naming_columns(table: &ShownTable) -> usize {
    let plain = table.columns.iter().filter(|column| !column.is_stack).count();
    let texts = table.columns[..plain].iter().rposition(|column| !column.is_number);
    // Stacks may be all of a key.
    let least = texts.map_or(usize::from(plain == table.columns.len()), |last| last + 1);
    let are_names = |len: &usize| {
        let mut names = HashSet::new();
        table.rows.iter().all(|row| names.insert(name(table, row, *len).collect::<Vec<_>>()))
    };
    (least..=plain).find(are_names).unwrap_or(plain)
}

/// Returns the texts of the first columns, and those of the stacks.
fn name<'a>(table: &ShownTable, row: &'a ShownRow, len: usize) -> impl Iterator<Item = &'a str> {
    let stacks = table.columns.iter().filter(|column| column.is_stack).count();
    let (first, last) = row.cells.split_at(row.cells.len().saturating_sub(stacks));
    texts(&first[..len.min(first.len())]).chain(texts(last))
}

fn texts(cells: &[Cell]) -> impl Iterator<Item = &str> {
    cells.iter().map(|cell| cell.text.as_str())
}

/// All that was shown.
#[derive(Debug, Default, Clone)]
pub(super) struct Content {
    tables: Vec<NumberedTable>,
    /// Lines of both streams.
    lines: VecDeque<String>,
    /// Those of standard error.
    messages: VecDeque<String>,
    version: u64,
}

impl Content {
    /// A number that grows with each change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The tables, in the order in which they first came.
    pub(super) fn tables(&self) -> impl Iterator<Item = &ShownTable> {
        self.tables.iter().map(|numbered| &numbered.table)
    }

    /// The table at this position.
    pub(super) fn table(&self, at: usize) -> Option<&NumberedTable> {
        self.tables.get(at)
    }

    pub(super) fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// The last lines, the newest last.
    pub(super) fn lines(&self) -> &VecDeque<String> {
        &self.lines
    }

    /// The last lines of standard error.
    pub(super) fn messages(&self) -> impl Iterator<Item = &String> {
        self.messages.iter()
    }

    fn show(&mut self, table: ShownTable) {
        self.version += 1;
        let version = self.version;
        if let Some(old) = self.tables.iter_mut().find(|old| old.table.title == table.title) {
            *old = NumberedTable::new(table, version);
        } else if self.tables.len() < MAX_TABLES {
            self.tables.push(NumberedTable::new(table, version));
        }
    }

    fn add_line(&mut self, line: String, is_message: bool) {
        self.version += 1;
        if is_message {
            push(&mut self.messages, line.clone());
        }
        push(&mut self.lines, line);
    }
}

fn push(lines: &mut VecDeque<String>, line: String) {
    if lines.len() == MAX_LINES {
        lines.pop_front();
    }
    lines.push_back(line);
}

/// A stream of the plugin, whose lines are shown.
pub(super) struct Lines {
    shared: Arc<Shared>,
    is_message: bool,
    /// The line that has no end yet.
    begun: Vec<u8>,
}

impl Lines {
    /// Standard output.
    pub(super) fn printed(shared: &Arc<Shared>) -> Lines {
        Lines { shared: Arc::clone(shared), is_message: false, begun: Vec::new() }
    }

    /// Standard error.
    pub(super) fn said(shared: &Arc<Shared>) -> Lines {
        Lines { is_message: true, ..Lines::printed(shared) }
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, has_end) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = MAX_LINE_BYTES.saturating_sub(self.begun.len());
            self.begun.extend(&text[..text.len().min(room)]);
            if has_end {
                let line = String::from_utf8_lossy(&self.begun).replace('\t', "    ");
                self.begun.clear();
                self.shared.lock().add_line(line, self.is_message);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
