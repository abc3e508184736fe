//! Mutated objects for tests: a format-aware mutator, and invariants that hold for every mutant.
//!
//! A seed gives the same mutants everywhere. Public for a harness that also passes them to libbpf.

mod fields;
mod layout;

use std::collections::BTreeSet;

use super::{read, write};
use fields::{Field, FieldValues};
use layout::{Layout, PartRange};

/// Part of an object that a mutation changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// The header of the file, of a section, of `.BTF` or of `.BTF.ext`.
    Header,
    /// An entry of the symbol table.
    Symbol,
    /// An entry of a relocation section.
    Relocation,
    /// The `.BTF` records that define maps, and the sections `.maps` and `maps`.
    Map,
    /// Another record of `.BTF`.
    Type,
    /// The strings of `.BTF` or of symbols.
    String,
    /// `.BTF.ext` without its CO-RE records: functions and lines.
    Ext,
    /// The CO-RE records of `.BTF.ext`.
    Core,
    /// Instructions of a function.
    Code,
    /// Content of other sections.
    Data,
    /// The length: bytes inserted or removed.
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

    /// The parts that are records: what libbpf follows, as opposed to instructions and data.
    pub const RECORDS: [Part; 7] =
        [Part::Header, Part::Symbol, Part::Relocation, Part::Map, Part::Type, Part::Ext, Part::Core];

    /// Returns how often a mutation chooses the part, compared with the others. Records that rarely stay valid
    /// are mutated more often, so that every part has a share of the accepted mutants.
    const fn weight(self) -> usize {
        match self {
            Part::Core | Part::Map => 7,
            Part::Symbol => 6,
            Part::Type => 4,
            Part::Header => 3,
            Part::Relocation | Part::Ext => 2,
            Part::String | Part::Code | Part::Data | Part::Shape => 1,
        }
    }

    /// Returns the distance in bytes between two fields of the same meaning.
    const fn record_bytes(self) -> usize {
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

/// A changed object.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The object's bytes.
    pub bytes: Vec<u8>,
    /// The parts whose bytes differ from the original's. Of a mutant of another length, which has all bytes at
    /// other offsets, only [`Part::Shape`].
    pub parts: BTreeSet<Part>,
}

/// Maximum number of changes that are attempted for a mutant.
const ATTEMPTS: usize = 16;

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

    /// Returns a mutant of an object.
    pub fn mutate(&mut self, object: &[u8]) -> Mutant {
        let mut bytes = object.to_vec();
        let layout = Layout::of(object);
        let mut left = *self.choose(&[1_usize, 1, 1, 2, 3]).unwrap_or(&1);
        // A replacement by an equal value does not count.
        for _ in 0..ATTEMPTS {
            let before = bytes.clone();
            let part = self.part(&layout);
            let fields: Vec<_> = layout.fields.iter().filter(|field| field.part == part).collect();
            let ranges: Vec<_> = layout.ranges.iter().filter(|range| range.part == part).collect();
            // Most changes of records keep to the format, and reach beyond the reader's first check.
            let is_valid = self.below(4) != 0;
            match (self.choose(&fields), self.choose(&ranges)) {
                (Some(field), _) if is_valid => self.replace(&mut bytes, field, &layout),
                (_, Some(range)) => self.change(&mut bytes, range),
                _ => self.reshape(&mut bytes),
            }
            left -= usize::from(bytes != before);
            if left == 0 {
                break;
            }
        }
        let parts = layout.changed_parts(object, &bytes);
        Mutant { bytes, parts }
    }

    /// Chooses one of the parts that an object has, by its weight.
    fn part(&mut self, layout: &Layout) -> Part {
        let has = |part: Part| part == Part::Shape || layout.ranges.iter().any(|range| range.part == part);
        let parts = || Part::ALL.into_iter().filter(|&part| has(part));
        let mut left = self.below(parts().map(Part::weight).sum());
        for part in parts() {
            match left.checked_sub(part.weight()) {
                Some(rest) => left = rest,
                None => return part,
            }
        }
        Part::Shape
    }

    /// Replaces a field's value by another one that often keeps the object valid.
    fn replace(&mut self, mutant: &mut [u8], field: &Field, layout: &Layout) {
        let Some(old) = field.read(mutant) else { return };
        let new = match field.values {
            FieldValues::Like(meaning) => {
                let others: Vec<_> =
                    layout.fields.iter().filter(|one| one.values == FieldValues::Like(meaning)).collect();
                self.choose(&others).and_then(|other| other.read(mutant)).unwrap_or(old)
            }
            FieldValues::Bits(mask, values) => {
                old & !mask | self.choose(values).copied().unwrap_or_default() & mask
            }
            FieldValues::Steps(step) => {
                let steps = step << self.below(4);
                if self.below(2) == 0 { old.wrapping_add(steps) } else { old.wrapping_sub(steps) }
            }
        };
        field.write(mutant, new);
    }

    /// Changes a number anywhere in a range.
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
