//! Dominator-scoped global value numbering; branch conditions are propagated into dominated blocks.
//!
//! The pass visits the dominator tree from the entry down. A value computed in a dominator is reused.
//! Constants and addresses, which cost nothing until they are used, move to the entry. A branch into a block
//! with no other predecessor proves facts for that block and the blocks it dominates: the condition is a
//! constant, and the compared number has bounds.
//!
//! The verifier has to see the bounds too. A comparison may be removed only if a value remains that the
//! verifier knows to be below the bound: one whose definition proves it ([`bounds::followed`]), an
//! [`Op::Below`] in a dominator, or one inserted where the branch enters. In an iteration of an iterator only
//! facts proven in the same iteration count ([`Iterations`]).

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::bounds::{self, Bounds};
use super::changes::Changes;
use super::iterations::Iterations;
use super::rewrite::{Replacements, note};
use crate::index::{FastMap, Id, IndexVec, Lists};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{
    BinaryOp, Block, Callee, Inst, MirFunction, Op, Origin, Predecessors, Terminator, Type, Value,
};

/// Runs value numbering on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let blocks = flow.order.iter().rev();
    let below: Vec<(Block, Block)> =
        blocks.filter_map(|block| Some((flow.dominators.immediate(*block)?, *block))).collect();
    let below = Lists::new(function.blocks.len(), &below);
    let mut gvn = Gvn {
        iterations: Iterations::new(function, flow),
        ops: IndexVec::filled(function.values.len(), None),
        replacements: Replacements::default(),
        predecessors: &flow.predecessors,
        leaders: LeaderTable::new(function.values.len()),
        leaves: LeaderTable::new(function.values.len()),
        known: KnownConditions::default(),
        bounds: Scoped::default(),
        joined: FastMap::default(),
        within: Scoped::default(),
        checked: Scoped::default(),
        hoisted: Vec::with_capacity(function.blocks[function.entry()].insts.len() + 8),
        inserted: Vec::new(),
        changes: Changes::NONE,
        function,
    };
    gvn.all(&below);
    gvn.finish()
}

/// The children of each block in the dominator tree.
type Below = Lists<Block, Block>;

/// A map with scopes: the end of a scope restores the entries before it.
struct Scoped<K, V> {
    map: FastMap<K, V>,
    undo: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Scoped<K, V> {
    fn default() -> Scoped<K, V> {
        Scoped { map: FastMap::default(), undo: Vec::new() }
    }
}

impl<K: Clone + Eq + std::hash::Hash, V: Clone> Scoped<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    fn set(&mut self, key: K, value: V) {
        let before = self.map.insert(key.clone(), value);
        self.undo.push((key, before));
    }

