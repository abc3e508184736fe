//! Functions by their names.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::debugdata;
use super::elf::{Binding, Image, Symbol, SymbolKind, SymbolTable};
use super::error::PlaceError;

/// Most places of one name that are kept: who has more gives an offset.
const MAX_FOUND: usize = 64;

/// A symbol of the name that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    kind: SymbolKind,
    address: u64,
    /// What the linker would rather take: it is no old version, it is a function, and how far it is known.
    rank: (bool, bool, Binding),
}

/// The offset in the file of what lies so many bytes behind the start of a function.
pub(super) fn offset_of(image: &Image<'_>, name: &str, more: u64) -> Result<u64, PlaceError> {
    let none = || PlaceError::NoFunction(name.to_owned());
    if name.is_empty() || name.contains('\0') {
        return Err(none());
    }
    let mut found = Vec::new();
    let is_imported = look(image, name, &mut found)?;
    if found.is_empty()
        && let Some(unpacked) = debugdata::image(image)?
    {
        look(&unpacked, name, &mut found)?;
    }
    found.sort_by_key(|one| Reverse(one.rank));
    let Some(best) = found.first().copied() else {
        return Err(if is_imported { PlaceError::Imported(name.to_owned()) } else { none() });
    };
    found.retain(|one| one.rank == best.rank);
    if found.iter().any(|one| one.kind == SymbolKind::Resolver) {
        return Err(PlaceError::Chosen(name.to_owned()));
    }
    let starts: BTreeSet<u64> = found.iter().map(|one| one.address).collect();
    let offset = |address: u64| image.code_at(address).map(|range| range.offset);
    if starts.len() > 1 {
        let offsets = starts.into_iter().filter_map(offset).collect();
        return Err(PlaceError::Ambiguous { name: name.to_owned(), offsets });
    }
    offset(best.address).and_then(|offset| offset.checked_add(more)).ok_or_else(none)
}

/// Adds the functions and labels of this name that the tables have; whether they have one that is elsewhere.
fn look(image: &Image<'_>, name: &str, found: &mut Vec<Found>) -> Result<bool, PlaceError> {
    let mut is_imported = false;
    for table in image.symbol_tables() {
        let places = image.name_places(&table, name.as_bytes())?;
        if places.is_empty() {
            continue;
        }
        image.symbols(&table, |symbol| {
            let is_code =
                matches!(symbol.kind, SymbolKind::Function | SymbolKind::Resolver | SymbolKind::Label);
            if is_code && places.binary_search(&symbol.name).is_ok() {
                is_imported |= !symbol.is_defined;
                if symbol.is_defined && found.len() < MAX_FOUND {
                    found.push(Found::of(image, &table, symbol));
                }
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(is_imported)
}

impl Found {
    fn of(image: &Image<'_>, table: &SymbolTable, symbol: Symbol) -> Found {
        let is_current = !image.is_old_version(table, symbol.index);
        let rank = (is_current, symbol.kind != SymbolKind::Label, symbol.binding);
        Found { kind: symbol.kind, address: symbol.address, rank }
    }
}
