//! Opened events and their readings.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::event::Event;
use crate::options::PerfOptions;
use crate::program::Program;
use crate::sys::perf;

/// The part of the enabled time that a count covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The event was on a counter all the time: `scaled` is `raw`.
    Counted,
    /// The event was on a counter for part of the time: `scaled` is an estimate.
    Multiplexed,
    /// The event was enabled for some time and never on a counter: there is no count, `scaled` is none.
    NeverRan,
    /// Both times are 0: just restarted, or the task has not run since. The count is truly zero.
    Idle,
    /// A state that a later version of the contract defines, by its number.
    Other(u32),
}

impl From<perf::CounterState> for State {
    fn from(state: perf::CounterState) -> State {
        match state {
            perf::CounterState::Counted => State::Counted,
            perf::CounterState::Multiplexed => State::Multiplexed,
            perf::CounterState::NeverRan => State::NeverRan,
            perf::CounterState::Idle => State::Idle,
            perf::CounterState::Other(number) => State::Other(number),
        }
    }
}

/// One reading of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Events since the last restart of the attachment's group, as the kernel counted them.
    pub raw: u64,
    /// `raw * time_enabled / time_running`, rounded toward zero, at most the largest `u64`. None if the event
    /// never ran.
    pub scaled: Option<u64>,
    /// The time since the last restart in which the event was enabled and its task, if it has one, ran.
    pub time_enabled: Duration,
    /// The part of that time in which the event was on a counter.
    pub time_running: Duration,
    /// The state that follows from the two times.
    pub state: State,
    /// Whether only some of the requested CPUs, tasks or core types have counted.
    pub partial: bool,
}

impl From<perf::Reading> for Reading {
    fn from(read: perf::Reading) -> Reading {
        Reading {
            raw: read.raw,
            scaled: read.scaled,
            time_enabled: Duration::from_nanos(read.time_enabled),
            time_running: Duration::from_nanos(read.time_running),
            state: read.state.into(),
            partial: read.partial,
        }
    }
}

/// One member of a group in a [`GroupReading`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupEntry {
    /// The member's [`Attachment::id`].
    pub id: u64,
    /// The member's [`Attachment::kernel_id`].
    pub kernel_id: u64,
    /// Events since the group's last restart.
    pub raw: u64,
    /// The scaled count, see [`Reading::scaled`].
    pub scaled: Option<u64>,
}

/// A reading of a whole group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReading {
    /// The enabled time, see [`Reading::time_enabled`]; a group is scheduled together and has one pair of
    /// times.
    pub time_enabled: Duration,
    /// The time on a counter, see [`Reading::time_running`].
    pub time_running: Duration,
    /// The state that follows from the two times.
    pub state: State,
    /// Whether the reading is partial, see [`Reading::partial`].
    pub partial: bool,
    /// The index in `entries` of the attachment that was read.
    pub own: usize,
    /// All live members: the leader first, then the others in the order in which they joined.
    pub entries: Vec<GroupEntry>,
}

impl From<perf::GroupReading> for GroupReading {
    fn from(read: perf::GroupReading) -> GroupReading {
        let entry = |entry: perf::Entry| GroupEntry {
            id: entry.id,
            kernel_id: entry.kernel_id,
            raw: entry.raw,
            scaled: entry.scaled,
        };
        GroupReading {
            time_enabled: Duration::from_nanos(read.time_enabled),
            time_running: Duration::from_nanos(read.time_running),
            state: read.state.into(),
            partial: read.partial,
            own: read.own as usize,
            entries: read.entries.into_iter().map(entry).collect(),
        }
    }
}

/// One opened event, which counts. Dropping it detaches it.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::{Attachment, Event, PerfOptions, println};
///
/// let faults = Attachment::open(&Event::named("page_faults")?, &PerfOptions::new().own_thread())?;
/// let reading = faults.read()?;
/// println!("{} faults in {:?}", reading.raw, reading.time_running);
/// # Ok(()) }
/// ```
///
/// What was detached cannot be read:
///
/// ```compile_fail,E0382
/// # fn read(faults: ks_guest::Attachment) -> ks_guest::Result<()> {
/// faults.detach();
/// faults.read()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Attachment {
    pub(crate) raw: perf::Attachment,
    /// The number by which the host finds it, faster than by a handle.
    id: u64,
}

