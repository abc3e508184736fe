//! What a pass changed, so that only passes run again which may find something new.

use std::ops::BitOr;

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    pub const NONE: Changes = Changes(0);
    /// An instruction, a parameter or the end of a block became another or reads another value.
    pub const VALUES: Changes = Changes(1);
    /// Something is gone that read values.
    pub const GONE: Changes = Changes(1 << 1);
    /// An instruction stands in another block.
    pub const MOVED: Changes = Changes(1 << 2);
    /// An access or a call is gone.
    pub const MEMORY: Changes = Changes(1 << 3);
    /// Blocks became one of which each led only to the next, or those are gone that only led on.
    pub const JOINED: Changes = Changes(1 << 4);
    /// Control goes other ways.
    pub const CONTROL_FLOW: Changes = Changes(1 << 5);

    /// These, if so; else none.
    pub const fn when(self, so: bool) -> Changes {
        if so { self } else { Changes::NONE }
    }

    /// Those of both.
    pub const fn and(self, other: Changes) -> Changes {
        Changes(self.0 | other.0)
    }

    /// Whether there are any.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether some are among others.
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
