//! What one plugin makes the host keep, in bytes: one sum with one limit, whatever it is kept for.
//!
//! Whoever keeps something of a plugin beyond a call, or copies something of a size that the plugin chose, holds a
//! [`Charge`] for it; dropped, it gives its bytes back. In: sizes. Out: yes, or [`Full`]. Not here: what the kernel keeps
//! (`map_bytes`, `ring_bytes`) and the plugin's own memory (`memory_bytes`), which have limits of their own.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::Limit;

/// What a handle costs beside its texts: its place in the table of handles.
const HANDLE_BYTES: u64 = 64;

/// Copies of a call that are not counted: there is one call at a time.
const SMALL_BYTES: u64 = 64 << 10;

/// The sum of one plugin. Clones are the same sum.
#[derive(Debug, Clone)]
pub struct HostBytes {
    // Handles, which belong to a store that may change threads, give back from wherever they are dropped.
    taken: Arc<AtomicU64>,
    most: u64,
}

/// The plugin makes the host keep as much as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host keeps too much for the plugin: {}", Limit::HostBytes.reached(*.0))]
pub struct Full(pub u64);

impl HostBytes {
    /// Nothing is taken yet, of at most so many.
    pub fn new(most: u64) -> HostBytes {
        HostBytes { taken: Arc::default(), most }
    }

    /// Takes nothing yet.
    pub fn start(&self) -> Charge {
        Charge { of: self.clone(), bytes: 0 }
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// [`Full`], and nothing is taken.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Full> {
        let mut charge = self.start();
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Takes so many bytes for the length of a call, if they are more than it costs to count them.
    ///
    /// # Errors
    /// [`Full`], and nothing is taken.
    pub fn during_call(&self, bytes: u64) -> Result<Option<Charge>, Full> {
        (bytes > SMALL_BYTES).then(|| self.charge(bytes)).transpose()
    }

    /// A value that is kept with a text of so many bytes.
    ///
    /// # Errors
    /// [`Full`]: the value is dropped.
    pub(crate) fn keep<T>(&self, value: T, text_bytes: usize) -> Result<Charged<T>, Full> {
        let bytes = HANDLE_BYTES + (size_of::<T>() + text_bytes) as u64;
        Ok(Charged { value, charge: self.charge(bytes)? })
    }
}

/// Bytes that are taken until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Charge {
    of: HostBytes,
    bytes: u64,
}

impl Charge {
    /// Takes more.
    ///
    /// # Errors
    /// [`Full`], and it is as it was.
    pub fn grow(&mut self, more: u64) -> Result<(), Full> {
        let add = |taken: u64| taken.checked_add(more).filter(|sum| *sum <= self.of.most);
        // ORDERING: relaxed. The number guards nothing but itself.
        match self.of.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => {
                self.bytes += more;
                Ok(())
            }
            Err(_) => Err(Full(self.of.most)),
        }
    }

    /// Gives some back, at most what it has.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        // ORDERING: as in `grow`.
        self.of.taken.fetch_sub(less, Ordering::Relaxed);
    }

    /// Takes over what another one of the same sum has.
    pub fn merge(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes or gives back, so that it has so many.
    ///
    /// # Errors
    /// [`Full`], and it is as it was.
    pub fn set(&mut self, bytes: u64) -> Result<(), Full> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            return self.grow(more);
        }
        self.shrink(self.bytes - bytes);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// A value, and what it takes of the sum.
#[derive(Debug)]
pub struct Charged<T> {
    value: T,
    charge: Charge,
}

impl<T> Charged<T> {
    /// A text of the value has other bytes than before.
    ///
    /// # Errors
    /// [`Full`], and it is as it was.
    pub(crate) fn recharge(&mut self, before: usize, after: usize) -> Result<(), Full> {
        self.charge.set((self.charge.bytes + after as u64).saturating_sub(before as u64))
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Charged<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back_and_what_is_refused_takes_nothing() {
        let sum = HostBytes::new(100);
        let mut first = sum.charge(60).expect("there is room");
        assert_eq!(sum.charge(41).err(), Some(Full(100)));
        let second = sum.charge(40).expect("a refusal takes nothing");
        assert_eq!(first.grow(1), Err(Full(100)));
        drop(second);
        first.set(100).expect("it was given back");
        first.set(10).expect("less is always possible");
        first.shrink(1000);
        assert!(sum.charge(100).is_ok());
        assert_eq!(sum.charge(u64::MAX).err(), Some(Full(100)));
        assert!(sum.during_call(SMALL_BYTES).is_ok_and(|charge| charge.is_none()));
        assert_eq!(sum.during_call(SMALL_BYTES + 1).err(), Some(Full(100)));
        assert!(
            Full(100)
                .to_string()
                .contains("the limit `host_bytes` of the plugin is 100\n  do: --limit host_bytes=..")
        );
    }

    #[test]
    fn a_kept_value_takes_its_texts() {
        let sum = HostBytes::new(4096);
        let kept = sum.keep("value", 3000).expect("there is room");
        assert_eq!(**kept, *"value");
        assert!(sum.keep("value", 3000).is_err());
        drop(kept);
        assert!(sum.keep("value", 3000).is_ok());
    }
}
