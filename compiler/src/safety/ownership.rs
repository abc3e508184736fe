//! Records of ring buffers and objects of `new`: KS0616 reports a use after release, KS0615 a path that leaks
//! one.
//!
//! Only pointers in one variable of one function are tracked. As soon as the pointer is copied, stored,
//! returned or passed to a function that does more than read through it, nothing is reported about it any
//! more.

use std::collections::{BTreeMap, BTreeSet};

use super::Program;
use super::dataflow::{self, Rule, loaded};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    BinaryOp, Expr, ExprKind, FuncId, Half, HirFunction, KernelBuiltin, LocalId, Lvalue, LvalueKind, RingId,
    Stmt, StmtKind,
};
use crate::index::IndexVec;
use crate::source::Span;

pub(super) fn check(program: &Program<'_>, throwing: &IndexVec<FuncId, bool>, diagnostics: &mut Diagnostics) {
    for function in program.hir.functions.iter() {
        let mut rule = Ownership {
            program,
            function,
            effects: Effects::default(),
            reported: BTreeSet::new(),
            diagnostics,
        };
        dataflow::function(program, Some(throwing), function, &mut rule);
    }
}

/// The resource that a variable may hold at one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owned {
    what: Resource,
    /// The source range of its allocation.
    taken: Span,
    null: bool,
    live: bool,
    /// The source range and the kind of its release, if it may have been released.
    released: Option<(Span, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Record(RingId),
    Object,
}

impl Owned {
    /// Returns the release if it happened on every path to this point.
    fn is_released(&self) -> Option<(Span, &'static str)> {
        self.released.filter(|_| !self.live && !self.null)
    }
}

/// The state of variables that hold a resource; nothing is known about the others.
type FlowState = BTreeMap<LocalId, Owned>;

/// The effects of one expression on variables.
#[derive(Default)]
struct Effects {
    /// Number of uses of the variable's pointer as an operand.
    loads: BTreeMap<LocalId, u32>,
    /// Number of those uses that only test or dereference it.
    looks: BTreeMap<LocalId, u32>,
    /// The source ranges where the pointee is used.
    uses: Vec<(LocalId, Span)>,
    releases: Vec<(LocalId, Span, &'static str)>,
    deferred: bool,
}

struct Ownership<'a> {
    program: &'a Program<'a>,
    function: &'a HirFunction,
    effects: Effects,
    /// Source ranges of the allocations that were reported.
    reported: BTreeSet<Span>,
    diagnostics: &'a mut Diagnostics,
}

impl Rule for Ownership<'_> {
    type FlowState = FlowState;

    fn join(known: &mut FlowState, other: FlowState) {
        known.retain(|local, one| {
            let Some(second) = other.get(local).filter(|second| second.taken == one.taken) else {
                return false;
            };
            one.null |= second.null;
            one.live |= second.live;
            one.released = one.released.or(second.released);
            true
        });
    }

    fn forget(known: &mut FlowState, local: LocalId) {
        known.remove(&local);
    }

    fn tested(known: &mut FlowState, local: LocalId, null: bool) {
        if let Some(owned) = known.get_mut(&local) {
            if null {
                *owned = Owned { null: true, live: false, released: None, ..*owned }
            } else {
                owned.null = false
            }
        }
    }

    fn begun(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Free(value) => self.release(value, stmt.span, "deleted"),
            // The release happens when the function returns, on every path.
            StmtKind::Defer(_) => self.effects.deferred = true,
            _ => {}
        }
    }

    fn expr(&mut self, _known: &mut FlowState, expr: &Expr) {
        if let Some(local) = loaded(expr) {
            *self.effects.loads.entry(local).or_default() += 1;
        }
        match &expr.kind {
            ExprKind::Truth(value) | ExprKind::IsNull(value) => self.look(value),
            ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, left, right) => {
                self.look(left);
                self.look(right);
            }
            ExprKind::Kernel(KernelBuiltin::Submit(_, record)) => {
                self.release(record, expr.span, "submitted")
            }
            ExprKind::Kernel(KernelBuiltin::Discard(_, record)) => {
                self.release(record, expr.span, "discarded")
            }
            ExprKind::Call { func, args } => {
                let callee = &self.program.hir.functions[*func];
                for (arg, param) in args.iter().zip(&callee.params) {
                    if loaded(arg).is_some() && only_looks(callee, *param) {
                        self.look(arg);
                        self.effects.uses.extend(loaded(arg).map(|local| (local, arg.span)));
                    }
                }
            }
            _ => {}
        }
    }

    fn lvalue(&mut self, _known: &mut FlowState, lvalue: &Lvalue) {
        if let LvalueKind::Deref(pointer) = &lvalue.kind {
            self.look(pointer);
            self.effects.uses.extend(loaded(pointer).map(|local| (local, pointer.span)));
        }
    }

    fn evaluated(&mut self, known: &mut FlowState) {
        let effects = std::mem::take(&mut self.effects);
        for (local, span) in
            effects.uses.into_iter().chain(effects.releases.iter().map(|release| (release.0, release.1)))
        {
            self.used(known, local, span);
        }
        for (local, loads) in effects.loads {
            if loads > effects.looks.get(&local).copied().unwrap_or(0) {
                known.remove(&local);
            }
        }
        for (local, span, how) in effects.releases {
            if let Some(owned) = known.get_mut(&local) {
                *owned = Owned { null: false, live: false, released: Some((span, how)), ..*owned };
            }
        }
    }

    fn executed(&mut self, known: &mut FlowState, stmt: &Stmt) {
        let (local, value) = match &stmt.kind {
            StmtKind::Let { local, init } => (*local, init.as_ref()),
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                (*local, Some(value))
            }
            StmtKind::Bind { local, .. } | StmtKind::Take { local, .. } => (*local, None),
            _ => return,
        };
        self.left(known, &[local], Some(stmt.span));
        known.remove(&local);
        let what = match value.map(|value| &value.kind) {
            Some(ExprKind::Kernel(KernelBuiltin::Reserve(ring))) => Resource::Record(*ring),
            Some(ExprKind::New) => Resource::Object,
            _ => return,
        };
        let taken = value.map_or(stmt.span, |value| value.span);
        known.insert(local, Owned { what, taken, null: true, live: true, released: None });
    }

    fn left(&mut self, known: &mut FlowState, locals: &[LocalId], jump: Option<Span>) {
        for local in locals {
            if let Some(owned) = known.get(local)
                && owned.live
                && self.reported.insert(owned.taken)
            {
                self.report_leak(*local, *owned, jump);
            }
        }
    }
}

