//! `bpf`: programs of the plugin's object, and their links.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;
use wasmtime::component::Resource;

use super::attached::Held;
use super::audit::Decision;
use super::bindings::kernelscript::host::bpf::{
    Host, HostLink, HostProgram, HostTestInput, ProgramDescription, ProgramInfo, ProgramKind, TestOutput,
    XdpMode,
};
use super::error::{self, HostError, check_length};
use super::misses::Skipped;
use super::state::State;
use crate::bpf::{self, BpfError, LoadedType};
use crate::explain;
use crate::host_bytes::{Charge, Charged};
use crate::perf::{self, AttachmentId, Event, LinkProgram, Options, ProbeError, ProbeLocation, ProbePoint};
use crate::policy::Class;

/// Host side of a `program` handle: a program of the loaded object, by its name.
pub struct ProgramHandle {
    pub(super) name: Charged<String>,
}

/// Host side of a `test-input` handle.
pub type TestInputHandle = Charged<bpf::TestInput>;

/// Host side of a `link` handle: an id of the state's `AttachedPrograms`.
pub struct LinkHandle {
    attach_point: u64,
    /// Charge for the entry in the list of attachments.
    _charge: Charge,
}

/// Size in bytes of an entry in the list of attachments, in addition to its texts.
const ATTACHED_BYTES: u64 = 256;

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
        self.audited("program", &name, |_| None, |state| Ok(state.object()?.program(&name).map(drop)?))?;
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

    fn attach(
        &mut self,
        this: Resource<ProgramHandle>,
        target: String,
    ) -> Result<Resource<LinkHandle>, HostError> {
        self.attach_in(&this, &target, XdpMode::Best)
    }

    fn attach_xdp(
        &mut self,
        this: Resource<ProgramHandle>,
        interface: String,
        mode: XdpMode,
    ) -> Result<Resource<LinkHandle>, HostError> {
        let program = self.table.get(&this)?.name.to_string();
        let kind = self.object()?.program(&program)?.kind();
        if kind != LoadedType::Known(ProgramType::Xdp) {
            return Err(BpfError::NotXdp { program, kind }.into());
        }
        self.attach_in(&this, &interface, mode)
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
        let attach_point = self.attached.insert(name, None, Held::Registered(link));
        self.table.push(LinkHandle { attach_point, _charge: charge }).map_err(|full| {
            match detach(self, attach_point) {
                Ok(()) => full.into(),
                Err(unseen) => unseen.into(),
            }
        })
    }

    fn detach(&mut self, this: Resource<LinkHandle>) -> wasmtime::Result<()> {
        let attach_point = self.table.get(&this)?.attach_point;
        detach(self, attach_point)
    }

    fn drop(&mut self, this: Resource<LinkHandle>) -> wasmtime::Result<()> {
        let LinkHandle { attach_point, .. } = self.table.delete(this)?;
        detach(self, attach_point)
    }
}

impl State {
    /// Attaches a program to a target; xdp programs in this mode.
    fn attach_in(
        &mut self,
        this: &Resource<ProgramHandle>,
        target: &str,
        mode: XdpMode,
    ) -> Result<Resource<LinkHandle>, HostError> {
        check_length("target", target)?;
        let program = self.table.get(this)?.name.to_string();
        let charge = self.host_bytes.charge(ATTACHED_BYTES + (program.len() + target.len()) as u64)?;
        if self.attached.is_at(&program, target) {
            return Err(BpfError::AlreadyAttached { program, target: target.to_owned() }.into());
        }
        let description = format!("{program} at {target}");
        let held = self.audited(
            "attach",
            &description,
            |_| None,
            |state| {
                let attach_point = state.allow_attach(&program, target)?;
                state.within_budget(&program)?;
                attach(state, &program, &attach_point, mode)
            },
        )?;
        let attach_point = self.attached.insert(program, Some(target.to_owned()), held);
        self.table.push(LinkHandle { attach_point, _charge: charge }).map_err(|full| {
            match detach(self, attach_point) {
                Ok(()) => full.into(),
                Err(unseen) => unseen.into(),
            }
        })
    }

