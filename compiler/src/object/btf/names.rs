//! Indexes from names to types and enumerators: chained hash tables, built at the first search or part of an image.

use std::num::NonZero;

use super::TypeId;
use super::read::{Btf, Type};
use super::table::Table;

/// Names of types.
#[derive(Debug)]
pub(super) struct NameIndex {
    /// First type of each bucket's chain; 0 if the bucket is empty. Their number is a power of two.
    pub heads: Table,
    /// For each type, the next one in its bucket, whose id is larger; 0 for the last.
    pub chain: Table,
}

impl NameIndex {
    pub(super) fn build(btf: &Btf) -> Self {
        let count = btf.len();
        // About one bucket per name: half of a kernel's types have one.
        let mut heads = vec![0; buckets(count as usize / 2)];
        let mut chain = vec![0; count as usize + 1];
        let mask = heads.len() - 1;
        // From the last to the first, so that a search finds the first type of a name first.
        for (id, name) in btf.name_offsets_from_last().filter(|&(_, name)| name != 0) {
            let Some(name) = btf.string_bytes(name) else { continue };
            if let (Some(head), Some(next)) =
                (heads.get_mut(bucket(name, mask)), chain.get_mut(id.0 as usize))
            {
                *next = std::mem::replace(head, id.0);
            }
        }
        NameIndex { heads: Table::Own(heads), chain: Table::Own(chain) }
    }

    pub(super) fn candidates(&self, bytes: &[u8], name: &str) -> impl Iterator<Item = TypeId> {
        let mut next = head(&self.heads, bytes, name);
        std::iter::from_fn(move || {
            let id = NonZero::new(next)?.get();
            // An image is not checked as a whole: a chain that went back would never end.
            next = self.chain.get(bytes, id as usize).filter(|after| *after > id).unwrap_or(0);
            Some(TypeId(id))
        })
    }
}

/// An enumerator that was found by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedEnumerator {
    /// The first enum that has it.
    pub owner: TypeId,
    /// Whether another enum gives it another value.
    pub differs: bool,
}

/// Names of enumerators.
#[derive(Debug)]
pub(super) struct EnumeratorIndex {
    /// One more than the first entry of each bucket's chain; 0 if the bucket is empty. Their number is a power of two.
    pub heads: Table,
    /// [`ENTRY_WORDS`] numbers for each name: its offset, the enum, whether another enum gives it another value, and one
    /// more than the next entry of its bucket, which is an earlier one, or 0.
    pub entries: Table,
}

/// Numbers of an entry of [`EnumeratorIndex`].
const ENTRY_WORDS: usize = 4;

impl EnumeratorIndex {
    pub(super) fn build(btf: &Btf) -> Self {
        let mut found = Vec::new();
        for id in (1..=btf.len()).map(TypeId) {
            let Ok(Type::Enum { values, .. }) = btf.get(id) else { continue };
            found.extend(values.with_name_offsets().map(|(name, value)| (name, id, value)));
        }
        let mut heads = vec![0; buckets(found.len())];
        let mut entries: Vec<[u32; ENTRY_WORDS]> = Vec::with_capacity(found.len());
        let mut values = Vec::with_capacity(found.len());
        let mask = heads.len() - 1;
        for (offset, id, value) in found {
            let Some(name) = btf.string_bytes(offset) else { continue };
            let Some(head) = heads.get_mut(bucket(name, mask)) else { continue };
            let mut at = *head;
            let known = loop {
                let Some(index) = (at as usize).checked_sub(1) else { break None };
                let Some([other, _, _, next]) = entries.get(index).copied() else { break None };
                if offset == other || btf.string(offset).is_ok_and(|name| btf.string(other) == Ok(name)) {
                    break Some(index);
                }
                at = next;
            };
            match known {
                Some(index) => {
                    if let (Some(entry), Some(first)) = (entries.get_mut(index), values.get(index)) {
                        entry[2] |= u32::from(*first != value);
                    }
                }
                None => {
                    entries.push([offset, id.0, 0, *head]);
                    values.push(value);
                    *head = u32::try_from(entries.len()).unwrap_or(0);
                }
            }
        }
        EnumeratorIndex { heads: Table::Own(heads), entries: Table::Own(entries.concat()) }
    }

    pub(super) fn find(&self, btf: &Btf, name: &str) -> Option<NamedEnumerator> {
        let bytes = btf.bytes();
        let mut at = head(&self.heads, bytes, name);
        loop {
            let first = (at as usize).checked_sub(1)?.checked_mul(ENTRY_WORDS)?;
            let word = |index: usize| self.entries.get(bytes, first + index);
            if btf.string(word(0)?) == Ok(name) {
                return Some(NamedEnumerator { owner: TypeId(word(1)?), differs: word(2)? != 0 });
            }
            // As for the names of types.
            at = word(3).filter(|after| *after < at)?;
        }
    }
}

/// Returns the number of buckets for so many names.
fn buckets(names: usize) -> usize {
    names.max(1).next_power_of_two()
}

/// Returns the first of the bucket of a name.
fn head(heads: &Table, bytes: &[u8], name: &str) -> u32 {
    let mask = heads.len().saturating_sub(1);
    heads.get(bytes, bucket(name.as_bytes(), mask)).unwrap_or(0)
}

/// Returns the bucket of the name that ends at the first NUL or at the end of the bytes.
fn bucket(name: &[u8], mask: usize) -> usize {
    usize::try_from(hash(name) >> 32).unwrap_or(0) & mask
}

/// Hashes the name that ends at the first NUL or at the end of the bytes. Only the first 64 bytes count,
/// since in a hostile table every type could point to one long name.
///
/// It hashes eight bytes at a time: a kernel has 100,000 names.
fn hash(name: &[u8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    /// 2^64 divided by the golden ratio: odd, without a pattern (Knuth, The Art of Computer Programming,
    /// 6.4).
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    let mut rest = name;
    for _ in 0..8 {
        let word = u64::from_le_bytes(match rest.split_first_chunk() {
            Some((word, tail)) => {
                rest = tail;
                *word
            }
            None => last_word(std::mem::take(&mut rest)),
        });
        // The lowest set bit is the highest bit of the first NUL; a borrow may have set bits above it.
        let nul = word.wrapping_sub(ONES) & !word & HIGHS;
        // Mask of the bits below it; all bits if there is no NUL.
        let of_name = (nul & nul.wrapping_neg()).wrapping_sub(1);
        hash = (hash.rotate_left(29) ^ word & of_name).wrapping_mul(MULTIPLIER);
        if nul != 0 {
            break;
        }
    }
    hash
}

/// Pads fewer than eight bytes with NULs.
fn last_word(bytes: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(byte_slot, &byte)| *byte_slot = byte);
    word
}
