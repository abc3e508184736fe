//! The function that a loop body becomes, and the code that continues after a call of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bases, Captures, ExitFacts, Form, Offset, Region};
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::Exit;
use crate::kernel::mir::{
    BinaryOp, Block, Condition, FunctionOrigin, Inst, MirFunction, Op, Slot, SlotData, Target, Terminator,
    Type, Value,
};
use crate::kernel::scratch::Compact;

/// Numbers that are 0, which the verifier does not know.
pub struct HiddenZeros {
    narrow: Value,
    wide: Value,
}

impl HiddenZeros {
    /// Computes them from a number below 2^32 of which the verifier does not know that.
    pub fn new(function: &mut MirFunction, block: Block, low: Value) -> HiddenZeros {
        let half = function.append(block, Type::I64, Op::Const(32));
        let high = function.append(block, Type::I64, Op::Binary(BinaryOp::LShr, low, half));
        let up = function.append(block, Type::I64, Op::Binary(BinaryOp::Shl, high, half));
        let wide = function.append(block, Type::I64, Op::Binary(BinaryOp::Or, up, high));
        let narrow = function.append(block, Type::I32, Op::Truncate(wide));
        HiddenZeros { narrow, wide }
    }

    /// The one of a type.
    pub fn of(&self, ty: Type) -> Value {
        if ty == Type::I32 { self.narrow } else { self.wide }
    }
}

/// A function that gets code of another one.
pub struct BodyMaker<'a> {
    /// The other function.
    pub source: &'a MirFunction,
    /// The new function.
    pub body: MirFunction,
    /// The value of the new function for each of the other one.
    pub values: BTreeMap<Value, Value>,
    blocks: BTreeMap<Block, Block>,
    /// The block that ends an iteration where a test fails that never does.
    failed: Option<Block>,
}

/// The start of a new function, after its parameters.
pub struct Entrance {
    /// The addresses of the shared memory.
    pub bases: Bases,
    /// The block that goes on.
    pub block: Block,
    /// What hides loop-carried numbers from the verifier, if they have to be.
    pub zeros: Option<HiddenZeros>,
}

