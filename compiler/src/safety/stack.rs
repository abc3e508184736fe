//! KS1001 and KS1002: how many bytes of variables a kernel function may declare, called or not.

use std::collections::BTreeSet;

use super::Program;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Block, CatchPattern, Function, Half, LocalId, Match, Stmt, StmtKind};
use crate::kernel::limits::STACK_BYTES;
use crate::types::Types;

/// More than this is worth a warning.
const WARN_BYTES: u64 = 256;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let kernel = program.hir.functions.iter().filter(|function| function.kind.half() == Half::Kernel);
    let found = kernel.filter_map(|function| declared(&program.hir.types, function));
    found.for_each(|one| diagnostics.report(one));
}

fn declared(types: &Types, function: &Function) -> Option<Diagnostic> {
    let seen = function.params.iter().copied().collect();
    let mut frame = Frame { types, function, seen, own: 0, most: 0 };
    frame.block(&function.body);
    let bytes = frame.most;
    if bytes > u64::from(STACK_BYTES) {
        let message = format!("{bytes} bytes of locals; a kernel function may have {STACK_BYTES}");
        return Some(
            Diagnostic::error(1001, function.span, message)
                .label("declares them")
                .help("keep large values in a map or a global variable"),
        );
    }
    (bytes > WARN_BYTES).then(|| {
        Diagnostic::warning(1002, function.span, format!("{bytes} bytes of locals"))
            .note(format!("a kernel function and all that it calls share {STACK_BYTES} bytes of stack"))
    })
}

/// Variables laid one behind the other; those of sibling blocks overlap.
struct Frame<'a> {
    types: &'a Types,
    function: &'a Function,
    seen: BTreeSet<LocalId>,
    /// The end of the variables of the blocks at hand.
    own: u64,
    /// The most there was at one point.
    most: u64,
}

impl Frame<'_> {
    fn block(&mut self, block: &Block) {
        let start = self.own;
        block.iter().for_each(|stmt| self.statement(stmt));
        self.own = start;
    }

    fn declare(&mut self, local: LocalId) {
        if self.seen.insert(local) {
            let ty = self.function.locals[local].ty;
            self.own = self.own.next_multiple_of(self.types.align(ty)).saturating_add(self.types.size(ty));
            self.most = self.most.max(self.own);
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        let start = self.own;
        match &stmt.kind {
            StmtKind::ForEach { value, body, .. } => {
                self.declare(*value);
                self.block(body);
                self.own = start;
            }
            StmtKind::Try { body, catches } => {
                self.block(body);
                for catch in catches {
                    if let CatchPattern::Bind(local) = catch.pattern {
                        self.declare(local);
                    }
                    self.block(&catch.body);
                    self.own = start;
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

impl Visitor for Frame<'_> {
    fn matched(&mut self, one: &Match) -> bool {
        visit::expr(self, &one.value);
        for body in one.bodies() {
            let start = self.own;
            body.block.iter().for_each(|stmt| self.statement(stmt));
            body.value.iter().for_each(|value| visit::expr(self, value));
            self.own = start;
        }
        false
    }
}
