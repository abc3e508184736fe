//! Events that programs may read: each lies in an array that the kernel half looks into by the number of its CPU.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;

/// An array of events of the kernel half.
pub trait EventArray: Send + Sync {
    /// Its name in the object.
    fn name(&self) -> &str;

    /// Puts the event of a CPU there, in the place of what was there.
    ///
    /// # Errors
    /// What the kernel says: EINVAL for an event that programs cannot read, E2BIG for a CPU beyond the array.
    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Takes the event of a CPU out; no effect if there is none.
    fn remove(&self, cpu: i32);
}

/// One event in an array. Its drop takes it out: the array would keep the event alive.
pub(super) struct EventArrayEntry {
    array: Arc<dyn EventArray>,
    cpu: i32,
}

impl EventArrayEntry {
    /// Puts an event there.
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