    /// Checks whether a program may be attached to a target, and returns the target. Kinds whose target is in
    /// the object were checked at the start.
    fn allow_attach(&mut self, name: &str, target: &str) -> Result<Target, HostError> {
        let object = self.object()?;
        let class = object.class_of(name)?;
        let target = match class {
            Class::Tracepoint => object.program(name)?.tracepoint_target(target),
            Class::RawTracepoint => object.program(name)?.raw_tracepoint_target(target),
            Class::PerfEvent
            | Class::Timer
            | Class::Kprobe
            | Class::Uprobe
            | Class::Tracing
            | Class::Lsm
            | Class::ModifyReturn => return Ok(Target::Text(target.to_owned())),
            Class::Cgroup => return self.allow_group(name, target),
            Class::Xdp | Class::Tc | Class::SocketFilter => {
                object.program(name)?.interface_name(target).unwrap_or_else(|| target.to_owned())
            }
            _ => target.to_owned(),
        };
        self.allow(class, &target)?;
        if class == Class::Tracepoint && self.object()?.may_filter_events(name) {
            self.allow(Class::FiltersEvents, &target)?;
        }
        Ok(Target::Text(target))
    }

    /// Opens a cgroup and checks it by both of its names. It stays open until it is used.
    fn allow_group(&self, program: &str, target: &str) -> Result<Target, HostError> {
        let group = bpf::ControlGroup::open(program, target);
        let names = group.as_ref().map_or_else(|_| vec![target.to_owned()], bpf::ControlGroup::names);
        let allowed = names.iter().map(|name| self.allow(Class::Cgroup, name));
        // Report the error for the absolute path, which every policy can name.
        allowed.reduce(|one, other| if one.is_ok() { one } else { other.or(one) }).unwrap_or(Ok(()))?;
        Ok(Target::Group(group?))
    }

    /// Detaches a program.
    pub(super) fn release(&mut self, held: Held) {
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

/// Resolved target of an attachment.
enum Target {
    Text(String),
    Group(bpf::ControlGroup),
}

fn attach(state: &mut State, name: &str, target: &Target, mode: XdpMode) -> Result<Held, HostError> {
    if state.object()?.program(name)?.kind() == LoadedType::Known(ProgramType::Kprobe) {
        return attach_probes(state, name, target);
    }
    let program = state.object()?.program(name)?;
    let target = match target {
        Target::Text(target) => target,
        Target::Group(group) => return Ok(Held::Link(program.attach_to_group(group)?)),
    };
    let owned = || name.to_owned();
    match program.kind() {
        LoadedType::Known(ProgramType::PerfEvent) => Err(BpfError::NeedsEvent { program: owned() }.into()),
        LoadedType::Known(ProgramType::Tracepoint) => {
            let target = program.tracepoint_target(target);
            let number = bpf::tracepoint_id(name, &target)?;
            let event = Event::of_tracepoint(&target, number);
            // The kernel runs the program for every hit on every CPU, wherever the event is: the event only
            // names the tracepoint (`perf_event_attach_bpf_prog` in kernel/trace/bpf_trace.c).
            let options = Options { pid: -1, cpu: 0, period: 1, ..Options::default() };
            let link = link_program(&program)?;
            let is_counted = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&is_counted);
            let link: LinkProgram = Arc::new(move |event: BorrowedFd<'_>, id: AttachmentId| {
                let linked = link(event, id)?;
                flag.store(bpf::statistics::counts_missed(linked.as_fd()), Ordering::Relaxed);
                Ok(linked)
            });
            let skipped = Skipped::new(program.skipped_runs()?, is_counted);
            let opened = state.attachments.open(&event, &options, None, Some(link))?;
            state.watch_skipped(name, number, &target, skipped);
            if state.object()?.may_filter_events(name) {
                state.output.warn_once(0, &may_filter(name, &target));
            }
            Ok(Held::Event(opened))
        }
        _ => {
            let linked = program.attach(target, mode.into());
            if let Err(BpfError::Occupied { interface, occupant, .. }) = &linked {
                state.output.report(&explain::bpf::describe_occupant(interface, occupant));
            }
            Ok(Held::Link(linked?))
        }
    }
}

