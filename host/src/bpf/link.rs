//! Links: one attachment of one program to one target.

use std::os::fd::OwnedFd;

/// A program's attachment to its target. Dropping it detaches, and so does the end of the process, however it ends.
#[derive(Debug)]
#[must_use = "dropping a link detaches its program"]
pub struct Link {
    _fd: OwnedFd,
}

impl Link {
    pub(super) fn new(fd: OwnedFd) -> Link {
        Link { _fd: fd }
    }
}