    fn leave(&mut self, mark: usize) {
        while self.undo.len() > mark
            && let Some((key, before)) = self.undo.pop()
        {
            match before {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }
}

/// The computed values by operation, with scopes. If several values have the same operation, the last one is
/// the leader.
struct LeaderTable {
    /// For each hash modulo this vector's length, the last entry with it, counted from 1; 0 if there is none.
    last: Vec<u32>,
    entries: Vec<Leader>,
}

struct Leader {
    value: Value,
    hash: usize,
    /// The previous entry with the same hash.
    before: u32,
}

impl LeaderTable {
    /// An empty table sized for about `values` values.
    fn new(values: usize) -> LeaderTable {
        LeaderTable { last: vec![0; values.next_power_of_two()], entries: Vec::with_capacity(values / 4) }
    }

    fn hash(&self, op: &Op) -> usize {
        FxBuildHasher.hash_one(op) as usize & (self.last.len() - 1)
    }

    /// The value with this operation, whose hash is known.
    fn get(
        &self,
        hash: usize,
        op: &Op,
        ty: Type,
        ops: &IndexVec<Value, Option<Op>>,
        types: &IndexVec<Value, Type>,
    ) -> Option<Value> {
        let mut at = self.last[hash];
        while let Some(entry) = at.checked_sub(1).map(|index| &self.entries[index as usize]) {
            if types[entry.value] == ty && ops[entry.value].as_ref() == Some(op) {
                return Some(entry.value);
            }
            at = entry.before;
        }
        None
    }

    fn set(&mut self, hash: usize, value: Value) {
        self.entries.push(Leader { value, hash, before: self.last[hash] });
        self.last[hash] = self.entries.len() as u32;
    }

    fn leave(&mut self, mark: usize) {
        while self.entries.len() > mark
            && let Some(entry) = self.entries.pop()
        {
            self.last[entry.hash] = entry.before;
        }
    }
}

/// The known values of conditions, with scopes.
#[derive(Default)]
struct KnownConditions {
    /// Indexed by value, up to the last known one.
    known: IndexVec<Value, Option<bool>>,
    undo: Vec<(Value, Option<bool>)>,
}

impl KnownConditions {
    fn get(&self, condition: Value) -> Option<bool> {
        self.known.get(condition).copied().flatten()
    }

    fn set(&mut self, condition: Value, holds: bool) {
        self.known.grow_to(condition, None);
        let before = self.known[condition].replace(holds);
        self.undo.push((condition, before));
    }

    fn leave(&mut self, mark: usize) {
        while self.undo.len() > mark
            && let Some((condition, before)) = self.undo.pop()
        {
            self.known[condition] = before;
        }
    }
}

struct Gvn<'a> {
    function: &'a mut MirFunction,
    iterations: Iterations<'a>,
    /// The operations of the values seen so far.
    ops: IndexVec<Value, Option<Op>>,
    replacements: Replacements,
    predecessors: &'a Predecessors,
    leaders: LeaderTable,
    /// Constants and addresses, which are available everywhere: no scope ends them.
    leaves: LeaderTable,
    /// Conditions whose value is known here.
    known: KnownConditions,
    /// Bounds of numbers that branches prove, each with the block that the branch enters.
    bounds: Scoped<Value, (Bounds, Block)>,
    /// Bounds of block parameters, from all their arguments.
    joined: FastMap<Value, Bounds>,
    /// For a packet pointer and an end, the most bytes that are known to exist at the pointer, and the least
    /// that are known not to.
    within: Scoped<(Value, Value), (u32, u32)>,
    /// The [`Op::Below`] value of a number, with its bound.
    checked: Scoped<(Value, Type), (Value, u64)>,
    /// Instructions to insert at the start of the entry.
    hoisted: Vec<Inst>,
    /// Instructions to insert at the start of a block, in order.
    inserted: Vec<(Block, Inst)>,
    changes: Changes,
}

/// The fill levels of the five scoped tables.
type Marks = [usize; 5];

impl Gvn<'_> {
    fn all(&mut self, below: &Below) {
        let entry = self.function.entry();
        let mut open = vec![(entry, None)];
        while let Some((block, marks)) = open.pop() {
            if let Some(marks) = marks {
                self.leave(marks);
                continue;
            }
            open.push((block, Some(self.marks())));
            self.edge(block);
            self.joined(block);
            self.block(block);
            open.extend(below[block].iter().map(|next| (*next, None)));
        }
    }

    fn marks(&self) -> Marks {
        [
            self.leaders.entries.len(),
            self.known.undo.len(),
            self.bounds.undo.len(),
            self.within.undo.len(),
            self.checked.undo.len(),
        ]
    }

    fn leave(&mut self, [leaders, known, bounds, within, checked]: Marks) {
        self.leaders.leave(leaders);
        self.known.leave(known);
        self.bounds.leave(bounds);
        self.within.leave(within);
        self.checked.leave(checked);
    }

    /// Adds the facts that the only branch into the block proves.
    fn edge(&mut self, block: Block) {
        let [from] = &self.predecessors[block] else { return };
        let Terminator::Branch { cond, then, otherwise } = &self.function.blocks[*from].term else { return };
        if then.block == otherwise.block {
            return;
        }
        let (cond, holds) = (*cond, then.block == block);
        let is_bit = self.ops[cond].as_ref().is_some_and(Op::is_test);
        if is_bit || !holds {
            self.known.set(cond, holds);
        }
        if let Some(Op::Within { pointer, bytes, end }) = self.ops[cond] {
            let (there, gone) = self.within_of(pointer, end);
            let now = if holds { (there.max(bytes), gone) } else { (there, gone.min(bytes)) };
            return self.within.set((pointer, end), now);
        }
        let (number, bounds) = match self.ops[cond] {
            Some(Op::Compare(condition, a, b)) => match self.constant(b) {
                Some(limit) => {
                    let condition = if holds { condition } else { condition.negated() };
                    (a, bounds::of_comparison(condition, limit, self.width(a)))
                }
                None => return,
            },
            _ if holds && !is_bit => (cond, Some(Bounds { least: 1, most: u64::from(u32::MAX) })),
            _ => return,
        };
        if let Some(bounds) = bounds {
            let bounds = self.bounds_of(number).within(bounds);
            self.bounds.set(number, (bounds, block));
        }
    }

