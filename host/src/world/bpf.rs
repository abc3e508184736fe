//! `bpf`: programs of the plugin's object, and their links.

use std::num::{NonZeroU16, NonZeroU32};

use ks_compiler::object::table::ProgramType;
use wasmtime::component::Resource;

use super::attach::Destination;
use super::attached::Held;
use super::audit::Decision;
use super::bindings::kernelscript::host::bpf::{
    Host, HostLink, HostProgram, HostTestInput, ProgramDescription, ProgramInfo, ProgramKind, TestOutput,
    XdpMode,
};
use super::error::{self, HostError, check_length};
use super::state::State;
use crate::bpf::{self, LoadedType};
use crate::host_bytes::{Charge, Charged};
use crate::policy::Class;

/// Host side of a `program` handle: a program of the loaded object, by its name.
pub struct ProgramHandle {
    pub(super) name: Charged<String>,
}

/// Host side of a `test-input` handle.
pub type TestInputHandle = Charged<bpf::TestInput>;

/// Host side of a `link` handle: ids of the state's `AttachedPrograms`, in the order of attaching, each with the charge for
/// its entry there.
#[derive(Default)]
pub struct LinkHandle {
    attach_points: Vec<(u64, Charge)>,
}

impl LinkHandle {
    pub(super) fn keep(&mut self, attach_point: u64, charge: Charge) {
        self.attach_points.push((attach_point, charge));
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.attach_points.iter().map(|(id, _)| *id).collect()
    }
}

type Linked = Result<Resource<LinkHandle>, HostError>;

/// Size in bytes of an entry in the list of attachments, in addition to its texts.
pub(super) const ATTACHED_BYTES: u64 = 256;

impl Host for State {
    fn list_programs(&mut self) -> wasmtime::Result<Vec<ProgramDescription>> {
        // Without an object there is nothing to list.
        let Ok(object) = self.object() else { return Ok(Vec::new()) };
        let describe = |(name, ty, target): (String, ProgramType, String)| ProgramDescription {
            name,
            kind: kind_of(LoadedType::Known(ty)),
            target,
        };
        Ok(object.programs().map(describe).collect())
    }
}

impl HostProgram for State {
    fn load(&mut self, name: String) -> Result<Resource<ProgramHandle>, HostError> {
        check_length("program", &name)?;
        let loaded =
            self.audited("program", &name, |_| None, |state| Ok(state.object()?.program(&name).map(drop)?));
        // What is optional is left out when it is attached.
        match loaded {
            Err(error) if error.lack().is_some() && self.object()?.is_optional(&name) => {}
            loaded => loaded?,
        }
        self.report_namespace();
        self.watch_losses();
        let bytes = name.len();
        let name = self.host_bytes.keep(name, bytes)?;
        Ok(self.table.push(ProgramHandle { name })?)
    }

    fn info(&mut self, this: Resource<ProgramHandle>) -> Result<ProgramInfo, HostError> {
        let name = self.table.get(&this)?.name.to_string();
        let info = self.object()?.program(&name)?.info()?;
        Ok(ProgramInfo { name, kind: kind_of(info.kind), id: info.id, instructions: info.instructions })
    }

    fn attach(&mut self, this: Resource<ProgramHandle>, cookie: u64) -> Linked {
        self.attach_to(&this, Destination::Own, cookie)
    }

    fn attach_tracepoint(
        &mut self,
        this: Resource<ProgramHandle>,
        tracepoint: String,
        cookie: u64,
    ) -> Linked {
        self.attach_to(&this, Destination::Tracepoint(tracepoint), cookie)
    }

    fn attach_raw_tracepoint(
        &mut self,
        this: Resource<ProgramHandle>,
        tracepoint: String,
        cookie: u64,
    ) -> Linked {
        self.attach_to(&this, Destination::RawTracepoint(tracepoint), cookie)
    }

    fn attach_kprobe(
        &mut self,
        this: Resource<ProgramHandle>,
        function: String,
        offset: u64,
        cookie: u64,
    ) -> Linked {
        self.attach_to(&this, Destination::Kprobe { function, offset }, cookie)
    }