impl<'a> BodyMaker<'a> {
    /// Starts a function without blocks and parameters, with these stack slots of the other one.
    pub fn new(
        source: &'a MirFunction,
        (id, origin): (FuncId, FunctionOrigin),
        suffix: &str,
        slots: &BTreeSet<Slot>,
    ) -> BodyMaker<'a> {
        let mut body = MirFunction {
            id,
            origin,
            name: format!("{}_{suffix}", source.name),
            span: source.span,
            is_program: false,
            is_called: true,
            returns_bool: false,
            missing_first: false,
            context: source.context,
            params: Vec::new(),
            ret: Type::I32,
            values: IndexVec::new(),
            blocks: IndexVec::new(),
            slots: source.slots.clone(),
            slot_bytes: source.slot_bytes,
        };
        keep_only(&mut body, slots);
        BodyMaker { source, body, values: BTreeMap::new(), blocks: BTreeMap::new(), failed: None }
    }

    /// Appends an empty block.
    pub fn block(&mut self) -> Block {
        self.body.push_block(self.source.span)
    }

    /// The value that stands for one of the other function.
    pub fn own(&mut self, value: Value) -> Value {
        let (source, body) = (self.source, &mut self.body);
        *self.values.entry(value).or_insert_with(|| body.values.push(source.values[value]))
    }

    /// Appends a parameter.
    pub fn param(&mut self, block: Block, ty: Type) -> Value {
        let value = self.body.values.push(ty);
        self.body.blocks[block].params.push(value);
        value
    }

    /// Ends a block and the function.
    pub fn leave(&mut self, block: Block, code: u64) {
        let code = self.body.append(block, Type::I32, Op::Const(code));
        self.body.blocks[block].term = Terminator::Return(code);
    }

    /// Ends a block with a branch to the failed one; returns where the code goes on if `fails` is not
    /// `when_nonzero`.
    pub fn leave_if(&mut self, block: Block, fails: Value, when_nonzero: bool) -> Block {
        let next = self.block();
        let failed = match self.failed {
            Some(failed) => failed,
            None => {
                let failed = self.block();
                self.leave(failed, 0);
                *self.failed.insert(failed)
            }
        };
        let (then, otherwise) = if when_nonzero { (failed, next) } else { (next, failed) };
        self.body.branch(block, fails, then, otherwise);
        next
    }

    fn copy(&mut self, block: Block, inst: &Inst) {
        let mut copy = inst.clone();
        copy.op.map_operands(&mut |value| self.own(value));
        copy.result = inst.result.map(|result| self.own(result));
        self.body.blocks[block].insts.push(copy);
    }

    /// Copies blocks, except instructions that are not `wanted`. `defined` follows each value that a block defines;
    /// `leave` ends the copies of edges to other blocks, and of returns, which have no target. The function's own
    /// parameters become none of the copy.
    pub fn copy_blocks<'b>(
        &mut self,
        blocks: impl IntoIterator<Item = &'b Block> + Clone,
        wanted: impl Fn(&Inst) -> bool,
        mut defined: impl FnMut(&mut BodyMaker<'a>, Block, Value),
        mut leave: impl FnMut(&mut BodyMaker<'a>, Block, Exit, Option<&Target>),
    ) {
        for block in blocks.clone() {
            let own = self.block();
            self.blocks.insert(*block, own);
        }
        for block in blocks {
            let (data, own) = (&self.source.blocks[*block], self.blocks[block]);
            for param in data.params.iter().filter(|_| *block != self.source.entry()) {
                let value = self.own(*param);
                self.body.blocks[own].params.push(value);
            }
            data.params.iter().for_each(|param| defined(self, own, *param));
            for inst in data.insts.iter().filter(|inst| wanted(inst)) {
                self.copy(own, inst);
                inst.result.into_iter().for_each(|result| defined(self, own, result));
            }
            self.body.blocks[own].span = data.span;
            let mut term = data.term.clone();
            match &mut term {
                Terminator::Return(_) => {
                    leave(self, own, (*block, 0), None);
                    continue;
                }
                Terminator::Branch { cond, .. } => *cond = self.own(*cond),
                Terminator::Jump(_) => {}
            }
            for (index, target) in term.targets_mut().into_iter().enumerate() {
                *target = if let Some(inside) = self.blocks.get(&target.block).copied() {
                    Target { block: inside, args: target.args.iter().map(|arg| self.own(*arg)).collect() }
                } else {
                    let exit = self.block();
                    leave(self, exit, (*block, index), Some(target));
                    Target::to(exit)
                };
            }
            self.body.blocks[own].term = term;
        }
    }

    /// The copy of a block.
    pub fn own_block(&self, block: Block) -> Block {
        self.blocks[&block]
    }
}

