//! `console`: stores the plugin's output.

use std::cell::RefCell;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

pub(crate) use crate::bindings::kernelscript::host::console::{Column, Linear, Scale, Value};
use crate::bindings::kernelscript::host::types::Error;
use crate::error::ErrorKind;

use super::super::state::{error, with};

pub(crate) fn line(text: &[u8]) {
    with(|state| {
        state.output.push_str(&String::from_utf8_lossy(text));
        if text.last() != Some(&b'\n') {
            state.output.push('\n');
        }
    });
}

/// A table, written as a line for each row; only the real host aligns columns.
#[derive(Debug)]
pub(crate) struct Table {
    width: usize,
    rows: RefCell<String>,
}

impl Table {
    pub(crate) fn new(_title: &str, columns: &[Column]) -> Table {
        Table { width: columns.len(), rows: RefCell::default() }
    }

    /// Only the real host makes lines of a cell.
    pub(crate) fn set_lines(&self, _column: u32) {}

    /// Only the real host writes headings.
    pub(crate) fn set_heading(&self, _column: u32, _heading: &str) {}

    /// Only the real host merges rows.
    pub(crate) fn merge(&self, _keys: u32) {}

    pub(crate) fn append(&self, row: &[Value]) -> Result<(), Error> {
        if row.len() != self.width {
            return Err(error(ErrorKind::Invalid, format!("a row of {} values", row.len())));
        }
        let cells: Vec<String> = row.iter().map(cell).collect();
        self.rows.borrow_mut().push_str(&(cells.join(" ") + "\n"));
        Ok(())
    }

    pub(crate) fn write(&self) {
        let rows = self.rows.take();
        with(|state| state.output.push_str(&rows));
    }

    /// Writes all rows.
    pub(crate) fn write_top(&self, _column: u32, _rows: u32) {
        self.write();
    }

    /// Writes the rows in the order in which they were appended: only the real host sorts them.
    pub(crate) fn write_sorted(&self, _column: u32) {
        self.write();
    }
}

/// Histograms, written as a line for each; only the real host sorts them and draws bars.
#[derive(Debug)]
pub(crate) struct Histograms {
    name: String,
    lines: RefCell<String>,
}

impl Histograms {
    pub(crate) fn new(name: &str, _scale: Scale) -> Histograms {
        Histograms { name: String::from(name), lines: RefCell::default() }
    }

    pub(crate) fn append(
        &self,
        key: &[Value],
        below_zero: u64,
        sum: i64,
        counts: &[u64],
    ) -> Result<(), Error> {
        let cells: Vec<String> = key.iter().map(cell).collect();
        let slots: Vec<String> = counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(slot, count)| format!(" {slot}={count}"))
            .collect();
        let (name, key, slots) = (&self.name, cells.join(" "), slots.concat());
        let line = format!("{name}[{key}]: sum={sum} below_zero={below_zero}{slots}\n");
        self.lines.borrow_mut().push_str(&line);
        Ok(())
    }

    pub(crate) fn write(&self) {
        let lines = self.lines.take();
        with(|state| state.output.push_str(&lines));
    }

    /// Writes all histograms.
    pub(crate) fn write_top(&self, _histograms: u32) {
        self.write();
    }
}

/// The output of a test is no terminal.
pub(crate) fn redraw() {}

fn cell(value: &Value) -> String {
    match value {
        Value::Unsigned64(number) => number.to_string(),
        Value::Signed64(number) => number.to_string(),
        Value::Float64(number) => number.to_string(),
        Value::Boolean(on) => on.to_string(),
        Value::Pointer(address) => format!("{address:#x}"),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => "-".to_string(),
    }
}

/// Writes a line with the title, and the non-empty slots with their counts; only the real host draws bars.
pub(crate) fn histogram(title: &[u8], _scale: Scale, counts: &[u64]) {
    let mut line = String::from_utf8_lossy(title).into_owned() + ":";
    for (slot, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        line.push_str(&format!(" {slot}={count}"));
    }
    with(|state| {
        state.output.push_str(&line);
        state.output.push('\n');
    });
}

pub(crate) fn warn(message: &str) {
    with(|state| {
        state.errors.push_str(&message.replace('\n', "; "));
        state.errors.push('\n');
    });
}

pub(crate) fn fail(message: &str) {
    warn(message);
}

/// A test shows all levels.
pub(crate) fn info(message: &str) {
    warn(message);
}

pub(crate) fn debug(message: &str) {
    warn(message);
}

pub(crate) fn warn_once(key: u64, message: &str) {
    if with(|state| state.warned.insert((key, message.to_string()))) {
        warn(message);
    }
}

pub(crate) fn abort(message: &str) {
    panic!("the plugin ended itself: {message}")
}
