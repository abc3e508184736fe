//! Lowers loops.
//!
//! The verifier must see that every loop ends, and it follows each iteration of an ordinary loop. So only a
//! loop with few iterations of little work is an ordinary one. Every other loop runs under the kernel's
//! open-coded iterator (Linux 6.4), whose iterations the verifier follows until it reaches no new state:
//!
//! ```text
//!     zero = bpf_iter_num_new(&it, 0, iterations)
//!     carried = opaque(carried, zero)            each variable that the body changes
//! header:
//!     p = bpf_iter_num_next(&it); if p is null goto end
//!     body; goto header
//! end, break, return:
//!     bpf_iter_num_destroy(&it)
//! ```
//!
//! The verifier's work doubles with each branch in such a loop, so large bodies become functions later
//! (`pass::outline_loops`). On kernels without iterators the loop becomes a call of `bpf_loop` instead
//! (`pass::loop_callbacks`). On kernels without both there are only ordinary loops, which may then be longer. A
//! map iteration (`map_iteration`) has the shape of a loop under an iterator, and always becomes a callback
//! loop.
//!
//! The verifier reaches no new state only if values do not differ between iterations in its eyes: see
//! [`Op::Opaque`].

use std::collections::BTreeSet;

use ks_wit::object::MAX_ITERATIONS;

use super::super::mir::builder::Variable;
use super::super::mir::{
    BinaryOp, Block, Callee, Condition, Kfunc, MapIter, Op, Origin, Size, Slot, Type, Value,
};
use super::super::verifier::tree::{Limits, may_follow_iterations};
use super::lvalue::Prepared;
use super::memory::{Addr, Base};
use super::pointer::PointerHome;
use super::{Home, Lower, Lowerer, arithmetic, impossible, int_type, values};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, LocalId, Lvalue, LvalueKind, MapId, Stmt, StmtKind};
use crate::source::Span;
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind, Types};

/// A loop around the current block.
pub(super) struct EnclosingLoop {
    break_to: Block,
    continue_to: Block,
    iterator: Option<RunningIterator>,
    /// The scope that contains the loop.
    scope: usize,
}

/// A running iterator or map iteration.
#[derive(Clone, Copy)]
struct RunningIterator {
    slot: Slot,
    /// The function that releases it.
    end: Callee,
    /// A 32-bit 0 that the verifier does not know.
    zero: Value,
    /// A 64-bit 0 of which the verifier knows no bit.
    wide_zero: Value,
}

impl EnclosingLoop {
    /// The scope that contains the loop.
    pub(super) fn scope(&self) -> usize {
        self.scope
    }
}

