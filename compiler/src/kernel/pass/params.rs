//! Removes block parameters that always have the same value.

use super::Replacements;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::{Block, Function, Value};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function) -> bool {
    let order = function.reverse_postorder();
    let mut incoming: IndexVec<Block, Vec<Vec<Value>>> = function.blocks.iter().map(|_| Vec::new()).collect();
    for block in &order {
        for target in function.blocks[*block].term.targets() {
            incoming[target.block].push(target.args.clone());
        }
    }
    let mut replacements = Replacements::new(function);
    let mut removed: IndexVec<Block, Vec<usize>> = function.blocks.iter().map(|_| Vec::new()).collect();
    for block in order {
        if block == function.entry() {
            continue;
        }
        for (index, param) in function.blocks[block].params.iter().enumerate() {
            let args = incoming[block].iter().map(|args| replacements.resolve(args[index]));
            let others: Vec<_> = args.filter(|arg| arg != param).collect();
            let Some(only) = others.first().filter(|first| others.iter().all(|arg| arg == *first)) else {
                continue;
            };
            // A parameter of any memory stays one if it stands for a pointer of a closer type.
            replacements.replace(*param, *only);
            removed[block].push(index);
        }
    }
    remove(function, &removed);
    replacements.apply(function)
}

/// Removes parameters, by their positions, and the arguments for them.
pub(super) fn remove(function: &mut Function, removed: &IndexVec<Block, Vec<usize>>) {
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
