//! Output for the person who runs the plugin.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Arguments, Write};

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::sys::console::{self, Value};

/// Prints a line: the implementation of [`println!`](crate::println).
#[doc(hidden)]
pub fn print_line(text: Arguments<'_>) {
    console::line(formatted(text).as_bytes());
}

/// Prints an error: the implementation of [`error!`](crate::error!).
#[doc(hidden)]
pub fn error_line(text: Arguments<'_>) {
    console::fail(&formatted(text));
}

/// Prints information: the implementation of [`info!`](crate::info).
#[doc(hidden)]
pub fn info_line(text: Arguments<'_>) {
    console::info(&formatted(text));
}

/// Prints a message for debugging: the implementation of [`debug!`](crate::debug).
#[doc(hidden)]
pub fn debug_line(text: Arguments<'_>) {
    console::debug(&formatted(text));
}

/// Prints a warning: the implementation of [`warn!`](crate::warn).
#[doc(hidden)]
pub fn warn_line(text: Arguments<'_>) {
    console::warn(&formatted(text));
}

fn formatted(text: Arguments<'_>) -> String {
    let mut line = String::new();
    // Output that was written before a `Display` failed is kept.
    let _ = line.write_fmt(text);
    line
}

/// Writes one line to standard output, as `std::println!` does. At most 1 MiB.
///
/// ```no_run
/// ks_guest::println!("{} faults", 7);
/// ```
#[macro_export]
macro_rules! println {
    () => { $crate::console::print_line(::core::format_args!("")) };
    ($($text:tt)*) => { $crate::console::print_line(::core::format_args!($($text)*)) };
}

/// Writes one line to standard error, after the plugin's name; lines of the text are joined by `; `.
///
/// ```no_run
/// ks_guest::warn!("{} records were lost", 3);
/// ```
#[macro_export]
macro_rules! warn {
    ($($text:tt)*) => { $crate::console::warn_line(::core::format_args!($($text)*)) };
}

/// As [`warn!`](crate::warn), of what made the plugin fail.
///
/// ```no_run
/// ks_guest::error!("no interface is up");
/// ```
#[macro_export]
macro_rules! error {
    ($($text:tt)*) => { $crate::console::error_line(::core::format_args!($($text)*)) };
}

/// As [`warn!`](crate::warn), shown with `ks-host --verbose` only.
///
/// ```no_run
/// ks_guest::info!("{} tasks are there", 7);
/// ```
#[macro_export]
macro_rules! info {
    ($($text:tt)*) => { $crate::console::info_line(::core::format_args!($($text)*)) };
}

/// As [`warn!`](crate::warn), shown with `ks-host -vv` only.
///
/// ```no_run
/// ks_guest::debug!("the batch had {} records", 7);
/// ```
#[macro_export]
macro_rules! debug {
    ($($text:tt)*) => { $crate::console::debug_line(::core::format_args!($($text)*)) };
}

/// A value in a row of a [`Table`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Cell {
    /// A number from 0.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text of one line; control characters are made visible.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
    /// An address, shown in hexadecimal.
    Pointer(u64),
    /// No value: `-`, and `null` in JSON.
    None,
}

macro_rules! cells {
    ($($($ty:ty),* => $case:ident($wide:ty);)*) => {
        $($(impl From<$ty> for Cell {
            fn from(value: $ty) -> Cell {
                Cell::$case(<$wide>::from(value))
            }
        })*)*
    };
}

cells! {
    u8, u16, u32, u64 => Unsigned(u64);
    i8, i16, i32, i64 => Signed(i64);
    f32, f64 => Float(f64);
    &str, String => Text(String);
    bool => Bool(bool);
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::None, Into::into)
    }
}

impl From<Cell> for Value {
    fn from(cell: Cell) -> Value {
        match cell {
            Cell::Unsigned(number) => Value::Unsigned64(number),
            Cell::Signed(number) => Value::Signed64(number),
            Cell::Float(number) => Value::Float64(number),
            Cell::Text(text) => Value::Text(text.into_bytes()),
            Cell::Bool(on) => Value::Boolean(on),
            Cell::Pointer(address) => Value::Pointer(address),
            Cell::None => Value::None,
        }
    }
}

/// Rows with named columns: aligned lines on standard output, or with `ks-host --json` an object for each row.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::console::Table;
///
/// let mut table = Table::new("waits", &[("task", None), ("longest", Some("ns"))]);
/// table.append(["cat".into(), 12_345_u64.into()])?;
/// table.write();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Table {
    raw: console::Table,
}

impl Table {
    /// Creates a table with this title and these columns, each with its heading and the unit of its numbers in
    /// the spelling of UCUM (`ns`, `By`, `%`). At most 64 columns count.
    pub fn new(title: &str, columns: &[(&str, Option<&str>)]) -> Table {
        let column = |(name, unit): &(&str, Option<&str>)| console::Column {
            name: String::from(*name),
            unit: unit.map(String::from),
        };
        let columns: Vec<_> = columns.iter().map(column).collect();
        Table { raw: console::Table::new(title, &columns) }
    }

