//! Maps without keys: queues, stacks and bloom filters.

use core::marker::PhantomData;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::map::{ValueCopies, open_without_keys};
use crate::plain::Plain;
use crate::sys::maps::{self, UpdateMode};

/// A queue or stack of the plugin's object.
#[derive(Debug)]
pub struct Queue<V> {
    raw: maps::BpfMap,
    value: PhantomData<fn() -> V>,
}

impl<V: Plain> Queue<V> {
    /// Opens the queue or stack of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// See [`Map::open`](crate::Map::open).
    pub fn open(name: &str) -> Result<Queue<V>> {
        Ok(Queue { raw: open_without_keys::<V>(name, ValueCopies::Shared)?, value: PhantomData })
    }

    /// Adds a value: at the end of a queue, on top of a stack.
    ///
    /// # Errors
    /// [`Limit`](ErrorKind::Limit) (it is full), [`Kernel`](ErrorKind::Kernel).
    pub fn push(&self, value: &V) -> Result<()> {
        Ok(self.raw.update(&[], &value.to_bytes(), UpdateMode::Any)?)
    }

    /// Removes and returns the next value; none if it is empty.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) (another type of map), [`Kernel`](ErrorKind::Kernel).
    pub fn pop(&self) -> Result<Option<V>> {
        Ok(self.raw.lookup_and_delete(&[])?.map(|bytes| V::from_bytes(&bytes)))
    }

    /// Returns the next value without removing it; none if it is empty.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn peek(&self) -> Result<Option<V>> {
        Ok(self.raw.lookup(&[])?.map(|bytes| V::from_bytes(&bytes)))
    }
}

/// A bloom filter of the plugin's object: a set with false positives.
#[derive(Debug)]
pub struct Bloom<V> {
    raw: maps::BpfMap,
    value: PhantomData<fn() -> V>,
}

impl<V: Plain> Bloom<V> {
    /// Opens the filter of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// See [`Map::open`](crate::Map::open).
    pub fn open(name: &str) -> Result<Bloom<V>> {
        Ok(Bloom { raw: open_without_keys::<V>(name, ValueCopies::Shared)?, value: PhantomData })
    }

    /// Adds a value.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn insert(&self, value: &V) -> Result<()> {
        Ok(self.raw.update(&[], &value.to_bytes(), UpdateMode::Any)?)
    }

    /// Whether the filter may contain a value: false is certain.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (no bloom filter), [`Kernel`](ErrorKind::Kernel).
    pub fn contains(&self, value: &V) -> Result<bool> {
        Ok(self.raw.contains(&value.to_bytes())?)
    }
}
