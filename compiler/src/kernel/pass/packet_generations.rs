//! Generations of packet pointers: the start and end of a packet stay the same until a helper of the kernel
//! moves or truncates it.
//!
//! After such a call the verifier rejects all older pointers, and tests of an older pointer prove nothing
//! about a newer one. So each [`Op::PacketEdge`] has the generation in which it is loaded. Edges of one
//! generation are one pointer for every pass; those of two generations are different operations. A generation
//! begins at the function's start, after a call that changes the packet, and in a block whose incoming edges
//! have different generations, such as the header of a loop that changes the packet.
//!
//! The pass renumbers whenever control flow changes: unrolled iterations of a loop would otherwise have equal
//! generations.

use std::collections::BTreeSet;

use crate::hir::{ExternId, FuncId};
use crate::index::{Id, IndexVec};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Callee, Helper, Inst, MirFunction, Op, Program, Value};

/// The calls in a program that change packets.
#[derive(Default)]
pub struct PacketChanges {
    /// Packet-changing helpers named by the script.
    externs: BTreeSet<ExternId>,
    /// The program's functions that call one of these helpers, directly or indirectly.
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

    /// Adds the functions that call such a helper, or a function found before. Returns whether there were
    /// any.
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

    /// Whether an instruction is a call that changes the packet, or for which the kernel calls a function
    /// that does. `named` returns the function whose address an argument is.
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

    /// Numbers the generations in one of the program's functions.
    pub fn number(&self, program: &mut Program, at: usize, flow: &Flow) {
        if !self.functions.contains(&program.functions[at].id) {
            return;
        }
        let function = &mut program.functions[at];
        let changes = self.calls(function, &flow.order);
        number(function, &changes, flow);
    }

    /// The calls in some of a function's blocks that change the packet: block by block, by position.
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

/// The generation at the function's start.
const FIRST: u32 = 0;

/// Numbers the generations. `changes` holds the calls that change the packet: block by block, by position.
fn number(function: &mut MirFunction, changes: &[(Block, usize)], flow: &Flow) {
    let blocks = function.blocks.len() as u32;
    // Blocks have the numbers after the first one, calls those after the blocks'.
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
            // Once the incoming generations differ, the block keeps a generation of its own.
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
