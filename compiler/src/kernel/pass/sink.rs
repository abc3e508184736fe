//! Code sinking: moves an arithmetic instruction whose result only one successor of its block uses to the start
//! of that successor, so that the other paths do not execute it.
//!
//! Missing compared with the standard algorithm: only successors with one predecessor are considered (no loop
//! header is one), only arithmetic, and only if at most one operand is in a register, so that no more values
//! are live at the branch than before.

use smallvec::SmallVec;

use crate::index::IndexVec;
use crate::kernel::mir::{Block, Inst, MirFunction, Op, Terminator, Value};

/// The block of each use of a value.
type Users = SmallVec<[Block; 4]>;

/// Runs code sinking; returns whether anything changed.
pub fn run(function: &mut MirFunction) -> bool {
    let order = function.reverse_postorder();
    let predecessors = function.predecessors(&order);
    // Values that instruction selection computes again at their uses need no register.
    let leaves = function.definitions().iter().map(|op| op.is_some_and(Op::is_leaf)).collect();
    let mut users = users(function);
    let mut changed = false;
    // Blocks before their successors, so that an instruction can move through several.
    for block in order {
        let Terminator::Branch { then, otherwise, .. } = &function.blocks[block].term else { continue };
        let targets = [then.block, otherwise.block].map(|to| (predecessors[to].len() == 1).then_some(to));
        let (mut kept, mut sunk) = (Vec::new(), [Vec::new(), Vec::new()]);
        // Backwards, so that an instruction that only sunk ones read is sunk, too.
        for inst in std::mem::take(&mut function.blocks[block].insts).into_iter().rev() {
            let only = sinks(&inst, &users, &leaves);
            match targets.iter().position(|to| only.is_some() && *to == only) {
                Some(target) => {
                    inst.op.each_operand(|operand| move_use(&mut users[operand], block, only));
                    sunk[target].push(inst);
                }
                None => kept.push(inst),
            }
        }
        kept.reverse();
        function.blocks[block].insts = kept;
        for (to, mut insts) in targets.into_iter().zip(sunk) {
            let Some(to) = to.filter(|_| !insts.is_empty()) else { continue };
            insts.reverse();
            function.blocks[to].insts.splice(0..0, insts);
            changed = true;
        }
    }
    changed
}

/// Returns the block that has all uses of an instruction, if the instruction may be moved there.
fn sinks(inst: &Inst, users: &IndexVec<Value, Users>, leaves: &IndexVec<Value, bool>) -> Option<Block> {
    let users = &users[inst.result.filter(|_| is_arithmetic(&inst.op))?];
    let first = *users.first()?;
    let in_registers = inst.op.operands().iter().filter(|operand| !leaves[**operand]).count();
    (in_registers <= 1 && users.iter().all(|user| *user == first)).then_some(first)
}

/// Records that one use is in another block now.
fn move_use(users: &mut Users, from: Block, to: Option<Block>) {
    if let (Some(user), Some(to)) = (users.iter_mut().find(|user| **user == from), to) {
        *user = to;
    }
}

fn is_arithmetic(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(..)
            | Op::Narrow { .. }
            | Op::SwapBytes { .. }
            | Op::SignExtend(_)
            | Op::ZeroExtend(_)
            | Op::Truncate(_)
            | Op::Below { .. }
    )
}

fn users(function: &MirFunction) -> IndexVec<Value, Users> {
    let mut found: IndexVec<Value, Users> = function.values.iter().map(|_| Users::new()).collect();
    for (block, data) in function.blocks.iter_enumerated() {
        data.insts.iter().for_each(|inst| inst.op.each_operand(|operand| found[operand].push(block)));
        let passed = data.term.targets().into_iter().flat_map(|target| target.args.iter().copied());
        passed.for_each(|argument| found[argument].push(block));
        match data.term {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => found[value].push(block),
            Terminator::Jump(_) => {}
        }
    }
    found
}
