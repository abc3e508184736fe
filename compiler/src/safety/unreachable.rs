//! KS0714: statements that control never reaches.

use super::Program;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::flow;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Block, Expr, ExprKind, Match, StmtKind};

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    for function in program.hir.functions.iter() {
        Unreachable { program, diagnostics }.block(&function.body);
    }
}

struct Unreachable<'a> {
    program: &'a Program<'a>,
    diagnostics: &'a mut Diagnostics,
}

impl Unreachable<'_> {
    /// Reports one warning for all statements after the first one that ends the control flow.
    fn block(&mut self, block: &Block) {
        let stop = block.iter().position(flow::stops);
        let reached = stop.map_or(block.len(), |at| at + 1);
        if let Some(stop) = stop
            && let Some(next) = block.get(reached)
        {
            let warning = Diagnostic::warning(714, self.program.first_line(next.span), "never reached");
            let stop = &block[stop];
            self.diagnostics.report(warning.also(self.program.first_line(stop.span), reason(&stop.kind)));
        }
        for stmt in &block[..reached] {
            visit::own(self, stmt);
            stmt.blocks().for_each(|block| self.block(block));
        }
    }
}

impl Visitor for Unreachable<'_> {
    fn matched(&mut self, one: &Match) -> bool {
        visit::expr(self, &one.value);
        for body in one.bodies() {
            self.block(&body.block);
            body.value.iter().for_each(|value| visit::expr(self, value));
        }
        false
    }
}

/// Returns why the control flow ends, as text for messages.
fn reason(kind: &StmtKind) -> &'static str {
    match kind {
        StmtKind::Return(_) => "the function returns here",
        StmtKind::Throw(_) => "this is thrown",
        StmtKind::Break => "the loop ends here",
        StmtKind::Continue => "the next iteration begins here",
        StmtKind::Expr(Expr { kind: ExprKind::User(_), .. }) => "this never returns",
        StmtKind::While { .. } => "this loop never ends",
        _ => "every path through this leads elsewhere",
    }
}
