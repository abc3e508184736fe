//! The interface `globals`: a variable by its name, before or after the load.

use ks_guest::bindings::kernelscript::host::globals::Variable;
use ks_guest::bindings::kernelscript::host::maps::BpfMap;

use crate::{Answer, abort, begin, prepared, until_refused};

/// The words are the variable and `loaded`, if the object is loaded first.
pub fn answer(function: &str, words: &[&str]) -> Answer {
    match (function, words) {
        ("variable.open", [name]) => {
            begin();
            Variable::open(name).map(drop)
        }
        ("variable.open", [name, "many"]) => until_refused(|| Variable::open(name)),
        (function, [name, rest @ ..]) => {
            let variable = prepared(Variable::open(name));
            if rest == ["loaded"] {
                prepared(BpfMap::open("bare"));
            }
            match function {
                "variable.set" => variable.set(1),
                "variable.write" if rest == ["outside"] => variable.write(variable.size(), &[1]),
                "variable.write" => variable.write(0, &[1]),
                _ => abort(&format!("no function `{function}`")),
            }
        }
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}
