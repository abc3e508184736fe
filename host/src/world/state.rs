//! State of one plugin in the host.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use wasmtime::component::ResourceTable;

use super::attached::AttachedPrograms;
use super::audit::PluginAudit;
use super::budget::Budget;
use super::direct::{Direct, Waiting};
use super::error::HostError;
use super::losses::{LossReport, Losses};
use super::misses::Misses;
use super::output::Output;
use super::prints::{Printer, Table};
use super::recording::{CallRecording, Calls};
use super::ring::Rings;
use super::served::{Broker, MapPages};
use super::settings::Settings;
use super::stacks::StackRequest;
use super::streams::StreamOptions;
use crate::bpf::statistics::{RunTime, Statistics};
use crate::bpf::{BpfError, Object, Pages};
use crate::command::Command;
use crate::display::{EnumNames, TimeZone};
use crate::files::RegularFile;
use crate::host_bytes::HostBytes;
use crate::naming::Naming;
use crate::options::RunOptions;
use crate::perf::{Attachments, Catalog, MappingRecorder};
use crate::plugin::{Abort, Limiter, Limits, PluginState, SharedMemory, StopHandle};
use crate::policy::{Class, Limit, Policy};
use crate::procfs;
use crate::symbols::Symbols;
use crate::text;

/// Lines of the kernel half are written when they reach this number of bytes.
const PRINTED_AT_ONCE: usize = 64 << 10;

/// Interval of checks for CPUs that went offline or online; a check costs 1 to 2 µs.
const FOLLOWED_EVERY: Duration = Duration::from_millis(500);

/// The state in a plugin's Wasm store. Fields are dropped in this order: first handles, then attachments,
/// then the object with its programs and maps.
pub struct State {
    pub(super) table: ResourceTable,
    pub(super) attached: AttachedPrograms,
    pub(super) attachments: Attachments,
    pub(super) misses: Misses,
    pub(super) losses: Losses,
    /// Files that probe events hold open. Weak: the events own them.
    pub(super) probed_files: Vec<Weak<RegularFile>>,
    pub(super) rings: Rings,
    /// The ring of the kernel half's lines; none before the object is loaded, or if it prints nothing.
    printer: Option<Printer>,
    /// The table of prints, until the printer takes it over.
    prints: Option<Table>,
    /// Dropped before the object: its pages are those of the object's maps.
    pub(super) shared: Option<Box<dyn MapPages>>,
    share_memory: bool,
    object: ObjectSlot,
    pub(super) policy: Policy,
    /// Account of the memory that the host keeps for the plugin.
    pub(super) host_bytes: HostBytes,
    /// Catalogue for looking up events.
    pub(super) catalog: Catalog,
    command: Option<Command>,
    pub(super) has_command: bool,
    stacks: Option<StackRequest>,
    /// Time of the last check of online CPUs; none if nothing depends on them.
    followed: Option<Instant>,
    /// Whether the plugin has waited for time or records.
    waited: bool,
    pub(super) name: String,
    /// How a user calls it with options.
    pub(super) called_as: String,
    pub(super) arguments: Vec<String>,
    pub(super) settings: Settings,
    pub(super) symbols: Symbols,
    /// In which times of day are shown.
    pub(super) zone: TimeZone,
    /// Names of the kernel's enumerators.
    pub(super) enums: EnumNames,
    pub(super) stop: StopHandle,
    pub(super) audit: Option<PluginAudit>,
    /// Lookups that the audit log contains.
    pub(super) looked: BTreeSet<(&'static str, String)>,
    pub(super) budget: Option<Budget>,
    /// Has the kernel count runs of programs; none until the plugin asks for them.
    pub(super) program_statistics: Option<Statistics>,
    pub(super) recording: CallRecording,
    pub(super) output: Output,
    limiter: Limiter,
    /// Number of host calls; wraps.
    calls: u64,
    /// In a worker, the process that answers its calls.
    pub(super) broker: Option<Box<dyn Broker>>,
    /// What a worker does without it.
    pub(super) direct: Direct,
    /// In a worker: whether the kernel half prints, and its lines stand in order with those of the plugin.
    pub(super) prints_in_order: bool,
    /// What a broker passes on to its worker.
    pub(super) waiting: Waiting,
}

/// The plugin's BPF object. It is loaded when first needed: a plugin that only counts needs none.
enum ObjectSlot {
    Absent,
    Opened(Box<Object>),
    Refused(BpfError),
}

impl State {
    /// Ends the command that waits for the plugin, which does not run for a reason that is said.
    pub(crate) fn forget_command(&mut self) {
        self.command = None;
    }

