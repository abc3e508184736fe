//! `perf`: events, groups, readings.

pub(super) mod lower;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;
use wasmtime::component::Resource;

use super::attached::Held;
use super::audit::Decision;
use super::bindings::kernelscript::host::perf::{
    self as wit, Counting, GroupReading, Host, HostAttachment, HostEvent, HostOptions,
};
use super::bpf::{ProgramHandle, link_program};
use super::error::{self, HostError, check_length};
use super::state::State;
use crate::bpf::{BpfError, LoadedType, Map};
use crate::host_bytes::{Charge, Charged};
use crate::perf::{self, AttachmentId, Event, Options};
use crate::policy::{Class, Limit};
use crate::text;

/// Host side of an `event` handle.
pub type EventHandle = Charged<Event>;

/// Host side of an `options` handle.
pub type OptionsHandle = Charged<Options>;

/// Host side of an `attachment` handle.
pub struct AttachmentHandle {
    id: AttachmentId,
    _charge: Charge,
}

/// Size in bytes of an attachment in the host, in addition to its texts.
const ATTACHMENT_BYTES: u64 = 1 << 10;

impl HostEvent for State {
    fn numbered(&mut self, ty: u32, config: u64) -> Result<Resource<EventHandle>, HostError> {
        let event = self.catalog.numbered(ty, config)?;
        self.keep_event(event)
    }

    fn raw(
        &mut self,
        ty: u32,
        config: u64,
        config1: u64,
        config2: u64,
    ) -> Result<Resource<EventHandle>, HostError> {
        let event = self.catalog.raw(ty, [config, config1, config2])?;
        self.keep_event(event)
    }

    fn named(&mut self, name: String) -> Result<Resource<EventHandle>, HostError> {
        check_length("event", &name)?;
        let event = self.catalog.named(&name)?;
        self.keep_event(event)
    }

    fn tracepoint(&mut self, name: String) -> Result<Resource<EventHandle>, HostError> {
        check_length("event", &name)?;
        let event = self.catalog.tracepoint(&name)?;
        self.keep_event(event)
    }

    fn kprobe(&mut self, function: String) -> Result<Resource<EventHandle>, HostError> {
        check_length("event", &function)?;
        self.allow_lookup("kprobe", &function)?;
        let event = self.catalog.kprobe(&function)?;
        self.keep_event(event)
    }

    fn uprobe(&mut self, target: String) -> Result<Resource<EventHandle>, HostError> {
        check_length("event", &target)?;
        // Checked before the file is opened: the result would reveal whether the file exists.
        self.allow_lookup("uprobe", &target)?;
        self.probed_files.retain(|file| file.strong_count() > 0);
        let most = self.policy.limit(Limit::Probes);
        if self.probed_files.len() as u64 >= most {
            return Err(HostError::limit(Limit::Probes, most));
        }
        let event = self.catalog.uprobe(&target)?;
        self.probed_files.extend(event.probed_file());
        self.keep_event(event)
    }

    fn breakpoint(
        &mut self,
        address: u64,
        len: u32,
        access: wit::Access,
    ) -> Result<Resource<EventHandle>, HostError> {
        let event = Event::breakpoint(address, len, access_of(access))?;
        self.keep_event(event)
    }

    fn breakpoint_at(
        &mut self,
        symbol: String,
        len: u32,
        access: wit::Access,
    ) -> Result<Resource<EventHandle>, HostError> {
        check_length("event", &symbol)?;
        self.allow_lookup("breakpoint", &symbol)?;
        let event = self.catalog.breakpoint_at(&symbol, len, access_of(access))?;
        self.keep_event(event)
    }

    fn name(&mut self, this: Resource<EventHandle>) -> wasmtime::Result<String> {
        Ok(self.table.get(&this)?.name().to_owned())
    }

    fn drop(&mut self, this: Resource<EventHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostOptions for State {
    fn new(&mut self) -> wasmtime::Result<Resource<OptionsHandle>> {
        let options = self.host_bytes.keep(Options::default(), 0).map_err(error::too_much)?;
        self.table.push(options).map_err(error::no_room)
    }

    fn set_pid(&mut self, this: Resource<OptionsHandle>, pid: i32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.pid = pid;
        Ok(())
    }

    fn set_cpu(&mut self, this: Resource<OptionsHandle>, cpu: i32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.cpu = cpu;
        Ok(())
    }

    fn set_period(&mut self, this: Resource<OptionsHandle>, events: u64) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.period = events;
        Ok(())
    }

    fn set_wakeup(&mut self, this: Resource<OptionsHandle>, samples: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.wakeup = samples;
        Ok(())
    }

    fn set_inherit(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.inherit = on;
        Ok(())
    }

    fn set_exclude_kernel(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_kernel = on;
        Ok(())
    }

    fn set_exclude_user(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_user = on;
        Ok(())
    }

    fn set_freq(&mut self, this: Resource<OptionsHandle>, hertz: u64) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.freq = hertz;
        Ok(())
    }

