//! SSA repair: inserts block parameters where several definitions of a value meet.

use std::collections::BTreeMap;

use super::{Block, MirFunction, Predecessors, Value};
use crate::index::IndexVec;

/// Replaces every use of a value by the definition that reaches it. `definitions` has, for each block with a
/// definition, the value at the block's end; every path to a use goes through one of them. Uses in the
/// value's own block stay. The blocks are in reverse postorder, with the predecessors of each.
pub fn run(
    function: &mut MirFunction,
    (order, predecessors): (&[Block], &Predecessors),
    value: Value,
    definitions: &BTreeMap<Block, Value>,
    own: Option<Block>,
) {
    let mut users = function.users(order, value);
    users.retain(|block| Some(*block) != own);
    if users.is_empty() {
        return;
    }
    let needing = needing(&users, predecessors, definitions);
    let order = order.iter().copied().filter(|block| needing[*block]);
    let reaching = Reaching::new(function, value, order.collect(), predecessors, definitions);
    for block in users {
        let Some(by) = reaching.at_start[block] else { continue };
        let mut replace = |used: Value| if used == value { by } else { used };
        let data = &mut function.blocks[block];
        data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut replace));
        data.term.map_operands(&mut replace);
    }
    for (block, param) in &reaching.params {
        function.blocks[*block].params.push(*param);
        for from in &predecessors[*block] {
            let arg = reaching.at_end(*from, definitions).unwrap_or(value);
            let targets = function.blocks[*from].term.targets_mut();
            targets.into_iter().filter(|target| target.block == *block).for_each(|to| to.args.push(arg));
        }
    }
}

/// The blocks at whose start the value is live.
fn needing(
    users: &[Block],
    predecessors: &Predecessors,
    definitions: &BTreeMap<Block, Value>,
) -> IndexVec<Block, bool> {
    let mut needing: IndexVec<Block, bool> = (0..predecessors.len()).map(|_| false).collect();
    let mut open = users.to_vec();
    while let Some(block) = open.pop() {
        if !std::mem::replace(&mut needing[block], true) {
            open.extend(predecessors[block].iter().filter(|from| !definitions.contains_key(from)));
        }
    }
    needing
}

/// The reaching definition at the start of each block.
struct Reaching {
    at_start: IndexVec<Block, Option<Value>>,
    /// The parameters of blocks where different definitions meet.
    params: BTreeMap<Block, Value>,
}

impl Reaching {
    fn new(
        function: &mut MirFunction,
        value: Value,
        order: Vec<Block>,
        predecessors: &Predecessors,
        definitions: &BTreeMap<Block, Value>,
    ) -> Reaching {
        let at_start = function.blocks.iter().map(|_| None).collect();
        let mut reaching = Reaching { at_start, params: BTreeMap::new() };
        let mut changed = true;
        while changed {
            changed = false;
            for block in &order {
                let mut known =
                    predecessors[*block].iter().filter_map(|from| reaching.at_end(*from, definitions));
                let first = known.next();
                let differs = first.is_some_and(|first| known.any(|other| other != first));
                let new = match reaching.params.get(block) {
                    Some(param) => Some(*param),
                    None if differs => {
                        let param = function.values.push(function.values[value]);
                        reaching.params.insert(*block, param);
                        Some(param)
                    }
                    None => first,
                };
                changed |= new != reaching.at_start[*block];
                reaching.at_start[*block] = new;
            }
        }
        reaching
    }

    fn at_end(&self, block: Block, definitions: &BTreeMap<Block, Value>) -> Option<Value> {
        definitions.get(&block).copied().or(self.at_start[block])
    }
}
