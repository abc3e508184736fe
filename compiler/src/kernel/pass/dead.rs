//! Removes instructions and block parameters that nobody needs.

use smallvec::SmallVec;

use super::flow::Flow;
use super::params;
use crate::index::IndexVec;
use crate::kernel::mir::{Block, Function, Op, Terminator, Value};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function, flow: &Flow) -> bool {
    let needed = needed(function, &flow.order);
    let entry = function.entry();
    let (mut changed, mut drops) = (false, false);
    let mut removed: IndexVec<Block, Vec<usize>> = IndexVec::new();
    for id in function.blocks.ids() {
        let block = &mut function.blocks[id];
        let before = block.insts.len();
        block.insts.retain(|inst| !inst.op.is_pure() || inst.result.is_some_and(|result| needed[result]));
        let unused = block.params.iter().enumerate().filter(|(_, param)| !needed[**param]);
        let unused: Vec<_> = unused.map(|(index, _)| index).filter(|_| id != entry).collect();
        changed |= block.insts.len() != before;
        drops |= !unused.is_empty();
        removed.push(unused);
    }
    if drops {
        params::remove(function, &removed);
    }
    changed || drops
}

/// What effects, branches and results depend on.
fn needed(function: &Function, order: &[Block]) -> IndexVec<Value, bool> {
    let mut needs = Needs { needed: function.values.iter().map(|_| false).collect(), open: Vec::new() };
    let mut made_by: IndexVec<Value, Option<&Op>> = function.values.iter().map(|_| None).collect();
    let mut args: IndexVec<Value, SmallVec<[Value; 2]>> =
        function.values.iter().map(|_| SmallVec::new()).collect();
    for block in order.iter().map(|block| &function.blocks[*block]) {
        for inst in &block.insts {
            if let Some(result) = inst.result {
                made_by[result] = Some(&inst.op);
            }
            if !inst.op.is_pure() {
                needs.add(&inst.op.operands());
            }
        }
        for target in block.term.targets() {
            for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                args[*param].push(*arg);
            }
        }
        match block.term {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => needs.add(&[value]),
            Terminator::Jump(_) => {}
        }
    }
    while let Some(value) = needs.open.pop() {
        if let Some(op) = made_by[value] {
            needs.add(&op.operands());
        }
        needs.add(&args[value]);
    }
    needs.needed
}

struct Needs {
    needed: IndexVec<Value, bool>,
    open: Vec<Value>,
}

impl Needs {
    fn add(&mut self, values: &[Value]) {
        for value in values {
            if !std::mem::replace(&mut self.needed[*value], true) {
                self.open.push(*value);
            }
        }
    }
}
