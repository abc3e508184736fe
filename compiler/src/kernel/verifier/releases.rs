//! The releases of ring buffer records that a number decides: the verifier must see on each path that a record is
//! released once.

use std::collections::BTreeSet;

use crate::index::IndexVec;
use crate::kernel::mir::{Block, Callee, Helper, Inst, MirFunction, Op, Terminator, Value};
use crate::kernel::pass::origins::Origins;

/// Returns the record that an instruction releases.
pub fn released(inst: &Inst) -> Option<Value> {
    match &inst.op {
        Op::Call { callee: Callee::Helper(Helper::RingSubmit | Helper::RingDiscard), args } => {
            args.first().copied()
        }
        _ => None,
    }
}

/// The conditions that decide whether a record is released, where paths meet of which not all hold it: of branches from
/// which one path always reaches the release and the other may not.
pub fn deciding(function: &MirFunction, order: &[Block], origins: &Origins<'_>) -> Vec<Value> {
    let is_concerned = |block: &&Block| {
        let mut records = function.blocks[**block].insts.iter().filter_map(released);
        records.any(|record| may_be_held(function, order, origins, record))
    };
    let releasing = order.iter().filter(is_concerned);
    releasing.flat_map(|block| deciding_whether_reached(function, order, *block)).collect()
}

/// The conditions that decide whether a block is reached.
fn deciding_whether_reached(function: &MirFunction, order: &[Block], block: Block) -> Vec<Value> {
    let successors = |from: Block| function.blocks[from].term.targets().into_iter().map(|to| to.block);
    let mut reaching = BTreeSet::from([block]);
    let mut grown = true;
    while grown {
        let before = reaching.len();
        for from in order.iter().rev() {
            let mut next = successors(*from).peekable();
            if next.peek().is_some() && next.all(|to| reaching.contains(&to)) {
                reaching.insert(*from);
            }
        }
        grown = reaching.len() > before;
    }
    let decides =
        |from: &&Block| !reaching.contains(from) && successors(**from).any(|to| reaching.contains(&to));
    let conditions = order.iter().filter(decides).filter_map(|from| match function.blocks[*from].term {
        Terminator::Branch { cond, .. } => Some(cond),
        _ => None,
    });
    conditions.collect()
}

/// What paths to a place have done with a record: a set.
type States = u8;

/// They have none.
const NONE: States = 1;
const HELD: States = 2;
const RELEASED: States = 4;

/// Whether paths meet of which some hold a record and others do not; also if it is not known where it comes from.
fn may_be_held(function: &MirFunction, order: &[Block], origins: &Origins<'_>, record: Value) -> bool {
    let from = origins.of(vec![record]);
    let is_reserved =
        |op: Option<&Op>| matches!(op, Some(Op::Call { callee: Callee::Helper(Helper::RingReserve), .. }));
    let mut reserved = from
        .iter_enumerated()
        .filter(|(value, is_origin)| **is_origin && is_reserved(origins.definitions[*value]));
    let (Some((first, _)), None) = (reserved.next(), reserved.next()) else { return true };
    let releases = |inst: &Inst| released(inst).is_some_and(|record| origins.of(vec![record])[first]);
    let releasing: BTreeSet<Block> =
        order.iter().copied().filter(|block| function.blocks[*block].insts.iter().any(releases)).collect();
    let mut states: IndexVec<Block, States> = function.blocks.iter().map(|_| 0).collect();
    states[function.entry()] = NONE;
    let mut changed = true;
    while changed {
        changed = false;
        for block in order {
            let data = &function.blocks[*block];
            let reserves = data.insts.iter().any(|inst| inst.result == Some(first));
            // A block ends after a reservation, whose result is compared with null.
            let after = match (reserves, releasing.contains(block)) {
                (true, _) => HELD,
                (false, true) => RELEASED,
                (false, false) => states[*block],
            };
            for (index, to) in data.term.targets().into_iter().enumerate() {
                // The first target is that of a condition that holds.
                let is_null = index == 0 && is_null(&data.term, origins, first);
                let passed = if is_null { NONE } else { after };
                changed |= states[to.block] | passed != states[to.block];
                states[to.block] |= passed;
            }
        }
    }
    order.iter().any(|block| states[*block] & HELD != 0 && states[*block] != HELD)
}

/// Whether a terminator asks whether a record is null.
fn is_null(term: &Terminator, origins: &Origins<'_>, record: Value) -> bool {
    match term {
        Terminator::Branch { cond, .. } => {
            matches!(origins.definitions[*cond], Some(Op::IsNull(asked)) if *asked == record)
        }
        _ => false,
    }
}
