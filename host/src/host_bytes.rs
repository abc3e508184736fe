//! Accounting of host memory that a plugin causes, in bytes: one sum with one limit for all purposes.
//!
//! Code that keeps something for a plugin beyond a call, or copies something of a size that the plugin chose,
//! holds a [`Charge`] for it; dropping it releases the bytes. In: sizes. Out: success, or [`Full`]. Kernel
//! memory (`map_bytes`, `ring_bytes`) and the plugin's own memory (`memory_bytes`) have limits of their own.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::Limit;

/// Bytes charged for a handle in addition to its texts: its slot in the table of handles.
const HANDLE_BYTES: u64 = 64;

/// Copies during a call up to this size are not charged: there is one call at a time.
const SMALL_BYTES: u64 = 64 << 10;

/// The sum of one plugin. Clones share it.
#[derive(Debug, Clone)]
pub struct HostBytes {
    // Atomic, because handles belong to a store that may move to another thread, and release their bytes
    // wherever they are dropped.
    taken: Arc<AtomicU64>,
    most: u64,
}

/// The limit, in bytes, is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host keeps too much for the plugin: {}", Limit::HostBytes.reached(*.0))]
pub struct Full(pub u64);

impl HostBytes {
    /// Creates a sum of 0 with this limit in bytes.
    pub fn new(most: u64) -> HostBytes {
        HostBytes { taken: Arc::default(), most }
    }

    /// Creates a charge of 0 bytes.
    pub fn start(&self) -> Charge {
        Charge { of: self.clone(), bytes: 0 }
    }

    /// Charges a number of bytes.
    ///
    /// # Errors
    /// [`Full`], and nothing is charged.
    pub fn charge(&self, bytes: u64) -> Result<Charge, Full> {
        let mut charge = self.start();
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Charges a number of bytes for the duration of a call; returns none for sizes that are not counted.
    ///
    /// # Errors
    /// [`Full`], and nothing is charged.
    pub fn during_call(&self, bytes: u64) -> Result<Option<Charge>, Full> {
        (bytes > SMALL_BYTES).then(|| self.charge(bytes)).transpose()
    }

    /// Charges for a value that is kept, and for the text that is kept with it.
    ///
    /// # Errors
    /// [`Full`]: the value is dropped.
    pub(crate) fn keep<T>(&self, value: T, text_bytes: usize) -> Result<Charged<T>, Full> {
        let bytes = HANDLE_BYTES + (size_of::<T>() + text_bytes) as u64;
        Ok(Charged { value, charge: self.charge(bytes)? })
    }
}

/// Bytes that stay charged until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Charge {
    of: HostBytes,
    bytes: u64,
}

impl Charge {
    /// Charges more bytes.
    ///
    /// # Errors
    /// [`Full`], and the charge is unchanged.
    pub fn grow(&mut self, more: u64) -> Result<(), Full> {
        let add = |taken: u64| taken.checked_add(more).filter(|sum| *sum <= self.of.most);
        // ORDERING: relaxed. The number protects no other data.
        match self.of.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => {
                self.bytes += more;
                Ok(())
            }
            Err(_) => Err(Full(self.of.most)),
        }
    }

    /// Releases bytes, at most those of this charge.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        // ORDERING: as in `grow`.
        self.of.taken.fetch_sub(less, Ordering::Relaxed);
    }

    /// Moves bytes, at most those of this charge, to a charge of their own.
    pub fn split(&mut self, bytes: u64) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { of: self.of.clone(), bytes }
    }

    /// Adds the bytes of another charge of the same sum to this one.
    pub fn merge(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Charges or releases bytes to reach this number.
    ///
    /// # Errors
    /// [`Full`], and the charge is unchanged.
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

/// A value together with its charge.
#[derive(Debug)]
pub struct Charged<T> {
    value: T,
    charge: Charge,
}

impl<T> Charged<T> {
    /// Adjusts the charge when a text of the value changes its size from `before` to `after` bytes.
    ///
    /// # Errors
    /// [`Full`], and the charge is unchanged.
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
    fn drops_release_charges_and_refusals_charge_nothing() {
        let sum = HostBytes::new(100);
        let mut first = sum.charge(60).expect("there is room");
        assert_eq!(sum.charge(41).err(), Some(Full(100)));
        let second = sum.charge(40).expect("a refusal takes nothing");
        assert_eq!(first.grow(1), Err(Full(100)));
        drop(second);
        first.set(100).expect("it was given back");
        first.set(10).expect("less is always possible");
        first.shrink(1000);
        let mut whole = sum.charge(100).expect("there is room");
        let part = whole.split(60);
        drop(whole);
        assert!(sum.charge(41).is_err() && sum.charge(40).is_ok(), "the part is still charged");
        drop(part);
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
