//! Shows the verifier that the result of a program on a cgroup is 0 or 1, where it cannot know.
//!
//! Lowering makes each result a comparison's. One with which the body of a loop leaves goes through memory
//! that the verifier does not follow, so what is read there could be any number to it.

use crate::index::{FastMap, Id, IndexVec};
use crate::kernel::mir::{BinaryOp, Block, Inst, MirFunction, Op, Terminator, Value};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut MirFunction) -> bool {
    if !function.returns_bool {
        return false;
    }
    let unseen = unseen(function);
    for (block, value) in &unseen {
        let ty = function.values[*value];
        let (one, verdict) = (function.values.push(ty), function.values.push(ty));
        let data = &mut function.blocks[*block];
        let masked = Op::Binary(BinaryOp::And, *value, one);
        data.insts.push(Inst { result: Some(one), op: Op::Const(1), span: data.span });
        data.insts.push(Inst { result: Some(verdict), op: masked, span: data.span });
        data.term = Terminator::Return(verdict);
    }
    !unseen.is_empty()
}

/// The ends of the function whose result may come from memory.
fn unseen(function: &MirFunction) -> Vec<(Block, Value)> {
    let sources = Sources { ops: function.definitions(), given: given(function) };
    let order = function.reverse_postorder();
    let ends = order.iter().filter_map(|block| match function.blocks[*block].term {
        Terminator::Return(value) => Some((*block, value)),
        _ => None,
    });
    ends.filter(|(_, value)| sources.may_be_memory(*value, function.values.len())).collect()
}

/// What each block parameter is given.
fn given(function: &MirFunction) -> FastMap<Value, Vec<Value>> {
    let mut given: FastMap<Value, Vec<Value>> = FastMap::default();
    for target in function.blocks.iter().flat_map(|block| block.term.targets()) {
        for (param, argument) in function.blocks[target.block].params.iter().zip(&target.args) {
            given.entry(*param).or_default().push(*argument);
        }
    }
    given
}

struct Sources<'a> {
    ops: IndexVec<Value, Option<&'a Op>>,
    given: FastMap<Value, Vec<Value>>,
}

impl Sources<'_> {
    fn may_be_memory(&self, value: Value, values: usize) -> bool {
        let mut seen = vec![false; values];
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if std::mem::replace(&mut seen[value.index()], true) {
                continue;
            }
            match self.ops[value] {
                Some(Op::Load { .. } | Op::Call { .. } | Op::Opaque { .. }) => return true,
                Some(Op::Binary(_, a, b)) => open.extend([*a, *b]),
                Some(Op::ZeroExtend(a) | Op::SignExtend(a) | Op::Truncate(a)) => open.push(*a),
                // Comparisons are 0 or 1 whatever is compared.
                Some(_) => {}
                None => open.extend(self.given.get(&value).into_iter().flatten()),
            }
        }
        false
    }
}
