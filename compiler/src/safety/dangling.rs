//! KS0611: the address of a local that outlives it.
//!
//! A `@helper` may return one: it is inlined, so the local lives as long as its caller.

use std::collections::BTreeMap;

use super::dataflow::loaded;
use super::{Program, locals, recursion};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Expr, ExprKind, FunctionKind, Half, HirFunction, LocalId, Lvalue, LvalueKind, Stmt, StmtKind,
};
use crate::source::Span;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let cyclic = recursion::candidates(program);
    for (id, function) in program.hir.functions.iter_enumerated() {
        let inlined = function.kind == FunctionKind::Helper && !cyclic.contains(&id);
        let mut dangling =
            Dangling { function, may_return: inlined, pointers: pointers(function), diagnostics };
        visit::block(&mut dangling, &function.body);
    }
}

/// Returns the variables that only ever hold the address of one local.
fn pointers(function: &HirFunction) -> BTreeMap<LocalId, LocalId> {
    struct Pointers<'a>(&'a HirFunction, BTreeMap<LocalId, LocalId>);
    impl Visitor for Pointers<'_> {
        fn stmt(&mut self, stmt: &Stmt) {
            if let StmtKind::Let { local, init: Some(init) } = &stmt.kind
                && let Some(target) = address(self.0, &self.1, init)
            {
                self.1.insert(*local, target);
            }
        }
    }
    let mut found = Pointers(function, BTreeMap::new());
    visit::block(&mut found, &function.body);
    let (times, addressed) = (locals::times_set(function), locals::addressed(function));
    found.1.retain(|local, _| times.get(local) == Some(&1) && !addressed.contains(local));
    found.1
}

/// Returns the local that a pointer certainly points to.
fn address(function: &HirFunction, pointers: &BTreeMap<LocalId, LocalId>, expr: &Expr) -> Option<LocalId> {
    match &expr.kind {
        // In the kernel half a bound variable is an alias of the map entry.
        ExprKind::AddrOf(lvalue) => locals::root(lvalue)
            .filter(|local| function.kind.half() == Half::User || !function.locals[*local].binding),
        ExprKind::Convert(inner) | ExprKind::Offset(inner, _) => address(function, pointers, inner),
        ExprKind::Match(one) => {
            one.bodies().filter_map(|body| address(function, pointers, body.value.as_ref()?)).next()
        }
        _ => pointers.get(&loaded(expr)?).copied(),
    }
}

struct Dangling<'a> {
    function: &'a HirFunction,
    /// Whether it may return the address of a local.
    may_return: bool,
    pointers: BTreeMap<LocalId, LocalId>,
    diagnostics: &'a mut Diagnostics,
}

impl Visitor for Dangling<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Return(Some(value)) if !self.may_return => {
                self.outlives(value, "the function returns");
            }
            StmtKind::Assign { lvalue, value } if is_shared(lvalue) => {
                self.outlives(value, "the function ends")
            }
            _ => {}
        }
    }
}

impl Dangling<'_> {
    fn outlives(&mut self, value: &Expr, when: &str) {
        let Some(local) = address(self.function, &self.pointers, value) else { return };
        let local = &self.function.locals[local];
        let (span, name): (Span, _) = (value.span, &local.name);
        self.diagnostics.report(
            Diagnostic::error(611, span, format!("this pointer would outlive `{name}`, to which it points"))
                .also(local.span, format!("`{name}` is gone when {when}"))
                .help("use the value instead of its address, or a map or global variable"),
        );
    }
}

/// Whether an lvalue outlives every function: a global, a map entry, or a part of one.
fn is_shared(lvalue: &Lvalue) -> bool {
    match &lvalue.kind {
        LvalueKind::Global(_) | LvalueKind::Element { .. } => true,
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => is_shared(base),
        _ => false,
    }
}
