//! Histograms as types: `log2_hist` and `linear_hist(low, step, n)`, alone and as values of maps, and their
//! method `add`.
//!
//! A histogram is a struct; `add` is written down as statements that count in it:
//!
//! ```text
//! lat[comm()].add(ns)
//!     -> var key = comm()
//!        var value = ns
//!        lat[key].slots[log2_slot(value)] += 1
//!        lat[key].sum += value as i64
//! ```
//!
//! A value below zero has no slot: `below_zero` counts it. All of them are atomic, so no value is lost.

use super::Checker;
use super::function::Body;
use super::prescan::strip;
use crate::ast::{self, BinaryOp, ExprKind};
use crate::diag::Diagnostic;
use crate::hir::{Block, HistogramScale};
use crate::implicit_main::At;
use crate::source::Span;
use crate::types::{Field, StructDef, StructId, StructOrigin, TypeId, TypeKind, Types};

/// The field with the counts of the slots.
pub(super) const SLOTS: &str = "slots";
/// The field with the number of values that are below zero.
pub(super) const BELOW_ZERO: &str = "below_zero";
/// The field with the sum of all values.
pub(super) const SUM: &str = "sum";
/// The method that counts a value.
pub(super) const ADD: &str = "add";

/// Slots of a log2 histogram: one for 0, and one for each number of significant bits, 1 to 64.
pub(super) const LOG2_SLOTS: u64 = 65;
/// Maximum number of slots of a linear histogram, without those of what is below and above: all of them are
/// a value of a map, and lines of output.
const MOST_SLOTS: u64 = 1024;

/// Adds the struct of a histogram with so many slots.
pub(super) fn histogram(types: &mut Types, name: &str, slots: u64) -> StructId {
    let common = types.common();
    let counts = types.intern(TypeKind::Array(common.u64, slots));
    let fields = [(SLOTS, counts), (BELOW_ZERO, common.u64), (SUM, common.i64)];
    let field = |(name, ty): (&str, TypeId)| Field::new(name, ty);
    let fields = fields.into_iter().map(field).collect();
    types.add_struct(StructDef { name: name.into(), fields, origin: StructOrigin::Predeclared })
}

impl Checker<'_> {
    /// Returns the type `linear_hist(low, step, n)`. The same numbers are the same type.
    pub(super) fn linear_hist(&mut self, numbers: [ast::IntLit; 3], span: Span) -> TypeId {
        let [low, step, slots] = numbers.map(|number| number.value);
        let wrong = match () {
            () if !(1..=MOST_SLOTS).contains(&slots) => {
                Some(format!("a histogram has 1 to {MOST_SLOTS} slots"))
            }
            () if step == 0 => Some("a slot of a histogram is at least 1 wide".to_owned()),
            () if slots.checked_mul(step).and_then(|width| width.checked_add(low)).is_none() => {
                Some("the last slot of this histogram ends above all 64-bit numbers".to_owned())
            }
            () => None,
        };
        if let Some(text) = wrong {
            self.report(Diagnostic::error(606, span, text));
            return self.types.common().error;
        }
        let name = format!("linear_hist({low}, {step}, {slots})");
        let known = self.histograms.keys().find(|id| self.types.struct_def(**id).name == name);
        let id = match known {
            Some(id) => *id,
            // One slot counts what is below the first, and one what is above the last.
            None => histogram(&mut self.types, &name, slots + 2),
        };
        self.histograms.insert(id, HistogramScale::Linear { low, step, slots: slots + 2 });
        self.types.struct_type(id)
    }

    /// Returns the scale of a histogram; none for other types.
    pub(super) fn histogram_scale(&self, ty: TypeId) -> Option<HistogramScale> {
        match self.types.kind(ty) {
            TypeKind::Struct(id) => self.histograms.get(id).copied(),
            _ => None,
        }
    }
}

