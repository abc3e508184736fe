//! The consumer's side of a ring buffer, through libbpf, which maps the ring's pages and keeps to the kernel's order of
//! positions. Everything here is safe to call.
#![expect(unsafe_code, reason = "calls into libbpf, which calls back with a record")]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::MapCore;
use nix::errno::Errno;

use super::error::BpfError;

/// Bytes before each record of a batch, see `wit/ring.wit`.
pub const ENTRY_BYTES: usize = 8;

/// A ring buffer of a loaded object that records are taken out of.
pub struct Ring {
    name: String,
    size: u32,
    /// A descriptor of our own, to wait on; libbpf borrows it.
    fd: OwnedFd,
    buffer: NonNull<libbpf_sys::ring_buffer>,
    /// Where the callback finds what it needs; lives as long as `buffer`.
    sink: Box<Sink>,
}

/// What the callback writes to.
#[derive(Default)]
struct Sink {
    batch: Vec<u8>,
    /// Bytes of the batch after which libbpf is told to stop.
    enough: usize,
    /// The position that the entries name.
    position: u32,
}

// SAFETY: libbpf keeps no state for the thread that made the buffer, and `Ring` is used through `&mut` only.
unsafe impl Send for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("name", &self.name).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Ring {
    /// Maps the pages of a ring buffer.
    pub(super) fn of(map: &libbpf_rs::Map<'_>) -> Result<Ring, BpfError> {
        let name = map.name().to_string_lossy().into_owned();
        let refused =
            |call, errno| BpfError::Kernel { tried: format!("open the ring buffer `{name}`"), call, errno };
        let fd = map.as_fd().try_clone_to_owned().map_err(|error| {
            refused("fcntl(F_DUPFD_CLOEXEC)", Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        })?;
        let mut sink = Box::<Sink>::default();
        // SAFETY: the descriptor is open and outlives the buffer, as does the sink, whose place does not change with that
        // of its box; no options is a null pointer.
        let buffer = unsafe {
            libbpf_sys::ring_buffer__new(
                fd.as_raw_fd(),
                Some(take),
                (&raw mut *sink).cast(),
                std::ptr::null(),
            )
        };
        let buffer = NonNull::new(buffer).ok_or_else(|| refused("mmap", Errno::last()))?;
        Ok(Ring { size: map.max_entries(), name, fd, buffer, sink })
    }

    /// Its name in the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What becomes readable when there are records.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of records in it, with their headers of 8 bytes.
    pub fn waiting(&self) -> u64 {
        // SAFETY: the buffer is alive and has one ring.
        unsafe { libbpf_sys::ring__avail_data_size(self.ring()) as u64 }
    }

    fn ring(&self) -> *mut libbpf_sys::ring {
        // SAFETY: the buffer is alive; its first ring is the one that it was made with.
        unsafe { libbpf_sys::ring_buffer__ring(self.buffer.as_ptr(), 0) }
    }

    /// Takes records out until there are `enough` bytes of entries (the last record may go beyond) or none is left, and
    /// appends them to a batch as entries of this position.
    ///
    /// # Errors
    /// [`BpfError::Kernel`].
    pub fn take(&mut self, position: u32, enough: usize, batch: &mut Vec<u8>) -> Result<(), BpfError> {
        self.sink.position = position;
        self.sink.enough = enough;
        std::mem::swap(&mut self.sink.batch, batch);
        // SAFETY: the ring is alive, and so is the sink that its callback writes to; nobody else refers to the sink
        // during the call.
        let taken = unsafe { libbpf_sys::ring__consume(self.ring()) };
        std::mem::swap(&mut self.sink.batch, batch);
        match taken {
            STOP | 0.. => Ok(()),
            error => Err(BpfError::Kernel {
                tried: format!("read the ring buffer `{}`", self.name),
                call: "ring__consume",
                errno: Errno::from_raw(error.saturating_neg()),
            }),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the buffer is alive and nobody uses it any more; the descriptor is closed after this.
        unsafe { libbpf_sys::ring_buffer__free(self.buffer.as_ptr()) }
    }
}

/// What the callback answers when there is enough: no errno of the kernel (its largest is 4095).
const STOP: c_int = -5000;

/// Appends a record to the batch.
///
/// # Safety
/// As libbpf calls it: `sink` is what was given to `ring_buffer__new`, `data` has `size` bytes that stay until it returns.
unsafe extern "C" fn take(sink: *mut c_void, data: *mut c_void, size: libbpf_sys::size_t) -> c_int {
    // SAFETY: see `Ring::of`; `Ring::take` gives nobody else a reference meanwhile.
    let sink = unsafe { &mut *sink.cast::<Sink>() };
    let len = usize::try_from(size).unwrap_or(0);
    // SAFETY: libbpf says that so many bytes are there, and waits to release them until this returns. Programs that have
    // submitted a record write to it no more.
    let record = unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len) };
    push_entry(&mut sink.batch, sink.position, record);
    if sink.batch.len() >= sink.enough { STOP } else { 0 }
}

/// Appends a record as an entry of a batch.
pub fn push_entry(batch: &mut Vec<u8>, position: u32, record: &[u8]) {
    batch.reserve(ENTRY_BYTES + record.len().next_multiple_of(8));
    batch.extend_from_slice(&position.to_le_bytes());
    // A ring has at most 128 MiB.
    batch.extend_from_slice(&(record.len() as u32).to_le_bytes());
    batch.extend_from_slice(record);
    batch.resize(batch.len().next_multiple_of(8), 0);
}

/// The first entry of a batch (position and record) and what follows it. None if the bytes are no entries.
pub fn split_entry(batch: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (position, rest) = batch.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    let record = rest.get(..len)?;
    Some((u32::from_le_bytes(*position), record, rest.get(len.next_multiple_of(8)..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_went_in() {
        let mut batch = Vec::new();
        push_entry(&mut batch, 1, b"one");
        push_entry(&mut batch, 0, &[7; 16]);
        let (position, record, rest) = split_entry(&batch).expect("an entry");
        assert_eq!((position, record, rest.len()), (1, &b"one"[..], 24));
        assert_eq!(split_entry(rest), Some((0, &[7; 16][..], &[][..])));
        assert_eq!([split_entry(&batch[..15]), split_entry(&batch[..7]), split_entry(&[])], [None; 3]);
    }
}
