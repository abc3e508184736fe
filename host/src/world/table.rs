//! Tables that a plugin fills row by row: aligned text, or an object for each row.

use std::cmp::Ordering;
use std::collections::BTreeSet;
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
    /// The columns whose texts have several lines.
    of_lines: BTreeSet<usize>,
    /// The columns that are not shown.
    hidden: BTreeSet<usize>,
    rows: Vec<Vec<Value>>,
    /// By how many first columns rows are merged; none: they are not.
    merged_by: Option<usize>,
    /// The number of rows that were cut.
    others: usize,
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
        Table {
            title: display(title),
            columns,
            of_lines: BTreeSet::new(),
            hidden: BTreeSet::new(),
            rows: Vec::new(),
            merged_by: None,
            others: 0,
            charge: host_bytes.start(),
        }
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

    /// Gives a column another heading. A column with an empty one is not shown.
    pub(super) fn set_heading(&mut self, column: usize, heading: &str) {
        let Some(renamed) = self.columns.get_mut(column) else { return };
        renamed.name = visible(heading, MAX_TEXT_BYTES).into_owned();
        if heading.is_empty() {
            self.hidden.insert(column);
        } else {
            self.hidden.remove(&column);
        }
    }

    /// Makes the lines of the texts in a column lines of the table.
    pub(super) fn set_lines(&mut self, column: usize) {
        if column < self.columns.len() {
            self.of_lines.insert(column);
        }
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

    /// Makes rows with the same values in the first columns one row when they are written.
    pub(super) fn merge_by(&mut self, keys: usize) {
        self.merged_by = Some(keys);
    }

    /// Returns the number of first columns that are the key of a row; none if the plugin did not say.
    pub(super) fn key_len(&self) -> Option<usize> {
        self.merged_by
    }

    /// Merges the rows with the same values in the first columns, if that is wanted. They are in the order of these then.
    pub(super) fn merge(&mut self) {
        let Some(keys) = self.merged_by else { return };
        let key = |row: &[Value]| row[..keys.min(row.len())].to_vec();
        self.rows.sort_by(|one, other| compare_keys(&key(one), &key(other)));
        let mut merged: Vec<Vec<Value>> = Vec::with_capacity(self.rows.len());
        for row in self.rows.drain(..) {
            let sum = merged.last().filter(|last| compare_keys(&key(last), &key(&row)).is_eq());
            match sum.and_then(|last| added(last, &row, keys)) {
                Some(sum) => {
                    merged.pop();
                    merged.push(sum);
                }
                None => merged.push(row),
            }
        }
        self.rows = merged;
    }

    /// Removes the rows behind the first ones.
    pub(super) fn cut(&mut self, most: usize) {
        self.others = self.rows.len().saturating_sub(most);
        self.rows.truncate(most);
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.others = 0;
        self.rows.clear();
        self.charge.shrink(u64::MAX);
    }

    /// Returns the columns that are shown, in their order: those of several lines come last.
    pub(super) fn order(&self) -> Vec<usize> {
        let shown = (0..self.columns.len()).filter(|at| !self.hidden.contains(at));
        let (last, first): (Vec<usize>, Vec<usize>) = shown.partition(|at| self.of_lines.contains(at));
        [first, last].concat()
    }

    /// Returns the number of rows that were cut.
    pub(super) fn others(&self) -> usize {
        self.others
    }

    /// Whether the lines of the texts in a column are lines of the table.
    pub(super) fn has_lines(&self, column: usize) -> bool {
        self.of_lines.contains(&column)
    }

    /// Returns the lines of a value; none if the texts of its column have one.
    pub(super) fn lines_at(&self, column: usize, value: &Value) -> Option<Vec<String>> {
        match value {
            Value::Text(text) if self.of_lines.contains(&column) => Some(lines(text)),
            _ => None,
        }
    }

    /// Returns the lines of a row, each with a text for each column.
    fn lines_of(&self, row: &[Value], order: &[usize]) -> Vec<Vec<String>> {
        let cells: Vec<Vec<String>> = order
            .iter()
            .map(|at| {
                row.get(*at).map_or(Vec::new(), |value| {
                    self.lines_at(*at, value).unwrap_or_else(|| vec![cell(value)])
                })
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |at: usize| cells.iter().map(|cell| cell.get(at).cloned().unwrap_or_default()).collect();
        (0..height).map(line).collect()
    }

    /// Returns each row as an object, with the table's title and units.
    pub(super) fn objects(&self) -> impl Iterator<Item = RowObject<'_>> {
        let shown = || self.columns.iter().enumerate().filter(|(at, _)| !self.hidden.contains(at));
        let mut units = Map::new();
        for (_, column) in shown() {
            let Some(unit) = &column.unit else { continue };
            let name = element_of(&column.name).map_or(column.name.as_str(), |(array, _)| array);
            units.insert(name.to_owned(), unit.clone().into());
        }
        self.rows.iter().map(move |row| {
            let mut members = Map::new();
            for (at, column) in shown() {
                let Some(value) = row.get(at) else { continue };
                let value = self.lines_at(at, value).map_or_else(|| json(value), Into::into);
                add_member(&mut members, &column.name, value);
            }
            RowObject { table: &self.title, row: members, units: units.clone() }
        })
    }
}

/// Adds the value of a column to a row: elements of an array, which have columns `name[0]`, `name[1]`, are one array.
fn add_member(members: &mut Map<String, serde_json::Value>, column: &str, value: serde_json::Value) {
    let element = element_of(column);
    if let Some((array, 0)) = element
        && !members.contains_key(array)
    {
        members.insert(array.to_owned(), vec![value].into());
        return;
    }
    let array = element.and_then(|(array, index)| Some((members.get_mut(array)?.as_array_mut()?, index)));
    match array {
        Some((elements, index)) if elements.len() == index => elements.push(value),
        _ => drop(members.insert(column.to_owned(), value)),
    }
}

/// The name of an array and the index, if a column is an element of one.
fn element_of(column: &str) -> Option<(&str, usize)> {
    let (array, index) = column.strip_suffix(']')?.rsplit_once('[')?;
    Some((array, index.parse().ok()?)).filter(|(array, _)| !array.is_empty())
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
        Value::Character(_) | Value::Text(_) => text(value).into(),
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

/// Returns a row with the sums of the values behind the first columns; none if one does not fit or is no whole number.
fn added(one: &[Value], other: &[Value], keys: usize) -> Option<Vec<Value>> {
    let sums = one.iter().zip(other).enumerate().map(|(at, (one, other))| match (one, other) {
        (one, _) if at < keys => Some(one.clone()),
        (Value::Unsigned64(one), Value::Unsigned64(other)) => one.checked_add(*other).map(Value::Unsigned64),
        (Value::Signed64(one), Value::Signed64(other)) => one.checked_add(*other).map(Value::Signed64),
        (Value::Unsigned32(one), Value::Unsigned32(other)) => one.checked_add(*other).map(Value::Unsigned32),
        (Value::Signed32(one), Value::Signed32(other)) => one.checked_add(*other).map(Value::Signed32),
        _ => None,
    });
    sums.collect()
}

/// Returns the line that says how many others there are.
pub(super) fn rest(others: usize) -> String {
    format!("({others} more)\n")
}

/// Returns the lines of a text.
fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(|line| visible(line, MAX_TEXT_BYTES).into_owned()).collect()
}

/// Returns a value as text of one line.
pub(super) fn cell(value: &Value) -> String {
    visible(&text(value), MAX_TEXT_BYTES).into_owned()
}

/// Returns a value as text, in which bytes that are no UTF-8 are `\xff`.
fn text(value: &Value) -> String {
    let bytes = format::natural(value);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Whether a value is aligned to the right.
fn is_number(value: &Value) -> bool {
    !matches!(value, Value::Text(_) | Value::Character(_) | Value::Boolean(_) | Value::None)
}

impl fmt::Display for Table {
    /// Writes the title, the headings, and a line for each row. Columns without any number are aligned to the
    /// left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.order();
        let headings: Vec<String> = self.headings().collect();
        let mut lines = vec![order.iter().map(|at| headings[*at].clone()).collect::<Vec<_>>()];
        lines.extend(self.rows.iter().flat_map(|row| self.lines_of(row, &order)));
        let column = |at: usize| lines.iter().filter_map(move |line| line.get(at));
        let widths: Vec<usize> = (0..order.len())
            .map(|at| column(at).map(|text| columns::count(text.as_bytes())).max().unwrap_or(0))
            .collect();
        let of_numbers: Vec<bool> = order.iter().map(|at| self.has_numbers(*at)).collect();
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
        if self.others > 0 {
            f.write_str(&rest(self.others))?;
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
    fn elements_of_an_array_are_an_array() {
        let mut members = Map::new();
        for (column, value) in
            [("of[0]", 1), ("of[1]", 2), ("of[3]", 3), ("x", 4), ("x[0]", 5), ("[0]", 6), ("at[0][1]", 7)]
        {
            add_member(&mut members, column, value.into());
        }
        let expected = serde_json::json!(
            { "of": [1, 2], "of[3]": 3, "x": 4, "x[0]": 5, "[0]": 6, "at[0][1]": 7 }
        );
        assert_eq!(serde_json::Value::Object(members), expected);
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
                format!(r#"{{"table":"waits","row":{{"share":null,"task":"a\nb","wait":7}},{units}}}"#),
            ]
        );
    }

    #[test]
    fn a_column_has_another_heading_or_none() {
        let mut table = table();
        table.set_heading(1, "a\nb");
        table.set_heading(2, "");
        table.set_heading(9, "none");
        assert_eq!(table.to_string(), "waits\ntask  a\\nb (ns)\ncat       12345\na\\nb          7\n");
        let first = table.objects().next().map(|row| serde_json::to_string(&row).expect("it is JSON"));
        let expected = r#"{"table":"waits","row":{"a\\nb":12345,"task":"cat"},"units":{"a\\nb":"ns"}}"#;
        assert_eq!(first.as_deref(), Some(expected));
    }

    #[test]
    fn rows_of_the_same_keys_are_added() {
        let columns = ["key", "count"].map(|name| Column { name: name.into(), unit: None });
        let mut table = Table::new("", columns.into(), &HostBytes::new(1 << 20));
        let text = |text: &str| Value::Text(text.into());
        let rows = [("b", 2), ("a", u64::MAX), ("b", 3), ("a", 1), ("c", 1)];
        for (key, count) in rows {
            table.append(vec![text(key), Value::Unsigned64(count)]).expect("there is room");
        }
        table.merge();
        assert_eq!(table.rows.len(), 5);
        table.merge_by(1);
        table.merge();
        table.sort(1);
        table.cut(3);
        let expected = format!(
            "key                 count\na    {}\nb                       5\na                       1\n(1 more)\n",
            u64::MAX
        );
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn columns_of_lines_stand_behind_the_others() {
        let columns = ["stack", "count"].map(|name| Column { name: name.into(), unit: None });
        let mut table = Table::new("", columns.into(), &HostBytes::new(1 << 20));
        table.set_lines(0);
        table.set_lines(7);
        for (stack, count) in [("read\nsys_read", 12), ("a\u{1b}b", 3), ("", 1)] {
            table.append(vec![Value::Text(stack.into()), Value::Unsigned64(count)]).expect("there is room");
        }
        let expected = "count  stack\n   12  read\n       sys_read\n    3  a\\u{1b}b\n    1\n";
        assert_eq!(table.to_string(), expected);
        let objects: Vec<String> =
            table.objects().map(|row| serde_json::to_string(&row).expect("it is JSON")).collect();
        assert_eq!(objects[0], r#"{"table":"","row":{"count":12,"stack":["read","sys_read"]}}"#);
        assert_eq!(objects[2], r#"{"table":"","row":{"count":1,"stack":[]}}"#);
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
