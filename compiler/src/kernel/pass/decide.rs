//! The numbers that branches and addresses depend on, whose bounds the verifier keeps precise.

use crate::index::{IndexVec, Lists};
use crate::kernel::mir::{MirFunction, Op, Terminator, Value};

/// For each value, whether a branch or an address depends on it, other than through memory or a call.
pub(super) fn deciding(function: &MirFunction) -> IndexVec<Value, bool> {
    let mut decides: IndexVec<Value, bool> = function.values.iter().map(|_| false).collect();
    let mut open = Vec::new();
    // What each value is made of: operands, or the arguments for a parameter.
    let mut parts = Vec::new();
    for block in function.reverse_postorder().iter().map(|block| &function.blocks[*block]) {
        if let Terminator::Branch { cond, .. } = block.term {
            open.push(cond);
        }
        for target in block.term.targets() {
            parts.extend(
                function.blocks[target.block].params.iter().copied().zip(target.args.iter().copied()),
            );
        }
        for inst in &block.insts {
            if matches!(inst.op, Op::PtrAdd(..) | Op::Below { .. }) {
                open.extend(inst.op.operands());
            } else if let Some(result) = inst.result
                && !matches!(inst.op, Op::Call { .. } | Op::Load { .. })
            {
                parts.extend(inst.op.operands().into_iter().map(|operand| (result, operand)));
            }
        }
    }
    let parts = Lists::new(function.values.len(), &parts);
    while let Some(value) = open.pop() {
        if !std::mem::replace(&mut decides[value], true) {
            open.extend(&parts[value]);
        }
    }
    decides
}
