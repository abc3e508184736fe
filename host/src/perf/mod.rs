//! perf events: looking them up, opening, grouping and reading them.
//!
//! In: an [`Event`], [`Options`], optionally a leader and a program to link. Out: an [`AttachmentId`], and
//! for each read a [`Reading`] or a [`Snapshot`] whose numbers belong to one kernel read.
//!
//! ```text
//! name or numbers -> catalog (pmu, cores, table, terms, symbols) -> Event -+
//! Options -> locations (tasks, CPUs, kinds of core) -----------------------+-> fan_out (groups) -> attr, sys
//!                                                                              |
//!                                           Reading <- sums <- scale <- read <-+
//! ```
//!
//! Only this module owns event descriptors and decides when events are enabled. It excludes BPF (a closure of
//! the caller links a program), Wasm, policy, and error texts ([`crate::explain`]).
//!
//! Source: perf_event_open(2); `kernel/events/core.c`, v6.18.

mod attachments;
mod attr;
mod catalog;
mod cores;
mod descriptors;
mod encoding;
mod error;
mod event;
mod event_array;
mod fan_out;
mod free;
mod group;
mod list;
mod locations;
mod mappings;
mod modifiers;
mod names;
mod notice;
mod online;
#[cfg(feature = "plugins")]
mod output;
mod page;
mod plan;
mod pmu;
mod probe;
mod read;
mod readable;
mod reading;
mod records;
mod scale;
mod sharing;
mod symbols;
mod sys;
mod table;
mod terms;

pub use attachments::{AttachmentId, Attachments, Live};
pub use attr::Options;
pub use catalog::Catalog;
pub use error::{ErrorKind, PerfError, Refusal};
pub use event::{Access, Event, InvalidEvent};
pub use event_array::EventArray;
pub use free::FreeCounters;
pub use list::{Family, ListedEvent};
pub(crate) use mappings::RecordedProcess;
#[cfg(feature = "plugins")]
pub(crate) use mappings::started;
pub use mappings::{MappingRecorder, Mappings};
pub use notice::Notice;
#[cfg(feature = "plugins")]
pub use output::{OutputError, OutputLosses, OutputRings};
pub use plan::LinkProgram;
pub use pmu::Sysfs;
pub use probe::{Probe, ProbeError, ProbeLocation, probe};
pub use reading::{Entries, GroupEntry, Reading, Snapshot};
#[cfg(feature = "plugins")]
pub(crate) use records::VDSO;
pub use records::{Identity, Mapping};
pub use scale::State;
pub use sharing::{Change, SharedGroups, SharedState};
pub use table::{EventTable, TableError};

pub use crate::files::FileError;
pub use crate::probed::{ProbeMoment, ProbePoint, ProbePointError};
