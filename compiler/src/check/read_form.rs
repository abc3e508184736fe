//! Chooses the form of each `read`: one counter where the script uses nothing else, the whole group
//! otherwise.

use std::collections::HashSet;

use crate::builtins::perf::reading;
use crate::hir::visit::{self, Visitor};
use crate::hir::visit_mut::{self, VisitorMut};
use crate::hir::{Block, Expr, ExprKind, LocalId, Lvalue, LvalueKind, ReadForm, Stmt, StmtKind, UserBuiltin};

/// Sets the form of every `read` in a body.
pub(super) fn choose(block: &mut Block) {
    let mut uses = WholeUses { whole: HashSet::new() };
    visit::block(&mut uses, block);
    visit_mut::block(&mut Narrow { whole: uses.whole }, block);
}

/// Collects locals of which other fields than the scalar ones of a `perf_read` are used.
struct WholeUses {
    whole: HashSet<LocalId>,
}

impl Visitor for WholeUses {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Load(lvalue) | ExprKind::AddrOf(lvalue) = &expr.kind
            && let Some(local) = used_beyond_scalars(lvalue)
        {
            self.whole.insert(local);
        }
    }
}

/// Returns the local of an lvalue that is not one of the local's scalar fields.
fn used_beyond_scalars(lvalue: &Lvalue) -> Option<LocalId> {
    match &lvalue.kind {
        LvalueKind::Local(local) => Some(*local),
        LvalueKind::Field { base, field }
            if is_scalar(*field) && matches!(base.kind, LvalueKind::Local(_)) =>
        {
            None
        }
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => used_beyond_scalars(base),
        _ => None,
    }
}

fn is_scalar(field: usize) -> bool {
    field < reading::COUNT
}

struct Narrow {
    whole: HashSet<LocalId>,
}

impl Narrow {
    fn value(&self, local: LocalId, value: &mut Expr) {
        if !self.whole.contains(&local) {
            make_scalar(value);
        }
    }
}

impl VisitorMut for Narrow {
    fn stmt(&mut self, stmt: &mut Stmt) {
        match &mut stmt.kind {
            StmtKind::Let { local, init: Some(init) } => self.value(*local, init),
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                self.value(*local, value);
            }
            _ => {}
        }
    }

    /// `read(x).raw` in any expression.
    fn lvalue(&mut self, lvalue: &mut Lvalue) {
        if let LvalueKind::Field { base, field } = &mut lvalue.kind
            && let (LvalueKind::Value(value), true) = (&mut base.kind, is_scalar(*field))
        {
            make_scalar(value);
        }
    }
}

fn make_scalar(expr: &mut Expr) {
    if let ExprKind::User(UserBuiltin::Read { form, .. }) = &mut expr.kind {
        *form = ReadForm::Scalar;
    }
}
