//! Mutated objects for tests: a format-aware mutator, and invariants that hold for every mutant.
//!
//! A seed gives the same mutants everywhere. Public for a harness that also passes them to libbpf.

use super::{read, write};

/// Part of an object that a mutation changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// The header of the file or of a section.
    Header,
    /// An entry of the symbol table.
    Symbol,
    /// An entry of a relocation section.
    Relocation,
    /// The `.BTF` records that define maps, and `.maps` itself.
    Map,
    /// Another record of `.BTF`.
    Type,
    /// The strings of `.BTF` or of symbols.
    String,
    /// `.BTF.ext` without its last table.
    Ext,
    /// The last table of `.BTF.ext`: CO-RE records.
    Core,
    /// Instructions of a function.
    Code,
    /// Content of other sections.
    Data,
    /// The length: bytes inserted, removed or copied.
    Shape,
}

impl Part {
    /// All parts, in the order of declaration.
    pub const ALL: [Part; 11] = [
        Part::Header,
        Part::Symbol,
        Part::Relocation,
        Part::Map,
        Part::Type,
        Part::String,
        Part::Ext,
        Part::Core,
        Part::Code,
        Part::Data,
        Part::Shape,
    ];
}

/// Weights of the parts by repetition. Records that rarely stay valid are mutated more often, so that every
/// part has a share of the accepted mutants.
const OFTEN: [Part; 19] = [
    Part::Header,
    Part::Symbol,
    Part::Symbol,
    Part::Relocation,
    Part::Map,
    Part::Map,
    Part::Type,
    Part::Type,
    Part::Type,
    Part::Type,
    Part::String,
    Part::Ext,
    Part::Core,
    Part::Core,
    Part::Core,
    Part::Core,
    Part::Code,
    Part::Data,
    Part::Shape,
];

impl Part {
    /// Returns the distance in bytes between two fields of the same meaning.
    fn record_bytes(self) -> usize {
        match self {
            Part::Header => 64,
            Part::Symbol => 24,
            Part::Relocation | Part::Core | Part::Ext => 16,
            Part::Map | Part::Type => 12,
            Part::Code => 8,
            Part::String | Part::Data | Part::Shape => 4,
        }
    }
}

/// Byte range of a part.
struct PartRange {
    part: Part,
    start: usize,
    end: usize,
}

/// Deterministic generator of mutants.
#[derive(Debug, Clone)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// Creates a mutator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Mutator {
        // Zero is the fixed point of xorshift.
        Mutator { state: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// Returns a mutant of an object, and the part that was changed first.
    pub fn mutate(&mut self, object: &[u8]) -> (Vec<u8>, Part) {
        let mut mutant = object.to_vec();
        let ranges = ranges(object);
        let mut first = None;
        for _ in 0..*self.choose(&[1, 1, 1, 2, 3]).unwrap_or(&1) {
            let part = *self.choose(&OFTEN).unwrap_or(&Part::Shape);
            let found: Vec<_> = ranges.iter().filter(|range| range.part == part).collect();
            match self.choose(&found) {
                Some(range) => self.change(&mut mutant, range),
                None if part == Part::Shape => self.reshape(&mut mutant),
                None => continue,
            }
            first.get_or_insert(part);
        }
        match first {
            Some(part) => (mutant, part),
            // The object has none of the chosen parts.
            None => {
                self.reshape(&mut mutant);
                (mutant, Part::Shape)
            }
        }
    }

    /// Changes a number in a range.
    fn change(&mut self, mutant: &mut [u8], range: &PartRange) {
        const NUMBERS: [u32; 20] = [
            0,
            1,
            2,
            3,
            4,
            7,
            8,
            16,
            0x7f,
            0x80,
            0xff,
            0x100,
            0xffff,
            0x1_0000,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_fff8,
            0xffff_fffe,
            0xffff_ffff,
            64,
        ];
        let Some(bytes) = mutant.get_mut(range.start..range.end) else { return };
        let at = self.below(bytes.len());
        // A number copied from another record of the table is accepted more often.
        let other = self.below(bytes.len() / range.part.record_bytes()) * range.part.record_bytes();
        let other = other + at % range.part.record_bytes() / 4 * 4;
        let borrowed = bytes.get(other..).and_then(|rest| rest.first_chunk::<4>()).copied();
        let aligned = at & !3;
        let word = bytes.get_mut(aligned..).and_then(|rest| rest.first_chunk_mut::<4>());
        match (word, self.below(10)) {
            (Some(word), 0..=3) => *word = borrowed.unwrap_or(*word),
            (Some(word), 4..=7) => {
                let old = u32::from_le_bytes(*word);
                let new = match self.below(6) {
                    0 => *self.choose(&NUMBERS).unwrap_or(&0),
                    1 => old.wrapping_add(1),
                    2 => old.wrapping_sub(1),
                    3 => old.wrapping_add(8),
                    4 => old ^ 1 << self.below(32),
                    _ => self.below(256) as u32,
                };
                *word = new.to_le_bytes();
            }
            _ => {
                let bit = 1 << self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
        }
    }

    /// Inserts, removes, truncates or copies bytes.
    fn reshape(&mut self, mutant: &mut Vec<u8>) {
        let at = self.below(mutant.len());
        let count = *self.choose(&[1usize, 4, 8, 12, 16, 24, 64]).unwrap_or(&1);
        let end = at.saturating_add(count).min(mutant.len());
        match self.below(4) {
            0 => {
                let byte = self.below(256) as u8;
                mutant.splice(at..at, std::iter::repeat_n(byte, count));
            }
            1 => drop(mutant.drain(at..end)),
            2 => mutant.truncate(at),
            _ => {
                let from = self.below(mutant.len());
                let copied = mutant.get(from..(from + count).min(mutant.len())).unwrap_or_default().to_vec();
                for (target, byte) in mutant.iter_mut().skip(at).zip(copied) {
                    *target = byte;
                }
            }
        }
    }

    fn choose<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        from.get(self.below(from.len()))
    }

    /// Returns a number below `limit`; 0 if `limit` is 0. Source: Marsaglia, "Xorshift RNGs" (2003).
    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 11).unwrap_or_default() % limit.max(1)
    }
}

