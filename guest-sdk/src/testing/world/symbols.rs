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

fn without_offset(name: String) -> String {
    name.split('+').next().unwrap_or_default().into()
}
