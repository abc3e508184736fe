//! Proves to the verifier that the result of a cgroup program is 0 or 1, where it cannot know.
//!
//! Lowering makes each result that of a comparison. A result with which a loop body exits crosses memory that the
//! verifier does not follow, so the value read there could be any number to it.

use crate::kernel::mir::{BinaryOp, Block, MirFunction, Op, Terminator, Type, Value};
use crate::kernel::pass::origins::Origins;

/// Runs the pass; returns whether anything changed.
pub fn run(function: &mut MirFunction) -> bool {
    if !function.returns_bool {
        return false;
    }
    let unproven = unproven(function);
    for (block, value) in &unproven {
        let ty: Type = function.values[*value];
        let one = function.append(*block, ty, Op::Const(1));
        let masked = function.append(*block, ty, Op::Binary(BinaryOp::And, *value, one));
        function.blocks[*block].term = Terminator::Return(masked);
    }
    !unproven.is_empty()
}

/// The ends of the function whose result may come from memory.
fn unproven(function: &MirFunction) -> Vec<(Block, Value)> {
    let origins = Origins::new(function);
    let has_operands_of_result =
        |op: &Op| matches!(op, Op::Binary(..) | Op::ZeroExtend(_) | Op::SignExtend(_) | Op::Truncate(_));
    let is_unknown = |op: &Op| matches!(op, Op::Load { .. } | Op::Call { .. } | Op::Opaque { .. });
    let may_be_memory = |value: Value| {
        // Comparisons are 0 or 1 whatever is compared.
        let found = origins.until(vec![value], |op| !has_operands_of_result(op));
        let mut found = found.iter_enumerated().filter(|(_, is_origin)| **is_origin);
        found.any(|(value, _)| origins.definitions[value].is_some_and(is_unknown))
    };
    let order = function.reverse_postorder();
    let ends = order.iter().filter_map(|block| match function.blocks[*block].term {
        Terminator::Return(value) => Some((*block, value)),
        _ => None,
    });
    ends.filter(|(_, value)| may_be_memory(*value)).collect()
}