impl Lowerer<'_> {
    pub(super) fn break_loop(&mut self, span: Span) -> Lower<()> {
        let Some(frame) = self.loops.last() else {
            return impossible(span, "`break` outside of a loop");
        };
        let (target, scope) = (frame.break_to, frame.scope);
        self.unlock();
        self.discard_records(scope + 1);
        self.builder.jump(target);
        Ok(())
    }

    pub(super) fn continue_loop(&mut self, span: Span) -> Lower<()> {
        let Some(frame) = self.loops.last() else {
            return impossible(span, "`continue` outside of a loop");
        };
        let (target, scope) = (frame.continue_to, frame.scope);
        self.unlock();
        self.discard_records(scope + 1);
        self.builder.jump(target);
        Ok(())
    }

    /// Leaves all loops except the outermost `kept` ones, and the scopes from `scope` on, innermost first.
    /// Records that an iteration holds are discarded before its loop's iterator is released. Both happen
    /// before outer records are discarded, which the function of an outlined body cannot release.
    pub(super) fn leave_loops(&mut self, kept: usize, scope: usize) {
        let left: Vec<_> =
            self.loops.iter().skip(kept).rev().map(|one| (one.scope + 1, one.iterator)).collect();
        let mut end = usize::MAX;
        for (body_scope, iterator) in left {
            self.discard_between(body_scope..end);
            if let Some(iterator) = iterator {
                self.destroy(iterator);
            }
            end = body_scope;
        }
        self.discard_between(scope..end);
    }

    fn destroy(&mut self, iterator: RunningIterator) {
        let pointer = self.pointer(Addr::of(Base::Slot(iterator.slot)));
        self.builder.effect(Op::Call { callee: iterator.end, args: vec![pointer] });
    }

    /// The value, hidden from the verifier if the innermost loop around runs under an iterator.
    pub(super) fn make_opaque(&mut self, value: Value) -> Value {
        match self.loops.iter().rev().find_map(|frame| frame.iterator) {
            Some(iterator) => self.opaque_with(value, iterator),
            None => value,
        }
    }

    fn opaque_with(&mut self, value: Value, iterator: RunningIterator) -> Value {
        let ty = self.builder.ty(value);
        let zero = match ty {
            Type::I32 => iterator.zero,
            Type::I64 => iterator.wide_zero,
            Type::Ptr(_) => return value,
        };
        self.builder.value(ty, Op::Opaque { value, zero })
    }

    /// A zero with all 64 bits unknown. An extended 32-bit zero would keep known bounds, and sums with it
    /// would get different bounds in each iteration.
    fn wide_zero(&mut self, zero: Value) -> Value {
        let low = self.builder.value(Type::I64, Op::ZeroExtend(zero));
        let high = self.builder.binary_const(BinaryOp::Shl, low, 32);
        self.builder.binary(BinaryOp::Or, high, low)
    }

    /// Starts an iterator or a map iteration over these statements.
    pub(super) fn enter_iterator(&mut self, over: IterationSource, body: &[Stmt]) -> Iteration {
        let carried = self.loop_carried(body);
        self.enter_iterator_with(over, carried)
    }

    /// Starts an iterator or a map iteration and continues in the loop's header, which is left unsealed. `carried` are the
    /// variables that are set and that the body changes.
    pub(super) fn enter_iterator_with(&mut self, over: IterationSource, carried: Vec<Variable>) -> Iteration {
        let slot = self.builder.slot(8);
        let iterator = self.pointer(Addr::of(Base::Slot(slot)));
        let ((new, args), next, end) = match over {
            IterationSource::Numbers(iterations) => {
                let start = self.builder.constant(Type::I32, 0);
                let new = (Callee::Kfunc(Kfunc::IterNumNew), vec![iterator, start, iterations]);
                let next = (Callee::Kfunc(Kfunc::IterNumNext), Type::Ptr(Origin::IterCounterOrNull));
                (new, next, Callee::Kfunc(Kfunc::IterNumDestroy))
            }
            IterationSource::Map(map) => {
                let map = self.map_addr(map);
                let new = (Callee::MapIter(MapIter::New), vec![iterator, map]);
                let next = (Callee::MapIter(MapIter::Next), Type::Ptr(Origin::EntryOrNull));
                (new, next, Callee::MapIter(MapIter::End))
            }
        };
        let zero = self.builder.call(Type::I32, new, args);
        let running = RunningIterator { slot, end, zero, wide_zero: self.wide_zero(zero) };
        for variable in carried {
            let value = self.builder.get(variable);
            let value = self.opaque_with(value, running);
            self.builder.set(variable, value);
        }
        let (header, ended, leave) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.builder.jump(header);
        self.builder.switch_to(header);
        let iterator = self.pointer(Addr::of(Base::Slot(slot)));
        let item = self.builder.call(next.1, next.0, vec![iterator]);
        let null = self.builder.value(Type::I32, Op::IsNull(item));
        let inside = self.builder.block();
        self.builder.branch(null, ended, inside);
        self.builder.switch_to_sealed(inside);
        let scope = self.records.depth;
        self.loops.push(EnclosingLoop {
            break_to: leave,
            continue_to: header,
            iterator: Some(running),
            scope,
        });
        Iteration { running, item, header, ended, leave }
    }

    /// Closes the loop and continues where all its exits meet, with the iterator released.
    pub(super) fn leave_iterator(&mut self, iteration: &Iteration) {
        self.builder.seal(iteration.header);
        self.loops.pop();
        self.builder.switch_to_sealed(iteration.leave);
        self.destroy(iteration.running);
    }

    /// The loop-carried variables: set before the loop and changed by its body.
    fn loop_carried(&mut self, body: &[Stmt]) -> Vec<Variable> {
        let mut changes = LoopChanges::default();
        body.iter().for_each(|stmt| visit::stmt(&mut changes, stmt));
        let locals = changes.assigned.difference(&changes.declared);
        let homes = locals.filter_map(|local| self.active.locals[*local]);
        let variables: Vec<_> = homes
            .filter_map(|home| match home.home {
                Home::Scalar(variable) => Some(variable),
                Home::Pointer(PointerHome::Variables(variables)) => Some(variables.offset),
                _ => None,
            })
            .collect();
        let held = self.held_offsets();
        variables.into_iter().chain(held).filter(|variable| self.builder.is_set(*variable)).collect()
    }

    pub(super) fn while_loop(&mut self, cond: &Expr, body: &[Stmt], span: Span) -> Lower<()> {
        let iterations = self.builder.constant(Type::I32, MAX_ITERATIONS);
        let iteration = self.enter_iterator(IterationSource::Numbers(iterations), body);
        let inside = self.builder.block();
        self.condition(cond, inside, iteration.leave)?;
        self.builder.switch_to_sealed(inside);
        self.block(body)?;
        if !self.builder.is_filled() {
            self.builder.jump(iteration.header);
        }
        self.builder.switch_to_sealed(iteration.ended);
        self.cut_loop(span);
        self.leave_iterator(&iteration);
        Ok(())
    }

    pub(super) fn for_loop(
        &mut self,
        local: LocalId,
        (start, end): (&Expr, &Expr),
        body: &[Stmt],
        span: Span,
    ) -> Lower<()> {
        let ty = self.active.source.locals[local].ty;
        let int = self.int(ty, start.span)?;
        let (variable, exposed) = self.loop_variable(local, int)?;
        let constant = constant_range(self.types(), ty, start, end);
        let first = self.scalar(start)?;
        let limit = self.scalar(end)?;
        let range = LoopRange { variable, int, constant, first, limit };
        let indexes = indexes(body, local);
        let body = LoopBody { variable, int, exposed, element: None, indexes, stmts: body, span };
        if constant.is_some_and(|iterations| self.is_small(local, iterations, body.stmts)) {
            return self.ordinary_loop(&range, &body);
        }
        self.iterated_loop(&range, &body)
    }

    /// Lowers `for (key, value in array)`: the value is a copy of the element at the time of its iteration.
    pub(super) fn iterate_array(
        &mut self,
        key: LocalId,
        value: LocalId,
        array: &Lvalue,
        body: &[Stmt],
    ) -> Lower<()> {
        let TypeKind::Array(_, len) = *self.types().kind(array.ty) else {
            return impossible(array.span, "walking this");
        };
        let int = self.int(self.active.source.locals[key].ty, array.span)?;
        let (variable, exposed) = self.loop_variable(key, int)?;
        self.declare(value)?;
        let span = array.span;
        let array = self.prepare(array)?;
        let first = self.builder.constant(int_type(int), 0);
        let limit = self.builder.constant(int_type(int), len);
        let range = LoopRange { variable, int, constant: Some(len), first, limit };
        let element = Some(ArrayElement { array, len, value });
        let body = LoopBody { variable, int, exposed, element, indexes: true, stmts: body, span };
        let bytes = self.types().size(self.active.source.locals[value].ty);
        if len.saturating_mul(bytes) <= 64 && self.is_small(key, len, body.stmts) {
            return self.ordinary_loop(&range, &body);
        }
        self.iterated_loop(&range, &body)
    }

    /// Whether a loop of this many iterations is small enough to be an ordinary one.
    fn is_small(&self, variable: LocalId, iterations: u64, body: &[Stmt]) -> bool {
        let alone = self.program.machine.only_bounded_loops();
        let limits = if alone { Limits::ALONE } else { Limits::USUAL };
        may_follow_iterations(self.types(), variable, iterations, body, limits)
    }

    fn loop_variable(&mut self, local: LocalId, int: IntType) -> Lower<(Variable, Option<Base>)> {
        match self.declare(local)?.home {
            Home::Scalar(variable) => Ok((variable, None)),
            Home::Memory(base) => Ok((self.builder.variable(int_type(int)), Some(base))),
            _ => impossible(self.active.source.locals[local].span, "this loop variable"),
        }
    }

    /// Lowers the statements of one iteration after setting the loop variable.
    fn iteration_body(&mut self, body: &LoopBody<'_>) -> Lower<()> {
        let mark = self.builder.mark_stack();
        if let Some(exposed) = body.exposed {
            let value = self.builder.get(body.variable);
            self.store_scalar(Addr::of(exposed), body.int, value);
        }
        if let Some(element) = &body.element {
            let index = self.builder.get(body.variable);
            let wide = IntType { bits: 64, ..body.int };
            let index = arithmetic::convert(&mut self.builder, body.int, wide, index);
            let span = self.active.source.locals[element.value].span;
            let prepared = element.array.element_at(index, element.len, self.element_bytes(element.value));
            self.load_local(element.value, &prepared, span)?;
        }
        self.block(body.stmts)?;
        self.builder.release_stack(mark);
        Ok(())
    }

    fn element_bytes(&self, value: LocalId) -> u64 {
        self.types().size(self.active.source.locals[value].ty)
    }

    /// Lowers `for` as an ordinary loop, of which the verifier follows every iteration.
    fn ordinary_loop(&mut self, range: &LoopRange, body: &LoopBody<'_>) -> Lower<()> {
        let LoopRange { variable, int, first, limit, .. } = *range;
        // The counter is a variable of its own: the body may assign the loop variable.
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
        let scope = self.records.depth;
        self.loops.push(EnclosingLoop { break_to: leave, continue_to: next, iterator: None, scope });
        self.iteration_body(body)?;
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

    fn iterated_loop(&mut self, range: &LoopRange, body: &LoopBody<'_>) -> Lower<()> {
        let LoopRange { variable, int, constant, first, limit } = *range;
        let may_exceed = exceeds(int, constant);
        let count = self.iterations(int, first, limit);
        let iterations = if may_exceed { self.at_most_max_iterations(count) } else { count };
        let iterations = self.builder.value(Type::I32, Op::Truncate(iterations));
        let iteration = self.enter_iterator(IterationSource::Numbers(iterations), body.stmts);
        let item = self.builder.value(Type::Ptr(Origin::IterCounter), Op::NonNull(iteration.item));
        let index = self.builder.value(Type::I32, Op::Load { size: Size::W, base: item, offset: 0 });
        // The verifier does not know how many iterations there are. One comparison for all indices says so.
        let index = match constant.filter(|count| body.indexes && *count > 0) {
            Some(count) => {
                let wide = self.builder.value(Type::I64, Op::ZeroExtend(index));
                let below = self.below(wide, count, iteration.header);
                self.builder.value(Type::I32, Op::Truncate(below))
            }
            None => index,
        };
        let u32 = IntType { bits: 32, signed: false };
        let index = arithmetic::convert(&mut self.builder, u32, int, index);
        let value = arithmetic::binary(&mut self.builder, crate::hir::BinaryOp::Add, int, first, index);
        self.builder.set(variable, value);
        self.iteration_body(body)?;
        if !self.builder.is_filled() {
            self.builder.jump(iteration.header);
        }
        self.builder.switch_to_sealed(iteration.ended);
        if may_exceed {
            let over = self.builder.compare_const(Condition::Gt, count, MAX_ITERATIONS);
            let fault = self.builder.block();
            self.builder.branch(over, fault, iteration.leave);
            self.builder.switch_to_sealed(fault);
            self.cut_loop(body.span);
        } else {
            self.builder.jump(iteration.leave);
        }
        self.leave_iterator(&iteration);
        Ok(())
    }

    /// The number of iterations from `first` up to but not including `limit`, in 64 bits.
    fn iterations(&mut self, int: IntType, first: Value, limit: Value) -> Value {
        let condition = if int.signed { Condition::SLt } else { Condition::Lt };
        let wide = IntType { bits: 64, ..int };
        let any = self.builder.compare(condition, first, limit);
        // Before the branch, of which nothing is left if the range starts at 0.
        let from = arithmetic::convert(&mut self.builder, int, wide, first);
        let to = arithmetic::convert(&mut self.builder, int, wide, limit);
        let (some, none, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let count = self.builder.param(join, Type::I64);
        self.builder.branch(any, some, none);
        self.builder.switch_to_sealed(some);
        let distance = self.builder.binary(BinaryOp::Sub, to, from);
        self.builder.jump_with(join, distance);
        self.builder.switch_to_sealed(none);
        let zero = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        count
    }

    fn at_most_max_iterations(&mut self, count: Value) -> Value {
        let over = self.builder.compare_const(Condition::Gt, count, MAX_ITERATIONS);
        let (capped, within, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let iterations = self.builder.param(join, Type::I64);
        self.builder.branch(over, capped, within);
        self.builder.switch_to_sealed(capped);
        let limit = self.builder.constant(Type::I64, MAX_ITERATIONS);
        self.builder.jump_with(join, limit);
        self.builder.switch_to_sealed(within);
        self.builder.jump_with(join, count);
        self.builder.switch_to_sealed(join);
        iterations
    }
}

/// The range of a `for` loop and its iteration count.
#[derive(Clone, Copy)]
struct LoopRange {
    variable: Variable,
    int: IntType,
    /// The number of iterations, if known at compile time.
    constant: Option<u64>,
    first: Value,
    limit: Value,
}

/// The body of a `for` loop, with its loop variable.
struct LoopBody<'b> {
    variable: Variable,
    int: IntType,
    /// The memory that also holds the loop variable, if its address is taken.
    exposed: Option<Base>,
    element: Option<ArrayElement>,
    /// Whether the loop variable is part of an index.
    indexes: bool,
    stmts: &'b [Stmt],
    /// The span of the whole statement.
    span: Span,
}

/// The array element of an iteration.
struct ArrayElement {
    array: Prepared,
    len: u64,
    /// The local that receives a copy of the element.
    value: LocalId,
}

/// The source of a loop's items.
pub(super) enum IterationSource {
    /// Numbers from 0 on; the 32-bit value is their count.
    Numbers(Value),
    /// The entries of a map.
    Map(MapId),
}

/// A loop under an iterator, or a map iteration.
pub(super) struct Iteration {
    running: RunningIterator,
    /// The result of the last `next`.
    pub item: Value,
    pub header: Block,
    /// The block that is reached when the iterator is exhausted.
    pub ended: Block,
    /// The block where all exits of the loop meet.
    pub leave: Block,
}

impl Iteration {
    /// The slot that holds the iterator's state.
    pub(super) fn slot(&self) -> Slot {
        self.running.slot
    }
}

/// The number of iterations if both ends are constants.
fn constant_range(types: &Types, ty: TypeId, start: &Expr, end: &Expr) -> Option<u64> {
    let int = types.scalar(ty)?;
    match (&start.kind, &end.kind) {
        (ExprKind::Const(start), ExprKind::Const(end)) => {
            let iterations = int.value(*end) - int.value(*start);
            Some(u64::try_from(iterations.max(0)).unwrap_or(u64::MAX))
        }
        _ => None,
    }
}

/// Whether a loop over the type may have more than [`MAX_ITERATIONS`] iterations.
fn exceeds(int: IntType, constant: Option<u64>) -> bool {
    match constant {
        Some(iterations) => iterations > MAX_ITERATIONS,
        None => int.bits > 16,
    }
}

/// Whether these statements have an element of an array at a variable, or at a number next to it.
fn indexes(body: &[Stmt], variable: LocalId) -> bool {
    struct Indices {
        variable: LocalId,
        found: bool,
    }
    impl Visitor for Indices {
        fn lvalue(&mut self, lvalue: &Lvalue) {
            if let LvalueKind::Index { index, .. } = &lvalue.kind {
                self.found |= is_near(index, self.variable);
            }
        }
    }
    fn is_near(index: &Expr, variable: LocalId) -> bool {
        match &index.kind {
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => *local == variable,
            ExprKind::Convert(inner) => is_near(inner, variable),
            ExprKind::Binary(crate::hir::BinaryOp::Add, a, b) => is_near(a, variable) || is_near(b, variable),
            _ => false,
        }
    }
    let mut indices = Indices { variable, found: false };
    body.iter().for_each(|stmt| visit::stmt(&mut indices, stmt));
    indices.found
}

/// The variables that a loop's body declares and assigns.
#[derive(Default)]
struct LoopChanges {
    assigned: BTreeSet<LocalId>,
    declared: BTreeSet<LocalId>,
}

impl Visitor for LoopChanges {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, .. } => {
                self.declared.insert(*local);
            }
            StmtKind::Bind { local, .. } => {
                self.assigned.insert(*local);
            }
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. }
            | StmtKind::Compound { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. } => {
                self.assigned.insert(*local);
            }
            _ => {}
        }
    }
}

/// Functions in which a loop may reach [`MAX_ITERATIONS`], directly or through a call.
pub(super) fn faulting_functions(hir: &Hir, split: &Split) -> BTreeSet<FuncId> {
    let values = values::of(hir, split);
    let mut found = BTreeSet::new();
    let mut grown = true;
    while grown {
        grown = false;
        for id in &split.kernel {
            let function = &hir.functions[*id];
            let mut faults =
                Faults { types: &hir.types, locals: function, known: &found, values: &values, faults: false };
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
    locals: &'a crate::hir::HirFunction,
    known: &'a BTreeSet<FuncId>,
    /// Functions that are used as values, with their types.
    values: &'a BTreeSet<(TypeId, FuncId)>,
    faults: bool,
}

impl Visitor for Faults<'_> {
    fn function(&mut self, id: FuncId) {
        self.faults |= self.known.contains(&id);
    }

    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::CallValue { callee, .. } = &expr.kind {
            let mut called = self.values.iter().filter(|(ty, _)| *ty == callee.ty);
            self.faults |= called.any(|(_, id)| self.known.contains(id));
        }
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