    /// Creates the state of a plugin before its run.
    ///
    /// `object` is the BPF object for this machine, or why it is rejected; `command` is the command that the
    /// plugin observes.
    pub fn new(
        options: RunOptions,
        object: Option<Result<Object, BpfError>>,
        command: Option<Command>,
    ) -> State {
        let mut table = ResourceTable::new();
        let handles = options.policy.limit(Limit::Handles);
        table.set_max_capacity(usize::try_from(handles).unwrap_or(usize::MAX));
        let mut attachments = Attachments::default();
        if let Some(command) = &command {
            attachments.set_command(command.pid());
        }
        let limits = Limits::of(&options.policy);
        let host_bytes = HostBytes::new(options.policy.limit(Limit::HostBytes));
        let (object, prints) = opened(object, &host_bytes);
        let name = text::visible(&options.name, text::MOST_BYTES).into_owned();
        let streams = StreamOptions {
            name: name.clone(),
            form: options.form,
            raw: options.raw,
            redraws: options.redraws,
            stdout: options.stdout,
            stderr: options.stderr,
            view: options.view,
            limit: options.policy.limit(Limit::PrintBytes),
        };
        let output = Output::new(streams, &options.calls, options.stop.clone(), &host_bytes);
        State {
            called_as: text::visible(&options.called_as, text::MOST_BYTES).into_owned(),
            table,
            attachments,
            misses: Misses::default(),
            losses: Losses::default(),
            probed_files: Vec::new(),
            attached: AttachedPrograms::default(),
            rings: Rings::default(),
            printer: None,
            prints,
            object,
            shared: None,
            // Not in recorded or replayed runs: loads and stores are not calls.
            share_memory: options.share_memory && matches!(options.calls, Calls::Answered),
            policy: options.policy,
            host_bytes,
            catalog: options.catalog,
            has_command: command.is_some(),
            command,
            stacks: options.stacks,
            followed: None,
            waited: false,
            name,
            arguments: options.arguments,
            settings: options.settings,
            symbols: Symbols::default(),
            zone: TimeZone::utc(),
            enums: EnumNames::none(),
            stop: options.stop,
            audit: options.audit.map(PluginAudit::new),
            looked: BTreeSet::new(),
            budget: options.bpf_share.map(Budget::new),
            program_statistics: None,
            recording: CallRecording::of(options.calls),
            output,
            limiter: Limiter::new(limits),
            calls: 0,
            broker: None,
            direct: Direct::default(),
            prints_in_order: false,
            waiting: Waiting::default(),
        }
    }

    /// Sets the task that the plugin runs as, in another process, and the memory that it has there.
    #[must_use]
    pub(crate) fn of_task(mut self, task: i32, memory: Box<dyn MapPages>) -> State {
        self.attachments.set_own_task(task);
        self.shared = self.share_memory.then_some(memory);
        self
    }

    /// Sets the process that answers the calls, and whether lines of the kernel half come between.
    #[must_use]
    pub(crate) fn asking(mut self, broker: Box<dyn Broker>, prints_in_order: bool) -> State {
        self.broker = Some(broker);
        self.prints_in_order = prints_in_order;
        self
    }

    /// Sets what resolves functions: the thread for those of processes, and the record of what processes map.
    #[must_use]
    pub(crate) fn naming_by(
        mut self,
        naming: Option<Naming>,
        mappings: Option<Result<MappingRecorder, Errno>>,
    ) -> State {
        self.symbols = Symbols::new(naming, mappings);
        self
    }

    /// Sets the time zone in which times of day are shown.
    #[must_use]
    pub(crate) fn in_zone(mut self, zone: TimeZone) -> State {
        self.zone = zone;
        self
    }

    /// Sets where names of the kernel's enumerators come from.
    #[must_use]
    pub(crate) fn naming_enumerators(mut self, enums: EnumNames) -> State {
        self.enums = enums;
        self
    }

    /// Counts a host call and returns the state.
    pub(super) fn called(&mut self) -> &mut State {
        self.calls = self.calls.wrapping_add(1);
        self
    }

    /// Starts the observed command, because the plugin is about to wait or asks whether to continue.
    ///
    /// # Errors
    /// A trap if the command cannot run: the plugin would wait in vain.
    pub(super) fn release_command(&mut self) -> wasmtime::Result<()> {
        let Some(command) = &mut self.command else { return Ok(()) };
        match command.release() {
            Ok(true) => self.attachments.note_exec(),
            Ok(false) => {}
            Err(error) => {
                let message = format!("cannot run `{}`: {error}", command.command_line());
                return Err(wasmtime::Error::new(Abort(message)));
            }
        }
        Ok(())
    }

    /// Starts the command again if it has ended and nobody else wants the plugin to stop. Returns whether it did.
    pub(super) fn restart_command(&mut self) -> wasmtime::Result<bool> {
        let Some(command) = &mut self.command else { return Ok(false) };
        let is_started = command.restart().map_err(|error| {
            let message = format!("cannot start `{}` again: {error}", command.command_line());
            wasmtime::Error::new(Abort(message))
        })?;
        if is_started {
            self.attachments.set_command(command.pid());
        }
        Ok(is_started)
    }

