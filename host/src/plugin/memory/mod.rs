//! Linear memories: those of guests, and what the host maps into one of them.
//!
//! ```text
//! shared memory:  | nothing: address 0 is no place | pages of one map | pages of the next | ...
//!                                                  each from a multiple of 64 KiB on
//! ```
//!
//! The host itself never reads or writes shared pages through a guest's address: `declared` makes sure that no
//! canonical option can name the memory they lie in. So a page that is unmapped or read-only can only ever trap the guest.

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

/// What starts there is aligned for every page size that kernels have. Also Wasm's page size.
const REGION: usize = 1 << 16;

/// A memory that cannot grow, and its bytes.
type Created = (usize, Arc<Reservation>);

thread_local! {
    /// What was made on this thread while somebody watches.
    static CREATED: RefCell<Option<Vec<Created>>> = const { RefCell::new(None) };
}

/// Tells whoever watches of a memory that cannot grow.
fn note_created(bytes: usize, reservation: &Arc<Reservation>) {
    CREATED.with_borrow_mut(|created| {
        if let Some(created) = created {
            created.push((bytes, Arc::clone(reservation)));
        }
    });
}

/// Calls `instantiate`, and finds the only memory of this size that cannot grow among those that it made.
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

/// The memory of a plugin that the host maps pages of BPF maps into.
#[derive(Debug)]
pub struct SharedMemory {
    reservation: Arc<Reservation>,
    bytes: usize,
    /// The first byte that is free.
    end: usize,
    /// By name: where a map's pages start and how many bytes they have; none for one that could not be mapped.
    regions: BTreeMap<String, Option<(usize, NonZeroUsize)>>,
}

impl SharedMemory {
    fn new(reservation: Arc<Reservation>, bytes: usize) -> SharedMemory {
        SharedMemory { reservation, bytes, end: REGION, regions: BTreeMap::new() }
    }

    /// Where the first so many bytes of a map lie, which are mapped at the first call. None if there is no room, or the
    /// kernel does not map it.
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

/// The maps are gone from the guest's memory before it is used for anything else.
impl Drop for SharedMemory {
    fn drop(&mut self) {
        for (start, bytes) in self.regions.values().flatten() {
            // It cannot fail for a range that was mapped; if it did, the pages would go with the reservation.
            let _ = self.reservation.unmap(*start, *bytes);
        }
    }
}
