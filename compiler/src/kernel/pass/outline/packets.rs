//! Which bytes of packets were tested where: a body tests again what was tested before it, the verifier
//! brings nothing along.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, MirFunction, Op, Terminator, Value};

/// The tests of a function.
pub struct Tested {
    dominators: Dominators,
    tests: BTreeMap<Value, Vec<Test>>,
}

/// A test of bytes behind a pointer.
struct Test {
    /// Where they are there: only the test leads to it.
    passed: Block,
    bytes: u32,
    /// What it compares with.
    end: Value,
}

impl Tested {
    pub fn new(function: &MirFunction) -> Tested {
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let ops = function.definitions();
        let mut tests: BTreeMap<Value, Vec<Test>> = BTreeMap::new();
        for block in &order {
            let Terminator::Branch { cond, then, .. } = &function.blocks[*block].term else { continue };
            if let Some(Op::Within { pointer, bytes, end }) = ops[*cond]
                && predecessors[then.block].len() == 1
            {
                let test = Test { passed: then.block, bytes: *bytes, end: *end };
                tests.entry(*pointer).or_default().push(test);
            }
        }
        Tested { dominators: Dominators::of(&order, &predecessors), tests }
    }

    /// The bytes of packets that blocks take for tested and do not test: behind which pointers, and how many.
    pub fn untested(&self, function: &MirFunction, blocks: &BTreeSet<Block>) -> Vec<(Value, u32)> {
        let inside = |block: Block| blocks.contains(&block);
        let mut found = Vec::new();
        for block in blocks {
            for inst in &function.blocks[*block].insts {
                if let Op::InPacket { pointer, bytes } = inst.op
                    && self.end(pointer, bytes, *block, inside).is_none()
                {
                    found.push((pointer, bytes));
                }
            }
        }
        found
    }

    /// What so many bytes behind a pointer were compared with on all ways to a block, in one of the blocks
    /// that count.
    pub fn end(
        &self,
        pointer: Value,
        bytes: u32,
        at: Block,
        counts: impl Fn(Block) -> bool,
    ) -> Option<Value> {
        let mut tests = self.tests.get(&pointer).into_iter().flatten();
        let found = tests.find(|test| {
            test.bytes >= bytes && counts(test.passed) && self.dominators.dominates(test.passed, at)
        });
        found.map(|test| test.end)
    }
}
