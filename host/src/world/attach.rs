//! Attaching programs: where a call wants a program, whether that suits the program and the policy, and the
//! attachment.
//!
//! ```text
//! Destination -> suits the program's kind -> AttachPoint, by the policy -> within the budget -> attached
//! ```

use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use wasmtime::component::Resource;

use super::attached::Held;
use super::bpf::{ATTACHED_BYTES, LinkHandle, ProgramHandle};
use super::error::{HostError, check_length};
use super::misses::Skipped;
use super::state::State;
use crate::bpf::{self, BpfError, FilterOrder, XdpMode};
use crate::explain;
use crate::host_bytes::Charge;
use crate::perf::{self, AttachmentId, Event, LinkProgram, Options, ProbeError, ProbeLocation, ProbePoint};
use crate::policy::Class;
use crate::probed;

/// Where a call wants a program.
pub(super) enum Destination {
    /// Where its object says.
    Own,
    /// A tracepoint, `category/event`.
    Tracepoint(String),
    /// A raw tracepoint.
    RawTracepoint(String),
    /// An instruction of a function of the kernel.
    Kprobe { function: String, offset: u64 },
    /// An instruction in a file ([`ks_wit::target`]), in every process or in one.
    Uprobe { target: String, pid: Option<i32> },
    /// An interface, by name or number.
    Xdp { interface: String, mode: XdpMode },
    /// An interface, by name or number.
    Tc { interface: String, order: FilterOrder },
    /// The folder of a control group.
    Cgroup(String),
    /// An interface, by name or number.
    SocketFilter(String),
}

impl Destination {
    /// Returns the call of the contract, and what programs it is for.
    fn call(&self) -> (&'static str, &'static str) {
        match self {
            Destination::Own => ("attach", "programs whose object says where"),
            Destination::Tracepoint(_) => ("attach-tracepoint", "tracepoints"),
            Destination::RawTracepoint(_) => ("attach-raw-tracepoint", "raw tracepoints"),
            Destination::Kprobe { .. } => ("attach-kprobe", "probes of the kernel"),
            Destination::Uprobe { .. } => ("attach-uprobe", "probes of programs and libraries"),
            Destination::Xdp { .. } => ("attach-xdp", "xdp"),
            Destination::Tc { .. } => ("attach-tc", "tc"),
            Destination::Cgroup(_) => ("attach-cgroup", "hooks of control groups"),
            Destination::SocketFilter(_) => ("attach-socket-filter", "socket filters"),
        }
    }

    /// Returns whether programs of a class may be there.
    fn suits(&self, class: Class) -> bool {
        match self {
            Destination::Own => true,
            Destination::Tracepoint(_) => class == Class::Tracepoint,
            Destination::RawTracepoint(_) => class == Class::RawTracepoint,
            Destination::Kprobe { .. } => class == Class::Kprobe,
            Destination::Uprobe { .. } => class == Class::Uprobe,
            Destination::Xdp { .. } => class == Class::Xdp,
            Destination::Tc { .. } => class == Class::Tc,
            Destination::Cgroup(_) => class == Class::Cgroup,
            Destination::SocketFilter(_) => class == Class::SocketFilter,
        }
    }
}

/// A destination that the policy allows.
enum AttachPoint {
    Tracepoint(String),
    RawTracepoint(String),
    /// Where the object says that a probe is put.
    OwnProbes,
    Kprobe {
        function: String,
        offset: u64,
    },
    Uprobe {
        target: String,
        pid: Option<i32>,
    },
    Xdp {
        interface: bpf::Interface,
        mode: XdpMode,
    },
    Tc {
        interface: bpf::Interface,
        order: FilterOrder,
    },
    /// Open until it is used, so that it is the one that was checked.
    Group(bpf::ControlGroup),
    SocketFilter(bpf::Interface),
    /// A function or hook that the program was loaded for, or none for a timer.
    Loaded,
}

