//! Calls of the interface `programs`.

use ks_guest::bindings::kernelscript::host::programs;

use crate::{Answer, abort, begin};

pub fn answer(function: &str, _: &[&str]) -> Answer {
    begin();
    match function {
        "next" => programs::next(0).map(drop),
        "info" => programs::info(1).map(drop),
        _ => abort(&format!("no function `{function}`")),
    }
}
