//! Keys of maps of maps.

use alloc::vec::Vec;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::map::Map;
use crate::plain::{Field, Plain, Shape};

/// Each of the two keys is filled up to a multiple of so many bytes.
const ALIGNMENT: usize = 8;

/// The key of an entry of a map of maps: that of the inner map, and that of the entry in it.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::{Map, Nested};
///
/// let reads = Map::<Nested<u64, u32>, u64>::open("reads_by_group")?;
/// reads.create_inner(&[1, 2])?;
/// reads.insert(&Nested { outer: 1, inner: 0 }, &7)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nested<O, I> {
    /// The key of the inner map.
    pub outer: O,
    /// The key in the inner map.
    pub inner: I,
}

impl<O: Plain, I: Plain> Nested<O, I> {
    const INNER: usize = O::SIZE.next_multiple_of(ALIGNMENT);
}

impl<O: Plain, I: Plain> Plain for Nested<O, I> {
    const SIZE: usize = Self::INNER + I::SIZE.next_multiple_of(ALIGNMENT);
    const ALIGN: usize = ALIGNMENT;
    const SHAPE: Shape = Shape::Struct { name: "Nested", object_name: None, fields: Self::FIELDS };
    const FIELDS: &'static [Field] = &[
        Field { name: "outer", offset: 0, size: O::SIZE, shape: &O::SHAPE },
        Field { name: "inner", offset: Self::INNER, size: I::SIZE, shape: &I::SHAPE },
    ];

    fn from_bytes(bytes: &[u8]) -> Nested<O, I> {
        Nested { outer: O::from_bytes(bytes), inner: I::from_bytes(&bytes[Self::INNER..]) }
    }

    fn write_bytes(&self, bytes: &mut [u8]) {
        self.outer.write_bytes(bytes);
        self.inner.write_bytes(&mut bytes[Self::INNER..]);
    }
}

/// The inner maps of a map of maps. Its entries are read and written as those of any map.
impl<O: Plain, I: Plain, V: Plain> Map<Nested<O, I>, V> {
    /// Creates an empty inner map at each of these keys; one that is there stays. Writing an entry creates its inner map,
    /// too; programs only look inner maps up. No key at all means every element of an array.
    ///
    /// # Errors
    /// [`Limit`](ErrorKind::Limit) (the policy's `maps` or `map_bytes`; the map is full), [`Invalid`](ErrorKind::Invalid)
    /// (no map of maps), [`Kernel`](ErrorKind::Kernel).
    pub fn create_inner(&self, keys: &[O]) -> Result<()> {
        let keys: Vec<u8> = keys.iter().flat_map(Plain::to_bytes).collect();
        Ok(self.raw().create_inner(&keys)?)
    }

    /// Whether there is an inner map at a key.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (no map of maps).
    pub fn has_inner(&self, key: &O) -> Result<bool> {
        Ok(self.raw().has_inner(&key.to_bytes())?)
    }

    /// Removes an inner map with all its entries. False if there was none.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (no map of maps; an array, which keeps its maps), [`Kernel`](ErrorKind::Kernel).
    pub fn remove_inner(&self, key: &O) -> Result<bool> {
        Ok(self.raw().delete_inner(&key.to_bytes())?)
    }
}
