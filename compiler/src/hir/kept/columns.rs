//! Columns of tables: the parts of a value or a key that people read, with their headings.

use super::super::statistics::{Statistic, StatsField};
use crate::types::{StructId, TypeId, TypeKind, Types};

/// The column of a value or key that has no parts.
const KEY: &str = "key";
pub(super) const VALUE: &str = "value";
/// The column of the numbers of elements.
const INDEX: &str = "index";
/// The elements of an array within a key or a struct that have columns: all of an address of IPv6.
const MAX_ELEMENTS: u64 = 16;
/// The computed columns of a `stats`, after the count and the sum.
const SHOWN: [(Statistic, &str); 3] =
    [(Statistic::Min, "min"), (Statistic::Max, "max"), (Statistic::Mean, "mean")];

/// A part of a value that a column shows.
#[derive(Clone)]
pub(super) struct Column {
    pub name: String,
    /// The steps from the value to the part.
    pub path: Vec<Step>,
    /// What is shown of a part that is a `stats`.
    pub statistic: Option<Statistic>,
    pub ty: TypeId,
}

impl Column {
    fn new(name: impl Into<String>, path: &[Step], ty: TypeId) -> Column {
        Column { name: name.into(), path: path.to_vec(), statistic: None, ty }
    }
}

/// A step to a part of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Field(usize),
    Element(u64),
}

/// Whether values of a type have columns or bars: numbers, texts, and what contains them.
pub fn is_printed(types: &Types, ty: TypeId) -> bool {
    !columns(types, ty, VALUE).is_empty()
}

/// Whether keys of a type have columns.
pub fn is_printed_key(types: &Types, ty: TypeId) -> bool {
    !key_columns(types, ty).is_empty()
}

/// Returns the headings of the table of a map.
pub fn headings(types: &Types, key: TypeId, value: TypeId) -> Vec<String> {
    names([&key_columns(types, key), &columns(types, value, VALUE)])
}

/// Whether the rows of a map with such values are sorted: elements of arrays stand in their order.
pub fn is_sorted(types: &Types, value: TypeId) -> bool {
    element(types, value).is_none()
}

/// Returns the columns of a value: one for a number or a text, and one for each such field of a struct or element
/// of an array in it. Elements of a value that is an array are rows. Other types have none.
pub(super) fn columns(types: &Types, ty: TypeId, name: &str) -> Vec<Column> {
    let (ty, mut found) = match element(types, ty) {
        Some(element) => (element, vec![Column::new(INDEX, &[], types.common().u32)]),
        None => (ty, Vec::new()),
    };
    let first = found.len();
    parts(types, ty, name, &mut Vec::new(), &mut found);
    if found.len() == first {
        found.clear();
    }
    found
}

/// Returns the columns of a key, one for each part.
pub(super) fn key_columns(types: &Types, ty: TypeId) -> Vec<Column> {
    let mut found = Vec::new();
    parts(types, ty, KEY, &mut Vec::new(), &mut found);
    found
}

fn parts(types: &Types, ty: TypeId, name: &str, path: &mut Vec<Step>, found: &mut Vec<Column>) {
    match types.kind(ty) {
        TypeKind::Struct(id) if types.is_stats(*id) => statistics(types, *id, name, path, found),
        TypeKind::Struct(id) => {
            for (at, field) in types.struct_def(*id).fields.iter().enumerate() {
                let of = if path.is_empty() { String::new() } else { format!("{name}.") };
                path.push(Step::Field(at));
                parts(types, field.ty, &format!("{of}{}", field.name), path, found);
                path.pop();
            }
        }
        TypeKind::Bool | TypeKind::Char | TypeKind::Int(_) | TypeKind::Enum(_) | TypeKind::Str(_) => {
            found.push(Column::new(name, path, ty));
        }
        TypeKind::Array(..) if is_text(types, ty) => {
            found.push(Column::new(name, path, ty));
        }
        TypeKind::Array(element, count) => {
            for at in 0..(*count).min(MAX_ELEMENTS) {
                path.push(Step::Element(at));
                parts(types, *element, &format!("{name}[{at}]"), path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Appends the columns of a `stats`: those of its fields that people read, and those that are computed.
fn statistics(types: &Types, id: StructId, name: &str, path: &mut Vec<Step>, found: &mut Vec<Column>) {
    let of = if path.is_empty() { String::new() } else { format!("{name}.") };
    for (field, name) in &StatsField::ALL[..2] {
        let index = *field as usize;
        path.push(Step::Field(index));
        found.push(Column::new(format!("{of}{name}"), path, types.struct_def(id).fields[index].ty));
        path.pop();
    }
    for (statistic, name) in SHOWN {
        let column = Column::new(format!("{of}{name}"), path, types.common().i64);
        found.push(Column { statistic: Some(statistic), ..column });
    }
}

fn is_text(types: &Types, ty: TypeId) -> bool {
    matches!(types.kind(ty), TypeKind::Array(element, _) if *element == types.common().char)
}

/// Returns the type of the elements, each of which is a row.
pub(super) fn element(types: &Types, ty: TypeId) -> Option<TypeId> {
    match types.kind(ty) {
        TypeKind::Array(element, _) if !is_text(types, ty) => Some(*element),
        _ => None,
    }
}

/// Returns the paths to the statistics among the parts that columns show.
pub(super) fn statistics_in(columns: &[Column]) -> Vec<Vec<Step>> {
    let of_stats = columns.iter().filter(|column| column.statistic == Some(Statistic::Mean));
    of_stats.map(|column| column.path.clone()).collect()
}

/// Returns the headings of columns. No two are the same.
pub(super) fn names<const N: usize>(columns: [&Vec<Column>; N]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Column { name, .. } in columns.into_iter().flatten() {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !names.contains(name));
        names.extend(free);
    }
    names
}
