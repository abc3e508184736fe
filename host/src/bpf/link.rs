//! Links: one attachment of one program to one target.

use std::os::fd::OwnedFd;

use super::attach::{Filter, Running};

/// A program's attachment to its target. Dropping it detaches, and so does the end of the process, however it ends.
#[derive(Debug)]
#[must_use = "dropping a link detaches its program"]
pub struct Link {
    _held: Held,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until it is dropped")]
enum Held {
    /// The kernel detaches when it is closed.
    Descriptor(OwnedFd),
    /// What the kernel has no links for.
    Filter(Filter),
    /// What the kernel ends with its map.
    Timer(Running),
}

impl Link {
    pub(super) fn new(fd: OwnedFd) -> Link {
        Link { _held: Held::Descriptor(fd) }
    }

    pub(super) fn of_filter(filter: Filter) -> Link {
        Link { _held: Held::Filter(filter) }
    }

    pub(super) fn of_timer(timer: Running) -> Link {
        Link { _held: Held::Timer(timer) }
    }
}
