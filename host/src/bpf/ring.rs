//! The consumer of a ring buffer. Records are located in the pages shared with the kernel and copied once, to
//! their destination. Everything here is safe to call.
//!
//! Source: kernel/bpf/ringbuf.c, v6.12; Documentation/bpf/ringbuf.rst.
#![expect(unsafe_code, reason = "maps pages that the kernel writes to")]

use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};

use super::error::BpfError;
use super::map::Map;

/// Size in bytes of the header of each record in a batch, see `wit/ring.wit`.
pub const ENTRY_BYTES: usize = 8;

/// Size in bytes of the kernel's header of each record: its length with two flags, and a page offset that is
/// unused here.
#[doc(alias = "BPF_RINGBUF_HDR_SZ")]
const HEADER_BYTES: u64 = 8;
/// The record is reserved and not submitted yet.
#[doc(alias = "BPF_RINGBUF_BUSY_BIT")]
const BUSY: u32 = 1 << 31;
/// The record was discarded by its program.
#[doc(alias = "BPF_RINGBUF_DISCARD_BIT")]
const DISCARDED: u32 = 1 << 30;

/// The consumer of a loaded object's ring buffer.
pub struct Ring {
    name: String,
    fd: OwnedFd,
    pages: Arc<Pages>,
    /// Position after the last taken record. The kernel's consumer position lags until the records were
    /// copied.
    next: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, size) = (&self.name, self.pages.size);
        f.debug_struct("Ring").field("name", name).field("size", &size).finish_non_exhaustive()
    }
}

/// The next record does not fit. The number is its size in bytes, as an entry of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong(pub usize);

impl TooLong {
    /// Converts to the error for a caller that asked for a batch of `given` bytes.
    pub fn in_batch_of(self, ring: &str, given: usize) -> BpfError {
        BpfError::Size { what: "the next record", name: ring.into(), expected: self.0, given }
    }
}

impl Ring {
    /// Maps the pages of a ring buffer.
    pub(super) fn of(map: &Map) -> Result<Ring, BpfError> {
        let name = map.name().to_owned();
        let refused =
            |call, errno| BpfError::Kernel { tried: format!("open the ring buffer `{name}`"), call, errno };
        let fd = map.descriptor().try_clone_to_owned().map_err(|error| {
            refused("fcntl(F_DUPFD_CLOEXEC)", Errno::from_raw(error.raw_os_error().unwrap_or_default()))
        })?;
        Ring::passed_on(name.clone(), fd, map.shape().max_entries).map_err(|errno| refused("mmap", errno))
    }

    /// Maps the pages of a ring buffer with so many bytes for records, whose descriptor another process of this host
    /// has duplicated.
    ///
    /// # Errors
    /// Of mmap(2).
    pub(crate) fn passed_on(name: String, ring: OwnedFd, bytes: u32) -> Result<Ring, Errno> {
        let pages = Pages::map(ring.as_fd(), bytes)?;
        let next = pages.consumed().load(Ordering::Relaxed);
        Ok(Ring { name, fd: ring, pages: Arc::new(pages), next })
    }

    /// Returns a descriptor for another process of this host, which consumes the ring in turn with this one, and the
    /// bytes for records. The kernel lets nobody write through it but the consumer position.
    ///
    /// Source: `ringbuf_map_mmap_kern` in kernel/bpf/ringbuf.c, v6.18.
    pub(crate) fn to_pass_on(&self) -> Option<(OwnedFd, u32)> {
        Some((self.fd.try_clone().ok()?, self.pages.size))
    }

    /// Returns the name in the object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the size of the data area in bytes.
    pub fn size(&self) -> u32 {
        self.pages.size
    }

    /// Returns the descriptor that becomes readable when there are records.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the number of bytes of records not taken yet, with their headers of 8 bytes.
    pub fn waiting(&self) -> u64 {
        self.pages.produced().load(Ordering::Acquire).saturating_sub(self.first())
    }

    /// Returns the position of the first record that was not taken. Another process may have consumed some: a worker, or
    /// one with the same pinned ring.
    fn first(&self) -> u64 {
        self.next.max(self.pages.consumed().load(Ordering::Relaxed))
    }

    /// Takes records that fit in `room` bytes as entries of a batch. Takes none if there are none or the next
    /// one is not submitted yet.
    ///
    /// # Errors
    /// [`TooLong`] if not even the first record fits. It stays in the ring.
    pub fn take(&mut self, room: usize) -> Result<Records, TooLong> {
        let from = self.first();
        let produced = self.pages.produced().load(Ordering::Acquire);
        let (mut to, mut bytes) = (from, 0);
        while let Some(record) = self.pages.record(to, produced) {
            if !record.discarded {
                let entry = ENTRY_BYTES + record.len.next_multiple_of(8);
                match bytes + entry {
                    more if more <= room => bytes = more,
                    _ if bytes == 0 => return Err(TooLong(entry)),
                    _ => break,
                }
            }
            to = record.end;
        }
        self.next = to;
        Ok(Records { pages: Arc::clone(&self.pages), from, to, bytes })
    }
}

/// Records that were taken out of a ring but still lie in its pages. Dropping them releases their space.
#[must_use = "dropping them loses the records"]
pub struct Records {
    pages: Arc<Pages>,
    from: u64,
    to: u64,
    bytes: usize,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Records { from, to, bytes, .. } = self;
        f.debug_struct("Records").field("at", &(from..to)).field("bytes", bytes).finish_non_exhaustive()
    }
}

