//! Tables that a plugin fills row by row: aligned text, or an object for each row.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Number};

use super::bindings::kernelscript::host::console::{Column, Value};
use super::{columns, format};
use crate::host_bytes::{Charge, Full, HostBytes};
use crate::text::visible;

/// Upper limit of columns; more are left out.
const MAX_COLUMNS: usize = 64;

/// Upper limit of a text in bytes; the rest is cut.
const MAX_TEXT_BYTES: usize = 4096;

/// Space between two columns.
const GAP: &str = "  ";

/// A table with the rows that were appended since it was last written.
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// Charge for the rows.
    charge: Charge,
}

impl Table {
    /// Creates a table without rows.
    pub(super) fn new(title: &str, columns: Vec<Column>, host_bytes: &HostBytes) -> Table {
        let display = |text: &str| visible(text, MAX_TEXT_BYTES).into_owned();
        let columns = columns
            .into_iter()
            .take(MAX_COLUMNS)
            .map(|column| Column { name: display(&column.name), unit: column.unit.as_deref().map(display) })
            .collect();
        Table { title: display(title), columns, rows: Vec::new(), charge: host_bytes.start() }
    }

    /// Returns the bytes of its texts.
    pub(super) fn text_bytes(&self) -> usize {
        let column =
            |one: &Column| size_of::<Column>() + one.name.len() + one.unit.as_ref().map_or(0, String::len);
        self.title.len() + self.columns.iter().map(column).sum::<usize>()
    }

    /// Returns the title, made visible.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the rows.
    pub(super) fn rows(&self) -> &[Vec<Value>] {
        &self.rows
    }

    /// Returns the headings of the columns, with their units.
    pub(super) fn headings(&self) -> impl Iterator<Item = String> {
        self.columns.iter().map(|column| match &column.unit {
            Some(unit) => format!("{} ({unit})", column.name),
            None => column.name.clone(),
        })
    }

    /// Whether a column has any number.
    pub(super) fn has_numbers(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(is_number)
    }

    /// Returns the number of columns.
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Appends a row, with a value for each column.
    ///
    /// # Errors
    /// [`Full`]: the row is dropped.
    pub(super) fn append(&mut self, row: Vec<Value>) -> Result<(), Full> {
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        let bytes = size_of_val(row.as_slice()) + row.iter().map(text).sum::<usize>();
        self.charge.grow(bytes as u64)?;
        self.rows.push(row);
        Ok(())
    }

    /// Sorts the rows by a column, largest value first, then by all columns, smallest first.
    pub(super) fn sort(&mut self, column: usize) {
        self.rows.sort_by(|one, other| {
            let larger = match (one.get(column), other.get(column)) {
                (Some(one), Some(other)) => compare(other, one),
                _ => Ordering::Equal,
            };
            larger.then_with(|| compare_keys(one, other))
        });
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.charge.shrink(u64::MAX);
    }

    /// Returns each row as an object, with the table's title and units.
    pub(super) fn objects(&self) -> impl Iterator<Item = RowObject<'_>> {
        let units: Map<String, serde_json::Value> = self
            .columns
            .iter()
            .filter_map(|column| Some((column.name.clone(), column.unit.clone()?.into())))
            .collect();
        self.rows.iter().map(move |row| {
            let members = self.columns.iter().zip(row);
            RowObject {
                table: &self.title,
                row: members.map(|(column, value)| (column.name.clone(), json(value))).collect(),
                units: units.clone(),
            }
        })
    }
}

/// A row in JSON.
#[derive(Serialize)]
pub(super) struct RowObject<'a> {
    table: &'a str,
    row: Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    units: Map<String, serde_json::Value>,
}

/// Converts a value to JSON. Numbers that JSON lacks (infinities) are null.
pub(super) fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Boolean(on) => (*on).into(),
        Value::Float64(number) => Number::from_f64(*number).map_or(serde_json::Value::Null, Into::into),
        Value::Character(_) | Value::Text(_) => cell(value).into(),
        Value::None => serde_json::Value::Null,
        _ => integer(value).and_then(Number::from_i128).map_or(serde_json::Value::Null, Into::into),
    }
}

/// Compares the values of two rows in their order.
pub(super) fn compare_keys(one: &[Value], other: &[Value]) -> Ordering {
    let columns = one.iter().zip(other).map(|(one, other)| compare(one, other));
    columns.fold(Ordering::Equal, Ordering::then)
}

/// Compares two values of a column: numbers by their value, texts by their bytes, and values of other kinds by
/// kind, `none` first.
pub(super) fn compare(one: &Value, other: &Value) -> Ordering {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => return one.cmp(&other),
        (Some(_), None) if float(other).is_none() => return rank(one).cmp(&rank(other)),
        (None, Some(_)) if float(one).is_none() => return rank(one).cmp(&rank(other)),
        _ => {}
    }
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => one.cmp(other),
        _ => match (float(one), float(other)) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => rank(one).cmp(&rank(other)),
        },
    }
}

