//! Address space of linear memories. Every function here is safe to call.
#![expect(unsafe_code, reason = "mmap(2), and wasmtime's traits for memory of the host's own")]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use super::note_created;

/// A range of addresses that belongs to this process alone.
#[derive(Debug)]
pub(super) struct Reservation {
    base: NonNull<c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: the range belongs to this value; guests and the kernel write its contents, never through
// references.
unsafe impl Send for Reservation {}
// SAFETY: as above: its functions only change the mapping of pages, which the kernel serialises.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves address space for `bytes` bytes, without access and without memory.
    fn new(bytes: usize) -> Result<Reservation, Errno> {
        let bytes = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        // SAFETY: without an address, the kernel chooses an unused one.
        let base = unsafe {
            mmap_anonymous(None, bytes, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE)
        }?;
        Ok(Reservation { base, bytes })
    }

    /// Makes the first `bytes` bytes accessible; they are zero at first.
    fn open_to(&self, bytes: usize) -> Result<(), Errno> {
        if bytes > self.bytes.get() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: the range is inside the reservation, whose pages are anonymous or a map's.
        unsafe { mprotect(self.base, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }
    }

    /// Maps pages of a descriptor over a part of the range, readable and writable.
    ///
    /// # Errors
    /// EINVAL outside the range; errors of mmap(2): EPERM for a map that is frozen, EOPNOTSUPP or ENODEV for
    /// a map that does not support it.
    pub(super) fn map(&self, offset: usize, bytes: NonZeroUsize, from: BorrowedFd<'_>) -> Result<(), Errno> {
        let at = self.at(offset, bytes)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the range is inside the reservation, so no other mapping is replaced; guests access it by
        // Wasm instructions only, whatever its contents are.
        unsafe { mmap(Some(at), bytes, access, MapFlags::MAP_SHARED | MapFlags::MAP_FIXED, from, 0) }
            .map(drop)
    }

    /// Unmaps the pages; later accesses to them trap.
    pub(super) fn unmap(&self, offset: usize, bytes: NonZeroUsize) -> Result<(), Errno> {
        let at = self.at(offset, bytes)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
        // SAFETY: as in `map`.
        unsafe { mmap_anonymous(Some(at), bytes, ProtFlags::PROT_NONE, flags) }.map(drop)
    }

    fn at(&self, offset: usize, bytes: NonZeroUsize) -> Result<NonZeroUsize, Errno> {
        let is_inside = offset.checked_add(bytes.get()).is_some_and(|end| end <= self.bytes.get());
        if !is_inside {
            return Err(Errno::EINVAL);
        }
        self.base.addr().checked_add(offset).ok_or(Errno::EINVAL)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is this value's, and no other user is left. The call cannot fail for a range that
        // exists.
        let _ = unsafe { munmap(self.base, self.bytes.get()) };
    }
}

/// Creates the linear memories of all guests, and records each that cannot grow ([`note_created`]).
pub(in crate::plugin) struct Creator;

/// Advice for a limited address space: each memory reserves more than it may ever use, so that generated code
/// need not check addresses.
fn address_space_advice(errno: Errno) -> String {
    match (errno, getrlimit(Resource::RLIMIT_AS)) {
        (Errno::ENOMEM, Ok((limit, _))) if limit != RLIM_INFINITY => format!(
            "\n  because: this process may have {limit} bytes of address space, and each memory of a plugin \
             reserves 4 GiB and more, of which it uses little\n  \
             do: ulimit -v unlimited; LimitAS=infinity of the service"
        ),
        _ => String::new(),
    }
}

struct Memory {
    reservation: Arc<Reservation>,
    bytes: usize,
    capacity: usize,
}

// SAFETY: each memory is a separate reservation followed by its guard, and zero where it was never written:
// fresh anonymous pages are. Pages that `map` maps later are memory, too.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let capacity = reserved.unwrap_or(minimum).max(minimum);
        let total = capacity.checked_add(guard).ok_or("the address space has no room for it")?;
        let reservation = Reservation::new(total)
            .and_then(|reservation| reservation.open_to(minimum).map(|()| Arc::new(reservation)))
            .map_err(|errno| format!("mmap of {total} bytes: {errno}{}", address_space_advice(errno)))?;
        if !ty.is_64() && maximum == Some(minimum) {
            note_created(minimum, &reservation);
        }
        Ok(Box::new(Memory { reservation, bytes: minimum, capacity }))
    }
}

// SAFETY: the base does not move: the memory grows inside its reservation only.
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.bytes
    }

    fn byte_capacity(&self) -> usize {
        self.capacity
    }

    fn grow_to(&mut self, bytes: usize) -> wasmtime::Result<()> {
        if bytes > self.capacity {
            return Err(wasmtime::Error::msg("the memory is as large as it can be"));
        }
        self.reservation.open_to(bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.reservation.base.as_ptr().cast()
    }
}