impl Ownership<'_> {
    fn look(&mut self, pointer: &Expr) {
        if let Some(local) = loaded(pointer) {
            *self.effects.looks.entry(local).or_default() += 1;
        }
    }

    fn release(&mut self, pointer: &Expr, span: Span, how: &'static str) {
        if self.effects.deferred {
            return;
        }
        self.look(pointer);
        self.effects.releases.extend(loaded(pointer).map(|local| (local, span, how)));
    }

    fn used(&mut self, known: &mut FlowState, local: LocalId, span: Span) {
        let Some(owned) = known.get(&local).copied() else { return };
        let Some((released, how)) = owned.is_released() else { return };
        known.remove(&local);
        if !self.reported.insert(owned.taken) {
            return;
        }
        let name = &self.function.locals[local].name;
        self.diagnostics.report(
            Diagnostic::error(616, span, format!("`{name}` is used after it was given back"))
                .also(released, format!("{how} here")),
        );
    }

    fn report_leak(&mut self, local: LocalId, owned: Owned, jump: Option<Span>) {
        let name = &self.function.locals[local].name;
        let kernel = self.function.kind.half() == Half::Kernel;
        let (text, note) = match owned.what {
            Resource::Record(_) => (
                format!("record `{name}` is not submitted or discarded on every path"),
                "the compiler discards it when its variable goes out of scope",
            ),
            Resource::Object if kernel => (
                format!("object `{name}` is not deleted or stored on every path"),
                "the compiler deletes it when its variable goes out of scope",
            ),
            Resource::Object => (
                format!("object `{name}` is not deleted or stored on every path"),
                "it takes memory until the plugin ends",
            ),
        };
        let help = match owned.what {
            Resource::Record(ring) => {
                let ring = &self.program.hir.rings[ring].name;
                format!("add `{ring}.discard({name})` where it is not submitted")
            }
            Resource::Object => format!("add `delete {name}`"),
        };
        let mut warning = Diagnostic::warning(615, owned.taken, text);
        if let Some(span) = jump {
            warning = warning.also(span, "still held here");
        }
        self.diagnostics.report(warning.note(note).help(help));
    }
}

/// Whether a function only dereferences this pointer and compares it.
fn only_looks(function: &HirFunction, param: LocalId) -> bool {
    #[derive(Default)]
    struct Looks {
        param: Option<LocalId>,
        mentions: usize,
        looks: usize,
    }
    impl Looks {
        fn look(&mut self, pointer: &Expr) {
            self.looks += usize::from(loaded(pointer) == self.param);
        }
    }
    impl Visitor for Looks {
        fn local(&mut self, id: LocalId) {
            self.mentions += usize::from(Some(id) == self.param);
        }
        fn lvalue(&mut self, lvalue: &Lvalue) {
            if let LvalueKind::Deref(pointer) = &lvalue.kind {
                self.look(pointer);
            }
        }
        fn expr(&mut self, expr: &Expr) {
            match &expr.kind {
                ExprKind::Truth(value) | ExprKind::IsNull(value) => self.look(value),
                ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, left, right) => {
                    self.look(left);
                    self.look(right);
                }
                _ => {}
            }
        }
    }
    let mut looks = Looks { param: Some(param), ..Looks::default() };
    visit::block(&mut looks, &function.body);
    looks.mentions == looks.looks
}
