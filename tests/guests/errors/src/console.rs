//! Tables and histograms of the interface `console`.

use ks_guest::bindings::kernelscript::host::console::{Column, Histograms, Scale, Table, Value};

use crate::{Answer, abort, begin};

pub fn answer(function: &str, words: &[&str]) -> Answer {
    let table = Table::new("numbers", &[Column { name: "number".to_owned(), unit: None }]);
    let row = [Value::Unsigned64(1)];
    begin();
    match (function, words) {
        ("table.append", ["short"]) => table.append(&[]),
        ("histograms.append", ["many"]) => {
            let histograms = Histograms::new("numbers", Scale::Log2);
            (0..4096).try_for_each(|_| histograms.append(&row, 0, 0, &[1]))
        }
        ("table.append", ["many"]) => (0..4096).try_for_each(|_| table.append(&row)),
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}
