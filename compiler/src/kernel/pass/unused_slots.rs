//! Removes stack slots whose address nothing takes any more from the frame: those of loops that became calls, and
//! of values that other passes keep in registers.

use std::collections::BTreeSet;

use super::region::keep_only;
use crate::kernel::mir::{MirFunction, Op};

/// Removes unused slots. Returns whether the frame became smaller.
pub fn run(function: &mut MirFunction) -> bool {
    let mut used = BTreeSet::new();
    for block in function.reverse_postorder() {
        used.extend(function.blocks[block].insts.iter().filter_map(|inst| match inst.op {
            Op::StackAddr { slot, .. } => Some(slot),
            _ => None,
        }));
    }
    let before = function.slot_bytes;
    keep_only(function, &used);
    function.slot_bytes < before
}
