//! Numbering of handles in a recording.

use std::collections::HashMap;

/// Numbering of handles in a recording.
#[derive(Debug)]
pub(crate) enum Handles {
    /// Numbered from 1 in the order in which the plugin receives them. The host's own numbers are reused for
    /// later handles.
    Counted {
        /// Numbers by the host's number.
        numbers: HashMap<u32, u32>,
        /// The number that was assigned last; 0 before the first.
        last: u32,
    },
    /// The host's own numbers: in a replay the plugin receives the recorded ones.
    AsTheyAre,
}

impl Handles {
    /// Starts before the first handle.
    pub(crate) fn counted() -> Handles {
        Handles::Counted { numbers: HashMap::new(), last: 0 }
    }

    /// Returns the number of a borrowed handle, which the plugin keeps.
    pub(super) fn lent(&self, own: u32) -> u32 {
        match self {
            Handles::Counted { numbers, .. } => numbers.get(&own).copied().unwrap_or_default(),
            Handles::AsTheyAre => own,
        }
    }

    /// Returns the number of an owned handle that is passed: a handle that the plugin had loses its number,
    /// another one gets a new number.
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