impl Captures {
    /// Makes the function of a body.
    pub fn body(&self, region: &Region<'_>, form: &impl Form, mut maker: BodyMaker<'_>) -> MirFunction {
        let Entrance { bases, block, zeros } = form.enter(region, &mut maker);
        let types = &region.function.values;
        for (value, offset) in &self.incoming {
            let own = self.read(&mut maker.body, block, (*value, types[*value]), (bases, *offset), None);
            maker.values.insert(*value, own);
        }
        for (param, offset) in region.params().iter().zip(&self.carried) {
            let Some(offset) = offset else { continue };
            let (value, from) = ((*param, types[*param]), (bases, *offset));
            let own = self.read(&mut maker.body, block, value, from, zeros.as_ref());
            maker.values.insert(*param, own);
        }
        let start = self.rematerialise(form, block, &mut maker);
        let wanted = |inst: &Inst| region.is_moved(inst);
        let defined = |maker: &mut BodyMaker<'_>, block: Block, value: Value| {
            let result = self.results.get(&value).filter(|_| !form.stores_at_exits());
            store_all(maker, block, bases, result.map(|offset| (value, *offset)).into_iter());
        };
        let dominators = Dominators::new(region.function, &region.function.reverse_postorder());
        let defining = self.defining_blocks(region);
        maker.copy_blocks(&region.one.blocks, wanted, defined, |maker, block, exit, target| match target {
            Some(target) if target.block == region.one.header => {
                let args = target.args.iter().zip(&self.carried);
                let stores = args.filter_map(|(arg, offset)| Some((*arg, (*offset)?)));
                store_all(maker, block, bases, stores);
                maker.leave(block, 0);
            }
            _ => {
                let is_defined = |(from, _): &(&Block, _)| dominators.dominates(**from, exit.0);
                let results = defining.iter().filter(|_| form.stores_at_exits()).filter(is_defined);
                let results = results.flat_map(|(_, results)| results.iter().copied());
                store_all(maker, block, bases, results);
                let index = region.exits.iter().position(|one| *one == exit);
                form.leave(maker, block, bases, index.map_or(0, |index| index as u64 + 1));
            }
        });
        let args = region.entry_args().iter().map(|arg| maker.own(*arg)).collect();
        let first = maker.own_block(region.one.entry);
        maker.body.jump(start, first, args);
        maker.body
    }

    /// Computes values again, each packet pointer after the test of its bytes. Returns where the code goes on.
    fn rematerialise(&self, form: &impl Form, mut at: Block, maker: &mut BodyMaker<'_>) -> Block {
        let mut tests = form.packet_tests();
        let test = |pointer: Value, (bytes, end): (u32, Value), at: Block, maker: &mut BodyMaker<'_>| {
            let (pointer, end) = (maker.own(pointer), maker.own(end));
            let is_within = maker.body.append(at, Type::I32, Op::Within { pointer, bytes, end });
            maker.leave_if(at, is_within, false)
        };
        for inst in &self.rematerialised {
            if let Op::InPacket { pointer, .. } = inst.op
                && let Some(bytes) = tests.remove(&pointer)
            {
                at = test(pointer, bytes, at, maker);
            }
            maker.copy(at, inst);
        }
        tests.into_iter().fold(at, |at, (pointer, bytes)| test(pointer, bytes, at, maker))
    }

    /// The results that each block of the body defines.
    fn defining_blocks(&self, region: &Region<'_>) -> BTreeMap<Block, Vec<(Value, Offset)>> {
        let results = |block: &Block| {
            let data = &region.function.blocks[*block];
            let defined = data.params.iter().copied().chain(data.insts.iter().filter_map(|inst| inst.result));
            let results = defined.filter_map(|value| Some((value, *self.results.get(&value)?)));
            (*block, results.collect())
        };
        region.one.blocks.iter().map(results).collect()
    }
}

fn store_all(
    maker: &mut BodyMaker<'_>,
    block: Block,
    bases: Bases,
    values: impl Iterator<Item = (Value, Offset)>,
) {
    for (value, offset) in values {
        let own = maker.own(value);
        let base = bases.of(maker.body.values[own]);
        maker.body.append_store(block, own, base, offset);
    }
}

/// Appends the jumps to the exits of a body after a call that returned `code`. `read` appends loads of the
/// arguments for an exit, and returns the values that stand for results there. Returns the block for the code 0.
pub fn dispatch(
    function: &mut MirFunction,
    (mut at, code): (Block, Value),
    (exits, targets): (&[Exit], &[Target]),
    facts: &ExitFacts,
    mut read: impl FnMut(&mut MirFunction, &[Value], Block) -> BTreeMap<Value, Value>,
) -> Block {
    for (index, (exit, target)) in exits.iter().zip(targets).enumerate() {
        let number = function.append(at, Type::I32, Op::Const(index as u64 + 1));
        let is_exit = function.append(at, Type::I32, Op::Compare(Condition::Eq, code, number));
        let span = function.blocks[at].span;
        let (taken, next) = (function.push_block(span), function.push_block(span));
        function.branch(at, is_exit, taken, next);
        let known = read(function, &target.args, taken);
        let tested = facts.test_again(*exit, taken, next, function);
        let args = target.args.iter().map(|arg| known.get(arg).copied().unwrap_or(*arg)).collect();
        function.jump(tested, target.block, args);
        at = next;
    }
    at
}

/// Removes the bytes of other slots from a function's stack frame.
pub fn keep_only(function: &mut MirFunction, slots: &BTreeSet<Slot>) {
    let positions = Compact::new(function, |slot| slots.contains(&slot));
    for slot in function.slots.ids() {
        let data = function.slots[slot];
        function.slots[slot] = if slots.contains(&slot) {
            SlotData { position: positions.position(data), ..data }
        } else {
            SlotData { size: 0, position: 0 }
        };
    }
    function.slot_bytes = positions.bytes;
}