    fn attach_uprobe(
        &mut self,
        this: Resource<ProgramHandle>,
        path: String,
        function: String,
        offset: u64,
        pid: Option<i32>,
        cookie: u64,
    ) -> Linked {
        check_length("path", &path)?;
        check_length("function", &function)?;
        let target = match offset {
            0 => format!("{path}:{function}"),
            _ => format!("{path}:{function}+{offset:#x}"),
        };
        self.attach_to(&this, Destination::Uprobe { target, pid }, cookie)
    }

    fn attach_xdp(&mut self, this: Resource<ProgramHandle>, interface: String, mode: XdpMode) -> Linked {
        self.attach_to(&this, Destination::Xdp { interface, mode: mode.into() }, 0)
    }

    fn attach_tc(
        &mut self,
        this: Resource<ProgramHandle>,
        interface: String,
        priority: Option<u16>,
        handle: Option<u32>,
    ) -> Linked {
        let zero = || HostError::invalid("priority and handle of a filter are numbers from 1".to_owned());
        let order = bpf::FilterOrder {
            priority: priority.map(|number| NonZeroU16::new(number).ok_or_else(zero)).transpose()?,
            handle: handle.map(|number| NonZeroU32::new(number).ok_or_else(zero)).transpose()?,
        };
        self.attach_to(&this, Destination::Tc { interface, order }, 0)
    }

    fn attach_cgroup(&mut self, this: Resource<ProgramHandle>, path: String) -> Linked {
        self.attach_to(&this, Destination::Cgroup(path), 0)
    }

    fn attach_socket_filter(&mut self, this: Resource<ProgramHandle>, interface: String) -> Linked {
        self.attach_to(&this, Destination::SocketFilter(interface), 0)
    }

    fn test_run(
        &mut self,
        this: Resource<ProgramHandle>,
        input: Resource<TestInputHandle>,
    ) -> Result<TestOutput, HostError> {
        let name = self.table.get(&this)?.name.to_string();
        let input = bpf::TestInput::clone(self.table.get(&input)?);
        let program = self.object()?.program(&name)?;
        if input.mark != 0 && program.kind() == LoadedType::Known(ProgramType::Xdp) {
            self.output
                .warn_once(0, &format!("`mark` has no effect: `{name}` sees packets before they have one"));
        }
        let output = self.audited(
            "test-run",
            &name,
            |_| None,
            |state| {
                let class = state.object()?.class_of(&name)?;
                match input.interface()? {
                    Some(interface) => state.allow(class, &interface)?,
                    None => state.allow_class(class)?,
                }
                state.within_budget(&name)?;
                Ok(state.object()?.program(&name)?.test_run(&input)?)
            },
        )?;
        let bpf::TestOutput { return_value, data, nanoseconds } = output;
        Ok(TestOutput { return_value, data, duration: nanoseconds.into() })
    }

    fn detach_all(&mut self, this: Resource<ProgramHandle>) -> wasmtime::Result<()> {
        let program = self.table.get(&this)?.name.to_string();
        for held in self.attached.remove_program(&program) {
            self.release(held);
        }
        self.note("detach", &program, None, Decision::Allowed, Some("ok".into()))
    }