    fn set_exclude_idle(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_idle = on;
        Ok(())
    }

    fn set_exclude_hv(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_hv = on;
        Ok(())
    }

    fn set_exclude_host(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_host = on;
        Ok(())
    }

    fn set_exclude_guest(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclude_guest = on;
        Ok(())
    }

    fn set_every_cpu(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.every_cpu = on;
        Ok(())
    }

    fn set_process(&mut self, this: Resource<OptionsHandle>, name: String) -> wasmtime::Result<()> {
        let name = kept(name);
        let options = self.table.get_mut(&this)?;
        let before = options.process.len();
        options.recharge(before, name.len()).map_err(error::too_much)?;
        options.process = name;
        Ok(())
    }

    fn set_command(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.command = on;
        Ok(())
    }

    fn set_cgroup(&mut self, this: Resource<OptionsHandle>, path: String) -> wasmtime::Result<()> {
        let path = kept(path);
        let options = self.table.get_mut(&this)?;
        let before = options.cgroup.len();
        options.recharge(before, path.len()).map_err(error::too_much)?;
        options.cgroup = path;
        Ok(())
    }

    fn set_pinned(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.pinned = on;
        Ok(())
    }

    fn set_exclusive(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.exclusive = on;
        Ok(())
    }

    fn set_precise(&mut self, this: Resource<OptionsHandle>, step: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.precise = step;
        Ok(())
    }

    fn set_follow(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.follow = on;
        Ok(())
    }

    fn set_weak(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.weak = on;
        Ok(())
    }

