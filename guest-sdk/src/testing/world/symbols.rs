//! `symbols`: names that the test assigned to addresses.

use std::format;
use std::string::String;

use super::super::state::with;

pub(crate) fn name(_process: Option<i32>, address: u64) -> String {
    with(|state| state.symbols.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}")))
}

pub(crate) fn kernel_function(address: u64) -> String {
    without_offset(name(None, address))
}

pub(crate) fn process_function(process: i32, address: u64) -> String {
    without_offset(name(Some(process), address))
}

/// The only function of a stack is the one at the address that is its number.
pub(crate) fn kernel_stack(_map: &str, id: i64) -> String {
    kernel_function(id.cast_unsigned())
}

/// As [`kernel_stack`].
pub(crate) fn process_stack(_map: &str, process: i32, id: i64) -> String {
    process_function(process, id.cast_unsigned())
}

fn without_offset(name: String) -> String {
    name.split('+').next().unwrap_or_default().into()
}
