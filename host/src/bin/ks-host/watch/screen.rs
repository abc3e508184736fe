//! The state of the view: which table, how it is sorted and filtered, and which row is chosen.

use std::collections::{HashMap, HashSet, VecDeque};

use ks_host::world::{ShownRow, ShownTable};
use ratatui::crossterm::event::Event;

use super::content::{Content, NumberedTable};
use super::keys;

/// Values of a row that are remembered.
const MAX_HISTORY: usize = 120;

/// Rows whose values are remembered.
const MAX_REMEMBERED: usize = 1000;

/// What a key asks for outside of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing.
    Stay,
    /// The plugin is to stop.
    Stop,
}

/// The state of the view.
pub(super) struct Screen {
    pub(super) name: String,
    /// The position of the table; none: the lines.
    tab: Option<usize>,
    /// Only rows with this text.
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) is_editing: bool,
    pub(super) is_paused: bool,
    /// What is shown while the view is paused.
    pub(super) paused: Option<Content>,
    pub(super) shows_help: bool,
    /// Whether a graph of the stacks with the chosen row's key is shown, instead of the row's own stack.
    pub(super) shows_flame_graph: bool,
    /// Rows that fit; known when the view is drawn.
    pub(super) page: usize,
    tables: HashMap<String, TableState>,
    /// Lines that are below the last one shown.
    pub(super) lines_below: usize,
}

/// The state of one table.
#[derive(Debug, Default)]
pub(super) struct TableState {
    /// The column that sorts; none: as the plugin has sorted the rows.
    pub(super) sorted: Option<usize>,
    pub(super) is_reversed: bool,
    /// The chosen row, by the texts that name it; none: the first.
    chosen: Option<Vec<String>>,
    /// The position of the chosen row when it was seen last.
    position: usize,
    /// The first row that is shown.
    pub(super) offset: usize,
    history: History,
}

/// The last values of rows in one column.
#[derive(Debug, Default)]
struct History {
    column: Option<usize>,
    version: u64,
    values: HashMap<Vec<String>, VecDeque<f64>>,
}

impl Screen {
    pub(super) fn new(name: &str) -> Screen {
        Screen {
            name: name.to_owned(),
            tab: Some(0),
            filter: String::new(),
            is_editing: false,
            is_paused: false,
            paused: None,
            shows_help: false,
            shows_flame_graph: false,
            page: 1,
            tables: HashMap::new(),
            lines_below: 0,
        }
    }

    /// Takes a key, given what the plugin has shown.
    pub(super) fn take(&mut self, event: &Event, content: &Content) -> Action {
        // What is chosen is chosen of what is shown.
        let paused = self.paused.take();
        let action = keys::take(self, event, paused.as_ref().unwrap_or(content));
        if self.is_paused {
            self.paused = Some(paused.unwrap_or_else(|| content.clone()));
        }
        action
    }

    /// Returns the table that is shown; none for the lines.
    pub(super) fn table<'a>(&self, content: &'a Content) -> Option<&'a NumberedTable> {
        content.table(self.tab?)
    }

    /// Returns the position of what is shown, and the number of tabs: the tables, and behind them the lines if there are any or
    /// no table is there.
    pub(super) fn tabs(&self, content: &Content) -> (usize, usize) {
        let tables = content.table_count();
        let count = if tables == 0 || !content.lines().is_empty() { tables + 1 } else { tables };
        (self.tab.unwrap_or(tables).min(count - 1), count)
    }

    /// Shows the next tab, or the one before.
    pub(super) fn next_tab(&mut self, content: &Content, is_back: bool) {
        let (at, count) = self.tabs(content);
        let next = (at + if is_back { count - 1 } else { 1 }) % count;
        self.tab = (next < content.table_count()).then_some(next);
    }

    /// Returns the state of a table.
    pub(super) fn state(&mut self, table: &ShownTable) -> &mut TableState {
        self.tables.entry(table.title.clone()).or_default()
    }

    /// Returns the rows that the filter leaves, in their order.
    pub(super) fn rows<'a>(&mut self, table: &'a ShownTable) -> Vec<&'a ShownRow> {
        let filter = self.filter.to_lowercase();
        let has = |row: &&ShownRow| {
            filter.is_empty() || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&ShownRow> = table.rows.iter().filter(has).collect();
        let state = self.state(table);
        if let Some(column) = state.sorted.filter(|column| *column < table.columns.len()) {
            let is_number = table.columns[column].is_number;
            rows.sort_by(|one, other| {
                let order = one.cells[column].compare(&other.cells[column]);
                if is_number { order.reverse() } else { order }
            });
        }
        if state.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Moves the choice by so many rows.
    pub(super) fn move_by(&mut self, shown: &NumberedTable, rows: isize) {
        let there = self.rows(&shown.table);
        let state = self.state(&shown.table);
        let at = state.position_in(shown, &there).saturating_add_signed(rows);
        let at = at.min(there.len().saturating_sub(1));
        state.chosen = there.get(at).map(|row| shown.name_of(row));
        state.position = at;
    }
}

impl TableState {
    /// Returns the position of the chosen row among these. A row that is gone is followed by the one in its place.
    pub(super) fn position_in(&mut self, shown: &NumberedTable, rows: &[&ShownRow]) -> usize {
        if let Some(chosen) = &self.chosen {
            let found = rows.iter().position(|row| shown.name_of(row) == *chosen);
            self.position = found.unwrap_or(self.position).min(rows.len().saturating_sub(1));
            return self.position;
        }
        0
    }

    /// Remembers the values of a table that was shown anew, and returns those of a row with their heading.
    pub(super) fn history_of<'a>(
        &mut self,
        shown: &'a NumberedTable,
        row: &ShownRow,
    ) -> Option<(&'a str, &VecDeque<f64>)> {
        let column = shown.graphed_column(self.sorted)?;
        if self.history.column != Some(column) {
            self.history = History { column: Some(column), ..History::default() };
        }
        if self.history.version != shown.version {
            self.history.version = shown.version;
            self.history.remember(shown, column);
        }
        let values = self.history.values.get(&shown.name_of(row))?;
        Some((&shown.table.columns[column].heading, values))
    }
}

impl History {
    fn remember(&mut self, shown: &NumberedTable, column: usize) {
        let rows = shown.table.rows.iter().take(MAX_REMEMBERED);
        let mut seen = HashSet::new();
        for row in rows {
            let Some(number) = row.cells.get(column).and_then(|cell| cell.number()) else { continue };
            let name = shown.name_of(row);
            let values = self.values.entry(name.clone()).or_default();
            if values.len() == MAX_HISTORY {
                values.pop_front();
            }
            values.push_back(number);
            seen.insert(name);
        }
        self.values.retain(|name, _| seen.contains(name));
    }
}