impl State {
    /// Attaches a program: at all destinations or, if one fails, at none. An optional program is left out at those that
    /// the kernel lacks, which is said.
    pub(super) fn attach_to(
        &mut self,
        this: &Resource<ProgramHandle>,
        destination: Destination,
        cookie: u64,
    ) -> Result<Resource<LinkHandle>, HostError> {
        let program = self.table.get(this)?.name.to_string();
        let more = match destination {
            Destination::Own => self.object()?.more_targets(&program),
            _ => Vec::new(),
        };
        let mut link = LinkHandle::default();
        for destination in iter::once(destination).chain(more.into_iter().map(Destination::Tracepoint)) {
            match self.attach_at(&program, destination, cookie) {
                Ok((attach_point, charge)) => link.keep(attach_point, charge),
                Err(error) if self.leaves_out(&program, &error)? => {}
                Err(error) => {
                    self.detach_all(&link.ids())?;
                    return Err(error);
                }
            }
        }
        self.give_link(link)
    }

    /// Whether a program is left out because of this error, which is said: it is optional, and the machine lacks the target.
    fn leaves_out(&mut self, program: &str, error: &HostError) -> Result<bool, HostError> {
        let Some(lack) = error.lack() else { return Ok(false) };
        let object = self.object()?;
        if !object.is_optional(program) {
            return Ok(false);
        }
        let line = object.first_line(program);
        self.output.warn(&format!("{line}`{program}` is optional, and left out: {lack}"));
        Ok(true)
    }

    /// Attaches a program at one destination. Returns the id of the attachment, and the charge for it.
    fn attach_at(
        &mut self,
        program: &str,
        destination: Destination,
        cookie: u64,
    ) -> Result<(u64, Charge), HostError> {
        let target = self.target_of(program, &destination)?;
        check_length("target", &target)?;
        let charge = self.host_bytes.charge(ATTACHED_BYTES + (program.len() + target.len()) as u64)?;
        self.allow_descriptors(1)?;
        if self.attached.is_at(program, &target) {
            return Err(BpfError::AlreadyAttached { program: program.to_owned(), target }.into());
        }
        let description = format!("{program} at {target}");
        let held = self.audited(
            "attach",
            &description,
            |_| None,
            |state| {
                let attach_point = state.allow_attach(program, destination)?;
                state.within_budget(program)?;
                attach(state, program, attach_point, cookie)
            },
        )?;
        Ok((self.attached.insert(program.to_owned(), Some(target), held), charge))
    }

    /// Returns the name of a destination for messages and the list of attachments. Two attachments of one
    /// program with the same name are the same.
    fn target_of(&mut self, program: &str, destination: &Destination) -> Result<String, HostError> {
        Ok(match destination {
            Destination::Own => {
                let object = self.object()?;
                // A timer has no target.
                let is_timer = object.class_of(program)? == Class::Timer;
                if is_timer {
                    String::new()
                } else {
                    object.program(program)?.own_target().unwrap_or_default()
                }
            }
            Destination::Kprobe { function, offset } => in_kernel(function, *offset),
            Destination::Uprobe { target, pid: None } => target.clone(),
            Destination::Uprobe { target, pid: Some(pid) } => format!("{target} in process {pid}"),
            Destination::Tracepoint(name)
            | Destination::RawTracepoint(name)
            | Destination::Xdp { interface: name, .. }
            | Destination::Tc { interface: name, .. }
            | Destination::SocketFilter(name)
            | Destination::Cgroup(name) => name.clone(),
        })
    }

