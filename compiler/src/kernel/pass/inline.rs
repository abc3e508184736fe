//! Inlines functions that have a single call, and small functions.

use std::collections::BTreeMap;

use crate::hir::FuncId;
use crate::index::{Id, IndexVec};
use crate::kernel::limits::{SPILLS, STACK_BYTES};
use crate::kernel::mir::{
    Block, BlockData, Callee, Inst, MirFunction, Op, Program, Slot, SlotData, Target, Terminator, Value,
};
use crate::kernel::scratch::reached;
use crate::kernel::verifier::code::may_inline;

/// The number of calls of each function.
pub fn calls(program: &Program) -> BTreeMap<FuncId, usize> {
    let mut calls = BTreeMap::new();
    let blocks = program.functions.iter().flat_map(|function| &function.blocks);
    for inst in blocks.flat_map(|block| &block.insts) {
        if let Op::Call { callee: Callee::Function(id), .. } = inst.op {
            *calls.entry(id).or_insert(0) += 1;
        }
    }
    calls
}

/// Inlines functions into the one at position `at`, whose callees are already optimised. Returns whether
/// anything changed.
pub fn run(program: &mut Program, at: usize, calls: &BTreeMap<FuncId, usize>) -> bool {
    let (before, rest) = program.functions.split_at_mut(at);
    let Some(caller) = rest.first_mut() else { return false };
    // Where the slots of a callee begin, by the block of the call: code of an inlined function keeps its own.
    let mut bases: IndexVec<Block, u32> = IndexVec::filled(caller.blocks.len(), caller.slot_bytes);
    let mut changed = false;
    while let Some((block, index, callee)) = next_call(caller, before, calls, &bases) {
        let base = bases[block];
        put(caller, block, index, callee, base);
        bases.push(base);
        for _ in callee.blocks.iter() {
            bases.push(base + callee.slot_bytes);
        }
        changed = true;
    }
    changed
}

/// Removes functions that no program reaches, such as one whose address is unused. Returns whether there were
/// any. An object without programs keeps all functions.
pub fn drop_unreached(program: &mut Program) -> bool {
    let mut programs = program.functions.iter().filter(|one| one.is_program).map(|one| &one.id).peekable();
    if programs.peek().is_none() {
        return false;
    }
    let before = program.functions.len();
    let reached = reached(&program.functions, programs);
    program.functions.retain(|one| reached.contains(&one.id));
    program.functions.len() != before
}

fn next_call<'a>(
    caller: &MirFunction,
    callees: &'a [MirFunction],
    calls: &BTreeMap<FuncId, usize>,
    bases: &IndexVec<Block, u32>,
) -> Option<(Block, usize, &'a MirFunction)> {
    for block in caller.reverse_postorder() {
        for (index, inst) in caller.blocks[block].insts.iter().enumerate() {
            let Op::Call { callee: Callee::Function(id), .. } = inst.op else { continue };
            let Some(callee) = callees.iter().find(|one| one.id == id) else { continue };
            let is_only_call = calls.get(&id) == Some(&1);
            if may_inline(callee, is_only_call) && leaves_room(caller, callees, callee, bases[block]) {
                return Some((block, index, callee));
            }
        }
    }
    None
}

/// Whether the caller's frame, with the callee's in it, leaves enough stack for the frames of all functions
/// that either calls.
fn leaves_room(caller: &MirFunction, callees: &[MirFunction], callee: &MirFunction, base: u32) -> bool {
    if callee.slot_bytes == 0 {
        return true;
    }
    let frame = caller.slot_bytes.max(base.saturating_add(callee.slot_bytes));
    let called = called_by(caller).chain(called_by(callee)).filter(|id| *id != callee.id);
    let below = called.map(|id| depth(id, callees)).max().unwrap_or(0);
    frame.saturating_add(SPILLS).saturating_add(below) <= STACK_BYTES
}

/// Bytes of stack that a function and its callees may need.
fn depth(id: FuncId, functions: &[MirFunction]) -> u32 {
    let Some(function) = functions.iter().find(|one| one.id == id) else { return 0 };
    let below = called_by(function).map(|id| depth(id, functions)).max().unwrap_or(0);
    function.slot_bytes.saturating_add(SPILLS).saturating_add(below)
}

fn called_by(function: &MirFunction) -> impl Iterator<Item = FuncId> + '_ {
    function.blocks.iter().flat_map(|block| &block.insts).filter_map(|inst| match inst.op {
        Op::Call { callee: Callee::Function(id), .. } => Some(id),
        _ => None,
    })
}

/// Replaces a call by the callee's blocks, whose slots start at `base` in the frame. Bodies that do not run
/// at the same time share bytes. The continuation is the first new block.
fn put(caller: &mut MirFunction, block: Block, index: usize, callee: &MirFunction, base: u32) {
    let first_block = caller.blocks.len() + 1;
    let first_slot = caller.slots.len();
    let first_value = caller.values.len();
    let block_of = |block: Block| Block::new(first_block + block.index());
    let value_of = |value: Value| Value::new(first_value + value.index());
    for ty in callee.values.iter() {
        caller.values.push(*ty);
    }
    for slot in callee.slots.iter() {
        caller.slots.push(SlotData { position: base + slot.position, ..*slot });
    }
    caller.slot_bytes = caller.slot_bytes.max(base + callee.slot_bytes);
    let data = &mut caller.blocks[block];
    let rest = data.insts.split_off(index + 1);
    let call = data.insts.pop();
    let term = std::mem::replace(&mut data.term, Terminator::Jump(Target::to(block)));
    let span = data.span;
    let (result, args) = match call {
        Some(Inst { result, op: Op::Call { args, .. }, .. }) => (result, args),
        _ => return,
    };
    data.term = Terminator::Jump(Target { block: block_of(callee.entry()), args });
    // The callee's result becomes a parameter of the continuation, even if it is unused.
    let result = result.unwrap_or_else(|| caller.values.push(callee.ret));
    let continuation = caller.blocks.push(BlockData { params: vec![result], insts: rest, term, span });
    debug_assert_eq!(continuation.index() + 1, first_block, "the callee's blocks come behind");
    let moved = Moved { first_slot, continuation, block_of: &block_of, value_of: &value_of };
    for data in callee.blocks.iter() {
        caller.blocks.push(moved.block(data));
    }
}

/// The mapping of the callee's values, blocks and slots to the caller.
struct Moved<'a> {
    first_slot: usize,
    continuation: Block,
    block_of: &'a dyn Fn(Block) -> Block,
    value_of: &'a dyn Fn(Value) -> Value,
}

impl Moved<'_> {
    fn block(&self, data: &BlockData) -> BlockData {
        let mut data = data.clone();
        data.params.iter_mut().for_each(|param| *param = (self.value_of)(*param));
        for inst in &mut data.insts {
            inst.result = inst.result.map(self.value_of);
            inst.op.map_operands(&mut |value| (self.value_of)(value));
            if let Op::StackAddr { slot, .. } = &mut inst.op {
                *slot = Slot::new(self.first_slot + slot.index());
            }
        }
        data.term.map_operands(&mut |value| (self.value_of)(value));
        if let Terminator::Return(value) = data.term {
            data.term = Terminator::Jump(Target { block: self.continuation, args: vec![value] });
        } else {
            for target in data.term.targets_mut() {
                target.block = (self.block_of)(target.block);
            }
        }
        data
    }
}
