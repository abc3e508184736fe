//! Loops.
//!
//! The verifier must see that every loop ends, and it walks an ordinary loop turn by turn. So only a loop with few turns of
//! little work is an ordinary one; every other runs under the kernel's open-coded iterator (Linux 6.4), whose turns the
//! verifier walks until nothing new can happen:
//!
//! ```text
//!     zero = bpf_iter_num_new(&it, 0, turns)
//!     carried = opaque(carried, zero)            each variable that the body changes
//! header:
//!     p = bpf_iter_num_next(&it); if p is null goto end
//!     body; goto header
//! end, break, return:
//!     bpf_iter_num_destroy(&it)
//! ```
//!
//! "Nothing new" needs values that do not differ from turn to turn in the verifier's eyes: see [`Op::Opaque`].

use std::collections::BTreeSet;

use super::super::mir::builder::Variable;
use super::super::mir::{BinaryOp, Block, Callee, Condition, Kfunc, Op, Origin, Size, Slot, Type, Value};
use super::memory::{Addr, Base};
use super::{Home, Lower, Lowerer, arithmetic, cost, int_type, not_yet};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, LocalId, Place, PlaceKind, Stmt, StmtKind};
use crate::source::Span;
use crate::split::Split;
use crate::types::{IntType, Types};

/// Most turns of a loop; the kernel's limit for an iterator. Source: include/linux/bpf.h, `BPF_MAX_LOOPS`, v6.12.
const MAX_TURNS: u64 = 1 << 23;

/// A loop around the current block.
pub(super) struct Frame {
    break_to: Block,
    continue_to: Block,
    iterator: Option<Iterator>,
}

/// A running iterator.
#[derive(Clone, Copy)]
struct Iterator {
    slot: Slot,
    /// 0 in 32 bits, which the verifier does not know.
    zero: Value,
    /// The same in 64 bits, none of which it knows.
    wide_zero: Value,
}

