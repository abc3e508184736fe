//! `layouts`: the types with which the test declared maps and variables. Ring buffers are declared without
//! one.

pub(crate) use crate::bindings::kernelscript::host::layouts::{Layout, Member, Repetition, Scalar};

use super::super::state::with;

pub(crate) fn of_key(map: &str) -> Option<Layout> {
    with(|state| state.maps.get(map)?.key.clone())
}

pub(crate) fn of_value(map: &str) -> Option<Layout> {
    with(|state| Some(state.maps.get(map)?.value.clone()))
}

pub(crate) fn of_variable(name: &str) -> Option<Layout> {
    with(|state| Some(state.globals.get(name)?.layout.clone()))
}

pub(crate) fn of_type(_name: &str) -> Option<Layout> {
    None
}
