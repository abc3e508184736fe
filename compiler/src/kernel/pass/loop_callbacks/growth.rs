//! Extends a loop body by code after it that uses a pointer which the body defines, such as a record that is
//! released there, or passes a size that the body checks to a function of the kernel: the verifier would know
//! neither after the call.

use std::collections::BTreeSet;

use super::is_checked;
use crate::kernel::mir::iterator_loops::IteratorLoop;
use crate::kernel::mir::{Block, Callee, Inst, KeptReason, MirFunction, Op, Type, Value};

/// Whether an operation can be rematerialised after a loop. The context that a packet edge is loaded from is
/// defined before the loop.
fn can_be_anywhere(op: &Op) -> bool {
    op.is_leaf() || matches!(op, Op::PacketEdge { .. })
}

/// Extends the body of a loop.
pub fn extend(function: &mut MirFunction, one: &mut IteratorLoop) -> Result<(), KeptReason> {
    let body = one.blocks.clone();
    let sizes = sizes(function);
    let pointers = loop {
        let pointers = pointers(function, one, &sizes);
        let receiving = receiving(function, one, &pointers);
        let is_wanted = |block: &Block| {
            let is_outside = !one.blocks.contains(block) && *block != one.header;
            is_outside && (receiving.contains(block) || last_use(function, *block, &pointers).is_some())
        };
        let wanted: Vec<Block> = function.reverse_postorder().into_iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            break pointers;
        }
        if !one.extend(function, wanted) {
            return Err(KeptReason::Pointer);
        }
    };
    for block in one.blocks.difference(&body) {
        let end = last_use(function, *block, &pointers).map_or(0, |last| last + 1);
        one.cut(function, *block, end);
    }
    Ok(())
}

/// The numbers from checks that functions of the kernel get: sizes, and others, which do no harm.
fn sizes(function: &MirFunction) -> BTreeSet<Value> {
    let ops = function.definitions();
    let order = function.reverse_postorder();
    let insts = order.iter().flat_map(|block| &function.blocks[*block].insts);
    let args = insts.filter_map(|inst| match &inst.op {
        Op::Call { callee: Callee::External(_), args } => Some(args),
        _ => None,
    });
    args.flatten().copied().filter(|value| ops[*value].is_some_and(|op| is_checked(&ops, op))).collect()
}

/// The pointers that the body defines, except those that can be rematerialised, and the sizes.
fn pointers(function: &MirFunction, one: &IteratorLoop, sizes: &BTreeSet<Value>) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    for data in one.blocks.iter().map(|block| &function.blocks[*block]) {
        let insts = data.insts.iter().filter(|inst| !can_be_anywhere(&inst.op));
        found.extend(data.params.iter().copied().chain(insts.filter_map(|inst| inst.result)));
    }
    found.retain(|value| matches!(function.values[*value], Type::Ptr(_)) || sizes.contains(value));
    found
}

fn last_use(function: &MirFunction, block: Block, pointers: &BTreeSet<Value>) -> Option<usize> {
    let reads_one = |inst: &Inst| {
        let mut found = false;
        inst.op.each_operand(|value| found |= pointers.contains(&value));
        found
    };
    function.blocks[block].insts.iter().rposition(reads_one)
}

/// The blocks to which the loop passes one of its pointers.
fn receiving(function: &MirFunction, one: &IteratorLoop, pointers: &BTreeSet<Value>) -> BTreeSet<Block> {
    let targets = one.blocks.iter().flat_map(|from| function.blocks[*from].term.targets());
    let passing = targets.filter(|target| target.args.iter().any(|arg| pointers.contains(arg)));
    passing.map(|target| target.block).collect()
}