    /// Checks an action against the policy.
    ///
    /// # Errors
    /// `denied-by-policy`, with the rule that would allow it.
    pub(super) fn allow(&self, class: Class, target: &str) -> Result<(), HostError> {
        self.policy.check(class, target).map_err(|denied| HostError::denied(denied.to_string()))
    }

    /// Checks whether some action of a class is allowed.
    pub(super) fn allow_class(&self, class: Class) -> Result<(), HostError> {
        self.policy.check_class(class).map_err(|denied| HostError::denied(denied.to_string()))
    }

    /// Warns once about the meaning of task ids in this host's PID namespace.
    pub(super) fn report_namespace(&mut self) {
        if !procfs::is_own() {
            self.output.warn_once(
                0,
                &format!(
                    "/proc shows the tasks of another PID namespace: tasks have no names here, nor have \
                     their functions\n  \
                     do: {}",
                    procfs::REMEDY
                ),
            );
        }
        let ObjectSlot::Opened(object) = &self.object else { return };
        if object.is_loaded() && object.numbers_tasks_inside() {
            self.output.warn_once(
                0,
                "numbers of tasks in programs (`pid()`, `tid()`) are those of the PID namespace that ks-host \
                 runs in: tasks outside of it have 0; fields of the kernel, such as `prev_pid`, have those \
                 of the first namespace",
            );
        }
    }

    /// Returns the plugin's BPF object, or why there is none.
    pub(super) fn object(&mut self) -> Result<&mut Object, BpfError> {
        open_object(&mut self.object)
    }

    /// Returns the handles, and the plugin's BPF object or why there is none.
    pub(super) fn table_and_object(&mut self) -> (&ResourceTable, Result<&mut Object, BpfError>) {
        (&self.table, open_object(&mut self.object))
    }

    /// Returns whether the object is loaded.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(&self.object, ObjectSlot::Opened(object) if object.is_loaded())
    }

    /// Describes the loaded programs and maps as text; none before the load.
    pub(super) fn loaded(&self) -> Option<String> {
        let ObjectSlot::Opened(object) = &self.object else { return None };
        let (programs, maps) = object.loaded()?;
        Some(format!("programs {}; maps {}", programs.join(", "), maps.join(", ")))
    }

    /// Returns the accumulated run time of the object's programs.
    pub(super) fn run_times(&self) -> Vec<RunTime> {
        match &self.object {
            ObjectSlot::Opened(object) => object.run_times(),
            _ => Vec::new(),
        }
    }

    /// Maps the pages of a map into the plugin's memory. Returns their address; none without pages or shared
    /// memory.
    pub(super) fn map_pages(&mut self, pages: Option<Pages>) -> Option<u32> {
        let Pages { name, bytes, descriptor } = pages?;
        self.shared.as_mut()?.map_pages(&name, bytes, descriptor.as_fd())
    }

    /// Writes the lines that the kernel half has printed so far, so that they precede later output of the
    /// plugin.
    pub(super) fn show_prints(&mut self) {
        if let ObjectSlot::Opened(object) = &mut self.object
            && object.is_loaded()
            && let Some(table) = self.prints.take()
        {
            self.printer = Printer::new(object, table);
        }
        let Some(mut printer) = self.printer.take() else { return };
        // Programs may print faster than the lines are written: stop at what was waiting at the start.
        let mut waiting = printer.ring.waiting();
        while waiting > 0 {
            let mut lines = Vec::new();
            let taken = printer.take(self, |state, line| {
                if state.output.shows_values() {
                    state.output.print_values_from_host(&line.text, &line.values);
                } else {
                    lines.extend(line.text);
                }
                if lines.len() >= PRINTED_AT_ONCE {
                    state.output.print_from_host(&std::mem::take(&mut lines));
                }
                // Stop when output is lost. The lines formatted already exceed the limit, and that is
                // reported.
                state.output.has_room()
            });
            if !lines.is_empty() {
                self.output.print_from_host(&lines);
            }
            if taken == 0 {
                break;
            }
            waiting = waiting.saturating_sub(taken);
        }
        self.printer = Some(printer);
    }

    /// Follows changes of online CPUs if a check is due. Returns the time of the next check, if anything
    /// depends on them.
    fn follow_cpus(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.followed.map(|last| last + FOLLOWED_EVERY).filter(|due| now < *due);
        if due.is_some() {
            return due;
        }
        let follows = self.attachments.follow_cpus();
        self.report_notices();
        let follows = self.follow_cpus_of_rings() || follows;
        self.followed = follows.then_some(now);
        follows.then_some(now + FOLLOWED_EVERY)
    }