/// Returns the parts of an object, as far as its headers are valid.
fn ranges(object: &[u8]) -> Vec<PartRange> {
    let word = |at: usize| Some(u32::from_le_bytes(*object.get(at..)?.first_chunk()?) as usize);
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*object.get(at..)?.first_chunk()?)));
    let mut found = vec![PartRange { part: Part::Header, start: 0, end: object.len().min(64) }];
    let (Some(table), Some(count), Some(names)) = (word(40), half(60), half(62)) else { return found };
    let field = |section: usize, at: usize| word(table + section * 64 + at);
    let strings = field(names, 24).unwrap_or_default();
    for section in 0..count {
        let start = table + section * 64;
        found.push(PartRange { part: Part::Header, start, end: start + 64 });
        let (Some(name), Some(ty), Some(flags)) = (field(section, 0), field(section, 4), field(section, 8))
        else {
            continue;
        };
        let (Some(start), Some(size)) = (field(section, 24), field(section, 32)) else { continue };
        let name = object.get(strings + name..).and_then(|rest| rest.split(|&byte| byte == 0).next());
        let end = start.saturating_add(size).min(object.len());
        let mut push = |part, start, end| found.push(PartRange { part, start, end });
        match (ty, name.unwrap_or_default()) {
            (8, _) => {}
            (2, _) => push(Part::Symbol, start, end),
            (3, _) => push(Part::String, start, end),
            (9, _) => push(Part::Relocation, start, end),
            (_, b".BTF") => {
                let types = start + 24 + word(start + 12).unwrap_or_default().min(size);
                // Map definitions are the last types of our compiler's objects, and among the first of
                // clang's.
                let middle = start + (types - start) / 2;
                push(Part::Header, start, start + 24);
                push(Part::Type, start + 24, middle);
                push(Part::Map, middle, types);
                push(Part::String, types, end);
            }
            (_, b".BTF.ext") => {
                let core = start + 32 + word(start + 24).unwrap_or_default().min(size);
                push(Part::Ext, start, core);
                push(Part::Core, core, end);
            }
            (_, b".maps" | b"maps") => push(Part::Map, start, end),
            _ if flags & 4 != 0 => push(Part::Code, start, end),
            _ => push(Part::Data, start, end),
        }
    }
    found.retain(|range| range.start < range.end && range.end <= object.len());
    found
}

/// Returns whether the reader accepts the bytes. An accepted object must be written and read again unchanged,
/// and written the same again.
///
/// # Errors
/// The violated invariant.
pub fn check(bytes: &[u8]) -> Result<bool, String> {
    let Ok(object) = read(bytes) else { return Ok(false) };
    let written = write(&object).map_err(|error| format!("cannot be written: {error}"))?;
    let again = read(&written).map_err(|error| format!("cannot be read again: {error}"))?;
    if again != object {
        return Err(format!("differs when it is read again:\n{object:#?}\n{again:#?}"));
    }
    let second = write(&again).map_err(|error| format!("cannot be written again: {error}"))?;
    if second == written { Ok(true) } else { Err("is written differently".to_owned()) }
}
