//! Statistics as a type, `stats`: the number, sum, least and greatest of values, alone and as values of maps.
//!
//! `add` is written down as changes of the fields, each of which is atomic, so that every value counts:
//!
//! ```text
//! lat[comm()].add(ns)
//!     -> var key = comm()
//!        var value = ns as i64
//!        lat[key].count += 1
//!        lat[key].sum += value
//!        lat[key].upper += value >> 32
//!        lat[key].lowest = max(lat[key].lowest, value as u64 ^ OF_LOWEST)
//!        lat[key].highest = max(lat[key].highest, value as u64 ^ OF_HIGHEST)
//! ```

use super::aggregates::{Addition, addition};
use super::expr::Typed;
use super::function::Body;
use crate::ast::{self, BinaryOp};
use crate::diag::Diagnostic;
use crate::hir::statistics::{LOW_BITS, OF_HIGHEST, OF_LOWEST, Statistic, StatsField};
use crate::hir::{self, Block, Stmt, StmtKind};
use crate::implicit_main::At;
use crate::source::Span;
use crate::types::{Field, STATS, StructDef, StructOrigin, TypeId, Types};

/// Adds the struct of statistics.
pub(super) fn stats(types: &mut Types) -> TypeId {
    let common = types.common();
    let field = |(field, name): (StatsField, &str)| {
        let ty = match field {
            StatsField::Sum | StatsField::Upper => common.i64,
            StatsField::Count | StatsField::Lowest | StatsField::Highest => common.u64,
        };
        Field::new(name, ty)
    };
    let fields = StatsField::ALL.into_iter().map(field).collect();
    let id = types.add_struct(StructDef { name: STATS.into(), fields, origin: StructOrigin::Predeclared });
    types.struct_type(id)
}

impl Body<'_, '_> {
    /// Checks `x.add(value)` of statistics, and appends the statements that count it. Returns false for any other
    /// statement.
    pub(super) fn add_to_stats(&mut self, expr: &ast::Expr, out: &mut Block) -> bool {
        let Some((base, args)) = addition(expr) else { return false };
        let Some(lvalue) = self.tried(|body| body.lvalue(base)) else { return false };
        if self.checker.types.stats(lvalue.ty).is_none() {
            return false;
        }
        self.checker.strict(expr.span, "method `add` of statistics");
        let Some((value, _)) = self.added_integer(args, expr.span, "statistics count") else { return true };
        let at = At(expr.span);
        let mut stmts = Vec::new();
        let base = Addition::evaluated_base(base, expr.span, &mut stmts);
        let name = format!("(value {})", expr.span.start);
        stmts.push(At(value.span).var(&name, at.cast(value.clone(), "i64")));
        let field = |wanted: StatsField| {
            let (_, name) = StatsField::ALL[wanted as usize];
            at.field(base.clone(), name)
        };
        stmts.push(at.increase(field(StatsField::Count), at.int(1)));
        stmts.push(at.increase(field(StatsField::Sum), at.name(&name)));
        let upper = at.binary(BinaryOp::Shr, at.name(&name), at.int(LOW_BITS));
        stmts.push(at.increase(field(StatsField::Upper), upper));
        stmts.iter().for_each(|stmt| self.statement(stmt, out));
        for (wanted, made_with) in [(StatsField::Lowest, OF_LOWEST), (StatsField::Highest, OF_HIGHEST)] {
            let unsigned = at.cast(at.name(&name), "u64");
            let number = at.binary(BinaryOp::Xor, unsigned, at.int(made_with));
            let value = self.expr(&number, None).expr;
            if let Some(lvalue) = self.lvalue(&field(wanted)) {
                let kind = StmtKind::Compound { lvalue, op: hir::BinaryOp::Max, value };
                out.push(Stmt { kind, span: expr.span });
            }
        }
        true
    }

    /// Returns the value of `base.name` if that is a statistic which is computed: `min`, `max`, `mean`, `overflow`.
    pub(super) fn statistic(&mut self, base: &ast::Expr, name: &ast::Ident) -> Option<Typed> {
        let statistic = Statistic::named(&name.name)?;
        let stats = self.tried(|body| body.lvalue(base))?;
        self.checker.types.stats(stats.ty)?;
        Some(Typed::of(statistic.of(&self.checker.types, &stats)))
    }

    /// Returns the value of `add(value)` and whether it has a sign; `None` if an error was reported.
    pub(super) fn added_integer<'e>(
        &mut self,
        args: &'e [ast::Expr],
        span: Span,
        what: &str,
    ) -> Option<(&'e ast::Expr, bool)> {
        let [value] = args else {
            let text = format!("`add` takes {}, {} given", super::count(1), args.len());
            self.report(Diagnostic::error(404, span, text));
            return None;
        };
        let found = self.tried(|body| body.expr(value, None).expr.ty);
        match self.checker.types.int(found) {
            Some(int) => return Some((value, int.signed)),
            // Reports the errors of the value itself.
            None if self.checker.types.is_error(found) => {
                self.expr(value, None);
            }
            None => {
                let text = format!("{what} integers, not `{}`", self.type_name(found));
                self.report(Diagnostic::error(401, value.span, text));
            }
        }
        None
    }
}
