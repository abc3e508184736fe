//! The claim of a scratch slot at a program's start, and its release where the program ends.

use std::collections::BTreeMap;

use super::{NUMBER_OFFSET, SLOTS};
use crate::kernel::mir::{
    BinaryOp, Block, Callee, Condition, Count, Helper, Inst, MapSymbol, MirFunction, Op, Origin, Size,
    Target, Terminator, Type, Value,
};

/// Claims a scratch slot, whose address becomes `base`; ends the program by a fault, which is counted and has the
/// result `faulted`, if none is free. Returns the block where it does. `is_numbered`: the slot keeps its number.
///
/// The mark of a slot is the number of runs that want it. A run that adds one and then reads one owns the
/// slot. Any other run, before or after, reads more, subtracts one again and tries the next slot. This
/// needs no atomics that return a value, which older kernels and instruction sets lack.
pub fn claim(function: &mut MirFunction, base: Value, faulted: u64, is_numbered: bool) -> Block {
    let entry = function.entry();
    let body = function.split(entry, 0);
    let span = function.span;
    function.blocks[entry].span = span;
    let [head, found, taken, none_free, claimed] = std::array::from_fn(|_| function.push_block(span));
    let key = function.push_slot(4);
    let first = function.append(entry, Type::I32, Op::Const(0));
    function.jump(entry, head, vec![first]);

    let index = function.values.push(Type::I32);
    function.blocks[head].params.push(index);
    let key = function.append(head, Type::Ptr(Origin::Stack), Op::StackAddr { slot: key, offset: 0 });
    function.append_store(head, index, key, 0);
    let map = function.append(head, Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Scratch));
    let lookup = Op::Call { callee: Callee::Helper(Helper::MapLookup), args: vec![map, key] };
    let pointer = function.append(head, Type::Ptr(Origin::EntryOrNull), lookup);
    let is_null = function.append(head, Type::I32, Op::IsNull(pointer));
    function.branch(head, is_null, none_free, found);

    function.blocks[found].insts.push(Inst { result: Some(base), op: Op::NonNull(pointer), span });
    add_to_mark(function, found, base, 1);
    let wanted_by = function.append_load(found, Type::I64, base, 0);
    let one = function.append(found, Type::I64, Op::Const(1));
    let is_mine = function.append(found, Type::I32, Op::Compare(Condition::Eq, wanted_by, one));
    function.branch(found, is_mine, claimed, taken);

    add_to_mark(function, taken, base, u64::MAX);
    let one = function.append(taken, Type::I32, Op::Const(1));
    let next = function.append(taken, Type::I32, Op::Binary(BinaryOp::Add, index, one));
    let slots = function.append(taken, Type::I32, Op::Const(u64::from(SLOTS)));
    let has_more = function.append(taken, Type::I32, Op::Compare(Condition::Lt, next, slots));
    function.blocks[taken].term = Terminator::Branch {
        cond: has_more,
        then: Target { block: head, args: vec![next] },
        otherwise: Target::to(none_free),
    };

    let count = Op::CountAddr(Count::Faults(function.id));
    let count = function.append(none_free, Type::Ptr(Origin::Global), count);
    let one = function.append(none_free, Type::I64, Op::Const(1));
    let counted = Op::AtomicAdd { size: Size::DW, base: count, offset: 0, value: one };
    function.blocks[none_free].insts.push(Inst { result: None, op: counted, span });
    let result = function.append(none_free, function.ret, Op::Const(faulted));
    function.blocks[none_free].term = Terminator::Return(result);

    if is_numbered {
        function.append_store(claimed, index, base, NUMBER_OFFSET.unsigned_abs().into());
    }
    function.jump(claimed, body, Vec::new());
    none_free
}

/// Releases the scratch slot at every exit but the block `none_free`, where the program ends without one.
pub fn release(function: &mut MirFunction, base: Value, none_free: Block) {
    // A tail call returns only if it fails, and then the program ends.
    let ends = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Helper(Helper::TailCall), .. });
    for block in function.reverse_postorder() {
        let data = &function.blocks[block];
        if let Some(call) = data.insts.iter().position(ends) {
            return_here(function, block);
            release_at(function, block, call, base);
        } else if matches!(data.term, Terminator::Return(_)) && block != none_free {
            release_at(function, block, data.insts.len(), base);
        }
    }
}

/// Lets a block after which the program ends return itself: copies the blocks that it jumps to.
fn return_here(function: &mut MirFunction, block: Block) {
    let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
    while let Terminator::Jump(to) = function.blocks[block].term.clone() {
        let next = function.blocks[to.block].clone();
        copies.extend(next.params.into_iter().zip(to.args));
        for mut inst in next.insts {
            inst.op.map_operands(&mut |value| copies.get(&value).copied().unwrap_or(value));
            if let Some(result) = &mut inst.result {
                let own = function.values.push(function.values[*result]);
                copies.insert(*result, own);
                *result = own;
            }
            function.blocks[block].insts.push(inst);
        }
        let mut term = next.term;
        term.map_operands(&mut |value| copies.get(&value).copied().unwrap_or(value));
        function.blocks[block].term = term;
    }
}

fn release_at(function: &mut MirFunction, block: Block, at: usize, base: Value) {
    let after = function.blocks[block].insts.split_off(at);
    add_to_mark(function, block, base, u64::MAX);
    function.blocks[block].insts.extend(after);
}

fn add_to_mark(function: &mut MirFunction, block: Block, base: Value, number: u64) {
    let value = function.append(block, Type::I64, Op::Const(number));
    let add = Op::AtomicAdd { size: Size::DW, base, offset: 0, value };
    let data = &mut function.blocks[block];
    data.insts.push(Inst { result: None, op: add, span: data.span });
}
