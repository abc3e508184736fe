//! The pages of a section of variables once it is loaded: those of its map, shared with the programs, which write
//! to them.
#![expect(unsafe_code, reason = "atomic access to memory that the kernel writes, too")]

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of a section's pages. It outlives the object.
#[derive(Debug)]
pub(super) struct SectionPages {
    base: NonNull<u8>,
    len: NonZeroUsize,
    is_writable: bool,
}

// SAFETY: the mapping belongs to no thread, and is accessed by atomic loads and stores only.
unsafe impl Send for SectionPages {}
// SAFETY: as above.
unsafe impl Sync for SectionPages {}

impl SectionPages {
    /// Maps the first `len` bytes of a section's map. One that is frozen cannot be mapped writable.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(super) fn map(section: BorrowedFd<'_>, len: usize, is_writable: bool) -> Result<SectionPages, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let write = if is_writable { ProtFlags::PROT_WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base =
            unsafe { mmap(None, len, ProtFlags::PROT_READ | write, MapFlags::MAP_SHARED, section, 0) }?;
        Ok(SectionPages { base: base.cast(), len, is_writable })
    }

    /// Performs one atomic load of 1, 2, 4 or 8 bytes, zero-extended. `None` for another width, outside the
    /// section, or if unaligned.
    pub(super) fn load(&self, offset: usize, width: usize) -> Option<u64> {
        let at = self.at(offset, width)?.as_ptr();
        // SAFETY: `at` checked that the bytes lie inside the mapping and are aligned; everything here and every
        // BPF program of ours accesses them by their natural width. ORDERING: relaxed. BPF programs publish
        // nothing through these variables; a value is read for itself.
        Some(unsafe {
            match width {
                1 => u64::from(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
                2 => u64::from(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
                4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
                8 => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
                _ => return None,
            }
        })
    }

    /// Performs one atomic store of the low 1, 2, 4 or 8 bytes. `None` as for [`SectionPages::load`], and if the
    /// pages are mapped for reading.
    pub(super) fn store(&self, offset: usize, width: usize, value: u64) -> Option<()> {
        let at = self.at(offset, width).filter(|_| self.is_writable)?.as_ptr();
        // SAFETY: as in `load`; the pages are writable. The conversions keep the low bytes, as intended. ORDERING:
        // as in `load`.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Relaxed),
                8 => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Relaxed),
                _ => return None,
            }
        }
        Some(())
    }

    /// Returns a pointer to `width` bytes inside the mapping, aligned to `width`.
    fn at(&self, offset: usize, width: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(width)?;
        let aligned = width.is_power_of_two() && offset.is_multiple_of(width);
        if end > self.len.get() || !aligned {
            return None;
        }
        // SAFETY: the result is inside the mapping.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for SectionPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and has this size, and no reference outlives `self`. munmap cannot fail
        // then.
        let _ = unsafe { munmap(self.base.cast(), self.len.get()) };
    }
}