/// Puts a probe at each attach point of a program.
fn attach_probes(state: &mut State, name: &str, target: &Target) -> Result<Held, HostError> {
    let Target::Text(target) = target else {
        return Err(BpfError::UnsupportedKind {
            program: name.to_owned(),
            kind: LoadedType::Known(ProgramType::Kprobe),
        }
        .into());
    };
    let policy = state.policy.clone();
    let allows_go = |path: &Path| policy.check(Class::GoUretprobe, &path.display().to_string()).is_ok();
    let (attach_points, moment) = state.object()?.program(name)?.probe_attach_points(target, &allows_go)?;
    state.allow_probes(attach_points.len())?;
    let points: Vec<_> = attach_points.iter().filter_map(bpf::ProbeAttachPoint::file).cloned().collect();
    let linker = state.object()?.program(name)?.linker()?;
    let mut link = |event: BorrowedFd<'_>| linker(event, 0);
    let mut probes = Vec::with_capacity(attach_points.len());
    for attach_point in attach_points {
        let attach_point = probe_location(attach_point);
        let put = perf::probe(&attach_point, moment, &mut link);
        probes.push(put.map_err(|error| not_probed(name, &attach_point, error))?);
    }
    if points.len() > 1 {
        let attach_points = ProbePoint::list(&points);
        state.output.warn(&format!("program `{name}` runs at {} functions: {attach_points}", points.len()));
    }
    if let Some(copies) = ProbePoint::copies(&points) {
        state.output.warn(&format!(
            "program `{name}` does not see calls of copies that the compiler made of the function: {copies}"
        ));
    }
    Ok(Held::Probes(probes))
}

fn may_filter(program: &str, tracepoint: &str) -> String {
    format!(
        "program `{program}` may return an even number, and hits of `{tracepoint}` for which it does are \
         counted for nobody, also in other processes: the kernel drops them\n  \
         do: let the program return 1, or attach it to the raw tracepoint"
    )
}

/// Returns a function that links a program to the kernel events of an attachment, with the attachment's id as
/// the cookie.
pub(super) fn link_program(program: &bpf::Program<'_>) -> Result<LinkProgram, BpfError> {
    let linker = program.linker()?;
    Ok(Arc::new(move |event: BorrowedFd<'_>, id: AttachmentId| linker(event, id.get())))
}

fn probe_location(attach_point: bpf::ProbeAttachPoint) -> ProbeLocation {
    match attach_point {
        bpf::ProbeAttachPoint::Kernel(function, offset) => ProbeLocation::Kernel { function, offset },
        bpf::ProbeAttachPoint::File(point) => ProbeLocation::File(point),
    }
}

fn not_probed(program: &str, attach_point: &ProbeLocation, error: ProbeError) -> BpfError {
    let tried = format!("put a probe at {attach_point}: program `{program}`");
    match error {
        ProbeError::Unsupported => {
            BpfError::Kernel { tried, call: "read(/sys/bus/event_source/devices)", errno: Errno::EOPNOTSUPP }
        }
        ProbeError::Kernel { call, errno } => BpfError::Kernel { tried, call, errno },
        ProbeError::File(error) => BpfError::ProbeAttachPoint {
            program: program.into(),
            attach_point: attach_point.to_string(),
            error: error.into(),
        },
    }
}

fn detach(state: &mut State, attach_point: u64) -> wasmtime::Result<()> {
    let Some(description) = state.attached.description(attach_point) else { return Ok(()) };
    if let Some(held) = state.attached.remove(attach_point) {
        state.release(held);
    }
    state.note("detach", &description, None, Decision::Allowed, Some("ok".into()))
}
