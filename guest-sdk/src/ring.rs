//! Ring buffers: records that programs send to the plugin, in order.

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

/// Limit on the bytes of records that one host call returns.
const BATCH: u32 = 256 << 10;

/// Bytes of the header of each record in a batch: the index of its ring (4 bytes), its length (4 bytes).
const HEADER: usize = 8;

/// A ring buffer of the plugin's object with records `T`. It lives as long as the plugin; unread records stay
/// in it.
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
    /// The length of a record in bytes.
    len: usize,
    record: PhantomData<fn() -> T>,
}

impl<T: Plain> Ring<T> {
    /// Opens the ring buffer of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// BTF does not contain the record type of a ring buffer, so `T` is compared with the struct, union or
    /// typedef of the object that has its name: as in Rust (`OpenedFile`), in C's spelling of it
    /// (`opened_file`), or the name of `#[plain(name = "opened_t")]`. Without a type of that name nothing is
    /// compared here, but every record must have the size of a `T`. clang omits a struct that no map,
    /// variable or function uses: `struct opened *unused __attribute__((unused));` keeps it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the type of the object is not a `T`
    /// ([`plain`](crate::plain#checks)), or the type that `#[plain(name = ..)]` names does not exist;
    /// [`NotFound`](ErrorKind::NotFound) (no map of this name, or it is not a ring buffer),
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_BPF), [`Limit`](ErrorKind::Limit),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn open(name: &str) -> Result<Ring<T>> {
        let raw = ring::Ring::open(name)?;
        shared::loaded();
        layout::check_record::<T>(name)?;
        Ok(Ring { raw, len: T::SIZE, record: PhantomData })
    }

    /// Opens the array of perf events of this name, into which programs write by `bpf_perf_event_output`, with
    /// a ring of so many bytes for each CPU: a power of 2 and whole pages. Records of one CPU are in order.
    /// For programs that were built for kernels before 5.8; a ring buffer is better in all ways.
    ///
    /// # Errors
    /// See [`Ring::open`]; [`Invalid`](ErrorKind::Invalid) for the size and a map of another type,
    /// [`Busy`](ErrorKind::Busy) for an array in which an attachment is published,
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_PERFMON, or more locked memory than allowed).
    pub fn open_perf_event_array(name: &str, bytes: u32) -> Result<Ring<T>> {
        let raw = ring::Ring::open_perf_event_array(name, bytes)?;
        shared::loaded();
        layout::check_record::<T>(name)?;
        // The kernel writes the length in 4 bytes before the record, and makes both a multiple of 8.
        Ok(Ring { raw, len: (T::SIZE + 4).next_multiple_of(8) - 4, record: PhantomData })
    }

    /// Consumes records: immediately if there are any, otherwise waits for the first ones. Returns no records
    /// after the timeout; without a timeout, waits forever. Records that a loop leaves unread are put back,
    /// so that they are the first of the next poll.
    ///
    /// # Errors
    /// [`Interrupted`](ErrorKind::Interrupted) (the host asks the plugin to stop),
    /// [`Invalid`](ErrorKind::Invalid) (the records of this ring are not `T`; they stay in the ring),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn poll(&mut self, timeout: Option<Duration>) -> Result<Records<'_, T>> {
        // Saturates beyond the range of the clock.
        let timeout = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let (batch, records) = ring::poll(&[&self.raw], timeout, BATCH)?;
        if let Some(len) = lengths(&records).find(|len| *len != self.len) {
            batch.put_back(&records)?;
            let message = format!(
                "a record of the ring buffer has {len} bytes, its type here has {}\n  \
                 do: open it with the type that the programs put in",
                T::SIZE
            );
            return Err(Error::invalid(message));
        }
        Ok(Records { ring: self, batch, records, at: 0 })
    }

    /// Size in bytes. A record takes 8 bytes more than its length, rounded up to a multiple of 8.
    pub fn size(&self) -> u32 {
        self.raw.size()
    }

    /// Bytes of unread records, their headers included.
    pub fn waiting(&self) -> u64 {
        self.raw.waiting()
    }

    /// Number of records lost so far because the ring was full; none if the object does not count them.
    pub fn lost(&self) -> Option<u64> {
        self.raw.lost()
    }
}

/// Returns the lengths of a batch's records.
fn lengths(batch: &[u8]) -> impl Iterator<Item = usize> {
    let mut rest = batch;
    core::iter::from_fn(move || {
        let len = u32::from_bytes(rest.get(4..HEADER)?) as usize;
        rest = rest.get(HEADER + len.next_multiple_of(8)..).unwrap_or_default();
        Some(len)
    })
}

/// Records consumed from a ring buffer, in order. Dropping it puts unread records back into the ring.
#[derive(Debug)]
pub struct Records<'ring, T: Plain> {
    ring: &'ring Ring<T>,
    batch: ring::Batch,
    records: Vec<u8>,
    at: usize,
}

impl<T: Plain> Iterator for Records<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let start = self.at + HEADER;
        let record = self.records.get(start..start + T::SIZE)?;
        self.at = start + self.ring.len.next_multiple_of(8);
        Some(T::from_bytes(record))
    }
}

impl<T: Plain> Drop for Records<'_, T> {
    fn drop(&mut self) {
        if let Some(rest) = self.records.get(self.at..).filter(|rest| !rest.is_empty()) {
            // Refused only if the host keeps too much for the plugin.
            if let Err(error) = self.batch.put_back(rest) {
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
