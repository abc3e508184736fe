//! Linear memories of guests, and BPF map pages that the host maps into one of them.
//!
//! ```text
//! shared memory:  | unmapped, as address 0 is null | pages of one map | pages of the next | ...
//!                                                  each from a multiple of 64 KiB on
//! ```
//!
//! The host itself never accesses shared pages through a guest's address: `declared` ensures that no
//! canonical option can name their memory. So an unmapped or read-only page can only ever trap the guest.

mod declared;
mod sys;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::unistd::{SysconfVar, sysconf};

pub(super) use self::declared::declared;
pub(super) use self::sys::Creator;
use self::sys::Reservation;

/// Alignment of mapped regions in bytes: a multiple of every page size that kernels have. Also Wasm's page
/// size.
const REGION: usize = 1 << 16;

/// Bytes and reservation of a memory that cannot grow.
type Created = (usize, Arc<Reservation>);

thread_local! {
    /// Memories created on this thread; none unless [`find_shared`] records them.
    static CREATED: RefCell<Option<Vec<Created>>> = const { RefCell::new(None) };
}

/// Records a memory that cannot grow, if [`find_shared`] runs on this thread.
fn note_created(bytes: usize, reservation: &Arc<Reservation>) {
    CREATED.with_borrow_mut(|created| {
        if let Some(created) = created {
            created.push((bytes, Arc::clone(reservation)));
        }
    });
}

/// Calls `instantiate`, and returns the memory of this size that cannot grow, if it creates exactly one.
pub(super) fn find_shared<T>(
    bytes: Option<usize>,
    instantiate: impl FnOnce() -> T,
) -> (T, Option<SharedMemory>) {
    CREATED.set(Some(Vec::new()));
    let result = instantiate();
    let created = CREATED.take().unwrap_or_default();
    let mut found = created.into_iter().filter(|(size, _)| Some(*size) == bytes).map(|(_, memory)| memory);
    let shared = match (found.next(), found.next()) {
        (Some(reservation), None) => bytes.map(|bytes| SharedMemory::new(reservation, bytes)),
        _ => None,
    };
    (result, shared)
}

/// A plugin's memory that the host maps pages of BPF maps into.
#[derive(Debug)]
pub struct SharedMemory {
    reservation: Arc<Reservation>,
    bytes: usize,
    /// Offset of the first free byte.
    end: usize,
    /// Offset and size in bytes of each map's pages, by name; none for a map that could not be mapped.
    regions: BTreeMap<String, Option<(usize, NonZeroUsize)>>,
}

impl SharedMemory {
    fn new(reservation: Arc<Reservation>, bytes: usize) -> SharedMemory {
        SharedMemory { reservation, bytes, end: REGION, regions: BTreeMap::new() }
    }

    /// Returns the address of the first `bytes` bytes of a map, which the first call maps. None if there is
    /// no room, or the kernel refuses to map it.
    pub fn map_pages(&mut self, name: &str, bytes: usize, from: BorrowedFd<'_>) -> Option<u32> {
        if let Some(known) = self.regions.get(name) {
            return known.and_then(|(start, _)| u32::try_from(start).ok());
        }
        let region = self.map(bytes, from);
        self.regions.insert(name.to_owned(), region);
        region.and_then(|(start, _)| u32::try_from(start).ok())
    }

    fn map(&mut self, bytes: usize, from: BorrowedFd<'_>) -> Option<(usize, NonZeroUsize)> {
        let page = usize::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
        let bytes = NonZeroUsize::new(bytes.checked_next_multiple_of(page)?)?;
        let (start, end) = (self.end, self.end.checked_add(bytes.get())?);
        if end > self.bytes {
            return None;
        }
        self.reservation.map(start, bytes, from).ok()?;
        self.end = end.next_multiple_of(REGION);
        Some((start, bytes))
    }
}

/// Unmaps the maps before the guest's memory is reused.
impl Drop for SharedMemory {
    fn drop(&mut self) {
        for (start, bytes) in self.regions.values().flatten() {
            // Cannot fail for a mapped range; if it did, the pages would be unmapped with the reservation.
            let _ = self.reservation.unmap(*start, *bytes);
        }
    }
}
