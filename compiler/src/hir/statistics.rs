//! The statistics that are computed from the fields of a `stats`: the least and greatest value, the mean, and whether
//! the sum has left 64 bits.
//!
//! A new `stats` is all zeros, so what is kept of the least and the greatest value grows from zero: `lowest` is
//! the greater the less the value, and both compare without a sign.

use super::{BinaryOp, Expr, ExprKind, Lvalue, LvalueKind};
use crate::types::{TypeId, TypeKind, Types};

/// Exclusive or with this makes a number of the greatest value.
pub const OF_HIGHEST: u64 = 1 << 63;
/// Exclusive or with this makes a number of the least value.
pub const OF_LOWEST: u64 = (1 << 63) - 1;
/// A sum is kept twice: in 64 bits, and without the lowest bits of each value.
pub const LOW_BITS: u64 = 32;

/// The fields of a `stats`, by their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsField {
    /// `count`, a u64: the number of values.
    Count,
    /// `sum`, an i64: the sum of all values, which wraps around.
    Sum,
    /// `upper`, an i64: the sum of all values without their lowest [`LOW_BITS`] bits.
    Upper,
    /// `lowest`, a u64.
    Lowest,
    /// `highest`, a u64.
    Highest,
}

impl StatsField {
    /// All fields with their names, in order.
    pub const ALL: [(StatsField, &'static str); 5] = [
        (StatsField::Count, "count"),
        (StatsField::Sum, "sum"),
        (StatsField::Upper, "upper"),
        (StatsField::Lowest, "lowest"),
        (StatsField::Highest, "highest"),
    ];
}

/// A statistic that is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The least value, an i64; 0 of none.
    Min,
    /// The greatest value, an i64; 0 of none.
    Max,
    /// The mean, rounded down, an i64; 0 of none.
    Mean,
    /// Whether the sum of up to 2^32 values does not fit an i64.
    Overflow,
}

impl Statistic {
    /// Returns the statistic that scripts call by this name.
    pub fn named(name: &str) -> Option<Statistic> {
        Some(match name {
            "min" => Statistic::Min,
            "max" => Statistic::Max,
            "mean" => Statistic::Mean,
            "overflow" => Statistic::Overflow,
            _ => return None,
        })
    }

    /// Returns the statistic of a `stats`.
    pub fn of(self, types: &Types, stats: &Lvalue) -> Expr {
        let common = types.common();
        let at = Fields { types, stats };
        match self {
            Statistic::Min => at.unless_empty(StatsField::Lowest, OF_LOWEST),
            Statistic::Max => at.unless_empty(StatsField::Highest, OF_HIGHEST),
            Statistic::Mean => {
                let (sum, count) = (at.load(StatsField::Sum), at.number(StatsField::Count, common.i64));
                let sign = at.binary(BinaryOp::Shr, sum.clone(), at.constant(63, common.i64));
                let less = at.binary(BinaryOp::Sub, count.clone(), at.constant(1, common.i64));
                let down = at.binary(BinaryOp::And, sign, less);
                at.binary(BinaryOp::Div, at.binary(BinaryOp::Sub, sum, down), count)
            }
            Statistic::Overflow => {
                let (sum, upper) = (at.load(StatsField::Sum), at.load(StatsField::Upper));
                let shift = |ty: TypeId| at.constant(LOW_BITS, ty);
                let known = at.binary(BinaryOp::Shl, upper.clone(), shift(common.i64));
                let rest = at.convert(at.binary(BinaryOp::Sub, sum, known), common.u64);
                let carried = at.convert(at.binary(BinaryOp::Shr, rest, shift(common.u64)), common.i64);
                let upper = at.binary(BinaryOp::Add, upper, carried);
                // From -2^31 to 2^31 - 1 the whole sum fits 64 bits.
                let moved = at.binary(BinaryOp::Add, upper, at.constant(1 << 31, common.i64));
                let most = at.constant(u64::from(u32::MAX), common.u64);
                let kind =
                    ExprKind::Binary(BinaryOp::Gt, Box::new(at.convert(moved, common.u64)), Box::new(most));
                Expr { kind, ty: common.bool, span: stats.span }
            }
        }
    }
}

/// Makes expressions of the fields of a `stats`.
struct Fields<'a> {
    types: &'a Types,
    stats: &'a Lvalue,
}

impl Fields<'_> {
    fn load(&self, field: StatsField) -> Expr {
        let span = self.stats.span;
        let TypeKind::Struct(id) = self.types.kind(self.stats.ty) else {
            unreachable!("statistics are a struct")
        };
        let index = field as usize;
        let ty = self.types.struct_def(*id).fields[index].ty;
        let kind = LvalueKind::Field { base: Box::new(self.stats.clone()), field: index };
        Expr { kind: ExprKind::Load(Lvalue { kind, ty, span }), ty, span }
    }

    fn number(&self, field: StatsField, ty: TypeId) -> Expr {
        self.convert(self.load(field), ty)
    }

    fn constant(&self, bits: u64, ty: TypeId) -> Expr {
        Expr { kind: ExprKind::Const(bits), ty, span: self.stats.span }
    }

    fn convert(&self, value: Expr, ty: TypeId) -> Expr {
        Expr { kind: ExprKind::Convert(Box::new(value)), ty, span: self.stats.span }
    }

    /// `left op right`, of the operands' type.
    fn binary(&self, op: BinaryOp, left: Expr, right: Expr) -> Expr {
        let (ty, span) = (left.ty, left.span);
        Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), ty, span }
    }

    /// The value that a field was made of; 0 if there is no value.
    fn unless_empty(&self, field: StatsField, made_with: u64) -> Expr {
        let common = self.types.common();
        let value = self.binary(BinaryOp::Xor, self.load(field), self.constant(made_with, common.u64));
        let count = Box::new(self.load(StatsField::Count));
        let kind = ExprKind::Binary(BinaryOp::Ne, count, Box::new(self.constant(0, common.u64)));
        let is_there = Expr { kind, ty: common.bool, span: self.stats.span };
        let is_there = self.convert(is_there, common.i64);
        self.binary(BinaryOp::Mul, self.convert(value, common.i64), is_there)
    }
}