    /// Waits until one of these rings is readable, the deadline is reached, or the plugin is to stop.
    /// Meanwhile writes the lines that the kernel half prints. Returns whether one of the rings is readable.
    pub(super) fn wait(&mut self, names: &[Arc<str>], deadline: Option<Instant>) -> Result<bool, Errno> {
        self.waited = true;
        loop {
            self.show_prints();
            self.report_losses(LossReport::Due);
            let look = self.follow_cpus();
            let wake = deadline.into_iter().chain(look).min();
            let mut descriptors = self.rings.descriptors(names);
            let own = descriptors.len();
            descriptors.extend(self.printer.as_ref().map(|printer| printer.ring.descriptor()));
            let readable = self.stop.wait_readable(&descriptors, self.until_look(wake))?;
            // If the audit log cannot be written, the plugin ends at its next action.
            let _ = self.look_at_budget();
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if readable.iter().take(own).any(|one| *one) || is_over || self.stop.stopping() {
                self.show_prints();
                return Ok(readable.iter().take(own).any(|one| *one));
            }
        }
    }

    /// Describes why the plugin's last output was lost; none if none was.
    pub(crate) fn output_lost(&self) -> Option<String> {
        self.output.lost()
    }

    /// Ends the plugin's run. If it has registered structs and never waited, waits for a request to stop and
    /// meanwhile writes the lines that the kernel half prints.
    ///
    /// # Errors
    /// Why the host cannot wait, as text.
    pub(crate) fn linger(&mut self) -> Result<(), String> {
        let registered = self.attached.registered();
        if self.waited || registered.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = registered.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        self.output.report(&format!(
            "waiting, with {names} registered, until this is stopped (Ctrl-C or SIGTERM; --no-wait ends at \
             once)"
        ));
        self.stop.linger();
        self.release_command().map_err(|error| error.to_string())?;
        self.wait(&[], None).map_err(|errno| format!("cannot wait for the end: {errno}"))?;
        Ok(())
    }
}

/// Detaches everything first, for any end of the plugin, so that counts are final. Then reports a command
/// that never ran, and what programs lost.
impl Drop for State {
    fn drop(&mut self) {
        self.stop.forget_news();
        self.table = ResourceTable::new();
        let work = self.stop.work();
        while let Some(held) = self.attached.remove_newest() {
            self.release(held);
        }
        self.attachments.detach_all();
        drop(work);
        self.report_notices();
        if let Some(command) = self.command.take_if(|command| command.is_waiting()) {
            let command_line = command.command_line();
            self.output.report(&format!(
                "`{command_line}` was not run: the plugin ended without waiting (`sleep`, `dispatch`)"
            ));
        }
        self.show_prints();
        self.show_last_recorded();
        self.output.finish();
        self.report_losses(LossReport::Last);
        let ObjectSlot::Opened(object) = &mut self.object else { return };
        if let Some(StackRequest { map, to }) = self.stacks.take_if(|_| object.is_loaded()) {
            // The receiver may be gone, if the plugin was abandoned.
            let _ = to.send(map.read(object, &self.host_bytes).map_err(|error| error.to_string()));
        }
    }
}

/// Returns the slot of the object, and the table of its printed lines.
fn opened(object: Option<Result<Object, BpfError>>, host_bytes: &HostBytes) -> (ObjectSlot, Option<Table>) {
    let mut object = match object {
        None => return (ObjectSlot::Absent, None),
        Some(Err(error)) => return (ObjectSlot::Refused(error), None),
        Some(Ok(object)) => object,
    };
    object.charge_to(host_bytes);
    match Table::of(&object, host_bytes) {
        Ok(table) => (ObjectSlot::Opened(Box::new(object)), table),
        Err(reason) => (ObjectSlot::Refused(BpfError::Unsound(reason)), None),
    }
}

fn open_object(slot: &mut ObjectSlot) -> Result<&mut Object, BpfError> {
    match slot {
        ObjectSlot::Opened(object) => Ok(object),
        ObjectSlot::Refused(error) => Err(error.clone()),
        ObjectSlot::Absent => Err(BpfError::NoObject),
    }
}

impl PluginState for State {
    fn limiter_mut(&mut self) -> &mut Limiter {
        &mut self.limiter
    }

    fn calls(&self) -> u64 {
        self.calls
    }

    fn tick(&mut self) -> wasmtime::Result<()> {
        self.follow_cpus();
        self.report_losses(LossReport::Due);
        self.look_at_budget()
    }

    fn stop(&self) -> &StopHandle {
        &self.stop
    }

    fn set_shared(&mut self, memory: SharedMemory) {
        self.shared = self.share_memory.then(|| Box::new(memory) as Box<dyn MapPages>);
    }
}
