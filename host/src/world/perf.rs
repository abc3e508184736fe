//! `perf`: events, groups, readings.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;
use wasmtime::component::Resource;

use super::attach::link_program;
use super::attached::Held;
use super::audit::Decision;
use super::bindings::kernelscript::host::perf::{
    self as wit, CounterState, GroupReading, Host, HostAttachment, HostEvent, HostOptions,
};
use super::bpf::ProgramHandle;
use super::error::{self, HostError, check_length};
use super::state::State;
use super::wire::Malformed;
use crate::bpf::{BpfError, LoadedType, Map};
use crate::explain::FailureKind;
use crate::host_bytes::{Charge, Charged};
use crate::perf::{self, AttachmentId, Event, Options};
use crate::policy::{Class, Limit};
use crate::probed;
use crate::text;

/// Host side of an `event` handle.
pub type EventHandle = Charged<Event>;

/// Host side of an `options` handle.
pub struct OptionsHandle {
    options: Charged<Options>,
    /// Whether a task was named. Options that select other tasks contradict it.
    names_task: bool,
}

impl OptionsHandle {
    /// Selects tasks otherwise than by an id.
    fn select(&mut self) {
        if !self.names_task {
            self.options.pid = -1;
        }
    }
}

/// Host side of an `attachment` handle.
pub struct AttachmentHandle {
    id: AttachmentId,
    _charge: Charge,
}

/// Size in bytes of an attachment in the host, in addition to its texts.
const ATTACHMENT_BYTES: u64 = 1 << 10;