    /// Adds the bounds of the block's parameters that the definitions of all their arguments prove.
    fn joined(&mut self, block: Block) {
        if self.function.blocks[block].params.is_empty() {
            return;
        }
        let from = self.predecessors[block].iter().map(|from| &self.function.blocks[*from].term);
        let passed: Vec<&[Value]> = from
            .flat_map(Terminator::targets)
            .filter(|target| target.block == block)
            .map(|target| target.args.as_slice())
            .collect();
        for (index, param) in self.function.blocks[block].params.iter().enumerate() {
            let Some(width) = self.function.values[*param].bits() else { continue };
            let each = passed
                .iter()
                .map(|args| self.defined_bounds(self.number(self.replacements.resolve(args[index]))));
            let all = each.reduce(Bounds::or);
            if let Some(bounds) = all.filter(|all| all.most < bounds::greatest(width)) {
                self.joined.insert(*param, bounds);
            }
        }
    }

    fn block(&mut self, block: Block) {
        let mut insts = std::mem::take(&mut self.function.blocks[block].insts);
        insts.retain_mut(|inst| self.keep(inst, block));
        self.function.blocks[block].insts = insts;
        let unset = Terminator::Return(Value::new(0));
        let mut term = std::mem::replace(&mut self.function.blocks[block].term, unset);
        term.map_operands(&mut |value| self.noted_operand(value));
        self.function.blocks[block].term = term;
    }

    /// The replacement of an operand, which is recorded.
    fn noted_operand(&mut self, value: Value) -> Value {
        let by = self.operand(value);
        self.changes = self.changes | Changes::VALUES.when(by != value);
        by
    }

    /// The replacement of a value at this point.
    fn operand(&mut self, value: Value) -> Value {
        let value = self.replacements.resolve(value);
        match self.known.get(value) {
            Some(holds) => self.leaf(Op::Const(u64::from(holds)), Type::I32),
            None => value,
        }
    }

    /// Whether two operations with the same operands may share one value. Members of kernel objects may
    /// change between two loads.
    fn is_shared(&self, op: &Op) -> bool {
        let of_object = |base: Value| self.function.values[base] == Type::Ptr(Origin::Object);
        match op {
            Op::Load { .. } => false,
            Op::Call { callee, .. } => matches!(callee, Callee::TaskId(_)),
            Op::LoadField { base, .. } => !of_object(*base),
            _ => op.is_pure(),
        }
    }

    fn keep(&mut self, inst: &mut Inst, block: Block) -> bool {
        inst.op.map_operands(&mut |value| self.noted_operand(value));
        let Some(result) = inst.result else { return true };
        if !self.is_shared(&inst.op) {
            note(&mut self.ops, result, &inst.op);
            return true;
        }
        let ty = self.function.values[result];
        if let Some(value) = self.answer(&inst.op, ty) {
            return self.replace(result, value);
        }
        if let Op::Below { value, bound } = inst.op
            && let Some(checked) = self.below(value, bound, ty, block)
        {
            return self.replace(result, checked);
        }
        let is_leaf = inst.op.is_leaf();
        let leaders = if is_leaf { &self.leaves } else { &self.leaders };
        let hash = leaders.hash(&inst.op);
        if let Some(value) = leaders.get(hash, &inst.op, ty, &self.ops, &self.function.values)
            && (!proves_bounds(&inst.op) || self.iterations.defined_in_iteration_of(block, value))
        {
            return self.replace(result, value);
        }
        self.ops[result] = Some(inst.op.clone());
        if is_leaf {
            self.leaves.set(hash, result);
            self.changes = self.changes | Changes::MOVED.when(block != self.function.entry());
            let op = std::mem::replace(&mut inst.op, Op::Const(0));
            self.hoisted.push(Inst { op, ..*inst });
            return false;
        }
        if let Op::Below { value, bound } = inst.op {
            let number = self.number(value);
            self.checked.set((number, ty), (result, bound));
        }
        self.leaders.set(hash, result);
        true
    }

    fn replace(&mut self, value: Value, by: Value) -> bool {
        self.replacements.replace(value, by);
        self.changes = self.changes | Changes::VALUES;
        false
    }

    /// A constant or an address, defined in the entry.
    fn leaf(&mut self, op: Op, ty: Type) -> Value {
        let hash = self.leaves.hash(&op);
        if let Some(value) = self.leaves.get(hash, &op, ty, &self.ops, &self.function.values) {
            return value;
        }
        let value = self.value(ty, op.clone(), None);
        self.leaves.set(hash, value);
        let span = self.function.span;
        self.hoisted.push(Inst { result: Some(value), op, span });
        value
    }

