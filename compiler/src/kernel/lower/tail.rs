//! Lowers tail calls: the kernel replaces the running program by one from a program array.
//!
//! An array holds the programs that the kernel permits in the same one ([`section::array`]). The loader fills
//! it. A call that fails returns, and the program ends with the result that lets everything pass.

use super::super::mir::{Callee, Helper, MapSymbol, Op, Origin, Type, Value};
use super::super::section;
use super::{Lower, Lowerer, impossible, int_type};
use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, ProgramKind};
use crate::source::Span;
use crate::split::Split;

/// XDP_PASS. Source: include/uapi/linux/bpf.h, `enum xdp_action`, v6.12. For all other program kinds 0 lets
/// packets pass.
const XDP_PASS: u64 = 2;

/// The targets of tail calls, grouped by program array.
pub(super) fn arrays(hir: &Hir, split: &Split) -> Vec<Vec<FuncId>> {
    let mut targets = Targets(Vec::new());
    split.kernel.iter().for_each(|id| visit::block(&mut targets, &hir.functions[*id].body));
    let mut arrays: Vec<(String, Vec<FuncId>)> = Vec::new();
    for target in targets.0 {
        let name = section::array(&hir.functions[target]);
        let at = arrays.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            arrays.push((name, Vec::new()));
            arrays.len() - 1
        });
        if !arrays[at].1.contains(&target) {
            arrays[at].1.push(target);
        }
    }
    arrays.into_iter().map(|(_, programs)| programs).collect()
}

/// KS0715: the kernel would not accept both programs in one array.
fn attached_elsewhere(call: Span, target: Span) -> Diagnostic {
    Diagnostic::error(715, call, "tail call to a program that is attached elsewhere")
        .also(target, "it is of the same kind, for another place")
        .note(
            "of this kind the kernel lets only programs for the same place of attachment replace each other",
        )
        .help("move what both do into a `@helper`")
}

struct Targets(Vec<FuncId>);

impl Visitor for Targets {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::TailCall(target) = expr.kind {
            self.0.push(target);
        }
    }
}

impl Lowerer<'_> {
    /// Jumps to another program. Everything that must happen before the program ends happens before the jump.
    pub(super) fn tail_call(&mut self, target: FuncId, expr: &Expr) -> Lower<Value> {
        let arrays = [target, self.within()].map(|id| section::array(&self.hir.functions[id]));
        if arrays[0] != arrays[1] {
            return Err(Box::new(attached_elsewhere(expr.span, self.hir.functions[target].span)));
        }
        let arrays = self.program.arrays.iter();
        let mut found =
            arrays.filter_map(|array| Some((*array.first()?, array.iter().position(|one| *one == target)?)));
        let (Some(context), Some((first, index))) = (self.entry_context, found.next()) else {
            return impossible(expr.span, "a tail call from here");
        };
        // The caller's code after the call is never reached.
        let (leave, never) = (self.builder.block(), self.builder.block());
        let always = self.builder.constant(Type::I32, 1);
        self.builder.branch(always, leave, never);
        self.builder.switch_to_sealed(leave);
        self.run_deferred()?;
        self.leave_loops(0, 0);
        let programs = self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Programs(first)));
        let index = self.builder.constant(Type::I64, index as u64);
        let result = Type::I64;
        self.builder.call(result, Callee::Helper(Helper::TailCall), vec![context, programs, index]);
        let pass = if self.kind == Some(ProgramKind::Xdp) { XDP_PASS } else { 0 };
        let pass = self.fixed_result().unwrap_or(pass);
        let pass = self.builder.constant(self.builder.result_type(), pass);
        self.builder.ret(pass);
        self.builder.switch_to_sealed(never);
        let ty = int_type(self.int(expr.ty, expr.span)?);
        Ok(self.builder.constant(ty, 0))
    }
}
