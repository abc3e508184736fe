//! The tests of packet bytes in a function. A body repeats the tests that were made before it, because the
//! verifier knows nothing of its parameters.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, MirFunction, Op, Terminator, Value};

/// The tests of a function, by pointer.
pub struct PacketTests {
    dominators: Dominators,
    tests: BTreeMap<Value, Vec<PacketTest>>,
}

struct PacketTest {
    /// The block that is reached only if the test succeeds.
    passed: Block,
    bytes: u32,
    /// The end that it compares with.
    end: Value,
}

impl PacketTests {
    pub fn new(function: &MirFunction) -> PacketTests {
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let ops = function.definitions();
        let mut tests: BTreeMap<Value, Vec<PacketTest>> = BTreeMap::new();
        for block in &order {
            let Terminator::Branch { cond, then, .. } = &function.blocks[*block].term else { continue };
            if let Some(Op::Within { pointer, bytes, end }) = ops[*cond]
                && predecessors[then.block].len() == 1
            {
                let test = PacketTest { passed: then.block, bytes: *bytes, end: *end };
                tests.entry(*pointer).or_default().push(test);
            }
        }
        PacketTests { dominators: Dominators::of(&order, &predecessors), tests }
    }

    /// The pointers with bytes that blocks access without a test of their own, and how many bytes.
    pub fn untested(&self, function: &MirFunction, blocks: &BTreeSet<Block>) -> Vec<(Value, u32)> {
        let mut found = Vec::new();
        for block in blocks {
            for inst in &function.blocks[*block].insts {
                if let Op::InPacket { pointer, bytes } = inst.op
                    && self.end(pointer, bytes, *block, |passed| blocks.contains(&passed)).is_none()
                {
                    found.push((pointer, bytes));
                }
            }
        }
        found
    }

    /// The end that a test compares at least so many bytes of a pointer with, on all paths to a block. Tests count
    /// by the block that is reached if they succeed.
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
