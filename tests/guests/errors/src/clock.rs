//! Waits of the interface `clock`.

use ks_guest::bindings::kernelscript::host::clock;

use crate::{Answer, abort};

const MINUTE: u64 = 60_000_000_000;

pub fn answer(function: &str, _: &[&str]) -> Answer {
    match function {
        "sleep" => clock::sleep(MINUTE),
        "sleep-until" => clock::sleep_until(clock::now() + MINUTE),
        _ => abort(&format!("no function `{function}`")),
    }
}
