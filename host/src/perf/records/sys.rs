//! The ring of an event: pages into which the kernel writes records and from which this process reads them.
#![expect(unsafe_code, reason = "a mapping that the kernel writes")]

use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};
use perf_event_open_sys::bindings::perf_event_mmap_page;

/// Size of `struct perf_event_header`, in bytes. No header wraps: records take multiples of it.
const HEADER: usize = 8;

fn page_bytes() -> Result<usize, Errno> {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|page| usize::try_from(page).ok());
    page.ok_or(Errno::EINVAL)
}

/// The mapped pages of a ring, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Buffer {
    base: NonNull<u8>,
    length: NonZeroUsize,
    /// Size of the control page before the records, in bytes.
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Maps a ring of `pages` pages for records, a power of two. The kernel does not overwrite unread
    /// records: records that do not fit are dropped and counted by a record.
    pub(crate) fn new(event: BorrowedFd<'_>, pages: usize) -> Result<Buffer, Errno> {
        let page = page_bytes()?;
        let length = NonZeroUsize::new(Buffer::bytes(pages)?).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no existing memory.
        let mapped = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, event, 0) }?;
        Ok(Buffer { base: mapped.cast(), length, page })
    }

    /// Returns the memory of a ring with so many pages for records, in bytes.
    pub(crate) fn bytes(pages: usize) -> Result<usize, Errno> {
        pages.checked_add(1).and_then(|pages| pages.checked_mul(page_bytes().ok()?)).ok_or(Errno::EINVAL)
    }

    /// Returns the bytes that the ring has for records.
    pub(crate) fn size(&self) -> usize {
        self.length.get() - self.page
    }

    /// Returns the bytes of records that were not removed yet.
    pub(crate) fn waiting(&self) -> usize {
        // ORDERING: a number for people; no record is read by it.
        let head = self.position(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Relaxed);
        let tail = self.position(offset_of!(perf_event_mmap_page, data_tail)).load(Ordering::Relaxed);
        usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX).min(self.size())
    }

    /// Removes records one after the other as long as `accept`, called with the type and what follows the
    /// header, returns true. The record that it rejects stays.
    pub(crate) fn take_each(&mut self, mut accept: impl FnMut(u32, &[u8]) -> bool) {
        // ORDERING: as in `take`.
        let head = self.position(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_at = self.position(offset_of!(perf_event_mmap_page, data_tail));
        let mut tail = tail_at.load(Ordering::Relaxed);
        let mut record = Vec::new();
        while head.wrapping_sub(tail) >= HEADER as u64 {
            let waiting = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX).min(self.size());
            self.copy(tail, HEADER, &mut record);
            let ty = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            let size = usize::from(u16::from_ne_bytes([record[6], record[7]]));
            // The kernel writes no such record; without a size the next one cannot be found.
            if size < HEADER || size > waiting {
                tail = head;
                break;
            }
            self.copy(tail, size, &mut record);
            if !accept(ty, &record[HEADER..]) {
                break;
            }
            tail = tail.wrapping_add(size as u64);
        }
        // ORDERING: as in `take`.
        tail_at.store(tail, Ordering::Release);
    }

    /// Copies bytes of the ring from a position on; `len` is at most its size.
    fn copy(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        let start = (position % self.size() as u64) as usize;
        let first = len.min(self.size() - start);
        out.clear();
        out.extend_from_slice(self.data(start, first));
        out.extend_from_slice(self.data(0, len - first));
    }

    /// Removes and returns all complete records.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        // ORDERING: pairs with the kernel's barrier in `perf_output_put_handle`: records before the head are
        // written.
        let head = self.position(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_at = self.position(offset_of!(perf_event_mmap_page, data_tail));
        let tail = tail_at.load(Ordering::Relaxed);
        let waiting = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX).min(self.size());
        let mut records = Vec::with_capacity(waiting);
        self.copy(tail, waiting, &mut records);
        // ORDERING: pairs with the kernel's acquire of the tail in `__perf_output_begin`: the copies above
        // are done.
        tail_at.store(head, Ordering::Release);
        records
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both positions lie in the first page, aligned to 8 bytes, and live as long as `self`. The
        // kernel reads and writes them as whole words.
        unsafe { self.base.add(offset).cast::<AtomicU64>().as_ref() }
    }

    fn data(&self, start: usize, len: usize) -> &[u8] {
        // SAFETY: `start + len` is at most the size of the pages after the first one, and the kernel does not
        // write between tail and head before the tail is moved, which happens after the last use of this
        // slice.
        unsafe { std::slice::from_raw_parts(self.base.add(self.page + start).as_ptr(), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, to which no reference is left.
        let _ = unsafe { munmap(self.base.cast(), self.length.get()) };
    }
}
