//! Removes stores to the frame that nobody reads: the frame ends with the function.

use super::places::{Place, Places, Root};
use crate::index::IndexVec;
use crate::kernel::mir::{Block, Function, Inst, Op};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function) -> bool {
    if function.slot_bytes == 0 {
        return false;
    }
    let order = function.reverse_postorder();
    let places = Places::new(function, &order);
    let pass = Needs { places, bytes: function.slot_bytes as usize };
    // For each block, which bytes of the frame somebody may read from its start on.
    let mut starts: IndexVec<Block, Vec<bool>> =
        function.blocks.iter().map(|_| vec![false; pass.bytes]).collect();
    let mut needed = vec![false; pass.bytes];
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().rev() {
            pass.at_end(function, *block, &starts, &mut needed);
            for inst in function.blocks[*block].insts.iter().rev() {
                pass.before(inst, &mut needed);
            }
            changed |= needed != starts[*block];
            starts[*block].copy_from_slice(&needed);
        }
    }
    let mut useless = Vec::new();
    for block in order {
        pass.at_end(function, block, &starts, &mut needed);
        for (at, inst) in function.blocks[block].insts.iter().enumerate().rev() {
            if pass.is_useless(inst, &needed) {
                useless.push((block, at));
            }
            pass.before(inst, &mut needed);
        }
    }
    // From the last to the first of each block.
    for (block, at) in &useless {
        function.blocks[*block].insts.remove(*at);
    }
    !useless.is_empty()
}

struct Needs<'a> {
    places: Places<'a>,
    bytes: usize,
}

impl Needs<'_> {
    fn at_end(
        &self,
        function: &Function,
        block: Block,
        starts: &IndexVec<Block, Vec<bool>>,
        needed: &mut [bool],
    ) {
        needed.fill(false);
        for target in function.blocks[block].term.targets() {
            needed.iter_mut().zip(&starts[target.block]).for_each(|(one, other)| *one |= *other);
        }
    }

    fn range(&self, place: Place) -> std::ops::Range<usize> {
        let start = usize::try_from(place.start).unwrap_or(0).min(self.bytes);
        start..usize::try_from(place.end).unwrap_or(0).clamp(start, self.bytes)
    }

    fn is_useless(&self, inst: &Inst, needed: &[bool]) -> bool {
        let Op::Store { size, base, offset, .. } = &inst.op else { return false };
        let place = self.places.access(*base, *offset, size.bytes().into());
        place.root == Root::Frame && place.exact && !needed[self.range(place)].contains(&true)
    }

    /// From what is needed after an instruction to what is needed before it.
    fn before(&self, inst: &Inst, needed: &mut [bool]) {
        match &inst.op {
            Op::Store { size, base, offset, .. } => {
                let place = self.places.access(*base, *offset, size.bytes().into());
                if place.root == Root::Frame && place.exact {
                    needed[self.range(place)].fill(false);
                }
            }
            Op::Load { size, base, offset } | Op::AtomicAdd { size, base, offset, .. } => {
                self.read(self.places.access(*base, *offset, size.bytes().into()), needed);
            }
            Op::Call { args, .. } => {
                self.escaped(needed);
                for place in self.places.arguments(args) {
                    self.read(place, needed);
                }
            }
            _ => {}
        }
    }

    fn read(&self, place: Place, needed: &mut [bool]) {
        match place.root {
            Root::Frame => needed[self.range(place)].fill(true),
            Root::Global(_) => {}
            Root::Pointer(pointer) if self.places.may_lead_to_frame(pointer) => self.escaped(needed),
            Root::Pointer(_) => {}
        }
    }

    fn escaped(&self, needed: &mut [bool]) {
        needed.iter_mut().zip(self.places.escaped()).for_each(|(needed, escaped)| *needed |= escaped);
    }
}
