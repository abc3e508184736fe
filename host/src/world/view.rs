//! What a plugin shows, for a program that draws it itself: tables of typed values instead of text.

use std::cmp::Ordering;

use super::bindings::kernelscript::host::console::Value;
use super::histogram::Histogram;
use super::histograms::Histograms;
use super::table::{Table, cell, compare, float};
use crate::text::visible;

/// Upper limit of the values of a table; further rows are left out.
const MAX_CELLS: usize = 1 << 15;

/// Upper limit of a text in bytes; the rest is cut.
const MAX_TEXT_BYTES: usize = 256;

/// Upper limit of the bytes of a table as text.
const MAX_PLAIN_BYTES: usize = 1 << 20;

/// Takes the place of standard output for tables and histograms.
///
/// It is called on the plugin's thread, which is confined: it makes no system calls but those of locks, and waits for nobody.
pub trait View: Send + Sync {
    /// Shows a table, in the place of the last one of the same title.
    fn show(&self, table: ShownTable);
}

/// A table, or the histograms of one name. All texts are visible.
#[derive(Debug, Clone)]
pub struct ShownTable {
    /// The title; empty if it has none.
    pub title: String,
    /// Its columns; none for a histogram that stands alone.
    pub columns: Vec<ShownColumn>,
    /// How many of the first columns are the key of a row, its stacks apart; none if the plugin did not say.
    pub key_len: Option<usize>,
    /// Its rows, as the plugin has sorted them.
    pub rows: Vec<ShownRow>,
    /// How many more rows there are.
    pub left_out: usize,
    /// The table as text of several lines.
    pub plain: String,
}

/// A column.
#[derive(Debug, Clone)]
pub struct ShownColumn {
    /// The heading, with the unit if there is one.
    pub heading: String,
    /// Whether it has numbers, which are aligned to the right.
    pub is_number: bool,
    /// Whether it has stacks, whose functions are lines. Such columns are the last.
    pub is_stack: bool,
}

/// A row.
#[derive(Debug, Clone)]
pub struct ShownRow {
    /// A value for each column.
    pub cells: Vec<Cell>,
    /// The lines of its texts of several lines, such as stacks.
    pub lines: Vec<String>,
    /// The histogram that the row stands for; none for a row of values.
    pub histogram: Option<Histogram>,
}

/// A value.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The value as text of one line.
    pub text: String,
    /// The value; none for texts, which are compared as such.
    value: Option<Value>,
}

impl Cell {
    fn new(value: &Value) -> Cell {
        let text = visible(&cell(value), MAX_TEXT_BYTES).into_owned();
        let value = (!matches!(value, Value::Text(_))).then(|| value.clone());
        Cell { text, value }
    }

    /// Compares two values: numbers by their value, texts by their bytes, and values of other kinds by kind.
    pub fn compare(&self, other: &Cell) -> Ordering {
        match (&self.value, &other.value) {
            (Some(one), Some(other)) => compare(one, other),
            (None, None) => self.text.cmp(&other.text),
            (one, _) => one.is_none().cmp(&true).reverse(),
        }
    }

    /// Returns the value of a number.
    pub fn number(&self) -> Option<f64> {
        float(self.value.as_ref()?)
    }
}

impl ShownTable {
    pub(super) fn of_table(table: &Table) -> ShownTable {
        let (order, headings) = (table.order(), table.headings().collect::<Vec<_>>());
        let column = |at: &usize| ShownColumn {
            heading: headings[*at].clone(),
            is_number: table.has_numbers(*at),
            is_stack: table.has_lines(*at),
        };
        let columns: Vec<ShownColumn> = order.iter().map(column).collect();
        let most = MAX_CELLS / columns.len().max(1);
        let row = |row: &Vec<Value>| {
            let mut lines = Vec::new();
            let cell = |(at, value)| match table.lines_at(at, value) {
                // Innermost first, with the sign between functions that folded stacks have.
                Some(own) => {
                    let cell = Cell::new(&Value::Text(own.join(";").into()));
                    lines.extend(own);
                    cell
                }
                None => Cell::new(value),
            };
            let cells = order.iter().filter_map(|at| Some((*at, row.get(*at)?))).map(cell).collect();
            ShownRow { cells, lines, histogram: None }
        };
        ShownTable {
            title: table.title().to_owned(),
            key_len: table
                .key_len()
                .map(|len| order.iter().filter(|at| **at < len && !table.has_lines(**at)).count()),
            columns,
            rows: table.rows().iter().take(most).map(row).collect(),
            left_out: table.rows().len().saturating_sub(most) + table.others(),
            plain: cut(table.to_string()),
        }
    }

