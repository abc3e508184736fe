//! The changes of a pass, so that only passes that may find something new run again.

use std::ops::BitOr;

/// A set of kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    pub const NONE: Changes = Changes(0);
    /// An instruction, a parameter or a terminator was replaced or reads another value.
    pub const VALUES: Changes = Changes(1);
    /// A use of a value was removed.
    pub const GONE: Changes = Changes(1 << 1);
    /// An instruction was moved to another block.
    pub const MOVED: Changes = Changes(1 << 2);
    /// A memory access or a call was removed.
    pub const MEMORY: Changes = Changes(1 << 3);
    /// Blocks were merged with their only successor, or blocks that only jump were removed.
    pub const JOINED: Changes = Changes(1 << 4);
    /// An edge of the control flow graph was added, removed or redirected.
    pub const CONTROL_FLOW: Changes = Changes(1 << 5);

    /// This set if `so` is true; else the empty set.
    pub const fn when(self, so: bool) -> Changes {
        if so { self } else { Changes::NONE }
    }

    /// The union of both sets.
    pub const fn and(self, other: Changes) -> Changes {
        Changes(self.0 | other.0)
    }

    /// Whether the set is not empty.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether both sets have a change in common.
    pub const fn meet(self, other: Changes) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Changes {
    type Output = Changes;
    fn bitor(self, other: Changes) -> Changes {
        self.and(other)
    }
}