    /// Checks whether a program may be attached to a destination: whether its kind suits, and the policy.
    fn allow_attach(&mut self, name: &str, destination: Destination) -> Result<AttachPoint, HostError> {
        let object = self.object()?;
        let class = object.class_of(name)?;
        let program = object.program(name)?;
        if !destination.suits(class) {
            let (call, wanted) = destination.call();
            let kind = program.kind();
            return Err(BpfError::OtherKind { program: name.to_owned(), kind, call, wanted }.into());
        }
        match destination {
            Destination::Own => match class {
                Class::PerfEvent => Err(BpfError::NeedsEvent { program: name.to_owned() }.into()),
                Class::Tracepoint => {
                    let own = program.own_target()?;
                    self.allow_tracepoint(name, own)
                }
                Class::RawTracepoint => {
                    let own = program.own_target()?;
                    self.allow(class, &own)?;
                    Ok(AttachPoint::RawTracepoint(own))
                }
                // What the object says was checked at the start; the file is checked when it is open.
                Class::Kprobe | Class::Uprobe => Ok(AttachPoint::OwnProbes),
                _ => Ok(AttachPoint::Loaded),
            },
            Destination::Tracepoint(target) => self.allow_tracepoint(name, target),
            Destination::RawTracepoint(target) => {
                self.allow(class, &target)?;
                Ok(AttachPoint::RawTracepoint(target))
            }
            Destination::Kprobe { function, offset } => {
                self.allow(class, &in_kernel(&function, offset))?;
                Ok(AttachPoint::Kprobe { function, offset })
            }
            Destination::Uprobe { target, pid } => {
                // Before the file is opened: the result would reveal whether it exists.
                self.allow(class, &probed::without_dots(&target))?;
                Ok(AttachPoint::Uprobe { target, pid })
            }
            Destination::Xdp { interface, mode } => {
                let interface = self.allow_interface(name, class, &interface)?;
                Ok(AttachPoint::Xdp { interface, mode })
            }
            Destination::Tc { interface, order } => {
                let interface = self.allow_interface(name, class, &interface)?;
                Ok(AttachPoint::Tc { interface, order })
            }
            Destination::SocketFilter(interface) => {
                self.allow_interface(name, class, &interface).map(AttachPoint::SocketFilter)
            }
            Destination::Cgroup(path) => self.allow_group(name, &path).map(AttachPoint::Group),
        }
    }

    fn allow_tracepoint(&mut self, name: &str, target: String) -> Result<AttachPoint, HostError> {
        self.allow(Class::Tracepoint, &target)?;
        if self.object()?.may_filter_events(name) {
            self.allow(Class::FiltersEvents, &target)?;
        }
        Ok(AttachPoint::Tracepoint(target))
    }

    /// Finds an interface and checks it by the kernel's name of it, whatever it was called.
    fn allow_interface(
        &mut self,
        name: &str,
        class: Class,
        target: &str,
    ) -> Result<bpf::Interface, HostError> {
        let found = self.object()?.program(name)?.find_interface(target);
        self.allow(class, found.as_ref().map_or(target, bpf::Interface::name))?;
        Ok(found?)
    }

