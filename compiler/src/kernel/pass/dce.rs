//! Dead code elimination: removes unused instructions and block parameters.

use super::changes::Changes;
use super::redundant_params;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, MirFunction, Op, Terminator, Value};

/// Runs dead code elimination on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let needed = needed(function, flow);
    let entry = function.entry();
    let (mut changed, mut drops, mut accesses) = (false, false, false);
    let mut removed: IndexVec<Block, Vec<usize>> = function.blocks.iter().map(|_| Vec::new()).collect();
    for id in function.blocks.ids() {
        let block = &mut function.blocks[id];
        block.insts.retain(|inst| {
            let is_needed = !inst.op.is_pure() || inst.result.is_some_and(|result| needed[result]);
            changed |= !is_needed;
            accesses |= !is_needed && matches!(inst.op, Op::Load { .. } | Op::Call { .. });
            is_needed
        });
        if id != entry {
            let unused = block.params.iter().enumerate().filter(|(_, param)| !needed[**param]);
            removed[id].extend(unused.map(|(index, _)| index));
            drops |= !removed[id].is_empty();
        }
    }
    if drops {
        redundant_params::remove(function, &removed);
    }
    Changes::GONE.when(changed || drops) | Changes::MEMORY.when(accesses)
}

/// The values on which effects, branches and results depend.
fn needed(function: &MirFunction, flow: &Flow) -> IndexVec<Value, bool> {
    let mut needs = Needs { needed: function.values.iter().map(|_| false).collect(), open: Vec::new() };
    let mut defined_by: IndexVec<Value, Definition<'_>> =
        function.values.iter().map(|_| Definition::None).collect();
    for block in flow.order.iter().copied() {
        let data = &function.blocks[block];
        for (index, param) in data.params.iter().enumerate() {
            defined_by[*param] = Definition::Param(block, index);
        }
        for inst in &data.insts {
            if let Some(result) = inst.result {
                defined_by[result] = Definition::Op(&inst.op);
            }
            if !inst.op.is_pure() {
                inst.op.each_operand(|value| needs.add(value));
            }
        }
        match data.term {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => needs.add(value),
            Terminator::Jump(_) => {}
        }
    }
    while let Some(value) = needs.open.pop() {
        match defined_by[value] {
            Definition::None => {}
            Definition::Op(op) => op.each_operand(|value| needs.add(value)),
            Definition::Param(block, index) => {
                for from in &flow.predecessors[block] {
                    let targets = function.blocks[*from].term.targets();
                    let passed = targets.iter().filter(|target| target.block == block);
                    passed.for_each(|target| needs.add(target.args[index]));
                }
            }
        }
    }
    needs.needed
}

/// The definition of a value.
#[derive(Clone, Copy)]
enum Definition<'a> {
    /// In unreachable code, or by the function's caller.
    None,
    /// The operation of an instruction.
    Op(&'a Op),
    /// The block parameter at this position, defined by the incoming edges of the block.
    Param(Block, usize),
}

struct Needs {
    needed: IndexVec<Value, bool>,
    open: Vec<Value>,
}

impl Needs {
    fn add(&mut self, value: Value) {
        if !std::mem::replace(&mut self.needed[value], true) {
            self.open.push(value);
        }
    }
}
