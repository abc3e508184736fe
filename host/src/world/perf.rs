//! `perf`: events, groups, readings.

use std::os::fd::BorrowedFd;

use wasmtime::component::Resource;

use super::attached::Held;
use super::bindings::kernelscript::host::perf::{
    self as wit, Counting, GroupReading, Host, HostAttachment, HostEvent, HostOptions,
};
use super::bpf::ProgramHandle;
use super::error::HostError;
use super::state::State;
use crate::bpf::{BpfError, ProgramKind};
use crate::perf::{self, AttachmentId, Event, Options};

/// What an `attachment` denotes.
pub struct AttachmentHandle(AttachmentId);

impl HostEvent for State {
    fn numbered(&mut self, ty: u32, config: u64) -> Result<Resource<Event>, HostError> {
        Ok(self.table.push(Event::numbered(ty, config)?)?)
    }

    fn named(&mut self, name: String) -> Result<Resource<Event>, HostError> {
        Ok(self.table.push(Event::named(&name)?)?)
    }

    fn breakpoint(
        &mut self,
        address: u64,
        len: u32,
        access: wit::Access,
    ) -> Result<Resource<Event>, HostError> {
        let access = perf::Access {
            read: access.contains(wit::Access::READ),
            write: access.contains(wit::Access::WRITE),
            execute: access.contains(wit::Access::EXECUTE),
        };
        Ok(self.table.push(Event::breakpoint(address, len, access)?)?)
    }

    fn name(&mut self, this: Resource<Event>) -> wasmtime::Result<String> {
        Ok(self.table.get(&this)?.name().to_owned())
    }

    fn drop(&mut self, this: Resource<Event>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<Options>> {
        Ok(self.table.push(Options::default())?)
    }

    fn set_pid(&mut self, this: Resource<Options>, pid: i32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.pid = pid;
        Ok(())
    }

    fn set_cpu(&mut self, this: Resource<Options>, cpu: i32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.cpu = cpu;
        Ok(())
    }

    fn set_period(&mut self, this: Resource<Options>, events: u64) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.period = events;
        Ok(())
    }

    fn set_wakeup(&mut self, this: Resource<Options>, samples: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.wakeup = samples;
        Ok(())
    }

    fn set_inherit(&mut self, this: Resource<Options>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.inherit = on;
        Ok(())
    }

    fn set_exclude_kernel(&mut self, this: Resource<Options>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_kernel = on;
        Ok(())
    }

    fn set_exclude_user(&mut self, this: Resource<Options>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_user = on;
        Ok(())
    }

    fn drop(&mut self, this: Resource<Options>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostAttachment for State {
    fn read(&mut self, this: Resource<AttachmentHandle>) -> Result<wit::Reading, HostError> {
        let id = self.table.get(&this)?.0;
        let reading = self.attachments.read(id)?;
        self.note_never_ran(id, reading.state);
        Ok(wit::Reading {
            raw: reading.raw,
            scaled: reading.scaled,
            time_enabled: reading.time_enabled,
            time_running: reading.time_running,
            state: counting(reading.state),
            partial: reading.partial,
        })
    }

    fn snapshot(&mut self, this: Resource<AttachmentHandle>) -> Result<GroupReading, HostError> {
        let id = self.table.get(&this)?.0;
        let snapshot = self.attachments.snapshot(id)?;
        self.note_never_ran(id, snapshot.state);
        Ok(GroupReading {
            time_enabled: snapshot.time_enabled,
            time_running: snapshot.time_running,
            state: counting(snapshot.state),
            partial: snapshot.partial,
            own: u32::try_from(snapshot.own).map_err(wasmtime::Error::new)?,
            entries: snapshot
                .entries
                .into_iter()
                .map(|entry| wit::Entry { id: entry.id, raw: entry.raw, scaled: entry.scaled })
                .collect(),
        })
    }

    fn enable(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.table.get(&this)?.0;
        Ok(self.attachments.enable(id)?)
    }

    fn disable(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.table.get(&this)?.0;
        Ok(self.attachments.disable(id)?)
    }

    fn reset(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.table.get(&this)?.0;
        Ok(self.attachments.reset(id)?)
    }

    fn detach(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<()> {
        let id = self.table.get(&this)?.0;
        self.close(id);
        Ok(())
    }

    fn id(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<u64> {
        Ok(self.table.get(&this)?.0.get())
    }

    fn drop(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<()> {
        let AttachmentHandle(id) = self.table.delete(this)?;
        self.close(id);
        Ok(())
    }
}

impl Host for State {
    fn open(
        &mut self,
        event: Resource<Event>,
        options: Resource<Options>,
        leader: Option<Resource<AttachmentHandle>>,
        program: Option<Resource<ProgramHandle>>,
    ) -> Result<Resource<AttachmentHandle>, HostError> {
        let event = self.table.get(&event)?.clone();
        let options = self.table.get(&options)?.clone();
        let leader = leader.map(|leader| self.table.get(&leader).map(|leader| leader.0)).transpose()?;
        let program =
            program.map(|program| self.table.get(&program).map(|it| it.name.clone())).transpose()?;
        let id = match program {
            None => self.attachments.open(&event, &options, leader, None)?,
            Some(name) => {
                let (object, attachments) = self.object_and_attachments();
                let program = object?.program(&name)?;
                if program.kind() != ProgramKind::PerfEvent {
                    return Err(BpfError::NotForEvents { program: name, kind: program.kind() }.into());
                }
                let mut link = |event: BorrowedFd<'_>| program.link_event(event);
                let id = attachments.open(&event, &options, leader, Some(&mut link))?;
                self.attached.insert(name, None, Held::Event(id));
                id
            }
        };
        self.table.push(AttachmentHandle(id)).map_err(|full| {
            self.close(id);
            full.into()
        })
    }
}

impl State {
    /// Detaches an event and forgets it. No effect on one that is detached.
    fn close(&mut self, id: AttachmentId) {
        self.attachments.detach(id);
        self.attached.forget_event(id);
        self.never_ran.remove(&id);
    }

    /// Says on standard error that an attachment has no number, once for each.
    fn note_never_ran(&mut self, id: AttachmentId, state: perf::State) {
        if state != perf::State::NeverRan || !self.never_ran.insert(id) {
            return;
        }
        let event = self.attachments.live().into_iter().find(|live| live.id == id).map(|live| live.event);
        self.warn(&format!(
            "event `{}` was never scheduled: it was enabled for some time and never on a counter, so there is no count",
            event.unwrap_or_default()
        ));
    }
}

fn counting(state: perf::State) -> Counting {
    match state {
        perf::State::Counted => Counting::Counted,
        perf::State::Multiplexed => Counting::Multiplexed,
        perf::State::NeverRan => Counting::NeverRan,
        perf::State::Idle => Counting::Idle,
    }
}