fn integer(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Unsigned8(number) | Value::Character(number) => (*number).into(),
        Value::Unsigned16(number) => (*number).into(),
        Value::Unsigned32(number) => (*number).into(),
        Value::Unsigned64(number) | Value::Pointer(number) => (*number).into(),
        Value::Signed8(number) => (*number).into(),
        Value::Signed16(number) => (*number).into(),
        Value::Signed32(number) => (*number).into(),
        Value::Signed64(number) => (*number).into(),
        Value::Boolean(on) => (*on).into(),
        Value::Float64(_) | Value::Text(_) | Value::None => return None,
    })
}

/// Returns the value of a number.
pub(super) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float64(number) => Some(*number),
        _ => integer(value).map(|number| number as f64),
    }
}

/// Order of the kinds of values.
fn rank(value: &Value) -> u8 {
    match value {
        Value::None => 0,
        Value::Text(_) => 2,
        _ => 1,
    }
}

/// Returns a value as text of one line.
pub(super) fn cell(value: &Value) -> String {
    visible(&String::from_utf8_lossy(&format::natural(value)), MAX_TEXT_BYTES).into_owned()
}

/// Whether a value is aligned to the right.
fn is_number(value: &Value) -> bool {
    !matches!(value, Value::Text(_) | Value::Character(_) | Value::Boolean(_) | Value::None)
}

impl fmt::Display for Table {
    /// Writes the title, the headings, and a line for each row. Columns without any number are aligned to the
    /// left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![self.headings().collect::<Vec<_>>()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(cell).collect()));
        let column = |at: usize| lines.iter().filter_map(move |line| line.get(at));
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| column(at).map(|text| columns::count(text.as_bytes())).max().unwrap_or(0))
            .collect();
        let of_numbers: Vec<bool> = (0..self.columns.len()).map(|at| self.has_numbers(at)).collect();
        if !self.title.is_empty() {
            writeln!(f, "{}", self.title)?;
        }
        for line in &lines {
            let mut text = String::new();
            for ((cell, width), is_number) in line.iter().zip(&widths).zip(&of_numbers) {
                text.push_str(GAP);
                text.push_str(&columns::padded(cell, *width, *is_number));
            }
            writeln!(f, "{}", text.strip_prefix(GAP).unwrap_or_default().trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column =
            |name: &str, unit: Option<&str>| Column { name: name.into(), unit: unit.map(Into::into) };
        let columns = vec![column("task", None), column("wait", Some("ns")), column("share", Some("%"))];
        let mut table = Table::new("waits", columns, &HostBytes::new(1 << 20));
        for row in [
            vec![Value::Text(b"cat".to_vec()), Value::Unsigned64(12_345), Value::Float64(0.5)],
            vec![Value::Text(b"a\nb".to_vec()), Value::Unsigned64(7), Value::None],
        ] {
            table.append(row).expect("there is room");
        }
        table
    }

    #[test]
    fn numbers_are_right_and_text_is_left() {
        let expected =
            "waits\ntask  wait (ns)  share (%)\ncat       12345        0.5\na\\nb          7          -\n";
        assert_eq!(table().to_string(), expected);
        let mut empty = table();
        empty.clear();
        assert_eq!(empty.to_string(), "waits\ntask  wait (ns)  share (%)\n");
    }

    #[test]
    fn a_row_is_an_object_with_typed_members_and_units() {
        let objects: Vec<String> =
            table().objects().map(|row| serde_json::to_string(&row).expect("it is JSON")).collect();
        let units = r#""units":{"share":"%","wait":"ns"}"#;
        assert_eq!(
            objects,
            [
                format!(r#"{{"table":"waits","row":{{"share":0.5,"task":"cat","wait":12345}},{units}}}"#),
                format!(r#"{{"table":"waits","row":{{"share":null,"task":"a\\nb","wait":7}},{units}}}"#),
            ]
        );
    }

    #[test]
    fn rows_are_sorted_by_a_column_and_then_by_all() {
        let columns = ["name", "count"].map(|name| Column { name: name.into(), unit: None });
        let mut table = Table::new("", columns.into(), &HostBytes::new(1 << 20));
        let text = |text: &str| Value::Text(text.into());
        for row in [
            [text("b"), Value::Unsigned64(7)],
            [text("c"), Value::None],
            [text("a"), Value::Signed32(7)],
            [text("d"), Value::Float64(6.5)],
            [text("e"), Value::Unsigned64(u64::MAX)],
        ] {
            table.append(row.into()).expect("there is room");
        }
        let order = |table: &Table| {
            let rows = table.rows.iter().filter_map(|row| row.first());
            rows.map(cell).collect::<String>()
        };
        table.sort(1);
        assert_eq!(order(&table), "eabdc");
        table.sort(0);
        assert_eq!(order(&table), "edcba");
        table.sort(9);
        assert_eq!(order(&table), "abcde");
    }

    #[test]
    fn rows_are_charged_until_they_are_written() {
        let mut table = Table::new("", Vec::new(), &HostBytes::new(200));
        table.append(vec![Value::Text(vec![b'x'; 100])]).expect("there is room");
        assert!(table.append(vec![Value::Text(vec![b'x'; 100])]).is_err());
        table.clear();
        assert!(table.append(vec![Value::Text(vec![b'x'; 100])]).is_ok());
    }
}
