//! Links: one attachment of one program to one target.

use std::os::fd::OwnedFd;

use super::attach::{Filter, Running};

/// Attachment of a program to its target. Dropping it detaches, and so does the end of the process, for
/// whatever reason.
#[derive(Debug)]
#[must_use = "dropping a link detaches its program"]
pub struct Link {
    _held: Held,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until it is dropped")]
enum Held {
    /// A descriptor; closing it detaches.
    Descriptor(OwnedFd),
    /// A clsact filter, where the kernel has no links.
    Filter(Filter),
    /// A timer, which ends with its map.
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
