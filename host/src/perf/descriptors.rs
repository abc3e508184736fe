//! The number of descriptors that the events of one plugin hold open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The count of one plugin. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct DescriptorCount(Arc<AtomicUsize>);

impl DescriptorCount {
    /// Returns the number of descriptors now.
    pub(super) fn number(&self) -> usize {
        // ORDERING: relaxed, here and below. The number protects no other data.
        self.0.load(Ordering::Relaxed)
    }

    /// Counts so many descriptors until the result is dropped.
    pub(super) fn hold(&self, number: usize) -> CountedDescriptors {
        self.0.fetch_add(number, Ordering::Relaxed);
        CountedDescriptors { of: self.clone(), number }
    }
}

/// Descriptors that are open as long as this lives.
#[derive(Debug)]
pub(super) struct CountedDescriptors {
    of: DescriptorCount,
    number: usize,
}

impl Drop for CountedDescriptors {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.number, Ordering::Relaxed);
    }
}