    fn value(&mut self, ty: Type, op: Op, block: Option<Block>) -> Value {
        self.ops.push(Some(op));
        self.iterations.add(block);
        self.function.values.push(ty)
    }

    /// The bytes that branches prove to exist, and not to exist, at a packet pointer.
    fn within_of(&self, pointer: Value, end: Value) -> (u32, u32) {
        self.within.get(&(pointer, end)).copied().unwrap_or((0, u32::MAX))
    }

    /// The result of a comparison that the bounds decide, or of a packet test that a dominating branch
    /// decides.
    fn answer(&mut self, op: &Op, ty: Type) -> Option<Value> {
        if let Op::Within { pointer, bytes, end } = *op {
            let (there, gone) = self.within_of(pointer, end);
            let known = bytes <= there || bytes >= gone;
            return known.then(|| self.leaf(Op::Const(u64::from(bytes <= there)), ty));
        }
        let Op::Compare(condition, a, b) = *op else { return None };
        let limit = self.constant(b)?;
        let answer = bounds::answer(self.bounds_of(a), condition, limit, self.width(a))?;
        Some(self.leaf(Op::Const(u64::from(answer)), ty))
    }

    /// A value that equals the number and that the verifier knows to be below the bound.
    fn below(&mut self, value: Value, bound: u64, ty: Type, block: Block) -> Option<Value> {
        let number = self.number(value);
        let is_fresh = |value: Value| self.iterations.defined_in_iteration_of(block, value);
        let proven = bounds::followed(&self.ops, &self.function.values, number, &is_fresh);
        if proven.most < bound {
            return Some(value);
        }
        if let Some((checked, least)) = self.checked.get(&(number, ty))
            && *least <= bound
            && is_fresh(*checked)
        {
            return Some(*checked);
        }
        let (Bounds { most, .. }, from) = *self.bounds.get(&number)?;
        if most >= bound || from == block || !self.iterations.same_iteration(from, block) {
            return None;
        }
        let mut inner = number;
        if self.function.values[number] != ty {
            inner = self.insert(from, Op::ZeroExtend(number), ty);
        }
        let checked = self.insert(from, Op::Below { value: inner, bound: most + 1 }, ty);
        self.checked.set((number, ty), (checked, most + 1));
        Some(checked)
    }

    fn insert(&mut self, block: Block, op: Op, ty: Type) -> Value {
        let value = self.value(ty, op.clone(), Some(block));
        let span = self.function.blocks[block].span;
        self.inserted.push((block, Inst { result: Some(value), op, span }));
        value
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.ops[value] {
            Some(Op::Const(bits)) => Some(bits),
            _ => None,
        }
    }

    fn width(&self, value: Value) -> u32 {
        self.function.values[value].bits().unwrap_or(64)
    }

    /// The number without widening operations.
    fn number(&self, value: Value) -> Value {
        match self.ops[value] {
            Some(Op::ZeroExtend(inner)) => inner,
            _ => value,
        }
    }

    /// The bounds of a number, from its definition and from dominating branches.
    fn bounds_of(&self, value: Value) -> Bounds {
        let number = self.number(value);
        let defined = self.defined_bounds(number);
        match self.bounds.get(&number) {
            Some((bounds, _)) => defined.within(*bounds),
            None => defined,
        }
    }

    /// The bounds of a number from its definition alone.
    fn defined_bounds(&self, number: Value) -> Bounds {
        let joined = self.joined.get(&number).copied();
        joined.unwrap_or_else(|| bounds::proven(&self.ops, &self.function.values, number))
    }

    fn finish(self) -> Changes {
        let function = self.function;
        for (block, inst) in self.inserted.into_iter().rev() {
            function.blocks[block].insts.insert(0, inst);
        }
        let entry = function.entry();
        let rest = std::mem::take(&mut function.blocks[entry].insts);
        let mut insts = self.hoisted;
        insts.extend(rest);
        function.blocks[entry].insts = insts;
        self.replacements.apply(function);
        self.changes
    }
}

/// Whether the operation proves an upper bound of its result to the verifier.
fn proves_bounds(op: &Op) -> bool {
    matches!(
        op,
        Op::Below { .. } | Op::Narrow { signed: false, .. } | Op::Binary(BinaryOp::And | BinaryOp::LShr, ..)
    )
}