    fn drop(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostAttachment for State {
    fn read(&mut self, this: Resource<AttachmentHandle>) -> Result<wit::Reading, HostError> {
        Ok(one_reading(self.read_attachment(self.attachment(&this)?)?))
    }

    fn snapshot(&mut self, this: Resource<AttachmentHandle>) -> Result<GroupReading, HostError> {
        group_reading(self.read_group(self.attachment(&this)?)?)
    }

    fn snapshot_cpu(
        &mut self,
        this: Resource<AttachmentHandle>,
        cpu: u32,
    ) -> Result<GroupReading, HostError> {
        group_reading(self.read_group_on(self.attachment(&this)?, cpu)?)
    }

    fn enable(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.attachment(&this)?;
        self.audited("enable", "event", |()| Some(id.get()), |state| Ok(state.attachments.enable(id)?))
    }

    fn disable(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.attachment(&this)?;
        self.audited("disable", "event", |()| Some(id.get()), |state| Ok(state.attachments.disable(id)?))
    }

    fn reset(&mut self, this: Resource<AttachmentHandle>) -> Result<(), HostError> {
        let id = self.attachment(&this)?;
        Ok(self.attachments.reset(id)?)
    }

    fn show(&mut self, this: Resource<AttachmentHandle>, array: String) -> Result<(), HostError> {
        check_length("array of events", &array)?;
        let id = self.attachment(&this)?;
        let result = self.audited(
            "show",
            &array,
            |()| Some(id.get()),
            |state| {
                let events: Arc<dyn perf::EventArray> =
                    Arc::new(Events(state.object()?.event_array(&array)?));
                Ok(state.attachments.show(id, &events)?)
            },
        );
        self.report_notices();
        result
    }

    fn detach(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<()> {
        let id = self.attachment(&this)?;
        self.close(id);
        self.note("detach", "event", Some(id.get()), Decision::Allowed, Some("ok".into()))
    }

    fn id(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<u64> {
        Ok(self.attachment(&this)?.get())
    }

    fn drop(&mut self, this: Resource<AttachmentHandle>) -> wasmtime::Result<()> {
        let AttachmentHandle { id, .. } = self.table.delete(this)?;
        self.close(id);
        self.note("detach", "event", Some(id.get()), Decision::Allowed, Some("ok".into()))
    }
}

impl Host for State {
    fn open(
        &mut self,
        event: Resource<EventHandle>,
        options: Resource<OptionsHandle>,
        leader: Option<Resource<AttachmentHandle>>,
        program: Option<Resource<ProgramHandle>>,
    ) -> Result<Resource<AttachmentHandle>, HostError> {
        let event = Event::clone(self.table.get(&event)?);
        let options = Options::clone(self.table.get(&options)?);
        let leader = leader.map(|leader| self.attachment(&leader)).transpose()?;
        let most = self.policy.limit(Limit::Attachments);
        if self.attachments.count() as u64 >= most {
            return Err(HostError::limit(Limit::Attachments, most));
        }
        self.allow_probes(self.attachments.probes_of(&event, &options))?;
        let program =
            program.map(|program| self.table.get(&program).map(|it| it.name.to_string())).transpose()?;
        let description = match &program {
            Some(program) => format!("{} of {}, program {program}", event.name(), options.scope()),
            None => format!("{} of {}", event.name(), options.scope()),
        };
        let number = |id: &AttachmentId| Some(id.get());
        let texts = event.name().len() + options.process.len() + options.cgroup.len();
        let charge = self.host_bytes.charge(ATTACHMENT_BYTES + texts as u64)?;
        let id = self
            .audited("open", &description, number, |state| state.opened(&event, &options, leader, program))?;
        self.report_notices();
        self.table.push(AttachmentHandle { id, _charge: charge }).map_err(|full| {
            self.close(id);
            full.into()
        })
    }

    fn read_by_id(&mut self, id: u64) -> Result<wit::Reading, HostError> {
        Ok(one_reading(self.read_attachment(AttachmentId::of(id))?))
    }

    fn snapshot_by_id(&mut self, id: u64) -> Result<GroupReading, HostError> {
        group_reading(self.read_group(AttachmentId::of(id))?)
    }

    fn read_many(&mut self, ids: Vec<u64>) -> Result<Vec<wit::Reading>, HostError> {
        Ok(self.read_attachments(&ids)?.into_iter().map(one_reading).collect())
    }

    fn print_events(&mut self, wildcard: String) -> Result<u32, HostError> {
        check_length("event", &wildcard)?;
        let listed = self.catalog.list(&wildcard);
        let number = u32::try_from(listed.len()).map_err(wasmtime::Error::new)?;
        for event in listed {
            let counted = if self.catalog.why_not(&event).is_none() { "yes" } else { "no" };
            let line = format!("{:<42} {:<42} {counted}\n", event.name, event.perf);
            self.output.print_from_host(line.as_bytes());
        }
        Ok(number)
    }
}

impl State {
    fn keep_event(&mut self, event: Event) -> Result<Resource<EventHandle>, HostError> {
        let bytes = event.name().len();
        let event = self.host_bytes.keep(event, bytes)?;
        Ok(self.table.push(event)?)
    }
}

/// Reading of counters, independent of how results are lowered to the plugin.
impl State {
    fn attachment(&self, this: &Resource<AttachmentHandle>) -> wasmtime::Result<AttachmentId> {
        Ok(self.table.get(this)?.id)
    }

    fn read_attachment(&mut self, id: AttachmentId) -> Result<perf::Reading, HostError> {
        let reading = self.attachments.read(id);
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(reading?)
    }

    fn read_group(&mut self, id: AttachmentId) -> Result<perf::Snapshot, HostError> {
        let snapshot = self.attachments.snapshot(id);
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(snapshot?)
    }

    fn read_group_on(&mut self, id: AttachmentId, cpu: u32) -> Result<perf::Snapshot, HostError> {
        // No CPU has this number.
        let snapshot = self.attachments.snapshot_cpu(id, i32::try_from(cpu).unwrap_or(i32::MAX));
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(snapshot?)
    }

    fn read_attachments(&mut self, ids: &[u64]) -> Result<Vec<perf::Reading>, HostError> {
        let bytes = size_of_val(ids) + ids.len() * size_of::<perf::Reading>();
        let _charge = self.host_bytes.during_call(bytes as u64)?;
        let ids: Vec<AttachmentId> = ids.iter().copied().map(AttachmentId::of).collect();
        let readings = self.attachments.read_many(&ids);
        self.report_notices();
        self.report_misses_of(&ids);
        Ok(readings?)
    }
}

impl State {
    /// Checks whether the target of an event may be looked up.
    ///
    /// # Errors
    /// `denied-by-policy`, which is also logged in the audit: no event is opened that would be logged
    /// instead.
    fn allow_lookup(&self, family: &str, target: &str) -> Result<(), HostError> {
        let allowed = self.allow_one_of(family, &[format!("{family}:{target}")]);
        if allowed.is_err() {
            self.note("open", &format!("{family} {target}"), None, Decision::Denied, None)?;
        }
        allowed
    }

    /// Checks whether `more` additional probes are allowed.
    ///
    /// # Errors
    /// `limit`.
    pub(super) fn allow_probes(&self, more: usize) -> Result<(), HostError> {
        let most = self.policy.limit(Limit::Probes);
        let there = self.attachments.probes() + self.attached.probes();
        if more == 0 || (there + more) as u64 <= most {
            Ok(())
        } else {
            Err(HostError::limit(Limit::Probes, most))
        }
    }

    /// Checks whether an event may be opened: by its family, or by its own name on each kind of core.
    fn allow_event(&self, event: &Event) -> Result<(), HostError> {
        self.allow_one_of(event.family(), &event.targets())
    }

    fn allow_one_of(&self, family: &str, targets: &[String]) -> Result<(), HostError> {
        let of_family = self.allow(Class::Event, family);
        let is_named = |target: &String| self.allow(Class::Event, target).is_ok();
        if targets.iter().all(is_named) { Ok(()) } else { of_family }
    }

    /// Opens an event if the policy allows it, with a program if one is named.
    fn opened(
        &mut self,
        event: &Event,
        options: &Options,
        leader: Option<AttachmentId>,
        program: Option<String>,
    ) -> Result<AttachmentId, HostError> {
        self.allow_event(event)?;
        self.allow(Class::Scope, options.scope())?;
        let Some(name) = program else { return Ok(self.attachments.open(event, options, leader, None)?) };
        self.within_budget(&name)?;
        let program = self.object()?.program(&name)?;
        if program.kind() != LoadedType::Known(ProgramType::PerfEvent) {
            return Err(BpfError::NotForEvents { program: name, kind: program.kind() }.into());
        }
        let link = link_program(&program)?;
        let id = self.attachments.open(event, options, leader, Some(link))?;
        self.attached.insert(name, None, Held::Event(id));
        Ok(id)
    }

    /// Detaches an event and removes its attachment. No effect if it is detached already.
    fn close(&mut self, id: AttachmentId) {
        self.attachments.detach(id);
        self.attached.forget_event(id);
        self.report_notices();
    }

    /// Writes notices about the attachments' counts to standard error.
    pub(super) fn report_notices(&mut self) {
        if !self.attachments.has_notices() {
            return;
        }
        for notice in self.attachments.take_notices() {
            self.output.warn(&notice.to_string());
        }
    }
}

/// Truncates a text that a handle keeps. A name that is truncated is too long to denote anything.
fn kept(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(text::MOST_BYTES + 1));
    name.shrink_to_fit();
    name
}

/// A perf event array of the plugin's object.
struct Events(Arc<Map>);

impl perf::EventArray for Events {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.put_event(u32::try_from(cpu).map_err(|_| Errno::EINVAL)?, event)
    }

    fn remove(&self, cpu: i32) {
        u32::try_from(cpu).into_iter().for_each(|cpu| self.0.remove_event(cpu));
    }
}

fn one_reading(reading: perf::Reading) -> wit::Reading {
    wit::Reading {
        raw: reading.raw,
        scaled: reading.scaled,
        time_enabled: reading.time_enabled,
        time_running: reading.time_running,
        state: counting(reading.state),
        partial: reading.partial,
    }
}

fn group_reading(snapshot: perf::Snapshot) -> Result<GroupReading, HostError> {
    let entry = |entry: &perf::GroupEntry| wit::Entry { id: entry.id, raw: entry.raw, scaled: entry.scaled };
    Ok(GroupReading {
        time_enabled: snapshot.time_enabled,
        time_running: snapshot.time_running,
        state: counting(snapshot.state),
        partial: snapshot.partial,
        own: u32::try_from(snapshot.own).map_err(wasmtime::Error::new)?,
        entries: snapshot.entries.iter().map(entry).collect(),
    })
}

fn access_of(access: wit::Access) -> perf::Access {
    perf::Access {
        read: access.contains(wit::Access::READ),
        write: access.contains(wit::Access::WRITE),
        execute: access.contains(wit::Access::EXECUTE),
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
