//! The numbers that branches and addresses depend on, whose bounds the verifier keeps precise.

use crate::index::IndexVec;
use crate::kernel::mir::{MirFunction, Op, Terminator, Value};

/// For each value, whether a branch or an address depends on it, other than through memory or a call.
pub(super) fn deciding(function: &MirFunction) -> IndexVec<Value, bool> {
    let mut decides: IndexVec<Value, bool> = function.values.iter().map(|_| false).collect();
    let order = function.reverse_postorder();
    let mut changed = true;
    let mut depends = Vec::new();
    while changed {
        changed = false;
        for block in order.iter().rev().map(|block| &function.blocks[*block]) {
            if let Terminator::Branch { cond, .. } = block.term {
                depends.push(cond);
            }
            for target in block.term.targets() {
                let params = function.blocks[target.block].params.iter();
                let passed = params.zip(&target.args).filter(|(param, _)| decides[**param]);
                depends.extend(passed.map(|(_, arg)| *arg));
            }
            for inst in &block.insts {
                let is_address = matches!(inst.op, Op::PtrAdd(..) | Op::Below { .. });
                let is_call = matches!(inst.op, Op::Call { .. } | Op::Load { .. });
                if is_address || !is_call && inst.result.is_some_and(|result| decides[result]) {
                    depends.extend(inst.op.operands());
                }
            }
            for value in depends.drain(..) {
                changed |= !std::mem::replace(&mut decides[value], true);
            }
        }
    }
    decides
}