    /// Makes the lines of the texts in a column (counted from 0) lines of the table: such columns stand behind all others, and
    /// texts in JSON are arrays of lines.
    pub fn set_lines(&mut self, column: u32) {
        self.raw.set_lines(column);
    }

    /// Gives a column (counted from 0) another heading. A column with an empty heading is not shown.
    pub fn set_heading(&mut self, column: u32, heading: &str) {
        self.raw.set_heading(column, heading);
    }

    /// Makes rows with the same values in the first columns one row when they are written: whole numbers in the other columns are
    /// added.
    pub fn merge(&mut self, keys: u32) {
        self.raw.merge(keys);
    }

    /// Appends a row: a value for each column.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (another number of values than of columns),
    /// [`Limit`](ErrorKind::Limit) (`host_bytes`).
    pub fn append(&mut self, row: impl IntoIterator<Item = Cell>) -> Result<()> {
        let row: Vec<Value> = row.into_iter().map(Into::into).collect();
        Ok(self.raw.append(&row)?)
    }

    /// Writes the rows that were appended since the last call, and removes them.
    pub fn write(&mut self) {
        self.raw.write();
    }

    /// As [`Table::write_sorted`], of so many rows at most; as text a last line says how many others there are.
    pub fn write_top(&mut self, column: u32, rows: u32) {
        self.raw.write_top(column, rows);
    }

    /// As [`Table::write`], with the rows sorted by this column (counted from 0), largest value first; rows of
    /// equal values by the other columns, smallest first.
    pub fn write_sorted(&mut self, column: u32) {
        self.raw.write_sorted(column);
    }
}

/// Writes one line to standard error, once for each pair of key and message in a run.
pub fn warn_once(key: u64, message: &str) {
    console::warn_once(key, message);
}

/// The assignment of values to slots of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Slot 0 has 0, slot n the values of n bits: 1, 2 and 3, 4 to 7.
    Log2,
    /// The first slot counts values below `low`, the next `low` to `low + step - 1`, and so on; the last slot
    /// counts all above.
    Linear {
        /// Lowest value of the second slot.
        low: u64,
        /// Number of values in each slot.
        step: u64,
    },
}

/// Histograms of one scale, one for each key, written with the number, sum and mean of their values.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::console::{Histograms, Scale};
///
/// let mut waits = [0; 65];
/// waits[10] += 1;
/// let mut histograms = Histograms::new("wait", Scale::Log2);
/// histograms.append(["cat".into()], 0, 900, &waits)?;
/// histograms.write();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Histograms {
    raw: console::Histograms,
}

impl Histograms {
    /// Creates histograms without any key. The name stands before each key.
    pub fn new(name: &str, scale: Scale) -> Histograms {
        Histograms { raw: console::Histograms::new(name, scale.into()) }
    }

    /// Appends the histogram of a key, which has no parts if there is only one: how many of its values are below
    /// zero, the sum of all values, and the counts of the slots, of which 4096 count.
    ///
    /// # Errors
    /// [`Limit`](ErrorKind::Limit) (`host_bytes`).
    pub fn append(
        &mut self,
        key: impl IntoIterator<Item = Cell>,
        below_zero: u64,
        sum: i64,
        counts: &[u64],
    ) -> Result<()> {
        let key: Vec<Value> = key.into_iter().map(Into::into).collect();
        Ok(self.raw.append(&key, below_zero, sum, counts)?)
    }

    /// Writes the histograms that were appended since the last call, those with the most values first, and removes
    /// them.
    pub fn write(&mut self) {
        self.raw.write();
    }

    /// As [`Histograms::write`], of so many histograms at most; a last line says how many others there are.
    pub fn write_top(&mut self, histograms: u32) {
        self.raw.write_top(histograms);
    }
}

/// Begins a new picture: on a terminal, what is written from now on replaces what is there.
pub fn redraw() {
    console::redraw();
}

/// Writes a histogram to standard output: a line with the title, and one with a bar for each slot from the
/// first that is not empty to the last; with `ks-host --json` as an object. More than 4096 slots end the
/// plugin.
///
/// ```no_run
/// use ks_guest::console::{Scale, histogram};
///
/// let mut waits = [0; 65];
/// let took: u64 = 900;
/// waits[(u64::BITS - took.leading_zeros()) as usize] += 1;
/// histogram("microseconds", Scale::Log2, &waits);
/// ```
pub fn histogram(title: &str, scale: Scale, counts: &[u64]) {
    console::histogram(title.as_bytes(), scale.into(), counts);
}

impl From<Scale> for console::Scale {
    fn from(scale: Scale) -> console::Scale {
        match scale {
            Scale::Log2 => console::Scale::Log2,
            Scale::Linear { low, step } => console::Scale::Linear(console::Linear { low, step }),
        }
    }
}

/// Ends the plugin immediately like a trap, with this message. All that it attached is detached.
pub fn abort(message: &str) -> ! {
    console::abort(message);
    unreachable!("the host does not return from `abort`")
}