    fn drop(&mut self, this: Resource<ProgramHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostTestInput for State {
    fn new(&mut self) -> wasmtime::Result<Resource<TestInputHandle>> {
        let input = self.host_bytes.keep(bpf::TestInput::default(), 0).map_err(error::too_much)?;
        self.table.push(input).map_err(error::no_room)
    }

    fn set_data(&mut self, this: Resource<TestInputHandle>, data: Vec<u8>) -> wasmtime::Result<()> {
        let input = self.table.get_mut(&this)?;
        let before = input.data.len();
        input.recharge(before, data.len()).map_err(error::too_much)?;
        input.data = data;
        Ok(())
    }

    fn set_packet_size(&mut self, this: Resource<TestInputHandle>, bytes: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.packet_size = Some(bytes);
        Ok(())
    }

    fn set_ingress_ifindex(&mut self, this: Resource<TestInputHandle>, index: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.ingress_ifindex = index;
        Ok(())
    }

    fn set_mark(&mut self, this: Resource<TestInputHandle>, mark: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.mark = mark;
        Ok(())
    }

    fn set_repeat(&mut self, this: Resource<TestInputHandle>, times: u32) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.repeat = times;
        Ok(())
    }

    fn set_arguments(
        &mut self,
        this: Resource<TestInputHandle>,
        arguments: Vec<u64>,
    ) -> wasmtime::Result<()> {
        let input = self.table.get_mut(&this)?;
        let before = size_of_val(input.arguments.as_slice());
        input.recharge(before, size_of_val(arguments.as_slice())).map_err(error::too_much)?;
        input.arguments = arguments;
        Ok(())
    }

    fn drop(&mut self, this: Resource<TestInputHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostLink for State {
    fn register(&mut self, name: String) -> Result<Resource<LinkHandle>, HostError> {
        check_length("struct to register", &name)?;
        let charge = self.host_bytes.charge(ATTACHED_BYTES + name.len() as u64)?;
        let link = self.audited(
            "register",
            &name,
            |_| None,
            |state| {
                state.allow(Class::StructOps, &name)?;
                state.structs_within_budget()?;
                Ok(state.object()?.register(&name)?)
            },
        )?;
        let mut handle = LinkHandle::default();
        handle.keep(self.attached.insert(name, None, Held::Registered(link)), charge);
        self.give_link(handle)
    }

    fn detach(&mut self, this: Resource<LinkHandle>) -> wasmtime::Result<()> {
        let attach_points = self.table.get(&this)?.ids();
        self.detach_all(&attach_points)
    }

    fn drop(&mut self, this: Resource<LinkHandle>) -> wasmtime::Result<()> {
        let link = self.table.delete(this)?;
        self.detach_all(&link.ids())
    }
}

impl State {
    /// Returns the handle of attachments; detaches if there is no room for one.
    pub(super) fn give_link(&mut self, link: LinkHandle) -> Linked {
        let attach_points = link.ids();
        self.table.push(link).map_err(|full| match self.detach_all(&attach_points) {
            Ok(()) => full.into(),
            Err(unseen) => unseen.into(),
        })
    }

    /// Removes these attachments, the newest first, as far as they are not removed yet.
    pub(super) fn detach_all(&mut self, attach_points: &[u64]) -> wasmtime::Result<()> {
        attach_points.iter().rev().try_for_each(|attach_point| detach(self, *attach_point))
    }

    /// Detaches a program. The kernel waits here for the programs that run, long on a machine that is busy.
    pub(super) fn release(&mut self, held: Held) {
        let _work = self.stop.work();
        match held {
            Held::Event(id) => self.attachments.detach(id),
            Held::Link(link) | Held::Registered(link) => drop(link),
            Held::Probes(probes) => drop(probes),
        }
    }
}

impl From<XdpMode> for bpf::XdpMode {
    fn from(mode: XdpMode) -> bpf::XdpMode {
        match mode {
            XdpMode::Best => bpf::XdpMode::Best,
            XdpMode::Generic => bpf::XdpMode::Generic,
            XdpMode::Native => bpf::XdpMode::Native,
            XdpMode::Offloaded => bpf::XdpMode::Offloaded,
        }
    }
}

fn kind_of(ty: LoadedType) -> ProgramKind {
    match ty {
        LoadedType::Known(ProgramType::PerfEvent) => ProgramKind::PerfEvent,
        LoadedType::Known(ProgramType::Tracepoint) => ProgramKind::Tracepoint,
        LoadedType::Known(ProgramType::RawTracepoint) => ProgramKind::RawTracepoint,
        other => ProgramKind::Other(other.number()),
    }
}

/// Removes an attachment; no effect if it was removed before.
fn detach(state: &mut State, attach_point: u64) -> wasmtime::Result<()> {
    let Some(description) = state.attached.description(attach_point) else { return Ok(()) };
    if let Some(held) = state.attached.remove(attach_point) {
        state.release(held);
    }
    state.note("detach", &description, None, Decision::Allowed, Some("ok".into()))
}
