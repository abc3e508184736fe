//! Output for the person who runs the plugin.

use alloc::string::String;
use core::fmt::{Arguments, Write};

use crate::sys::console::{self, Value};

/// Prints a line: the implementation of [`println!`](crate::println).
#[doc(hidden)]
pub fn print_line(text: Arguments<'_>) {
    // The text is passed as a value, so that no `%` or `{}` in it is a conversion; the host ends the line.
    console::print(b"%s", &[Value::Text(formatted(text).into_bytes())]);
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
    let scale = match scale {
        Scale::Log2 => console::Scale::Log2,
        Scale::Linear { low, step } => console::Scale::Linear(console::Linear { low, step }),
    };
    console::histogram(title.as_bytes(), scale, counts);
}

/// Ends the plugin immediately like a trap, with this message. All that it attached is detached.
pub fn abort(message: &str) -> ! {
    console::abort(message);
    unreachable!("the host does not return from `abort`")
}
