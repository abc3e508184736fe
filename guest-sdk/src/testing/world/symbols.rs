//! `symbols`: names that the test assigned to addresses.

use std::format;
use std::string::String;

use super::super::state::with;

pub(crate) fn name(_process: Option<i32>, address: u64) -> String {
    with(|state| state.symbols.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}")))
}