/// Returns the operand and the arguments of `x.add(..)`.
pub(super) fn addition(expr: &ast::Expr) -> Option<(&ast::Expr, &[ast::Expr])> {
    let ExprKind::Call { callee, args } = &strip(expr).kind else { return None };
    match &strip(callee).kind {
        ExprKind::Field { base, arrow: false, name } if name.name == ADD => Some((base, args)),
        _ => None,
    }
}

impl Body<'_, '_> {
    /// Checks `x.add(value)` of a histogram, and appends the statements that count it. Returns false for any
    /// other statement.
    pub(super) fn add_to_histogram(&mut self, expr: &ast::Expr, out: &mut Block) -> bool {
        let Some((base, args)) = addition(expr) else { return false };
        let Some(scale) =
            self.tried(|body| body.lvalue(base)).and_then(|lvalue| self.checker.histogram_scale(lvalue.ty))
        else {
            return false;
        };
        self.checker.strict(expr.span, "method `add` of a histogram");
        let Some((value, signed)) = self.added_integer(args, expr.span, "a histogram counts") else {
            return true;
        };
        for stmt in (Addition { base, value, scale, signed, span: expr.span }).statements() {
            self.statement(&stmt, out);
        }
        true
    }
}

/// A value that is counted in a histogram.
pub(super) struct Addition<'a> {
    base: &'a ast::Expr,
    value: &'a ast::Expr,
    scale: HistogramScale,
    signed: bool,
    span: Span,
}

impl Addition<'_> {
    fn statements(&self) -> Vec<ast::Stmt> {
        let at = At(self.span);
        let mut stmts = Vec::new();
        let base = Addition::evaluated_base(self.base, self.span, &mut stmts);
        // No script can spell these names, and each addition has its own.
        let name = format!("(value {})", self.span.start);
        let number = at.cast(self.value.clone(), if self.signed { "i64" } else { "u64" });
        stmts.push(At(self.value.span).var(&name, number));
        let value = || at.name(&name);
        let unsigned = at.cast(value(), "u64");
        let slot = match self.scale {
            HistogramScale::Log2 => at.builtin("log2_slot", vec![unsigned]),
            HistogramScale::Linear { low, step, slots } => {
                let numbers = [low, step, slots].map(|number| at.int(number));
                at.builtin("linear_slot", [unsigned].into_iter().chain(numbers).collect())
            }
        };
        let counted = at.increase(at.index(at.field(base.clone(), SLOTS), slot), at.int(1));
        if self.signed {
            let below = at.increase(at.field(base.clone(), BELOW_ZERO), at.int(1));
            let is_below = at.binary(BinaryOp::Lt, value(), at.int(0));
            stmts.push(at.choose(is_below, vec![below], vec![counted]));
        } else {
            stmts.push(counted);
        }
        stmts.push(at.increase(at.field(base, SUM), at.cast(value(), "i64")));
        stmts
    }

    /// Returns what is added to, with each part of its key evaluated once.
    pub(super) fn evaluated_base(base: &ast::Expr, of: Span, stmts: &mut Vec<ast::Stmt>) -> ast::Expr {
        let ExprKind::Index(map, key) = &strip(base).kind else { return base.clone() };
        let key = evaluated_index(key, of, stmts);
        At(base.span).index((**map).clone(), key)
    }
}

/// Returns the key of a map with each part evaluated once: what is more than a name or a literal goes to a
/// variable, whose name is unique by the source range `of`.
pub(super) fn evaluated_index(key: &ast::Expr, of: Span, stmts: &mut Vec<ast::Stmt>) -> ast::Expr {
    let mut evaluated = |part: &ast::Expr, index: usize| {
        if matches!(strip(part).kind, ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Name(_)) {
            return part.clone();
        }
        let name = format!("(key {} {index})", of.start);
        let at = At(part.span);
        stmts.push(at.var(&name, part.clone()));
        at.name(&name)
    };
    match &strip(key).kind {
        ExprKind::Keys(parts) => {
            let parts = parts.iter().enumerate().map(|(index, part)| evaluated(part, index)).collect();
            ast::Expr { kind: ExprKind::Keys(parts), span: key.span }
        }
        _ => evaluated(key, 0),
    }
}
