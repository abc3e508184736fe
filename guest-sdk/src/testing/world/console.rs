//! `console`: stores the plugin's output.

use std::format;
use std::string::{String, ToString};

pub(crate) use crate::bindings::kernelscript::host::console::{Linear, Scale, Value};

use super::super::state::with;

/// Ignores the format: the crate always passes the line as one value.
pub(crate) fn print(_format: &[u8], values: &[Value]) {
    with(|state| {
        for value in values {
            if let Value::Text(text) = value {
                state.output.push_str(&String::from_utf8_lossy(text));
            }
        }
        if !state.output.ends_with('\n') || values.iter().all(is_empty) {
            state.output.push('\n');
        }
    });
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

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text.is_empty())
}

pub(crate) fn warn(message: &str) {
    with(|state| {
        state.errors.push_str(&message.replace('\n', "; "));
        state.errors.push('\n');
    });
}

pub(crate) fn warn_once(key: u64, message: &str) {
    if with(|state| state.warned.insert((key, message.to_string()))) {
        warn(message);
    }
}

pub(crate) fn abort(message: &str) {
    panic!("the plugin ended itself: {message}")
}
