//! Removes stores to the frame that nobody reads: the frame ends with the function.

use std::ops::Range;

use super::flow::Flow;
use super::places::{Place, Places, Root};
use crate::index::Id;
use crate::kernel::mir::{Block, Function, Inst, Op};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function, flow: &Flow) -> bool {
    if function.slot_bytes == 0 {
        return false;
    }
    let pass = Needs::new(function, &flow.order);
    // For each block, which bytes of the frame somebody may read from its start on.
    let (mut starts, set) = pass.alone(function, &flow.order);
    let mut needed = vec![0; pass.words];
    let mut changed = true;
    while changed {
        changed = false;
        for block in flow.order.iter().rev() {
            pass.at_end(function, *block, &starts, &mut needed);
            let through = needed.iter().zip(set.of(*block)).map(|(needed, set)| needed & !set);
            for (known, through) in starts.of_mut(*block).iter_mut().zip(through) {
                changed |= through & !*known != 0;
                *known |= through;
            }
        }
    }
    let mut useless = Vec::new();
    for block in flow.order.iter().copied() {
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

/// A set of the frame's bytes for each block.
#[derive(Clone)]
struct Sets {
    words: usize,
    bits: Vec<u64>,
}

impl Sets {
    fn of(&self, block: Block) -> &[u64] {
        &self.bits[block.index() * self.words..][..self.words]
    }

    fn of_mut(&mut self, block: Block) -> &mut [u64] {
        &mut self.bits[block.index() * self.words..][..self.words]
    }
}

/// The words of a set that a range has part in, and the bits of each that lie in it.
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = range.start / 64..range.end.div_ceil(64).max(range.start / 64);
    words.map(move |word| {
        let (from, to) = (range.start.max(word * 64) - word * 64, range.end.min(word * 64 + 64) - word * 64);
        let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        (word, below(to) & !below(from))
    })
}

fn insert(set: &mut [u64], range: Range<usize>) {
    masks(range).for_each(|(word, mask)| set[word] |= mask);
}

fn remove(set: &mut [u64], range: Range<usize>) {
    masks(range).for_each(|(word, mask)| set[word] &= !mask);
}

struct Needs<'a> {
    places: Places<'a>,
    /// Bytes of the frame.
    bytes: usize,
    /// Words of a set of them.
    words: usize,
    /// Those that code may touch which the analysis does not follow.
    escaped: Vec<u64>,
}

impl<'a> Needs<'a> {
    fn new(function: &'a Function, order: &[Block]) -> Needs<'a> {
        let places = Places::new(function, order);
        let bytes = function.slot_bytes as usize;
        let words = bytes.div_ceil(64);
        let mut escaped = vec![0; words];
        let all = places.escaped().iter().enumerate().filter(|(_, escaped)| **escaped);
        all.for_each(|(byte, _)| escaped[byte / 64] |= 1 << (byte % 64));
        Needs { places, bytes, words, escaped }
    }

    /// For each block, which bytes it reads itself, and which it sets, whatever is needed behind it.
    fn alone(&self, function: &Function, order: &[Block]) -> (Sets, Sets) {
        let mut read = Sets { words: self.words, bits: vec![0; self.words * function.blocks.len()] };
        let mut set = read.clone();
        for block in order {
            for inst in function.blocks[*block].insts.iter().rev() {
                self.before(inst, read.of_mut(*block));
                if let Some(place) = self.stored(inst) {
                    insert(set.of_mut(*block), self.range(place));
                }
            }
        }
        (read, set)
    }

    /// The bytes of the frame that a store sets.
    fn stored(&self, inst: &Inst) -> Option<Place> {
        let Op::Store { size, base, offset, .. } = &inst.op else { return None };
        let place = self.places.access(*base, *offset, size.bytes().into());
        (place.root == Root::Frame && place.exact).then_some(place)
    }

    fn at_end(&self, function: &Function, block: Block, starts: &Sets, needed: &mut [u64]) {
        needed.fill(0);
        for target in function.blocks[block].term.targets() {
            needed.iter_mut().zip(starts.of(target.block)).for_each(|(one, other)| *one |= *other);
        }
    }

    fn range(&self, place: Place) -> Range<usize> {
        let start = usize::try_from(place.start).unwrap_or(0).min(self.bytes);
        start..usize::try_from(place.end).unwrap_or(0).clamp(start, self.bytes)
    }

    fn is_useless(&self, inst: &Inst, needed: &[u64]) -> bool {
        let is_needed = |place| masks(self.range(place)).any(|(word, mask)| needed[word] & mask != 0);
        self.stored(inst).is_some_and(|place| !is_needed(place))
    }

    /// From what is needed after an instruction to what is needed before it.
    fn before(&self, inst: &Inst, needed: &mut [u64]) {
        match &inst.op {
            Op::Store { .. } => {
                if let Some(place) = self.stored(inst) {
                    remove(needed, self.range(place));
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

    fn read(&self, place: Place, needed: &mut [u64]) {
        match place.root {
            Root::Frame => insert(needed, self.range(place)),
            Root::Global(_) => {}
            Root::Pointer(pointer) if self.places.may_lead_to_frame(pointer) => self.escaped(needed),
            Root::Pointer(_) => {}
        }
    }

    fn escaped(&self, needed: &mut [u64]) {
        needed.iter_mut().zip(&self.escaped).for_each(|(needed, escaped)| *needed |= escaped);
    }
}
