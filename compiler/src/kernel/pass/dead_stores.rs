//! Dead store elimination for the stack frame, whose contents end with the function.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::alias_analysis::{AliasAnalysis, MemoryLocation, Root};
use super::changes::Changes;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Inst, MirFunction, Op};

/// Runs dead store elimination on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    if function.slot_bytes == 0 {
        return Changes::NONE;
    }
    let Some(pass) = Needs::new(function, &flow.order) else { return Changes::NONE };
    // For each block, the bytes of the frame that may be read from its start on.
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
        for (at, effect) in pass.of(block) {
            if let Effect::Sets(range) = effect
                && !masks(range.clone()).any(|(word, mask)| needed[word] & mask != 0)
            {
                useless.push((block, *at));
            }
            pass.before(effect, &mut needed);
        }
    }
    // From the last to the first of each block, so that positions stay valid.
    for (block, at) in &useless {
        function.blocks[*block].insts.remove(*at);
    }
    (Changes::MEMORY | Changes::GONE).when(!useless.is_empty())
}

/// A set of frame bytes for each block.
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

/// The words of a bit set that overlap a range, each with the bits inside the range.
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

/// The effect of an instruction on the frame.
enum Effect {
    /// Writes all of these bytes.
    Sets(Range<usize>),
    /// May read these bytes.
    Reads(Range<usize>),
    /// May read any escaped byte.
    ReadsEscaped,
}

struct Needs {
    /// The number of 64-bit words in a set of frame bytes.
    words: usize,
    /// The bytes that code outside of the alias analysis may touch.
    escaped: Vec<u64>,
    /// The effects of each block, the last first, each with its position in the block.
    effects: Vec<(usize, Effect)>,
    /// The range in `effects` of each block.
    blocks: IndexVec<Block, Range<usize>>,
}

impl Needs {
    /// Collects the effects; `None` if no instruction writes to the frame.
    fn new(function: &MirFunction, order: &[Block]) -> Option<Needs> {
        let aliases = AliasAnalysis::new(function, order);
        let bytes = function.slot_bytes as usize;
        let words = bytes.div_ceil(64);
        let mut escaped = vec![0; words];
        let all = aliases.escaped().iter().enumerate().filter(|(_, escaped)| **escaped);
        all.for_each(|(byte, _)| escaped[byte / 64] |= 1 << (byte % 64));
        let mut effects = Effects { aliases, bytes, found: Vec::new() };
        let mut blocks: IndexVec<Block, Range<usize>> = function.blocks.iter().map(|_| 0..0).collect();
        for block in order {
            let start = effects.found.len();
            for (at, inst) in function.blocks[*block].insts.iter().enumerate().rev() {
                effects.note(at, inst);
            }
            blocks[*block] = start..effects.found.len();
        }
        let effects = effects.found;
        let any = effects.iter().any(|(_, effect)| matches!(effect, Effect::Sets(_)));
        any.then_some(Needs { words, escaped, effects, blocks })
    }

    fn of(&self, block: Block) -> &[(usize, Effect)] {
        &self.effects[self.blocks[block].clone()]
    }

    /// For each block, the bytes that it reads before writing them, and the bytes that it writes.
    fn alone(&self, function: &MirFunction, order: &[Block]) -> (Sets, Sets) {
        let mut read = Sets { words: self.words, bits: vec![0; self.words * function.blocks.len()] };
        let mut set = read.clone();
        for block in order {
            for (_, effect) in self.of(*block) {
                self.before(effect, read.of_mut(*block));
                if let Effect::Sets(range) = effect {
                    insert(set.of_mut(*block), range.clone());
                }
            }
        }
        (read, set)
    }

    fn at_end(&self, function: &MirFunction, block: Block, starts: &Sets, needed: &mut [u64]) {
        needed.fill(0);
        for next in function.blocks[block].term.successors() {
            needed.iter_mut().zip(starts.of(next)).for_each(|(one, other)| *one |= *other);
        }
    }

    /// Updates `needed` from the bytes needed after an instruction to those needed before it.
    fn before(&self, effect: &Effect, needed: &mut [u64]) {
        match effect {
            Effect::Sets(range) => remove(needed, range.clone()),
            Effect::Reads(range) => insert(needed, range.clone()),
            Effect::ReadsEscaped => {
                needed.iter_mut().zip(&self.escaped).for_each(|(needed, escaped)| *needed |= escaped);
            }
        }
    }
}

/// Collector of the instructions' effects on the frame.
struct Effects<'a> {
    aliases: AliasAnalysis<'a>,
    /// The size of the frame in bytes.
    bytes: usize,
    found: Vec<(usize, Effect)>,
}

impl Effects<'_> {
    fn note(&mut self, at: usize, inst: &Inst) {
        match &inst.op {
            Op::Store { size, base, offset, .. } => {
                let location = self.aliases.access(*base, *offset, size.bytes().into());
                if location.root == Root::Frame && location.exact {
                    let range = self.range(location.start..location.end);
                    self.found.push((at, Effect::Sets(range)));
                }
            }
            Op::Call { args, .. } => {
                self.found.push((at, Effect::ReadsEscaped));
                let read = self.aliases.arguments(args).flat_map(|location| self.read(location));
                let read: SmallVec<[Effect; 5]> = read.collect();
                self.found.extend(read.into_iter().map(|effect| (at, effect)));
            }
            other => {
                let read = self.aliases.accessed(other).map(|location| self.read(location));
                self.found.extend(read.into_iter().flatten().map(|effect| (at, effect)));
            }
        }
    }

    /// The effects of a read.
    fn read(&self, location: MemoryLocation) -> SmallVec<[Effect; 2]> {
        let reads = |bytes: Range<i64>| Effect::Reads(self.range(bytes));
        match location.root {
            Root::Frame => smallvec![reads(location.start..location.end)],
            Root::Global(_) => SmallVec::new(),
            Root::Pointer(pointer) => match self.aliases.frame(location) {
                Some(pointees) => pointees.map(reads).collect(),
                None if self.aliases.may_lead_to_frame(pointer) => smallvec![Effect::ReadsEscaped],
                None => SmallVec::new(),
            },
        }
    }

    fn range(&self, bytes: Range<i64>) -> Range<usize> {
        let start = usize::try_from(bytes.start).unwrap_or(0).min(self.bytes);
        start..usize::try_from(bytes.end).unwrap_or(0).clamp(start, self.bytes)
    }
}
