//! The numbers of handles in a record.

use std::collections::HashMap;

/// The numbers that handles have in a record.
#[derive(Debug)]
pub(crate) enum Handles {
    /// Counted from 1 in the order in which the plugin gets them. The host's own numbers are used again for later
    /// handles.
    Counted {
        /// By the host's number.
        numbers: HashMap<u32, u32>,
        /// The number of the last one.
        last: u32,
    },
    /// The host's own: the plugin was given numbers of a record.
    AsTheyAre,
}

impl Handles {
    /// Before the first.
    pub(crate) fn counted() -> Handles {
        Handles::Counted { numbers: HashMap::new(), last: 0 }
    }

    /// The number of a handle that the plugin keeps.
    pub(super) fn lent(&self, own: u32) -> u32 {
        match self {
            Handles::Counted { numbers, .. } => numbers.get(&own).copied().unwrap_or_default(),
            Handles::AsTheyAre => own,
        }
    }

    /// The number of a handle that changes hands: one that the plugin had is gone from it, another one is new to it.
    pub(crate) fn given(&mut self, own: u32) -> u32 {
        match self {
            Handles::Counted { numbers, last } => numbers.remove(&own).unwrap_or_else(|| {
                *last = last.saturating_add(1);
                numbers.insert(own, *last);
                *last
            }),
            Handles::AsTheyAre => own,
        }
    }
}
