//! `perf`: events with scripted readings.

use core::time::Duration;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::super::state::{Opened, State, error, if_there, missing, spelling, with};
use super::bpf::Program;
pub(crate) use crate::bindings::kernelscript::host::perf::{
    Access, CounterState, Entry, GroupReading, ListedEvent, Reading,
};
use crate::bindings::kernelscript::host::types::Error;
use crate::error::ErrorKind;
use crate::perf;

#[derive(Debug)]
pub(crate) struct Event {
    name: String,
}

impl Event {
    pub(crate) fn named(name: &str) -> Result<Event, Error> {
        with(|state| {
            state.permit(name)?;
            if state.events.contains_key(&spelling(name)) {
                Ok(Event { name: name.to_string() })
            } else {
                Err(missing("event", name, "counter(..)"))
            }
        })
    }

    pub(crate) fn numbered(kind: u32, config: u64) -> Result<Event, Error> {
        Event::named(&format!("{kind}/{config:#x}"))
    }

    pub(crate) fn raw(kind: u32, config: u64, _config1: u64, _config2: u64) -> Result<Event, Error> {
        Event::numbered(kind, config)
    }

    pub(crate) fn tracepoint(name: &str) -> Result<Event, Error> {
        Event::named(name)
    }

    pub(crate) fn kprobe(function: &str) -> Result<Event, Error> {
        Event::named(function)
    }

    pub(crate) fn uprobe(target: &str) -> Result<Event, Error> {
        Event::named(target)
    }

    pub(crate) fn breakpoint(address: u64, _len: u32, _access: Access) -> Result<Event, Error> {
        Event::named(&format!("{address:#x}"))
    }

    pub(crate) fn breakpoint_at(symbol: &str, _len: u32, _access: Access) -> Result<Event, Error> {
        Event::named(symbol)
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }
}

/// Options are ignored: every event counts the same here, whomever it observes.
#[derive(Debug)]
pub(crate) struct Options;

macro_rules! methods {
    ($($name:ident $(($ty:ty))?),* $(,)?) => {
        impl Options {
            pub(crate) fn new() -> Options {
                Options
            }

            $(pub(crate) fn $name(&self $(, _: $ty)?) {})*
        }
    };
}

methods! {
    observe_own_thread, observe_task(i32), observe_every_task, observe_process(&str), observe_command,
    observe_cgroup(&str), on_any_cpu, on_cpu(i32), on_every_cpu, set_start_disabled(bool),
    set_enable_on_exec(bool), set_remove_on_exec(bool), set_period(u64), set_inherit(bool),
    set_exclude_kernel(bool), set_exclude_user(bool), set_freq(u64), set_exclude_idle(bool),
    set_exclude_hv(bool), set_exclude_host(bool), set_exclude_guest(bool), set_pinned(bool),
    set_exclusive(bool), set_precise(u32), set_follow(bool), set_weak(bool),
}

#[derive(Debug)]
pub(crate) struct Attachment {
    id: u64,
}

pub(crate) fn open(
    event: &Event,
    _options: &Options,
    leader: Option<&Attachment>,
    program: Option<&Program>,
) -> Result<Attachment, Error> {
    with(|state| {
        state.permit(&event.name)?;
        let leader = leader.map(|leader| leader.id);
        if leader.is_some_and(|leader| !state.opened.contains_key(&leader)) {
            return Err(stale());
        }
        let opened = Opened {
            event: event.name.clone(),
            leader,
            program: program.map(|program| program.name.clone()),
            since: state.now,
            reads: 0,
        };
        let id = state.new_id();
        state.opened.insert(id, opened);
        Ok(Attachment { id })
    })
}

pub(crate) fn list_events(_wildcard: &str) -> Result<Vec<ListedEvent>, Error> {
    let listed = |name: &String| ListedEvent { name: name.clone(), perf_name: name.clone(), countable: true };
    Ok(with(|state| state.events.keys().map(listed).collect()))
}

fn stale() -> Error {
    error(ErrorKind::Stale, "the event was detached, or its leader was".to_string())
}

pub(crate) fn read_by_id(id: u64) -> Result<Reading, Error> {
    with(|state| next(state, id)).map(|reading| Reading {
        raw: reading.raw,
        scaled: reading.scaled,
        time_enabled: nanos(reading.time_enabled),
        time_running: nanos(reading.time_running),
        state: counter_state(reading.state),
        partial: reading.partial,
    })
}

pub(crate) fn read_many(ids: &[u64]) -> Result<Vec<Reading>, Error> {
    ids.iter().map(|id| read_by_id(*id)).collect()
}

pub(crate) fn snapshot_by_id(id: u64) -> Result<GroupReading, Error> {
    with(|state| {
        let own = state.opened.get(&id).ok_or_else(stale)?;
        let leader = own.leader.unwrap_or(id);
        let members = state.opened.iter().filter(|(_, opened)| opened.leader == Some(leader));
        let ids: Vec<u64> = core::iter::once(leader).chain(members.map(|(id, _)| *id)).collect();
        let own = ids.iter().position(|one| *one == id).unwrap_or_default() as u32;
        let reads = ids.iter().map(|id| Ok((*id, next(state, *id)?))).collect::<Result<Vec<_>, Error>>()?;
        let times = reads[0].1;
        let entry = |(id, read): &(u64, perf::Reading)| Entry {
            id: *id,
            kernel_id: *id,
            raw: read.raw,
            scaled: read.scaled,
        };
        Ok(GroupReading {
            time_enabled: nanos(times.time_enabled),
            time_running: nanos(times.time_running),
            state: counter_state(times.state),
            partial: times.partial,
            own,
            entries: reads.iter().map(entry).collect(),
        })
    })
}

impl Attachment {
    pub(crate) fn snapshot_cpu(&self, _cpu: u32) -> Result<GroupReading, Error> {
        snapshot_by_id(self.id)
    }

    pub(crate) fn publish(&self, _array: &str) -> Result<(), Error> {
        self.live()
    }

    pub(crate) fn enable(&self) -> Result<(), Error> {
        self.live()
    }

    pub(crate) fn disable(&self) -> Result<(), Error> {
        self.live()
    }

    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.live()
    }

    fn live(&self) -> Result<(), Error> {
        with(|state| state.opened.contains_key(&self.id)).then_some(()).ok_or_else(stale)
    }

    pub(crate) fn set_period(&self, _events: u64) -> Result<(), Error> {
        self.live()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn kernel_id(&self) -> Result<u64, Error> {
        self.live().map(|()| self.id)
    }

    pub(crate) fn detach(&self) {
        if_there(|state| state.close(self.id));
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Returns the next scripted reading of an event.
fn next(state: &mut State, id: u64) -> Result<perf::Reading, Error> {
    let now = state.now;
    let opened = state.opened.get_mut(&id).ok_or_else(stale)?;
    let script = &state.events[&spelling(&opened.event)];
    let scripted = &script[opened.reads.min(script.len() - 1)];
    opened.reads += 1;
    Ok(scripted.after(Duration::from_nanos(now - opened.since)))
}

fn nanos(time: Duration) -> u64 {
    super::super::nanos(time)
}

fn counter_state(state: perf::State) -> CounterState {
    match state {
        perf::State::Counted => CounterState::Counted,
        perf::State::Multiplexed => CounterState::Multiplexed,
        perf::State::NeverRan => CounterState::NeverRan,
        perf::State::Idle => CounterState::Idle,
        perf::State::Other(number) => CounterState::Other(number),
    }
}
