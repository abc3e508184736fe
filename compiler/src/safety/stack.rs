//! KS1001 and KS1002: limits on the bytes of variables that a kernel function may declare, called or not. A
//! struct or an array that is bound to a map entry is the entry itself, and only needs space for its address.

use std::collections::BTreeSet;

use super::Program;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Block, CatchPattern, Half, HirFunction, LocalId, LvalueKind, MapIteration, Match, Stmt, StmtKind,
};
use crate::kernel::limits::STACK_BYTES;
use crate::types::{TypeKind, Types};

/// Variables of more bytes than this cause a warning.
const WARN_BYTES: u64 = 256;

/// Size and alignment of an address in bytes.
const ADDRESS: (u64, u64) = (8, 8);

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let kernel = program.hir.functions.iter().filter(|function| function.kind.half() == Half::Kernel);
    let found = kernel.filter_map(|function| declared(&program.hir.types, function));
    found.for_each(|one| diagnostics.report(one));
}

fn declared(types: &Types, function: &HirFunction) -> Option<Diagnostic> {
    let seen = function.params.iter().copied().collect();
    let entries = entries(types, function);
    let mut frame =
        StackFrame { types, function, entries, seen, own: 0, live: Vec::new(), most: 0, largest: None };
    frame.block(&function.body);
    let bytes = frame.most;
    if bytes <= WARN_BYTES {
        return None;
    }
    let (span, label) = match frame.largest {
        Some((local, size)) => {
            let local = &function.locals[local];
            (local.span, format!("`{}` has {size} of them", local.name))
        }
        None => (function.span, String::new()),
    };
    let diagnostic = if bytes > u64::from(STACK_BYTES) {
        let message = format!("{bytes} bytes of locals; a kernel function may have {STACK_BYTES}");
        Diagnostic::error(1001, span, message).help("keep large values in a map or a global variable")
    } else {
        Diagnostic::warning(1002, span, format!("{bytes} bytes of locals"))
            .note(format!("a kernel function and all that it calls share {STACK_BYTES} bytes of stack"))
    };
    Some(diagnostic.label(label).also(function.span, "in this function"))
}

/// Returns the structs and arrays that are only ever bound to entries of maps.
fn entries(types: &Types, function: &HirFunction) -> BTreeSet<LocalId> {
    #[derive(Default)]
    struct Set {
        bound: BTreeSet<LocalId>,
        copied: BTreeSet<LocalId>,
    }
    impl Visitor for Set {
        fn stmt(&mut self, stmt: &Stmt) {
            match &stmt.kind {
                StmtKind::Bind { local, .. } => self.bound.insert(*local),
                StmtKind::ForEach { value, iteration: MapIteration::Map(_), .. } => self.bound.insert(*value),
                StmtKind::ForEach { value, .. } => self.copied.insert(*value),
                StmtKind::Let { local, .. } | StmtKind::Take { local, .. } => self.copied.insert(*local),
                StmtKind::Assign { lvalue, .. } => match lvalue.kind {
                    LvalueKind::Local(local) => self.copied.insert(local),
                    _ => false,
                },
                _ => false,
            };
        }
    }
    let mut set = Set::default();
    visit::block(&mut set, &function.body);
    let is_large = |local: &LocalId| {
        matches!(types.kind(function.locals[*local].ty), TypeKind::Struct(_) | TypeKind::Array(..))
    };
    set.bound.difference(&set.copied).copied().filter(is_large).collect()
}

/// The layout of the variables: one after the other; those of sibling blocks overlap.
struct StackFrame<'a> {
    types: &'a Types,
    function: &'a HirFunction,
    /// Variables that are aliases of map entries.
    entries: BTreeSet<LocalId>,
    seen: BTreeSet<LocalId>,
    /// End offset in bytes of the variables of the open blocks.
    own: u64,
    /// The variables of the open blocks, with their sizes in bytes.
    live: Vec<(LocalId, u64)>,
    /// The maximum of `own` so far, in bytes.
    most: u64,
    /// The largest variable that was live at that maximum.
    largest: Option<(LocalId, u64)>,
}

impl StackFrame<'_> {
    fn block(&mut self, block: &Block) {
        self.scope(|frame| block.iter().for_each(|stmt| frame.statement(stmt)));
    }

    /// Runs `inner`, and frees the variables that it declares for reuse.
    fn scope(&mut self, inner: impl FnOnce(&mut Self)) {
        let (own, live) = (self.own, self.live.len());
        inner(self);
        self.own = own;
        self.live.truncate(live);
    }

    fn declare(&mut self, local: LocalId) {
        if !self.seen.insert(local) {
            return;
        }
        let ty = self.function.locals[local].ty;
        let (size, align) =
            if self.entries.contains(&local) { ADDRESS } else { (self.types.size(ty), self.types.align(ty)) };
        self.own = self.own.next_multiple_of(align).saturating_add(size);
        self.live.push((local, size));
        if self.own > self.most {
            self.most = self.own;
            self.largest = self.live.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::ForEach { value, body, .. } => self.scope(|frame| {
                frame.declare(*value);
                frame.block(body);
            }),
            StmtKind::Try { body, catches } => {
                self.block(body);
                for catch in catches {
                    self.scope(|frame| {
                        if let CatchPattern::Bind(local) = catch.pattern {
                            frame.declare(local);
                        }
                        frame.block(&catch.body);
                    });
                }
            }
            StmtKind::Let { local, .. } | StmtKind::Bind { local, .. } | StmtKind::Take { local, .. } => {
                visit::own(self, stmt);
                self.declare(*local);
            }
            _ => {
                visit::own(self, stmt);
                stmt.blocks().for_each(|block| self.block(block));
            }
        }
    }
}

impl Visitor for StackFrame<'_> {
    fn matched(&mut self, one: &Match) -> bool {
        visit::expr(self, &one.value);
        for body in one.bodies() {
            self.scope(|frame| {
                body.block.iter().for_each(|stmt| frame.statement(stmt));
                body.value.iter().for_each(|value| visit::expr(frame, value));
            });
        }
        false
    }
}