impl Records {
    /// Returns the size in bytes of the records as entries of a batch.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the records as entries of ring `position` to the start of `out`, which must hold
    /// [`Records::bytes`].
    ///
    /// If another process consumes the same ring at the same time, the copied content is arbitrary, but never
    /// exceeds these bytes.
    pub fn copy_to(&self, position: u32, out: &mut [u8]) {
        let mut rest = out;
        let mut at = self.from;
        while let Some(record) = self.pages.record(at, self.to) {
            at = record.end;
            if record.discarded {
                continue;
            }
            let Some((head, after)) = rest.split_first_chunk_mut::<ENTRY_BYTES>() else { return };
            let Some((body, after)) = after.split_at_mut_checked(record.len.next_multiple_of(8)) else {
                return;
            };
            head[..4].copy_from_slice(&position.to_le_bytes());
            // The length fits in 32 bits: a ring has at most 128 MiB.
            head[4..].copy_from_slice(&(record.len as u32).to_le_bytes());
            let (text, padding) = body.split_at_mut(record.len);
            self.pages.copy(record.start, text);
            padding.fill(0);
            rest = after;
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.to == self.from {
            return;
        }
        // ORDERING: pairs with the acquire load in `__bpf_ringbuf_reserve`: the reads of the records complete
        // before a program may overwrite them.
        self.pages.consumed().store(self.to, Ordering::Release);
    }
}

/// A record in the pages of a ring.
struct RingRecord {
    /// Position of the record's first byte, after its header.
    start: u64,
    len: usize,
    /// Position of the next record's header.
    end: u64,
    discarded: bool,
}

/// The mapped pages of a ring: the consumer position, which this side writes; the producer position; and the
/// data, mapped twice in a row, so that no record wraps.
struct Pages {
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    page: usize,
    size: u32,
}

// SAFETY: the mappings belong to no thread; positions and headers are atomic, everything else is only copied
// from.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(ring: BorrowedFd<'_>, size: u32) -> Result<Pages, Errno> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|bytes| usize::try_from(bytes).ok());
        let page = page.and_then(NonZeroUsize::new).ok_or(Errno::EINVAL)?;
        let bytes = page.saturating_add(2 * size as usize);
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let consumer = unsafe { mmap(None, page, both, MapFlags::MAP_SHARED, ring, 0) }?;
        let producer_offset = page.get().try_into().map_err(|_| Errno::EINVAL)?;
        // SAFETY: as above.
        let producer =
            unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, ring, producer_offset) };
        let producer = producer.inspect_err(|_| {
            // SAFETY: the mapping was created above, and nothing refers to it yet. If munmap fails, the page
            // stays mapped.
            let _ = unsafe { munmap(consumer, page.get()) };
        })?;
        Ok(Pages { consumer: consumer.cast(), producer: producer.cast(), page: page.get(), size })
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the position is the first word of its page, which is mapped as long as `self`, for reading
        // and writing; all accesses are atomic.
        unsafe { self.consumer.cast().as_ref() }
    }

    fn produced(&self) -> &AtomicU64 {
        // SAFETY: as for the consumer's; only the kernel writes it.
        unsafe { self.producer.cast().as_ref() }
    }

    /// Returns the address of the byte at a position. At least the ring's size in bytes follows it.
    fn at(&self, position: u64) -> NonNull<u8> {
        let offset = position & (u64::from(self.size) - 1);
        // SAFETY: the size is a power of two (the kernel creates no other rings), and the data is mapped
        // twice.
        unsafe { self.producer.add(self.page + offset as usize) }
    }

    /// Returns the record whose header is at a position, if it is submitted and ends at or before the limit.
    fn record(&self, position: u64, limit: u64) -> Option<RingRecord> {
        if position >= limit || !position.is_multiple_of(HEADER_BYTES) {
            return None;
        }
        // SAFETY: headers begin at multiples of 8 bytes, and the data at a page; the kernel writes this word
        // atomically.
        let header: &AtomicU32 = unsafe { self.at(position).cast().as_ref() };
        // ORDERING: pairs with the exchange in `bpf_ringbuf_commit`: the record was written before it was
        // submitted.
        let header = header.load(Ordering::Acquire);
        let len = header & !(BUSY | DISCARDED);
        let start = position + HEADER_BYTES;
        let end = start + u64::from(len).next_multiple_of(8);
        let complete = header & BUSY == 0 && end <= limit && len <= self.size;
        complete.then_some(RingRecord { start, len: len as usize, end, discarded: header & DISCARDED != 0 })
    }

    /// Copies bytes of the ring, at most its size.
    fn copy(&self, position: u64, out: &mut [u8]) {
        let len = out.len().min(self.size as usize);
        // SAFETY: `len` bytes follow the position, and `out` is exclusively borrowed. Programs do not write
        // to a record after submitting it, and the kernel reuses its space only after the consumer position
        // has passed it.
        unsafe { self.at(position).copy_to_nonoverlapping(NonNull::from(out).cast(), len) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: both mappings are ours and have these sizes, and no reference outlives `self`. munmap
        // cannot fail then.
        unsafe {
            let _ = munmap(self.consumer.cast(), self.page);
            let _ = munmap(self.producer.cast(), self.page + 2 * self.size as usize);
        }
    }
}

/// Splits off the first entry of a batch: ring position, record and rest. None if the bytes are malformed.
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
    fn entries_are_split_and_malformed_ones_are_reported() {
        let batch =
            [&[1, 0, 0, 0, 3, 0, 0, 0][..], b"one\0\0\0\0\0", &[0, 0, 0, 0, 16, 0, 0, 0], &[7; 16]].concat();
        let (position, record, rest) = split_entry(&batch).expect("an entry");
        assert_eq!((position, record, rest.len()), (1, &b"one"[..], 24));
        assert_eq!(split_entry(rest), Some((0, &[7; 16][..], &[][..])));
        assert_eq!([split_entry(&batch[..15]), split_entry(&batch[..7]), split_entry(&[])], [None; 3]);
    }
}