/// Size in bytes of a listed event, in addition to its texts.
const LISTED_BYTES: usize = size_of::<wit::ListedEvent>();

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
        // Checked before the file is opened: the result would reveal whether the file exists. Checked again
        // when it is open: a link may have led to another file.
        self.allow_lookup("uprobe", &probed::without_dots(&target))?;
        self.probed_files.retain(|file| file.strong_count() > 0);
        let most = self.policy.limit(Limit::Probes);
        if self.probed_files.len() as u64 >= most {
            return Err(HostError::limit(Limit::Probes, most));
        }
        let allows = |path: Option<&Path>| {
            let real = path.map(|path| format!("uprobe:{}", probed::with_path(&target, path)));
            self.allow_one_of("uprobe", &[real.unwrap_or_default()]).is_ok()
        };
        let event = match self.catalog.uprobe_in(&target, &allows) {
            Err(error) if error.kind() == FailureKind::DeniedByPolicy => {
                self.note("open", &format!("uprobe {target}"), None, Decision::Denied, None)?;
                return Err(error.into());
            }
            found => found?,
        };
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
        let default = Options { pid: 0, cpu: -1, ..Options::default() };
        let options = self.host_bytes.keep(default, 0).map_err(error::too_much)?;
        self.table.push(OptionsHandle { options, names_task: false }).map_err(error::no_room)
    }

    fn observe_own_thread(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        let handle = self.table.get_mut(&this)?;
        handle.options.pid = 0;
        handle.names_task = true;
        Ok(())
    }

    fn observe_task(&mut self, this: Resource<OptionsHandle>, id: i32) -> wasmtime::Result<()> {
        let handle = self.table.get_mut(&this)?;
        // These two are the own thread and every task, which have methods of their own.
        handle.options.pid = if matches!(id, 0 | -1) { i32::MIN } else { id };
        handle.names_task = true;
        Ok(())
    }

    fn observe_every_task(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.pid = -1;
        Ok(())
    }

    fn observe_process(&mut self, this: Resource<OptionsHandle>, name: String) -> wasmtime::Result<()> {
        let name = kept(name);
        let handle = self.table.get_mut(&this)?;
        let before = handle.options.process.len();
        handle.options.recharge(before, name.len()).map_err(error::too_much)?;
        handle.options.process = name;
        handle.select();
        Ok(())
    }

    fn observe_command(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        let handle = self.table.get_mut(&this)?;
        handle.options.command = true;
        handle.select();
        Ok(())
    }

    fn observe_cgroup(&mut self, this: Resource<OptionsHandle>, path: String) -> wasmtime::Result<()> {
        let path = kept(path);
        let handle = self.table.get_mut(&this)?;
        let before = handle.options.cgroup.len();
        handle.options.recharge(before, path.len()).map_err(error::too_much)?;
        handle.options.cgroup = path;
        handle.select();
        Ok(())
    }

    fn on_any_cpu(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        let options = &mut self.table.get_mut(&this)?.options;
        (options.cpu, options.every_cpu) = (-1, false);
        Ok(())
    }

    fn on_cpu(&mut self, this: Resource<OptionsHandle>, cpu: i32) -> wasmtime::Result<()> {
        let options = &mut self.table.get_mut(&this)?.options;
        (options.cpu, options.every_cpu) = (if cpu == -1 { i32::MIN } else { cpu }, false);
        Ok(())
    }

    fn on_every_cpu(&mut self, this: Resource<OptionsHandle>) -> wasmtime::Result<()> {
        let options = &mut self.table.get_mut(&this)?.options;
        (options.cpu, options.every_cpu) = (-1, true);
        Ok(())
    }

    fn set_start_disabled(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.start_disabled = on;
        Ok(())
    }

    fn set_enable_on_exec(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.enable_on_exec = on;
        Ok(())
    }

    fn set_remove_on_exec(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.remove_on_exec = on;
        Ok(())
    }

    fn set_period(&mut self, this: Resource<OptionsHandle>, events: u64) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.period = events;
        Ok(())
    }

    fn set_inherit(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.inherit = on;
        Ok(())
    }

    fn set_exclude_kernel(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_kernel = on;
        Ok(())
    }

    fn set_exclude_user(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_user = on;
        Ok(())
    }

    fn set_freq(&mut self, this: Resource<OptionsHandle>, hertz: u64) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.freq = hertz;
        Ok(())
    }

    fn set_exclude_idle(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_idle = on;
        Ok(())
    }

    fn set_exclude_hv(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_hv = on;
        Ok(())
    }

    fn set_exclude_host(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_host = on;
        Ok(())
    }

    fn set_exclude_guest(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclude_guest = on;
        Ok(())
    }

    fn set_pinned(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.pinned = on;
        Ok(())
    }

    fn set_exclusive(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.exclusive = on;
        Ok(())
    }

    fn set_precise(&mut self, this: Resource<OptionsHandle>, step: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.precise = step;
        Ok(())
    }

    fn set_follow(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.follow = on;
        Ok(())
    }

    fn set_weak(&mut self, this: Resource<OptionsHandle>, on: bool) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.options.weak = on;
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

    fn publish(&mut self, this: Resource<AttachmentHandle>, array: String) -> Result<(), HostError> {
        check_length("array of events", &array)?;
        let id = self.attachment(&this)?;
        let result = self.audited(
            "publish",
            &array,
            |()| Some(id.get()),
            |state| {
                let events: Arc<dyn perf::EventArray> =
                    Arc::new(Events(state.object()?.event_array(&array)?));
                if state.rings.reads_events_of(&array) {
                    return Err(BpfError::ArrayInUse { name: array.clone() }.into());
                }
                Ok(state.attachments.publish(id, &events)?)
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

    fn kernel_id(&mut self, this: Resource<AttachmentHandle>) -> Result<u64, HostError> {
        let id = self.attachment(&this)?;
        Ok(self.attachments.kernel_id(id)?)
    }

    fn set_period(&mut self, this: Resource<AttachmentHandle>, events: u64) -> Result<(), HostError> {
        let id = self.attachment(&this)?;
        let target = format!("event, {events}");
        let set = |state: &mut State| Ok(state.attachments.set_period(id, events)?);
        self.audited("set-period", &target, |()| Some(id.get()), set)
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
        let options = Options::clone(&self.table.get(&options)?.options);
        let leader = leader.map(|leader| self.attachment(&leader)).transpose()?;
        let most = self.policy.limit(Limit::Attachments);
        if self.attachments.count() as u64 >= most {
            return Err(HostError::limit(Limit::Attachments, most));
        }
        self.allow_probes(self.attachments.probes_of(&event, &options))?;
        self.allow_descriptors(self.attachments.descriptors_of(&event, &options, leader, program.is_some()))?;
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
        let handle = self.table.push(AttachmentHandle { id, _charge: charge }).map_err(|full| {
            self.close(id);
            HostError::from(full)
        })?;
        self.pass_attachment_on(handle.rep(), id);
        Ok(handle)
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

    fn list_events(&mut self, wildcard: String) -> Result<Vec<wit::ListedEvent>, HostError> {
        check_length("event", &wildcard)?;
        let listed = self.catalog.list(&wildcard);
        let bytes: usize =
            listed.iter().map(|event| LISTED_BYTES + event.name.len() + event.perf.len()).sum();
        let _charge = self.host_bytes.during_call(bytes as u64)?;
        let to_contract = |event: perf::ListedEvent| wit::ListedEvent {
            countable: self.catalog.why_not(&event).is_none(),
            name: event.name,
            perf_name: event.perf,
        };
        Ok(listed.into_iter().map(to_contract).collect())
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
    pub(super) fn attachment(&self, this: &Resource<AttachmentHandle>) -> wasmtime::Result<AttachmentId> {
        Ok(self.table.get(this)?.id)
    }

    pub(super) fn read_attachment(&mut self, id: AttachmentId) -> Result<perf::Reading, HostError> {
        let reading = self.attachments.read(id);
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(reading?)
    }

    pub(super) fn read_group(&mut self, id: AttachmentId) -> Result<perf::Snapshot, HostError> {
        let snapshot = self.attachments.snapshot(id);
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(snapshot?)
    }

    pub(super) fn read_group_on(&mut self, id: AttachmentId, cpu: u32) -> Result<perf::Snapshot, HostError> {
        // No CPU has this number.
        let snapshot = self.attachments.snapshot_cpu(id, i32::try_from(cpu).unwrap_or(i32::MAX));
        self.report_notices();
        self.report_misses_of(&[id]);
        Ok(snapshot?)
    }

    pub(super) fn read_attachments(&mut self, ids: &[u64]) -> Result<Vec<perf::Reading>, HostError> {
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
        // Counting those that there are takes longer for each attachment.
        if more == 0 {
            return Ok(());
        }
        let most = self.policy.limit(Limit::Probes);
        let there = self.attachments.probes() + self.attached.probes();
        if (there + more) as u64 <= most { Ok(()) } else { Err(HostError::limit(Limit::Probes, most)) }
    }

    /// Checks whether `more` additional descriptors are allowed.
    ///
    /// # Errors
    /// `limit`.
    pub(super) fn allow_descriptors(&mut self, more: usize) -> Result<(), HostError> {
        let most = self.policy.limit(Limit::Descriptors);
        let of_object = self.object().map_or(0, |object| object.descriptors());
        let there = self.attachments.descriptors()
            + self.attached.descriptors()
            + self.probed_files.len()
            + of_object;
        if (there + more) as u64 <= most { Ok(()) } else { Err(HostError::limit(Limit::Descriptors, most)) }
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
        let work = self.stop.work();
        self.attachments.detach(id);
        drop(work);
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
pub(super) struct Events(pub(super) Arc<Map>);

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

pub(super) fn one_reading(reading: perf::Reading) -> wit::Reading {
    wit::Reading {
        raw: reading.raw,
        scaled: reading.scaled,
        time_enabled: reading.time_enabled,
        time_running: reading.time_running,
        state: counter_state(reading.state),
        partial: reading.partial,
    }
}

pub(super) fn group_reading(snapshot: perf::Snapshot) -> Result<GroupReading, HostError> {
    let entry = |entry: &perf::GroupEntry| wit::Entry {
        id: entry.id.get(),
        kernel_id: entry.kernel_id,
        raw: entry.raw,
        scaled: entry.scaled,
    };
    Ok(GroupReading {
        time_enabled: snapshot.time_enabled,
        time_running: snapshot.time_running,
        state: counter_state(snapshot.state),
        partial: snapshot.partial,
        own: u32::try_from(snapshot.own).map_err(wasmtime::Error::new)?,
        entries: snapshot.entries.iter().map(entry).collect(),
    })
}

/// Reverses [`one_reading`].
pub(super) fn from_reading(reading: wit::Reading) -> Result<perf::Reading, Malformed> {
    Ok(perf::Reading {
        raw: reading.raw,
        scaled: reading.scaled,
        saturated: false,
        time_enabled: reading.time_enabled,
        time_running: reading.time_running,
        state: state_of(reading.state)?,
        partial: reading.partial,
    })
}

/// Reverses [`group_reading`].
pub(super) fn from_group_reading(reading: &GroupReading) -> Result<perf::Snapshot, Malformed> {
    let entry = |entry: &wit::Entry| perf::GroupEntry {
        id: AttachmentId::of(entry.id),
        kernel_id: entry.kernel_id,
        raw: entry.raw,
        scaled: entry.scaled,
    };
    Ok(perf::Snapshot {
        time_enabled: reading.time_enabled,
        time_running: reading.time_running,
        state: state_of(reading.state)?,
        partial: reading.partial,
        own: reading.own as usize,
        entries: reading.entries.iter().map(entry).collect(),
    })
}

/// Returns the state in a reading of this host.
fn state_of(state: CounterState) -> Result<perf::State, Malformed> {
    match state {
        CounterState::Counted => Ok(perf::State::Counted),
        CounterState::Multiplexed => Ok(perf::State::Multiplexed),
        CounterState::NeverRan => Ok(perf::State::NeverRan),
        CounterState::Idle => Ok(perf::State::Idle),
        CounterState::Other(_) => Err(Malformed),
    }
}

fn access_of(access: wit::Access) -> perf::Access {
    perf::Access {
        read: access.contains(wit::Access::READ),
        write: access.contains(wit::Access::WRITE),
        execute: access.contains(wit::Access::EXECUTE),
    }
}

fn counter_state(state: perf::State) -> CounterState {
    match state {
        perf::State::Counted => CounterState::Counted,
        perf::State::Multiplexed => CounterState::Multiplexed,
        perf::State::NeverRan => CounterState::NeverRan,
        perf::State::Idle => CounterState::Idle,
    }
}
