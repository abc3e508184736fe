//! Removes block parameters that always have the same value.

use smallvec::SmallVec;

use super::changes::Changes;
use super::rewrite::Replacements;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, MirFunction, Value};

/// The arguments that the jumps to each block pass to it.
type Incoming<'a> = IndexVec<Block, SmallVec<[&'a [Value]; 2]>>;

/// Runs the pass on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let (removed, replacements) = replaceable(function, flow);
    Changes::VALUES.when(drop_replaced(function, &removed, &replacements))
}

/// The parameters of each block that always have one value, by position, with their replacements.
fn replaceable(function: &MirFunction, flow: &Flow) -> (IndexVec<Block, Vec<usize>>, Replacements) {
    let mut incoming: Incoming<'_> = function.blocks.iter().map(|_| SmallVec::new()).collect();
    for block in &flow.order {
        for target in function.blocks[*block].term.targets() {
            incoming[target.block].push(target.args.as_slice());
        }
    }
    let mut replacements = Replacements::default();
    let mut removed: IndexVec<Block, Vec<usize>> = function.blocks.iter().map(|_| Vec::new()).collect();
    for block in flow.order.iter().copied() {
        if block == function.entry() {
            continue;
        }
        for (index, param) in function.blocks[block].params.iter().enumerate() {
            let args = incoming[block].iter().map(|args| replacements.resolve(args[index]));
            let mut others = args.filter(|arg| arg != param);
            let Some(only) = others.next().filter(|first| others.all(|arg| arg == *first)) else { continue };
            // A parameter of any memory keeps its type if it stands for a pointer of a more specific one.
            replacements.replace(*param, only);
            removed[block].push(index);
        }
    }
    (removed, replacements)
}

/// Removes replaced parameters, by position. Returns whether there were any.
pub(super) fn drop_replaced(
    function: &mut MirFunction,
    removed: &IndexVec<Block, Vec<usize>>,
    replacements: &Replacements,
) -> bool {
    let any = removed.iter().any(|removed| !removed.is_empty());
    if any {
        remove(function, removed);
        replacements.apply(function);
    }
    any
}

/// Removes parameters, by position, and the arguments for them.
pub(super) fn remove(function: &mut MirFunction, removed: &IndexVec<Block, Vec<usize>>) {
    for id in function.blocks.ids() {
        let block = &mut function.blocks[id];
        without(&mut block.params, &removed[id]);
        for target in block.term.targets_mut() {
            without(&mut target.args, &removed[target.block]);
        }
    }
    debug_assert_eq!(removed.len(), Block::new(function.blocks.len()).index());
}

fn without(values: &mut Vec<Value>, removed: &[usize]) {
    let mut index = 0;
    values.retain(|_| {
        index += 1;
        !removed.contains(&(index - 1))
    });
}
