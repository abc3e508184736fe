//! Perf options and kinds of events that a script uses, so that a plugin imports no more of the contract than
//! it needs.

use std::collections::BTreeSet;

use super::record::form_of;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, Lvalue, LvalueKind};

/// Perf features used by the functions of one half.
#[derive(Debug, Default)]
pub struct UsedFeatures {
    /// Event forms, from `builtins::perf::form`.
    pub forms: BTreeSet<u64>,
    /// Positions of fields of `perf_options` that may have a value other than their default.
    pub options: BTreeSet<usize>,
}

impl UsedFeatures {
    /// Collects the features that these functions use.
    pub fn of(hir: &Hir, functions: &[FuncId]) -> UsedFeatures {
        let mut visitor = UsedVisitor { hir, used: UsedFeatures::default() };
        functions.iter().for_each(|id| visit::block(&mut visitor, &hir.functions[*id].body));
        visitor.used
    }
}

struct UsedVisitor<'a> {
    hir: &'a Hir,
    used: UsedFeatures,
}

impl Visitor for UsedVisitor<'_> {
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

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Field { base, field } = &lvalue.kind
            && base.ty == self.hir.known.perf_options
        {
            self.used.options.insert(*field);
        }
    }
}

/// Returns whether a field has its default, zero or empty. It applies to fields that version 0.1.1 does not
/// have.
fn is_default(field: &Expr) -> bool {
    match &field.kind {
        ExprKind::Const(bits) => *bits == 0,
        ExprKind::Bytes(bytes) => bytes.is_empty(),
        _ => false,
    }
}
