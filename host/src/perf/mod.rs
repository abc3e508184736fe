//! perf events: what can be counted, opening it, grouping it, reading it.
//!
//! In: an [`Event`], [`Options`], perhaps a leader and a program to link. Out: an [`AttachmentId`], and for each read
//! a [`Reading`] or a [`Snapshot`] whose numbers belong to one kernel read.
//!
//! ```text
//! Event + Options -> attr -> sys (perf_event_open) -> group -> attachments
//!                                                       |
//!                             Reading <- scale <- read <-+
//! ```
//!
//! This tree alone owns event descriptors and decides when events are enabled. Not here: BPF (a program is linked by
//! a closure of the caller), Wasm, policy, and the words of an error ([`crate::explain`]).
//!
//! Source: perf_event_open(2); `kernel/events/core.c`, v6.18.

mod attachments;
mod attr;
mod error;
mod event;
mod group;
mod names;
mod read;
mod scale;
mod sys;
mod sysfs;

pub use attachments::{AttachmentId, Attachments, LinkProgram, Live};
pub use attr::Options;
pub use error::{ErrorKind, PerfError, Refusal};
pub use event::{Access, Event, InvalidEvent};
pub use group::{Entry, Reading, Snapshot};
pub use scale::State;
