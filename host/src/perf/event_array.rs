//! Arrays of events that programs may read; the kernel half indexes them by CPU number.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;

/// An event array of the kernel half.
pub trait EventArray: Send + Sync {
    /// The map's name in the BPF object.
    fn name(&self) -> &str;

    /// Stores the event of a CPU, replacing an earlier one.
    ///
    /// # Errors
    /// The kernel's errno: EINVAL for an event that programs cannot read, E2BIG for a CPU beyond the array.
    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Removes the event of a CPU; no effect if there is none.
    fn remove(&self, cpu: i32);
}

/// One event in an array. Dropping it removes the event, which the array would keep alive.
pub(super) struct EventArrayEntry {
    array: Arc<dyn EventArray>,
    cpu: i32,
}

impl EventArrayEntry {
    /// Stores an event in the array until the entry is dropped.
    pub(super) fn put(
        array: &Arc<dyn EventArray>,
        cpu: i32,
        event: BorrowedFd<'_>,
    ) -> Result<EventArrayEntry, Errno> {
        array.put(cpu, event)?;
        Ok(EventArrayEntry { array: Arc::clone(array), cpu })
    }
}

impl Drop for EventArrayEntry {
    fn drop(&mut self) {
        self.array.remove(self.cpu);
    }
}

impl fmt::Debug for EventArrayEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.array.name(), self.cpu)
    }
}
