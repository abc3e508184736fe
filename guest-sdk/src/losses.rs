//! What programs and counters lost.

use alloc::string::String;
use alloc::vec::Vec;

use crate::sys::losses;

/// Why something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Records: a ring buffer was full.
    RingFull,
    /// Updates by programs: a map was full, the kernel had no memory for a value, or stacks collided.
    MapFull,
    /// Lines that programs printed: they came too fast.
    PrintsFull,
    /// Runs that ended by a fault: at the limit of a loop, or without a scratch slot.
    Fault,
    /// Of the runs that ended by a fault, those at this loop's limit.
    LoopLimit,
    /// Runs that the kernel skipped, because another program ran on that CPU.
    Skipped,
    /// Samples: the kernel throttled an event.
    Throttled,
    /// A cause that a later version of the contract defines, by its number.
    Other(u32),
}

/// One kind of loss at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The cause.
    pub cause: Cause,
    /// The name of the ring, map, program or event; the line of a loop.
    pub what: String,
    /// The [`Attachment::id`](crate::Attachment::id), if it belongs to an attachment of an event.
    pub attachment: Option<u64>,
    /// How often since the object was loaded or the event was opened; none if this kernel does not count it.
    pub count: Option<u64>,
}

/// Returns all places that can lose something, also those that lost nothing yet.
///
/// ```no_run
/// use ks_guest::{losses, println};
///
/// for loss in losses::list() {
///     println!("{:?} {}: {:?}", loss.cause, loss.what, loss.count);
/// }
/// ```
pub fn list() -> Vec<Loss> {
    let convert = |loss: losses::Loss| Loss {
        cause: match loss.cause {
            losses::Cause::RingFull => Cause::RingFull,
            losses::Cause::MapFull => Cause::MapFull,
            losses::Cause::PrintsFull => Cause::PrintsFull,
            losses::Cause::Fault => Cause::Fault,
            losses::Cause::LoopLimit => Cause::LoopLimit,
            losses::Cause::Skipped => Cause::Skipped,
            losses::Cause::Throttled => Cause::Throttled,
            losses::Cause::Other(number) => Cause::Other(number),
        },
        what: loss.what,
        attachment: loss.attachment,
        count: loss.count,
    };
    losses::list().into_iter().map(convert).collect()
}
