//! Versions of the packet: where a packet starts and ends is the same until a helper of the kernel moves or cuts it.
//!
//! After such a call the verifier takes no pointer that was made before, and what was tested of one says nothing of the next. So
//! each [`Op::PacketEdge`] has the version of the packet that it is taken from. Edges of one version are one pointer, for every
//! pass; those of two are different operations. A version begins at the function's start, behind a call that changes the packet,
//! and in a block to which ways with different versions lead: also at the start of a loop that changes it.
//!
//! Versions are counted anew whenever control goes other ways: turns of a loop that are written out would have the same ones.

use std::collections::BTreeSet;

use super::flow::Flow;
use crate::hir::{ExternId, FuncId};
use crate::index::{Id, IndexVec};
use crate::kernel::mir::{Block, Callee, Helper, Inst, MirFunction, Op, Program, Value};

/// What changes packets in a program.
#[derive(Default)]
pub struct PacketChanges {
    /// Helpers named by the script.
    externs: BTreeSet<ExternId>,
    /// Its functions that lead to a call of such a helper.
    functions: BTreeSet<FuncId>,
}

impl PacketChanges {
    pub fn of(program: &Program) -> PacketChanges {
        let mut changing = PacketChanges::default();
        if program.changes_packets {
            changing.externs.clone_from(&program.packet_changers);
            while changing.add_callers(program) {}
        }
        changing
    }

    /// Adds what leads to a call of a helper, or of a function that was found before. Gives whether there was any.
    fn add_callers(&mut self, program: &Program) -> bool {
        let before = self.functions.len();
        for function in &program.functions {
            let leads = |inst: &Inst| match inst.op {
                Op::FunctionAddr(id) => self.functions.contains(&id),
                _ => self.changes(inst, |_| None),
            };
            if function.insts().any(leads) {
                self.functions.insert(function.id);
            }
        }
        self.functions.len() > before
    }

    /// Whether an instruction is a call that changes the packet, or for which the kernel calls a function that does:
    /// `named` gives the function whose address an argument is.
    fn changes(&self, inst: &Inst, named: impl Fn(Value) -> Option<FuncId>) -> bool {
        let Op::Call { callee, args } = &inst.op else { return false };
        let changes = match callee {
            Callee::Helper(Helper::SkbPullData) => true,
            Callee::External(id) => self.externs.contains(id),
            Callee::Function(id) => self.functions.contains(id),
            _ => false,
        };
        changes || args.iter().filter_map(|arg| named(*arg)).any(|id| self.functions.contains(&id))
    }

    /// Numbers the versions in one of the program's functions.
    pub fn number(&self, program: &mut Program, at: usize, flow: &Flow) {
        if !self.functions.contains(&program.functions[at].id) {
            return;
        }
        let function = &mut program.functions[at];
        let changes = self.calls(function, &flow.order);
        number(function, &changes, flow);
    }

    /// The calls in some of a function's blocks that change the packet: block by block, by their positions.
    pub fn calls<'b>(
        &self,
        function: &MirFunction,
        blocks: impl IntoIterator<Item = &'b Block>,
    ) -> Vec<(Block, usize)> {
        if !self.functions.contains(&function.id) {
            return Vec::new();
        }
        let definitions = function.definitions();
        let named = |value: Value| match definitions[value] {
            Some(Op::FunctionAddr(id)) => Some(*id),
            _ => None,
        };
        let calls = |block: &Block| {
            let insts = function.blocks[*block].insts.iter().enumerate();
            let changing = insts.filter(|(_, inst)| self.changes(inst, named));
            changing.map(|(position, _)| (*block, position)).collect::<Vec<_>>()
        };
        blocks.into_iter().flat_map(calls).collect()
    }
}

/// The version at the function's start.
const FIRST: u32 = 0;

/// Numbers the versions, given the calls that change the packet: block by block, by their positions.
fn number(function: &mut MirFunction, changes: &[(Block, usize)], flow: &Flow) {
    let blocks = function.blocks.len() as u32;
    // Blocks have the numbers behind the first, calls those behind the blocks'.
    let joined = |block: Block| 1 + block.index() as u32;
    let called = |call: usize| 1 + blocks + call as u32;
    let mut last: IndexVec<Block, Option<u32>> = IndexVec::filled(function.blocks.len(), None);
    for (call, (block, _)) in changes.iter().enumerate() {
        last[*block] = Some(called(call));
    }
    let mut starts: IndexVec<Block, Option<u32>> = IndexVec::filled(function.blocks.len(), None);
    starts[function.entry()] = Some(FIRST);
    loop {
        let mut changed = false;
        for block in flow.order.iter().skip(1) {
            let mut ends = flow.predecessors[*block].iter().filter_map(|from| last[*from].or(starts[*from]));
            let Some(first) = ends.next() else { continue };
            let start = if ends.all(|other| other == first) { first } else { joined(*block) };
            // Once ways were seen to differ they do.
            if starts[*block] != Some(start) && starts[*block] != Some(joined(*block)) {
                starts[*block] = Some(start);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut calls = changes.iter().enumerate().peekable();
    for block in &flow.order {
        let mut now = starts[*block].unwrap_or(FIRST);
        for (position, inst) in function.blocks[*block].insts.iter_mut().enumerate() {
            if let Op::PacketEdge { generation, .. } = &mut inst.op {
                *generation = now;
            }
            if let Some((call, _)) = calls.next_if(|(_, (other, at))| other == block && *at == position) {
                now = called(call);
            }
        }
    }
}