impl Attachment {
    /// Opens an event alone and starts counting.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) (no counter for this event on this CPU),
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_PERFMON or kernel.perf_event_paranoid),
    /// [`NotFound`](ErrorKind::NotFound) (no such task or CPU), [`Invalid`](ErrorKind::Invalid),
    /// [`Limit`](ErrorKind::Limit), [`Busy`](ErrorKind::Busy), [`DeniedByPolicy`](ErrorKind::DeniedByPolicy),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn open(event: &Event, options: &PerfOptions) -> Result<Attachment> {
        Ok(Attachment::of(perf::open(&event.raw, &options.raw, None, None)?))
    }

    /// Like [`Attachment::open`], with a program that runs at every overflow, every [`PerfOptions::period`]
    /// events.
    ///
    /// # Errors
    /// See [`Attachment::open`].
    pub fn open_with(event: &Event, options: &PerfOptions, program: &Program) -> Result<Attachment> {
        Ok(Attachment::of(perf::open(&event.raw, &options.raw, None, Some(&program.raw))?))
    }

    pub(crate) fn of(raw: perf::Attachment) -> Attachment {
        Attachment { id: raw.id(), raw }
    }

    /// Reads this event's own counter without stopping it.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale) if it is detached (by [`Program::detach_all`], or with its leader),
    /// [`Kernel`](ErrorKind::Kernel) if the event is in error state.
    #[inline]
    pub fn read(&self) -> Result<Reading> {
        match perf::read_by_id(self.id) {
            Ok(reading) => Ok(reading.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the whole group of this event at one moment.
    ///
    /// # Errors
    /// See [`Attachment::read`].
    pub fn snapshot(&self) -> Result<GroupReading> {
        Ok(perf::snapshot_by_id(self.id)?.into())
    }

    /// Like [`Attachment::snapshot`], for the events that count on one CPU: after [`PerfOptions::every_cpu`],
    /// or [`PerfOptions::cpu`] with that CPU.
    ///
    /// # Errors
    /// See [`Attachment::read`]; [`Invalid`](ErrorKind::Invalid) if none of its events counts only that CPU.
    pub fn snapshot_cpu(&self, cpu: u32) -> Result<GroupReading> {
        Ok(self.raw.snapshot_cpu(cpu)?.into())
    }

    /// Lets programs read this event: puts the kernel event of each CPU into the array of events of this name
    /// in the plugin's object, indexed by CPU number. The event must count all tasks, without
    /// [`PerfOptions::inherit`].
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale); [`Invalid`](ErrorKind::Invalid) for an event of a task and a map of
    /// another type; [`NotFound`](ErrorKind::NotFound) if there is no such array;
    /// [`Busy`](ErrorKind::Busy) if another event is in it, or its records are read;
    /// [`Kernel`](ErrorKind::Kernel); see also [`Program::load`].
    #[doc(alias = "BPF_MAP_TYPE_PERF_EVENT_ARRAY")]
    pub fn publish(&self, array: &str) -> Result<()> {
        Ok(self.raw.publish(array)?)
    }

    /// Resumes counting after [`Attachment::disable`]: of the whole group if this is its leader, else of this
    /// event.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale), [`Kernel`](ErrorKind::Kernel).
    pub fn enable(&self) -> Result<()> {
        Ok(self.raw.enable()?)
    }

    /// Stops counting: of the whole group if this is its leader, else of this event. Counts and times stay
    /// readable.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale), [`Kernel`](ErrorKind::Kernel).
    pub fn disable(&self) -> Result<()> {
        Ok(self.raw.disable()?)
    }

    /// Sets counts and times to zero: of the whole group if this is its leader, else of this event. Counting
    /// continues.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale), [`Kernel`](ErrorKind::Kernel).
    pub fn reset(&self) -> Result<()> {
        Ok(self.raw.reset()?)
    }

    /// Changes the number of events between two runs of the program, or the runs per second of an event with
    /// [`PerfOptions::frequency`], while it is open.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale); [`Invalid`](ErrorKind::Invalid) for 0 and for an event without a program;
    /// [`Limit`](ErrorKind::Limit) for a clock's period below 50000 ns and above
    /// `kernel.perf_event_max_sample_rate`; [`Kernel`](ErrorKind::Kernel).
    pub fn set_period(&self, events: u64) -> Result<()> {
        Ok(self.raw.set_period(events)?)
    }

    /// The kernel's id of the event, as samples of other tools show it; for an attachment to several tasks or
    /// CPUs that of the first.
    ///
    /// # Errors
    /// [`Stale`](ErrorKind::Stale).
    pub fn kernel_id(&self) -> Result<u64> {
        Ok(self.raw.kernel_id()?)
    }

    /// A number that identifies this attachment in this run of the plugin; at least 1, never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Closes the event immediately, like dropping it.
    pub fn detach(self) {
        self.raw.detach();
    }
}

/// Reads several attachments by one host call, each like [`Attachment::read`], in their order. Those of one
/// group are read by one system call, at one moment.
///
/// ```no_run
/// # fn report(faults: ks_guest::Attachment, switches: ks_guest::Attachment) -> ks_guest::Result<()> {
/// let [faults, switches] = ks_guest::read_many(&[&faults, &switches])?[..] else { unreachable!() };
/// ks_guest::println!("{} faults, {} switches", faults.raw, switches.raw);
/// # Ok(()) }
/// ```
///
/// # Errors
/// See [`Attachment::read`], for the first that cannot be read.
pub fn read_many(attachments: &[&Attachment]) -> Result<Vec<Reading>> {
    let ids: Vec<u64> = attachments.iter().map(|attachment| attachment.id).collect();
    Ok(perf::read_many(&ids)?.into_iter().map(Reading::from).collect())
}

/// An event that this machine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedEvent {
    /// The language's spelling.
    pub name: String,
    /// The spelling of `perf list`.
    pub perf_name: String,
    /// Whether this machine can count it.
    pub countable: bool,
}

/// Returns the events of which one of the two spellings matches a wildcard (`*`, `?`; empty: all).
///
/// # Errors
/// [`Limit`](ErrorKind::Limit) if the list is larger than the host may copy.
pub fn list_events(wildcard: &str) -> Result<Vec<ListedEvent>> {
    let listed = |event: perf::ListedEvent| ListedEvent {
        name: event.name,
        perf_name: event.perf_name,
        countable: event.countable,
    };
    Ok(perf::list_events(wildcard)?.into_iter().map(listed).collect())
}