impl Lowerer<'_> {
    pub(super) fn break_loop(&mut self, span: Span) -> Lower<()> {
        let Some(frame) = self.loops.last() else {
            return not_yet(span, "`break` outside of a loop is");
        };
        self.builder.jump(frame.break_to);
        Ok(())
    }

    pub(super) fn continue_loop(&mut self, span: Span) -> Lower<()> {
        let Some(frame) = self.loops.last() else {
            return not_yet(span, "`continue` outside of a loop is");
        };
        self.builder.jump(frame.continue_to);
        Ok(())
    }

    /// Releases the iterators of all loops around, innermost first: the function is about to end.
    pub(super) fn destroy_iterators(&mut self) {
        let slots: Vec<_> = self.loops.iter().rev().filter_map(|frame| Some(frame.iterator?.slot)).collect();
        for slot in slots {
            self.destroy(slot);
        }
    }

    fn destroy(&mut self, slot: Slot) {
        let iterator = self.pointer(Addr::of(Base::Slot(slot)));
        self.builder.effect(Op::Call { callee: Callee::Kfunc(Kfunc::IterNumDestroy), args: vec![iterator] });
    }

    /// The value, unknown to the verifier if the innermost loop around runs under an iterator.
    pub(super) fn make_opaque(&mut self, value: Value) -> Value {
        match self.loops.iter().rev().find_map(|frame| frame.iterator) {
            Some(iterator) => self.opaque_with(value, iterator),
            None => value,
        }
    }

    fn opaque_with(&mut self, value: Value, iterator: Iterator) -> Value {
        let ty = self.builder.ty(value);
        let zero = match ty {
            Type::I32 => iterator.zero,
            Type::I64 => iterator.wide_zero,
            Type::Ptr(_) => return value,
        };
        self.builder.value(ty, Op::Opaque { value, zero })
    }

    /// All 64 bits unknown: an extended zero would keep known bounds, and a sum with it others in each turn.
    fn wide_zero(&mut self, zero: Value) -> Value {
        let low = self.builder.value(Type::I64, Op::ZeroExtend(zero));
        let high = self.builder.binary_const(BinaryOp::Shl, low, 32);
        self.builder.binary(BinaryOp::Or, high, low)
    }

    /// Starts an iterator of so many turns and goes on in the loop's header, which is left unsealed.
    fn enter_iterator(&mut self, turns: Value, body: &[Stmt]) -> Iteration {
        let slot = self.builder.slot(8);
        let iterator = self.pointer(Addr::of(Base::Slot(slot)));
        let start = self.builder.constant(Type::I32, 0);
        let callee = Callee::Kfunc(Kfunc::IterNumNew);
        let zero = self.builder.call(Type::I32, callee, vec![iterator, start, turns]);
        let running = Iterator { slot, zero, wide_zero: self.wide_zero(zero) };
        for variable in self.carried(body) {
            let value = self.builder.get(variable);
            let value = self.opaque_with(value, running);
            self.builder.set(variable, value);
        }
        let (header, ended, leave) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.builder.jump(header);
        self.builder.switch_to(header);
        let iterator = self.pointer(Addr::of(Base::Slot(slot)));
        let callee = Callee::Kfunc(Kfunc::IterNumNext);
        let turn = self.builder.call(Type::Ptr(Origin::TurnOrNull), callee, vec![iterator]);
        let null = self.builder.value(Type::I32, Op::IsNull(turn));
        let next = self.builder.block();
        self.builder.branch(null, ended, next);
        self.builder.switch_to_sealed(next);
        self.loops.push(Frame { break_to: leave, continue_to: header, iterator: Some(running) });
        Iteration { slot, turn, header, ended, leave }
    }

    /// Closes the loop and goes on where all its ends meet, with the iterator released.
    fn leave_iterator(&mut self, iteration: &Iteration) {
        self.builder.seal(iteration.header);
        self.loops.pop();
        self.builder.switch_to_sealed(iteration.leave);
        self.destroy(iteration.slot);
    }

    /// The variables that were set before the loop and that its body changes.
    fn carried(&mut self, body: &[Stmt]) -> Vec<Variable> {
        let mut changes = Changes::default();
        body.iter().for_each(|stmt| visit::stmt(&mut changes, stmt));
        let locals = changes.assigned.difference(&changes.declared);
        let homes = locals.filter_map(|local| self.locals[*local]);
        let variables: Vec<_> = homes
            .filter_map(|home| match home.home {
                Home::Scalar(variable) => Some(variable),
                _ => None,
            })
            .collect();
        variables.into_iter().filter(|variable| self.builder.is_set(*variable)).collect()
    }

    pub(super) fn while_loop(&mut self, cond: &Expr, body: &[Stmt]) -> Lower<()> {
        let turns = self.builder.constant(Type::I32, MAX_TURNS);
        let iteration = self.enter_iterator(turns, body);
        let inside = self.builder.block();
        self.condition(cond, inside, iteration.leave)?;
        self.builder.switch_to_sealed(inside);
        self.block(body)?;
        if !self.builder.is_filled() {
            self.builder.jump(iteration.header);
        }
        self.builder.switch_to_sealed(iteration.ended);
        self.fault_here();
        self.leave_iterator(&iteration);
        Ok(())
    }

    pub(super) fn for_loop(&mut self, local: LocalId, start: &Expr, end: &Expr, body: &[Stmt]) -> Lower<()> {
        let home = self.declare(local)?;
        let Home::Scalar(variable) = home.home else {
            return not_yet(start.span, "this loop variable is");
        };
        let ty = self.source.locals[local].ty;
        let int = self.int(ty, start.span)?;
        let constant = constant_range(self.types(), ty, start, end);
        let first = self.scalar(start)?;
        let limit = self.scalar(end)?;
        if constant.is_some_and(|turns| cost::is_small(self.types(), local, turns, body)) {
            return self.ordinary_loop(variable, int, first, limit, body);
        }
        self.iterated_loop(variable, int, constant, (first, limit), body)
    }

    /// `for` as the verifier walks it turn by turn.
    fn ordinary_loop(
        &mut self,
        variable: Variable,
        int: IntType,
        first: Value,
        limit: Value,
        body: &[Stmt],
    ) -> Lower<()> {
        // The counter is a variable of its own: the loop variable is what the body sees.
        let counter = self.builder.variable(int_type(int));
        self.builder.set(counter, first);
        let [header, inside, next, leave] = std::array::from_fn(|_| self.builder.block());
        self.builder.jump(header);
        self.builder.switch_to(header);
        let value = self.builder.get(counter);
        let condition = if int.signed { Condition::SLt } else { Condition::Lt };
        let more = self.builder.compare(condition, value, limit);
        self.builder.branch(more, inside, leave);
        self.builder.switch_to_sealed(inside);
        self.builder.set(variable, value);
        self.loops.push(Frame { break_to: leave, continue_to: next, iterator: None });
        self.block(body)?;
        self.loops.pop();
        if !self.builder.is_filled() {
            self.builder.jump(next);
        }
        self.builder.switch_to_sealed(next);
        let value = self.builder.get(counter);
        // Below the limit, so that adding one stays within the type.
        let value = self.builder.binary_const(BinaryOp::Add, value, 1);
        self.builder.set(counter, value);
        self.builder.jump(header);
        self.builder.seal(header);
        self.builder.switch_to_sealed(leave);
        Ok(())
    }

    fn iterated_loop(
        &mut self,
        variable: Variable,
        int: IntType,
        constant: Option<u64>,
        (first, limit): (Value, Value),
        body: &[Stmt],
    ) -> Lower<()> {
        let may_exceed = exceeds(int, constant);
        let count = self.turns(int, first, limit);
        let turns = if may_exceed { self.at_most_max_turns(count) } else { count };
        let turns = self.builder.value(Type::I32, Op::Truncate(turns));
        let iteration = self.enter_iterator(turns, body);
        let turn = self.builder.value(Type::Ptr(Origin::Turn), Op::NonNull(iteration.turn));
        let index = self.builder.value(Type::I32, Op::Load { size: Size::W, base: turn, offset: 0 });
        let u32 = IntType { bits: 32, signed: false };
        let index = arithmetic::convert(&mut self.builder, u32, int, index);
        let value = arithmetic::binary(&mut self.builder, crate::hir::BinaryOp::Add, int, first, index);
        self.builder.set(variable, value);
        self.block(body)?;
        if !self.builder.is_filled() {
            self.builder.jump(iteration.header);
        }
        self.builder.switch_to_sealed(iteration.ended);
        if may_exceed {
            let over = self.builder.compare_const(Condition::Gt, count, MAX_TURNS);
            let fault = self.builder.block();
            self.builder.branch(over, fault, iteration.leave);
            self.builder.switch_to_sealed(fault);
            self.fault_here();
        } else {
            self.builder.jump(iteration.leave);
        }
        self.leave_iterator(&iteration);
        Ok(())
    }

    /// How many numbers there are from `first` up to, not including, `limit`: 64 bits.
    fn turns(&mut self, int: IntType, first: Value, limit: Value) -> Value {
        let condition = if int.signed { Condition::SLt } else { Condition::Lt };
        let wide = IntType { bits: 64, ..int };
        let any = self.builder.compare(condition, first, limit);
        let (some, none, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let count = self.builder.param(join, Type::I64);
        self.builder.branch(any, some, none);
        self.builder.switch_to_sealed(some);
        let from = arithmetic::convert(&mut self.builder, int, wide, first);
        let to = arithmetic::convert(&mut self.builder, int, wide, limit);
        let distance = self.builder.binary(BinaryOp::Sub, to, from);
        self.builder.jump_with(join, distance);
        self.builder.switch_to_sealed(none);
        let zero = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        count
    }

    fn at_most_max_turns(&mut self, count: Value) -> Value {
        let over = self.builder.compare_const(Condition::Gt, count, MAX_TURNS);
        let (capped, within, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let turns = self.builder.param(join, Type::I64);
        self.builder.branch(over, capped, within);
        self.builder.switch_to_sealed(capped);
        let limit = self.builder.constant(Type::I64, MAX_TURNS);
        self.builder.jump_with(join, limit);
        self.builder.switch_to_sealed(within);
        self.builder.jump_with(join, count);
        self.builder.switch_to_sealed(join);
        turns
    }
}

/// A loop under an iterator.
struct Iteration {
    slot: Slot,
    /// The result of the last `next`.
    turn: Value,
    header: Block,
    /// Where control goes when the iterator has ended.
    ended: Block,
    /// Where every end of the loop meets.
    leave: Block,
}

/// The number of turns if both ends are constants.
fn constant_range(types: &Types, ty: crate::types::TypeId, start: &Expr, end: &Expr) -> Option<u64> {
    let int = types.scalar(ty)?;
    match (&start.kind, &end.kind) {
        (ExprKind::Const(start), ExprKind::Const(end)) => {
            let turns = int.value(*end) - int.value(*start);
            Some(u64::try_from(turns.max(0)).unwrap_or(u64::MAX))
        }
        _ => None,
    }
}

/// Whether a loop over the type may have more than [`MAX_TURNS`].
fn exceeds(int: IntType, constant: Option<u64>) -> bool {
    match constant {
        Some(turns) => turns > MAX_TURNS,
        None => int.bits > 16,
    }
}

/// What a loop's body declares and assigns.
#[derive(Default)]
struct Changes {
    assigned: BTreeSet<LocalId>,
    declared: BTreeSet<LocalId>,
}

impl Visitor for Changes {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, .. } => {
                self.declared.insert(*local);
            }
            StmtKind::Bind { local, .. } => {
                self.assigned.insert(*local);
            }
            StmtKind::Assign { place: Place { kind: PlaceKind::Local(local), .. }, .. }
            | StmtKind::Compound { place: Place { kind: PlaceKind::Local(local), .. }, .. } => {
                self.assigned.insert(*local);
            }
            _ => {}
        }
    }
}

/// Functions in which a loop may reach [`MAX_TURNS`], themselves or through a call.
pub(super) fn faulting_functions(hir: &Hir, split: &Split) -> BTreeSet<FuncId> {
    let mut found = BTreeSet::new();
    let mut grown = true;
    while grown {
        grown = false;
        for id in &split.kernel {
            let function = &hir.functions[*id];
            let mut faults = Faults { types: &hir.types, locals: function, known: &found, faults: false };
            visit::block(&mut faults, &function.body);
            if faults.faults && found.insert(*id) {
                grown = true;
            }
        }
    }
    found
}

struct Faults<'a> {
    types: &'a Types,
    locals: &'a crate::hir::Function,
    known: &'a BTreeSet<FuncId>,
    faults: bool,
}

impl Visitor for Faults<'_> {
    fn function(&mut self, id: FuncId) {
        self.faults |= self.known.contains(&id);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::While { .. } => self.faults = true,
            StmtKind::For { local, start, end, .. } => {
                let ty = self.locals.locals[*local].ty;
                let constant = constant_range(self.types, ty, start, end);
                self.faults |= self.types.scalar(ty).is_none_or(|int| exceeds(int, constant));
            }
            _ => {}
        }
    }
}
