//! Drops the ids of values and blocks that a function no longer has: passes keep facts for each id.

use super::{Block, MirFunction, Value};
use crate::index::{Id, IndexVec};

/// Numbers the values and the reachable blocks of a function anew, in their order, if more than a third of the ids is
/// unused.
pub fn compact(function: &mut MirFunction) {
    let reached = function.reverse_postorder();
    let mut is_reached = IndexVec::filled(function.blocks.len(), false);
    reached.iter().for_each(|block| is_reached[*block] = true);
    let mut is_defined = IndexVec::filled(function.values.len(), false);
    let mut defined = 0;
    for data in reached.iter().map(|block| &function.blocks[*block]) {
        let results = data.insts.iter().filter_map(|inst| inst.result);
        for value in data.params.iter().copied().chain(results) {
            is_defined[value] = true;
            defined += 1;
        }
    }
    if 3 * defined >= 2 * function.values.len() && 3 * reached.len() >= 2 * function.blocks.len() {
        return;
    }
    let values = renumbered::<Value>(&is_defined);
    let blocks = renumbered::<Block>(&is_reached);
    let mut kept = IndexVec::new();
    let old = std::mem::take(&mut function.blocks);
    for (_, mut data) in old.into_iter().enumerate().filter(|(index, _)| is_reached[Block::new(*index)]) {
        data.params.iter_mut().for_each(|param| *param = values[*param]);
        for inst in &mut data.insts {
            inst.result = inst.result.map(|result| values[result]);
            inst.op.map_operands(&mut |value| values[value]);
        }
        data.term.map_operands(&mut |value| values[value]);
        for target in data.term.targets_mut() {
            target.block = blocks[target.block];
        }
        kept.push(data);
    }
    function.blocks = kept;
    let types = std::mem::take(&mut function.values);
    let types = types.into_iter().enumerate().filter(|(index, _)| is_defined[Value::new(*index)]);
    function.values = types.map(|(_, ty)| ty).collect();
}

/// The new id of each old one that is kept, in the same order.
fn renumbered<I: Id>(kept: &IndexVec<I, bool>) -> IndexVec<I, I> {
    let mut next = 0;
    let ids = kept.iter().map(|is_kept| {
        let id = I::new(next);
        next += usize::from(*is_kept);
        id
    });
    ids.collect()
}