    /// Takes the histograms; each is a row with its key, and the number, sum and mean of its values.
    pub(super) fn of_histograms(histograms: &mut Histograms) -> ShownTable {
        let title = histograms.name().to_owned();
        let keys = histograms.key_len();
        let key_heading = |at: usize| if keys == 1 { "key".to_owned() } else { format!("key {}", at + 1) };
        let column = |heading: String, is_number| ShownColumn { heading, is_number, is_stack: false };
        let columns = (0..keys).map(|at| column(key_heading(at), false));
        let columns: Vec<ShownColumn> =
            columns.chain(["count", "sum", "mean"].map(|name| column(name.to_owned(), true))).collect();
        let most = MAX_CELLS / columns.len();
        let others = histograms.others();
        let mut taken = histograms.take_with_keys();
        let left_out = taken.len().saturating_sub(most) + others;
        taken.truncate(most);
        let plain = taken.iter().map(|(_, histogram)| histogram.to_string()).collect();
        let rows = taken.into_iter().map(|(key, histogram)| {
            let numbers = histogram.summary.as_ref().map(|summary| {
                let number =
                    |number: Option<i64>| number.map_or_else(|| Value::Text("-".into()), Value::Signed64);
                [Value::Unsigned64(summary.values), number(summary.sum), number(summary.mean())]
            });
            let cells = key.iter().chain(numbers.iter().flatten()).map(Cell::new).collect();
            ShownRow { cells, lines: Vec::new(), histogram: Some(histogram) }
        });
        ShownTable { title, columns, key_len: Some(keys), rows: rows.collect(), left_out, plain: cut(plain) }
    }

    pub(super) fn of_histogram(histogram: &Histogram) -> ShownTable {
        ShownTable {
            title: histogram.title.clone(),
            columns: Vec::new(),
            key_len: None,
            rows: vec![ShownRow { cells: Vec::new(), lines: Vec::new(), histogram: Some(histogram.clone()) }],
            left_out: 0,
            plain: cut(histogram.to_string()),
        }
    }
}

/// Cuts a text behind its last whole line that fits.
fn cut(mut text: String) -> String {
    if text.len() > MAX_PLAIN_BYTES {
        let end = text.as_bytes()[..MAX_PLAIN_BYTES].iter().rposition(|byte| *byte == b'\n');
        text.truncate(end.map_or(0, |end| end + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::bindings::kernelscript::host::console::{Column, Scale};
    use super::super::histograms::KeyedCounts;
    use super::*;
    use crate::host_bytes::HostBytes;

    #[test]
    fn a_stack_is_a_text_of_its_row_and_lines_of_their_own() {
        let columns = ["stack", "count"].map(|name| Column { name: name.into(), unit: None });
        let mut table = Table::new("n", columns.into(), &HostBytes::new(1 << 20));
        table.set_lines(0);
        for (stack, count) in [("read\nsys_read", 2), ("open", 1)] {
            table.append(vec![Value::Text(stack.into()), Value::Unsigned64(count)]).expect("there is room");
        }
        table.cut(1);
        let shown = ShownTable::of_table(&table);
        let headings: Vec<&str> = shown.columns.iter().map(|column| column.heading.as_str()).collect();
        let [row] = shown.rows.as_slice() else { panic!("{shown:?}") };
        let cells: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!((headings, cells), (vec!["count", "stack"], vec!["2", "read;sys_read"]));
        assert_eq!(
            (row.lines.as_slice(), shown.left_out),
            (["read".to_owned(), "sys_read".into()].as_slice(), 1)
        );
    }

    #[test]
    fn histograms_that_were_cut_are_counted_as_left_out() {
        let mut histograms = Histograms::new("lat", Scale::Log2, &HostBytes::new(1 << 20));
        for (key, count) in [(1, 1), (2, 3), (3, 2)] {
            let mut counts = vec![0; 65];
            counts[1] = count;
            let one = KeyedCounts { key: vec![Value::Unsigned32(key)], below_zero: 0, sum: 1, counts };
            histograms.append(one).expect("there is room");
        }
        histograms.cut(2);
        let shown = ShownTable::of_histograms(&mut histograms);
        let keys: Vec<&str> = shown.rows.iter().map(|row| row.cells[0].text.as_str()).collect();
        assert_eq!((keys, shown.left_out), (vec!["2", "3"], 1));
        assert_eq!((histograms.others(), histograms.take().len()), (0, 0));
    }
}
