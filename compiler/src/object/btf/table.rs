//! Lists of numbers: computed, or part of an image.

use std::ops::Range;

use super::read::word;

/// Numbers of 32 bits.
#[derive(Debug)]
pub(super) enum Table {
    /// Computed from the types.
    Own(Vec<u32>),
    /// The bytes of an image in this range, in little-endian order.
    Image(Range<usize>),
}

impl Table {
    pub(super) fn len(&self) -> usize {
        match self {
            Table::Own(numbers) => numbers.len(),
            Table::Image(range) => range.len() / size_of::<u32>(),
        }
    }

    /// Returns a number; `image` are the bytes that an image's tables lie in.
    #[inline]
    pub(super) fn get(&self, image: &[u8], index: usize) -> Option<u32> {
        match self {
            Table::Own(numbers) => numbers.get(index).copied(),
            Table::Image(range) => word(image.get(range.clone())?, index),
        }
    }

    /// Returns the bytes that an image has for the numbers.
    pub(super) fn to_bytes(&self, image: &[u8]) -> Vec<u8> {
        (0..self.len()).flat_map(|index| self.get(image, index).unwrap_or(0).to_le_bytes()).collect()
    }
}
