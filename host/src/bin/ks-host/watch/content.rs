//! What the plugin has shown: its last tables, and its last lines.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ks_host::world::{ShownRow, ShownTable, View};

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
    /// The number of columns, from the first on, whose texts tell its rows apart.
    name_len: usize,
}

impl NumberedTable {
    fn new(table: ShownTable, version: u64) -> NumberedTable {
        let columns = &table.columns;
        let all = columns.len().max(1);
        let least = columns.iter().rposition(|column| !column.is_number).map_or(1, |last| last + 1);
        let are_names = |len: &usize| {
            let mut names = HashSet::new();
            table.rows.iter().all(|row| names.insert(name(row, *len).collect::<Vec<_>>()))
        };
        let name_len = (least..=all).find(are_names).unwrap_or(all);
        NumberedTable { table, version, name_len }
    }

    /// Returns the texts that name a row: the key of a map, or the part of it that tells its entries apart.
    pub(super) fn name_of(&self, row: &ShownRow) -> Vec<String> {
        name(row, self.name_len).map(str::to_owned).collect()
    }
}

fn name(row: &ShownRow, len: usize) -> impl Iterator<Item = &str> {
    row.cells.iter().take(len).map(|cell| cell.text.as_str())
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
