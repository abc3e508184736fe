//! Types that only the checker knows: those of variables declared without one, and of expressions.

use std::collections::BTreeMap;

use super::Facts;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, Hir};
use crate::source::{FileId, Span};
use crate::types::TypeId;

/// Returns the types of expressions and names in a file, for a script without errors.
pub fn types_of(hir: &Hir, file: FileId) -> Facts {
    let mut seen = Seen { file, types: BTreeMap::new() };
    for function in hir.functions.iter().filter(|function| function.span.file == file) {
        visit::block(&mut seen, &function.body);
        function.locals.iter().for_each(|local| seen.add(local.span, local.ty));
    }
    hir.globals.iter().for_each(|global| seen.add(global.span, global.ty));
    let mut facts = Facts::on();
    for (span, ty) in seen.types {
        facts.typed(span, || hir.types.name(ty));
    }
    facts
}

struct Seen {
    file: FileId,
    types: BTreeMap<Span, TypeId>,
}

impl Seen {
    fn add(&mut self, span: Span, ty: TypeId) {
        if span.file == self.file {
            self.types.insert(span, ty);
        }
    }
}

impl Visitor for Seen {
    /// A conversion has the source range of its operand and comes first: the type that was written takes
    /// precedence.
    fn expr(&mut self, one: &Expr) {
        self.add(one.span, one.ty);
    }
}
