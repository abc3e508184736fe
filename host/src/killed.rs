//! Whether the plugin that the calling thread runs was killed.
//!
//! A killed plugin ends between two of its instructions. A host call that may wait or compute for long asks
//! here and ends early, so that the plugin's thread releases everything that the plugin holds. The flag
//! belongs to the thread: code that reads files or writes output needs no handle of the run.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when a plugin is killed; never reset.
#[derive(Debug, Clone, Default)]
pub(crate) struct KillFlag(Arc<AtomicBool>);

#[cfg(feature = "plugins")]
impl KillFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Makes the calling thread, for the rest of its life, the one whose plugin has this flag.
    pub(crate) fn belongs_to_this_thread(&self) {
        // A thread runs one plugin, so nothing else has set it.
        OWN.with(|own| drop(own.set(self.clone())));
    }
}

thread_local! {
    static OWN: OnceCell<KillFlag> = const { OnceCell::new() };
}

/// Whether the plugin of the calling thread was killed; false on all other threads.
pub(crate) fn is_killed() -> bool {
    let is_set = |own: &OnceCell<KillFlag>| own.get().is_some_and(|flag| flag.0.load(Ordering::Acquire));
    // Fails at the end of the thread, when nothing waits for it any more.
    OWN.try_with(is_set).unwrap_or(false)
}
