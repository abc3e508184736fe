//! Columns of tables: the parts of a value or a key that people read, with their headings.

use super::super::statistics::{Statistic, StatsField};
use super::super::{Global, Map};
use crate::types::{ColumnLabel, StructId, TypeId, TypeKind, Types};

/// The column of a value or key that has no parts.
const KEY: &str = "key";
const VALUE: &str = "value";
/// The column of the numbers of elements.
const INDEX: &str = "index";
/// The elements of an array within a key or a struct that have columns: all of an address or a digest.
const MAX_ELEMENTS: u64 = 64;
/// The computed columns of a `stats`, after the count and the sum.
const SHOWN: [(Statistic, &str); 3] =
    [(Statistic::Min, "min"), (Statistic::Max, "max"), (Statistic::Mean, "mean")];

/// A part of a value that a column shows.
#[derive(Clone)]
pub(super) struct Column {
    pub name: String,
    pub unit: Option<String>,
    /// The steps from the value to the part.
    pub path: Vec<Step>,
    /// What is shown of a part that is a `stats`.
    pub statistic: Option<Statistic>,
    pub ty: TypeId,
}

impl Column {
    fn new(label: &ColumnLabel, path: &[Step], ty: TypeId) -> Column {
        let ColumnLabel { heading, unit } = label.clone();
        Column { name: heading, unit, path: path.to_vec(), statistic: None, ty }
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
    !columns(types, ty, &plain(VALUE)).is_empty()
}

/// Whether keys of a type have columns.
pub fn is_printed_key(types: &Types, ty: TypeId) -> bool {
    !key_columns(types, ty).is_empty()
}

/// Returns the headings of the table of a map.
pub fn headings(types: &Types, map: &Map) -> Vec<String> {
    let labels = labels([&key_columns(types, map.key), &value_columns(types, map)]);
    labels.into_iter().map(|label| label.heading).collect()
}

/// Returns the headings of the values in the table of a map.
pub fn value_headings(types: &Types, map: &Map) -> Vec<String> {
    headings(types, map).split_off(key_columns(types, map.key).len())
}

/// Returns the columns of the values of a map.
pub(super) fn value_columns(types: &Types, map: &Map) -> Vec<Column> {
    let label = map.column.clone().unwrap_or_else(|| plain(VALUE));
    columns(types, map.value, &label)
}

/// Returns the columns of a variable that has a table of its own.
pub(super) fn array_columns(types: &Types, global: &Global) -> Vec<Column> {
    let label = global.column.clone().unwrap_or_else(|| plain(VALUE));
    columns(types, global.ty, &label)
}

/// Returns the columns of a variable among others, whose parts have its name before their own.
pub(super) fn variable_columns(
    types: &Types,
    name: &str,
    column: Option<&ColumnLabel>,
    ty: TypeId,
) -> Vec<Column> {
    let label = column.cloned().unwrap_or_else(|| plain(name));
    let mut columns = columns(types, ty, &label);
    for column in &mut columns {
        if !column.path.is_empty() || column.statistic.is_some() {
            column.name = format!("{}.{}", label.heading, column.name);
        }
    }
    columns
}

/// Returns a label without a unit.
fn plain(heading: &str) -> ColumnLabel {
    ColumnLabel { heading: heading.to_owned(), unit: None }
}

/// Whether the rows of a map with such values are sorted: elements of arrays stand in their order.
pub fn is_sorted(types: &Types, value: TypeId) -> bool {
    element(types, value).is_none()
}

/// Returns the columns of a value: one for a number or a text, and one for each such field of a struct or element
/// of an array in it. Elements of a value that is an array are rows. Other types have none.
fn columns(types: &Types, ty: TypeId, label: &ColumnLabel) -> Vec<Column> {
    let (ty, mut found) = match element(types, ty) {
        Some(element) => (element, vec![Column::new(&plain(INDEX), &[], types.common().u32)]),
        None => (ty, Vec::new()),
    };
    let first = found.len();
    parts(types, ty, label, &mut Vec::new(), &mut found);
    if found.len() == first {
        found.clear();
    }
    found
}

/// Returns the columns of a key, one for each part.
pub(super) fn key_columns(types: &Types, ty: TypeId) -> Vec<Column> {
    let mut found = Vec::new();
    parts(types, ty, &plain(KEY), &mut Vec::new(), &mut found);
    found
}

fn parts(types: &Types, ty: TypeId, label: &ColumnLabel, path: &mut Vec<Step>, found: &mut Vec<Column>) {
    let name = &label.heading;
    match types.kind(ty) {
        TypeKind::Struct(id) if types.is_stats(*id) => statistics(types, *id, label, path, found),
        TypeKind::Struct(id) => {
            for (at, field) in types.struct_def(*id).fields.iter().enumerate() {
                let of = if path.is_empty() { String::new() } else { format!("{name}.") };
                let label = field.column.clone().unwrap_or_else(|| plain(&field.name));
                path.push(Step::Field(at));
                let label = ColumnLabel { heading: of + &label.heading, ..label };
                parts(types, field.ty, &label, path, found);
                path.pop();
            }
        }
        TypeKind::Bool | TypeKind::Char | TypeKind::Int(_) | TypeKind::Enum(_) | TypeKind::Str(_) => {
            found.push(Column::new(label, path, ty));
        }
        TypeKind::Array(..) if is_text(types, ty) => {
            found.push(Column::new(label, path, ty));
        }
        TypeKind::Array(element, count) => {
            for at in 0..(*count).min(MAX_ELEMENTS) {
                path.push(Step::Element(at));
                let label = ColumnLabel { heading: format!("{name}[{at}]"), ..label.clone() };
                parts(types, *element, &label, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Appends the columns of a `stats`: those of its fields that people read, and those that are computed.
/// The number of values has no unit.
fn statistics(
    types: &Types,
    id: StructId,
    label: &ColumnLabel,
    path: &mut Vec<Step>,
    found: &mut Vec<Column>,
) {
    let (name, unit) = (&label.heading, &label.unit);
    let of = if path.is_empty() { String::new() } else { format!("{name}.") };
    for (field, name) in &StatsField::ALL[..2] {
        let index = *field as usize;
        path.push(Step::Field(index));
        let unit = unit.clone().filter(|_| *field != StatsField::Count);
        let label = ColumnLabel { heading: format!("{of}{name}"), unit };
        found.push(Column::new(&label, path, types.struct_def(id).fields[index].ty));
        path.pop();
    }
    for (statistic, name) in SHOWN {
        let label = ColumnLabel { heading: format!("{of}{name}"), unit: unit.clone() };
        let column = Column::new(&label, path, types.common().i64);
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

/// Returns the labels of columns. No two headings are the same.
pub(super) fn labels<const N: usize>(columns: [&Vec<Column>; N]) -> Vec<ColumnLabel> {
    let mut labels: Vec<ColumnLabel> = Vec::new();
    for Column { name, unit, .. } in columns.into_iter().flatten() {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let is_free = |heading: &String| labels.iter().all(|label| label.heading != *heading);
        let free = std::iter::once(name.clone()).chain(numbered).find(is_free);
        labels.extend(free.map(|heading| ColumnLabel { heading, unit: unit.clone() }));
    }
    labels
}
