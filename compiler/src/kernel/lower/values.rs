//! Lowers function values: the number of the function, 0 for none. A call through a value compares it with
//! every function that it may be; if the value is a constant, it is a plain call.

use std::collections::BTreeSet;

use super::super::mir::{Condition, Type, Value};
use super::call::Argument;
use super::sink::Sink;
use super::{Lower, Lowerer};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir};
use crate::index::Id;
use crate::source::Span;
use crate::split::Split;
use crate::types::{TypeId, TypeKind};

/// The functions of the kernel half that are used as values, with their types.
pub(super) fn of(hir: &Hir, split: &Split) -> BTreeSet<(TypeId, FuncId)> {
    let mut values = FunctionValues(BTreeSet::new());
    split.kernel.iter().for_each(|id| visit::block(&mut values, &hir.functions[*id].body));
    values.0
}

struct FunctionValues(BTreeSet<(TypeId, FuncId)>);

impl Visitor for FunctionValues {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Function(id) = expr.kind {
            self.0.insert((expr.ty, id));
        }
    }
}

/// The number of a function.
pub(super) fn number(id: FuncId) -> u64 {
    id.index() as u64 + 1
}

impl Lowerer<'_> {
    pub(super) fn is_function(&self, ty: TypeId) -> bool {
        matches!(self.types().kind(ty), TypeKind::Fn(..))
    }

    pub(super) fn call_value(&mut self, callee: &Expr, args: &[Expr], sink: Sink, span: Span) -> Lower<()> {
        let value = self.scalar(callee)?;
        let known = self.builder.known(value);
        let candidates = self.program.values.iter().filter(|(ty, _)| *ty == callee.ty).map(|(_, id)| *id);
        let candidates: Vec<_> =
            candidates.filter(|id| known.is_none_or(|known| known == number(*id))).collect();
        if let (Some(_), [only]) = (known, candidates.as_slice()) {
            return self.call(*only, args, sink, span);
        }
        let args = args.iter().map(|arg| self.argument(arg)).collect::<Lower<Vec<_>>>()?;
        self.call_one_of(value, &candidates, &args, callee.ty, sink, span)
    }

    fn call_one_of(
        &mut self,
        value: Value,
        candidates: &[FuncId],
        args: &[Argument],
        ty: TypeId,
        sink: Sink,
        span: Span,
    ) -> Lower<()> {
        let join = self.builder.block();
        for candidate in candidates {
            let same = self.builder.compare_const(Condition::Eq, value, number(*candidate));
            let (call, next) = (self.builder.block(), self.builder.block());
            self.builder.branch(same, call, next);
            self.builder.switch_to_sealed(call);
            self.call_with(*candidate, args, sink, span)?;
            self.builder.jump(join);
            self.builder.switch_to_sealed(next);
        }
        if let TypeKind::Fn(_, ret) = self.types().kind(ty) {
            self.deliver_zero(*ret, sink, span)?;
        }
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// A function as a value.
    pub(super) fn function_value(&mut self, id: FuncId) -> Value {
        self.builder.constant(Type::I64, number(id))
    }
}
