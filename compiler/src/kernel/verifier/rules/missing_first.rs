//! What is missing comes first: the way on which a packet ends before the bytes of a test.
//!
//! - Rule: the verifier follows the way after a branch first, and the one that the branch jumps to later; it stops there if
//!   it was in a state that knew no more. A test of a packet leaves a number of bytes behind a pointer, another for each test
//!   that passed: with the passed ones first, three pointers with sixteen tests each were 300,000 verified instructions.
//!   Source: kernel/bpf/verifier.c, `check_cond_jmp_op` (`push_stack`) and `regsafe` (`range`), v6.12.
//! - Kernels: all.
//! - Here: the way without the bytes gets a block of its own, which follows the branch: one instruction more for each test,
//!   none where the bytes are there; where the numbers of bytes of all pointers are many combinations, and constants are
//!   hidden (`precise_constants`): a state with the constant of what is missing is not one that knows less.
//! - Cases: `unknown_offsets`.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::mir::{Block, MirFunction, Op, Target, Terminator, Value};
use crate::kernel::verifier::code::{has_many_branches, may_pass_first};

/// Runs the pass; returns whether anything changed. It must run before constants are hidden, and when no pass removes blocks
/// any more.
pub fn run(function: &mut MirFunction) -> bool {
    let mut bytes: BTreeMap<Value, BTreeSet<u32>> = BTreeMap::new();
    let mut tests: BTreeSet<Value> = BTreeSet::new();
    for inst in function.insts() {
        if let (Op::Within { pointer, bytes: there, .. }, Some(result)) = (&inst.op, inst.result) {
            bytes.entry(*pointer).or_default().insert(*there);
            tests.insert(result);
        }
    }
    if !has_many_branches(function) || may_pass_first(bytes.values().map(BTreeSet::len)) {
        return false;
    }
    let blocks: Vec<Block> = function.blocks.ids().collect();
    for block in blocks {
        let Terminator::Branch { cond, otherwise, .. } = &function.blocks[block].term else { continue };
        if !tests.contains(cond) || otherwise.args.is_empty() {
            continue;
        }
        let missing = otherwise.clone();
        let own = function.push_block(function.blocks[block].span);
        function.jump(own, missing.block, missing.args);
        if let Terminator::Branch { otherwise, .. } = &mut function.blocks[block].term {
            *otherwise = Target::to(own);
        }
    }
    function.missing_first = true;
    true
}