    /// Opens a cgroup and checks it by both of its names: before, by the text alone, so that nothing is opened
    /// that the policy does not name; and after, since a link may have led to another one.
    fn allow_group(&self, program: &str, target: &str) -> Result<bpf::ControlGroup, HostError> {
        let path = bpf::GroupPath::of(program, target)?;
        self.allow_group_by(&path.names())?;
        match bpf::ControlGroup::open(program, &path) {
            Ok(group) => self.allow_group_by(&group.names()).map(|()| group),
            Err(error) if path.leads_through_link() => {
                self.allow(Class::Cgroup, "")?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Checks whether a cgroup is allowed by one of its names, of which the first is the absolute path.
    fn allow_group_by(&self, names: &[String]) -> Result<(), HostError> {
        let allowed = names.iter().map(|name| self.allow(Class::Cgroup, name));
        // Report the error for the absolute path, which every policy can name.
        allowed.reduce(|one, other| if one.is_ok() { one } else { other.or(one) }).unwrap_or(Ok(()))
    }
}

fn attach(state: &mut State, name: &str, to: AttachPoint, cookie: u64) -> Result<Held, HostError> {
    let program = state.object()?.program(name)?;
    let linked = match &to {
        AttachPoint::Tracepoint(target) => return attach_tracepoint(state, name, target, cookie),
        AttachPoint::OwnProbes | AttachPoint::Kprobe { .. } | AttachPoint::Uprobe { .. } => {
            return attach_probes(state, name, &to, cookie);
        }
        AttachPoint::RawTracepoint(target) => program.attach_raw_tracepoint(target, cookie),
        AttachPoint::Xdp { interface, mode } => program.attach_xdp(interface, *mode),
        AttachPoint::Tc { interface, order } => program.attach_tc(interface, *order),
        AttachPoint::SocketFilter(interface) => program.attach_socket_filter(interface),
        AttachPoint::Group(group) => program.attach_to_group(group),
        AttachPoint::Loaded => program.attach(cookie),
    };
    if let Err(BpfError::Occupied { interface, occupant, .. }) = &linked {
        state.output.report(&explain::bpf::describe_occupant(interface, occupant));
    }
    Ok(Held::Link(linked?))
}

fn attach_tracepoint(state: &mut State, name: &str, target: &str, cookie: u64) -> Result<Held, HostError> {
    let number = bpf::tracepoint_id(name, target)?;
    let event = Event::of_tracepoint(target, number);
    // The kernel runs the program for every hit on every CPU, wherever the event is: the event only names the
    // tracepoint (`perf_event_attach_bpf_prog` in kernel/trace/bpf_trace.c).
    let options = Options { pid: -1, cpu: 0, period: 1, ..Options::default() };
    let program = state.object()?.program(name)?;
    let link = program.linker()?;
    let is_counted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_counted);
    let link: LinkProgram = Arc::new(move |event: BorrowedFd<'_>, _: AttachmentId| {
        let linked = link(event, cookie)?;
        flag.store(bpf::statistics::counts_missed(linked.as_fd()), Ordering::Relaxed);
        Ok(linked)
    });
    let skipped = Skipped::new(program.skipped_runs()?, is_counted);
    let opened = state.attachments.open(&event, &options, None, Some(link))?;
    state.watch_skipped(name, number, target, skipped);
    if state.object()?.may_filter_events(name) {
        state.output.warn_once(0, &may_filter(name, target));
    }
    Ok(Held::Event(opened))
}

/// Puts a probe at each attach point of a program.
fn attach_probes(state: &mut State, name: &str, to: &AttachPoint, cookie: u64) -> Result<Held, HostError> {
    let policy = state.policy.clone();
    let rules = bpf::FileRules {
        target: &|target| policy.check(Class::Uprobe, target.unwrap_or_default()).is_ok(),
        go_returns: &|path| policy.check(Class::GoUretprobe, &path.display().to_string()).is_ok(),
    };
    let program = state.object()?.program(name)?;
    let (attach_points, pid) = match to {
        AttachPoint::Kprobe { function, offset } => {
            (vec![program.kernel_attach_point(function, *offset)?], None)
        }
        AttachPoint::Uprobe { target, pid } => (program.file_attach_points(target, rules)?, *pid),
        _ => (program.own_probe_attach_points(rules)?, None),
    };
    if let Some(pid) = pid.filter(|pid| *pid < 1) {
        return Err(HostError::invalid(format!("{pid} is the id of no process: they begin at 1")));
    }
    let moment = program.probe_kind()?.moment;
    let linker = program.linker()?;
    state.allow_probes(attach_points.len())?;
    state.allow_descriptors(2 * attach_points.len())?;
    let points: Vec<_> = attach_points.iter().filter_map(bpf::ProbeAttachPoint::file).cloned().collect();
    let mut link = |event: BorrowedFd<'_>| linker(event, cookie);
    let mut probes = Vec::with_capacity(attach_points.len());
    for attach_point in attach_points {
        let attach_point = probe_location(attach_point);
        let put = perf::probe(&attach_point, moment, pid, &mut link);
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

/// Returns the place of a probe in the kernel as policies and section names have it.
fn in_kernel(function: &str, offset: u64) -> String {
    if offset == 0 { function.to_owned() } else { format!("{function}+{offset}") }
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
            BpfError::Kernel { tried, call: bpf::FIND_PROBES, errno: Errno::EOPNOTSUPP }
        }
        ProbeError::Kernel { call, errno } => BpfError::Kernel { tried, call, errno },
        ProbeError::File(error) => BpfError::ProbeAttachPoint {
            program: program.into(),
            attach_point: attach_point.to_string(),
            error: error.into(),
        },
    }
}
