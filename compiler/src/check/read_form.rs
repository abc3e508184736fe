//! Chooses how each `read` is done: one counter where the script looks at nothing else, the whole group otherwise.

use std::collections::HashSet;

use crate::builtins::perf::reading;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Block, Expr, ExprKind, Local, LocalId, Place, PlaceKind, ReadForm, Stmt, StmtKind, UserBuiltin,
};
use crate::index::IndexVec;

/// Sets the form of every `read` in a body.
pub(super) fn choose(block: &mut Block, locals: &IndexVec<LocalId, Local>) {
    let mut uses = WholeUses { whole: HashSet::new() };
    visit::block(&mut uses, block);
    debug_assert!(uses.whole.len() <= locals.len(), "locals belong to the function");
    narrow_block(block, &uses.whole);
}

/// Collects locals of which more is used than the scalar fields of a `perf_read`.
struct WholeUses {
    whole: HashSet<LocalId>,
}

impl Visitor for WholeUses {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Load(place) = &expr.kind
            && let Some(local) = used_beyond_scalars(place)
        {
            self.whole.insert(local);
        }
    }
}

/// The local of a place that is not one of the scalar fields of it.
fn used_beyond_scalars(place: &Place) -> Option<LocalId> {
    match &place.kind {
        PlaceKind::Local(local) => Some(*local),
        PlaceKind::Field { base, field } if is_scalar(*field) && matches!(base.kind, PlaceKind::Local(_)) => {
            None
        }
        PlaceKind::Field { base, .. } | PlaceKind::Index { base, .. } => used_beyond_scalars(base),
        _ => None,
    }
}

fn is_scalar(field: usize) -> bool {
    field < reading::COUNT
}

fn narrow_block(block: &mut Block, whole: &HashSet<LocalId>) {
    for stmt in block {
        narrow_stmt(stmt, whole);
    }
}

fn narrow_stmt(stmt: &mut Stmt, whole: &HashSet<LocalId>) {
    match &mut stmt.kind {
        StmtKind::Let { local, init: Some(init) } => narrow_value(*local, init, whole),
        StmtKind::Assign { place, value } => match place.kind {
            PlaceKind::Local(local) => narrow_value(local, value, whole),
            _ => narrow_expr(value),
        },
        StmtKind::Compound { value, .. } => narrow_expr(value),
        StmtKind::Bind { key, .. } => narrow_expr(key),
        StmtKind::Expr(expr) | StmtKind::Return(Some(expr)) => narrow_expr(expr),
        StmtKind::If { cond, then, otherwise } => {
            narrow_expr(cond);
            narrow_block(then, whole);
            narrow_block(otherwise, whole);
        }
        StmtKind::While { cond, body } => {
            narrow_expr(cond);
            narrow_block(body, whole);
        }
        StmtKind::For { start, end, body, .. } => {
            narrow_expr(start);
            narrow_expr(end);
            narrow_block(body, whole);
        }
        StmtKind::Let { init: None, .. } | StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => {}
    }
}

fn narrow_value(local: LocalId, value: &mut Expr, whole: &HashSet<LocalId>) {
    if !whole.contains(&local) {
        make_scalar(value);
    }
    narrow_expr(value);
}

fn make_scalar(expr: &mut Expr) {
    if let ExprKind::User(UserBuiltin::Read { form, .. }) = &mut expr.kind {
        *form = ReadForm::Scalar;
    }
}

/// Narrows `read(x).raw` wherever it stands.
fn narrow_expr(expr: &mut Expr) {
    match &mut expr.kind {
        ExprKind::Load(place) => narrow_place(place),
        ExprKind::Unary(_, one)
        | ExprKind::Convert(one)
        | ExprKind::Truth(one)
        | ExprKind::IsNull(one)
        | ExprKind::Repeat(one)
        | ExprKind::Present { key: one, .. }
        | ExprKind::Context { ctx: one, .. } => narrow_expr(one),
        ExprKind::Binary(_, left, right) | ExprKind::Logic(_, left, right) => {
            narrow_expr(left);
            narrow_expr(right);
        }
        ExprKind::Call { args, .. } | ExprKind::Struct(args) | ExprKind::Array(args) => {
            args.iter_mut().for_each(narrow_expr);
        }
        ExprKind::User(builtin) => narrow_builtin(builtin),
        ExprKind::Const(_) | ExprKind::Bytes(_) | ExprKind::Bound(_) | ExprKind::Kernel(_) => {}
    }
}

fn narrow_builtin(builtin: &mut UserBuiltin) {
    match builtin {
        UserBuiltin::Print { args, .. } => args.iter_mut().for_each(narrow_expr),
        UserBuiltin::Attach { program, options, flags } => {
            program.iter_mut().for_each(|one| narrow_expr(one));
            narrow_expr(options);
            flags.iter_mut().for_each(|one| narrow_expr(one));
        }
        UserBuiltin::Read { attachment: one, .. }
        | UserBuiltin::Detach(one)
        | UserBuiltin::DetachProgram(one)
        | UserBuiltin::Enable(one)
        | UserBuiltin::Disable(one)
        | UserBuiltin::Reset(one)
        | UserBuiltin::Sleep(one)
        | UserBuiltin::Exit(one) => narrow_expr(one),
        UserBuiltin::Load { .. } | UserBuiltin::TimeNs | UserBuiltin::Stopping => {}
    }
}

fn narrow_place(place: &mut Place) {
    match &mut place.kind {
        PlaceKind::Field { base, field } => {
            if let (PlaceKind::Value(value), true) = (&mut base.kind, is_scalar(*field)) {
                make_scalar(value);
            }
            narrow_place(base);
        }
        PlaceKind::Index { base, index } => {
            narrow_place(base);
            narrow_expr(index);
        }
        PlaceKind::Element { key, .. } => narrow_expr(key),
        PlaceKind::Value(value) => narrow_expr(value),
        PlaceKind::Local(_) | PlaceKind::Global(_) => {}
    }
}
