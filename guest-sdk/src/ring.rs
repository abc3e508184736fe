//! Ring buffers: records that programs hand to the plugin, in order.

use alloc::format;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::time::Duration;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::layout;
use crate::plain::Plain;
use crate::shared;
use crate::sys::ring;
use crate::warn;

/// Bytes of records that one host call gives at most.
const BATCH: u32 = 256 << 10;

/// What stands before each record: the position of its ring (4 bytes), its length (4 bytes).
const HEADER: usize = 8;

/// A ring buffer of the plugin's object with records `T`. It lives as long as the plugin; what was not taken out of it
/// stays there.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use std::time::Duration;
///
/// use ks_guest::{Plain, Ring, println};
///
/// #[derive(Plain)]
/// struct Opened {
///     pid: u32,
///     flags: u32,
/// }
///
/// let mut opened = Ring::<Opened>::open("opened")?;
/// for record in opened.poll(Some(Duration::from_millis(100)))? {
///     println!("{} {:#x}", record.pid, record.flags);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Ring<T> {
    raw: ring::Ring,
    record: PhantomData<fn() -> T>,
}

impl<T: Plain> Ring<T> {
    /// The ring buffer of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// BTF does not say what a ring buffer holds, so `T` is compared with the struct, union or typedef of the object that has
    /// its name: as it stands in Rust (`OpenedFile`), in C's spelling of it (`opened_file`), or the one of
    /// `#[plain(name = "opened_t")]`. Without such a type nothing is compared here, but every record must have the size of
    /// a `T`. clang leaves out a struct that no map, variable or function shows: `struct opened *unused
    /// __attribute__((unused));` shows it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the type of the object is no `T` ([`plain`](crate::plain#checks)), or the one
    /// that `#[plain(name = ..)]` names is not there;
    /// [`NotFound`](ErrorKind::NotFound) (no map of this name, or it is no ring buffer),
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_BPF), [`DeniedByPolicy`](ErrorKind::DeniedByPolicy),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn open(name: &str) -> Result<Ring<T>> {
        let raw = ring::Ring::open(name)?;
        shared::loaded();
        layout::check_record::<T>(name)?;
        Ok(Ring { raw, record: PhantomData })
    }

    /// Takes records out: at once if there are any, else waits for the first ones. None of them when the time is over;
    /// no timeout is a wait without end. What a loop leaves off is put back, so they are done with before the next poll.
    ///
    /// # Errors
    /// [`Interrupted`](ErrorKind::Interrupted) (the host asks the plugin to stop), [`Invalid`](ErrorKind::Invalid) (the
    /// records of this ring are no `T`; they stay where they are), [`Kernel`](ErrorKind::Kernel).
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Records<'_, T>> {
        // Longer than the clock can run.
        let timeout = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let batch = ring::poll(&[&self.raw], timeout, BATCH)?;
        if let Some(len) = lengths(&batch).find(|len| *len != T::SIZE) {
            ring::put_back(&[&self.raw], &batch)?;
            let message = format!(
                "a record of the ring buffer has {len} bytes, its type here has {}\n  \
                 do: open it with the type that the programs put in",
                T::SIZE
            );
            return Err(Error::invalid(message));
        }
        Ok(Records { ring: self, batch, at: 0 })
    }

    /// Its size in bytes. A record takes 8 bytes more than its length, rounded up to a multiple of 8.
    pub fn size(&self) -> u32 {
        self.raw.size()
    }

    /// Bytes of records that wait in it, their headers included.
    pub fn waiting(&self) -> u64 {
        self.raw.waiting()
    }

    /// Records that were lost so far because the ring was full; none if the object does not count them.
    pub fn lost(&self) -> Option<u64> {
        self.raw.lost()
    }
}

/// The lengths of a batch's records.
fn lengths(batch: &[u8]) -> impl Iterator<Item = usize> {
    let mut rest = batch;
    core::iter::from_fn(move || {
        let len = u32::from_bytes(rest.get(4..HEADER)?) as usize;
        rest = rest.get(HEADER + len.next_multiple_of(8)..).unwrap_or_default();
        Some(len)
    })
}

/// Records that were taken out of a ring buffer, in order. What is left when it is dropped goes back into the ring.
#[derive(Debug)]
pub struct Records<'ring, T: Plain> {
    ring: &'ring Ring<T>,
    batch: Vec<u8>,
    at: usize,
}

impl<T: Plain> Iterator for Records<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let start = self.at + HEADER;
        let record = self.batch.get(start..start + T::SIZE)?;
        self.at = start + T::SIZE.next_multiple_of(8);
        Some(T::from_bytes(record))
    }
}

impl<T: Plain> Drop for Records<'_, T> {
    fn drop(&mut self) {
        if let Some(rest) = self.batch.get(self.at..).filter(|rest| !rest.is_empty()) {
            // Refused if another handle to the same ring was polled since: they cannot stand before what that one took.
            if let Err(error) = ring::put_back(&[&self.ring.raw], rest) {
                warn!("{} records of a ring buffer are lost: {}", lengths(rest).count(), error.message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_entry_by_entry() {
        let mut batch = Vec::new();
        for len in [3_u32, 8, 0] {
            batch.extend([0; 4]);
            batch.extend(len.to_le_bytes());
            batch.extend(core::iter::repeat_n(7, (len as usize).next_multiple_of(8)));
        }
        assert!(lengths(&batch).eq([3, 8, 0]));
        assert_eq!(lengths(&[]).count(), 0);
    }
}
