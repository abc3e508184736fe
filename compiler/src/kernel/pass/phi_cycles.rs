//! Removes cycles of block parameters that only pass one value to each other, through any number of loops.
//!
//! ```text
//! jump outer(a)                  jump outer
//! outer(p): jump inner(p)    ->  outer: jump inner
//! inner(q): .. q ..              inner: .. a ..
//!     goes to inner(q), outer(q)
//! ```

use super::changes::Changes;
use super::redundant_params;
use super::rewrite::Replacements;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, MirFunction, Value};

/// Runs the pass on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let stands_for = stands_for(function, &flow.order);
    let mut replacements = Replacements::default();
    let mut removed: IndexVec<Block, Vec<usize>> = function.blocks.iter().map(|_| Vec::new()).collect();
    for block in &flow.order {
        for (index, param) in function.blocks[*block].params.iter().enumerate() {
            if let Some(only) = stands_for[*param].filter(|only| only != param) {
                replacements.replace(*param, only);
                removed[*block].push(index);
            }
        }
    }
    Changes::VALUES.when(redundant_params::drop_replaced(function, &removed, &replacements))
}

/// The single value that each value equals: a parameter with different incoming values is itself.
fn stands_for(function: &MirFunction, order: &[Block]) -> IndexVec<Value, Option<Value>> {
    let entry = function.entry();
    let mut found: IndexVec<Value, Option<Value>> = function.values.ids().map(Some).collect();
    for block in order.iter().filter(|block| **block != entry) {
        // Optimistic start: no incoming value is known, so that a back edge adds nothing to the values from
        // outside.
        function.blocks[*block].params.iter().for_each(|param| found[*param] = None);
    }
    let mut changed = true;
    while changed {
        changed = false;
        for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
            for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                let Some(new) = found[*arg] else { continue };
                let met = match found[*param] {
                    Some(known) if known != new => *param,
                    _ => new,
                };
                changed |= found[*param] != Some(met);
                found[*param] = Some(met);
            }
        }
    }
    found
}
