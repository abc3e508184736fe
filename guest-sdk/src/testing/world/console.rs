//! `console`: what the plugin writes is kept.

use std::string::{String, ToString};

pub(crate) use crate::bindings::kernelscript::host::console::Value;

use super::super::state::with;

/// Of all formats the crate uses one: the line as a value.
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
