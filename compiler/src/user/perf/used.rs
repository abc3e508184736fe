//! Which options and kinds of events a script uses, so that a plugin imports no more of the contract than it needs.

use std::collections::BTreeSet;

use super::record::form_of;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, Place, PlaceKind};

/// What the functions of one half use.
#[derive(Debug, Default)]
pub struct Used {
    /// Of `builtins::perf::form`.
    pub forms: BTreeSet<u64>,
    /// Fields of `perf_options` that may have another value than their default.
    pub options: BTreeSet<usize>,
}

impl Used {
    /// Looks through functions.
    pub fn of(hir: &Hir, functions: &[FuncId]) -> Used {
        let mut walk = Walk { hir, used: Used::default() };
        functions.iter().for_each(|id| visit::block(&mut walk, &hir.functions[*id].body));
        walk.used
    }
}

struct Walk<'a> {
    hir: &'a Hir,
    used: Used,
}

impl Visitor for Walk<'_> {
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Event(spec) => {
                self.used.forms.insert(form_of(spec));
            }
            ExprKind::Struct(fields) if expr.ty == self.hir.known.perf_options => {
                let given = fields.iter().enumerate().filter(|(_, field)| !is_default(field));
                self.used.options.extend(given.map(|(position, _)| position));
            }
            _ => {}
        }
    }

    fn place(&mut self, place: &Place) {
        if let PlaceKind::Field { base, field } = &place.kind
            && base.ty == self.hir.known.perf_options
        {
            self.used.options.insert(*field);
        }
    }
}

/// The default of what a script of the first version does not have: nothing.
fn is_default(field: &Expr) -> bool {
    match &field.kind {
        ExprKind::Const(bits) => *bits == 0,
        ExprKind::Bytes(bytes) => bytes.is_empty(),
        _ => false,
    }
}
