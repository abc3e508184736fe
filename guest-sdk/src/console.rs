//! Text for the person who runs the plugin.

use alloc::string::String;
use core::fmt::{Arguments, Write};

use crate::sys::console::{self, Value};

/// What [`println!`](crate::println) calls.
#[doc(hidden)]
pub fn print_line(text: Arguments<'_>) {
    // The text is a value, so that no `%` or `{}` in it is a conversion; the host ends the line.
    console::print(b"%s", &[Value::Text(formatted(text).into_bytes())]);
}

/// What [`warn!`](crate::warn) calls.
#[doc(hidden)]
pub fn warn_line(text: Arguments<'_>) {
    console::warn(&formatted(text));
}

fn formatted(text: Arguments<'_>) -> String {
    let mut line = String::new();
    // A `Display` that fails leaves what it wrote.
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

/// Ends the plugin now as a trap does, with this message. What it attached is detached.
pub fn abort(message: &str) -> ! {
    console::abort(message);
    unreachable!("the host does not return from `abort`")
}
