//! Declares the zeros for `m[k].f += v` in the kernel half, which creates a missing entry. The kernel copies
//! them from a constant of the object: values may be larger than the stack.

use super::visit::{self, Visitor};
use super::{Global, Half, Hir, Lvalue, LvalueKind, Map, MapId, Stmt, StmtKind};
use crate::source::Span;
use crate::types::TypeKind;

/// Declares the constant, if a program needs it.
pub fn declare(hir: &mut Hir) {
    let kernel = hir.functions.iter().filter(|function| function.kind.half() == Half::Kernel);
    let mut needs = Needs { hir: &*hir, largest: None };
    kernel.for_each(|function| visit::block(&mut needs, &function.body));
    let Some((bytes, span)) = needs.largest else { return };
    let mut name = ks_wit::object::ZEROS.to_owned();
    while is_taken(hir, &name) {
        name.push('_');
    }
    let byte = hir.types.common().u8;
    let ty = hir.types.intern(TypeKind::Array(byte, bytes));
    let constant = Global { kernel_only: true, constant: true, ..Global::new(name, ty, span) };
    hir.zeros = Some(hir.globals.push(constant));
}

fn is_taken(hir: &Hir, name: &str) -> bool {
    hir.globals.iter().any(|global| global.name == name)
        || hir.maps.iter().any(|map| map.name == name)
        || hir.functions.iter().any(|function| function.name == name)
}

/// Whether an entry of the map only exists once it is created, with its whole value at once.
pub fn entries_are_created(map: &Map) -> bool {
    !map.kind.is_array() && !map.kind.is_storage()
}

struct Needs<'a> {
    hir: &'a Hir,
    /// Size in bytes of the largest value that is changed in part, and the source range of that statement.
    largest: Option<(u64, Span)>,
}

impl Visitor for Needs<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        let StmtKind::Compound { lvalue, .. } = &stmt.kind else { return };
        let (LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. }) = &lvalue.kind else { return };
        let Some(map) = element_map(base).map(|id| &self.hir.maps[id]).filter(|map| entries_are_created(map))
        else {
            return;
        };
        let bytes = map.stored_value(&self.hir.types).bytes.into();
        if self.largest.is_none_or(|(largest, _)| largest < bytes) {
            self.largest = Some((bytes, stmt.span));
        }
    }
}

/// Returns the map if an lvalue is its element or a part of one.
fn element_map(lvalue: &Lvalue) -> Option<MapId> {
    match &lvalue.kind {
        LvalueKind::Element { map, .. } => Some(*map),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => element_map(base),
        _ => None,
    }
}
