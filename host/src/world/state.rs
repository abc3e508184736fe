//! What one plugin holds of the host.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use wasmtime::component::ResourceTable;

use super::attached::AttachedPrograms;
use super::audit::PluginAudit;
use super::budget::Budget;
use super::error::HostError;
use super::histogram::Histogram;
use super::losses::Losses;
use super::misses::Misses;
use super::output::{Output, Streams};
use super::prints::{Printer, Table};
use super::recording::{CallRecording, Calls};
use super::ring::Rings;
use super::settings::Settings;
use super::stacks::StackRequest;
use crate::bpf::statistics::RunTime;
use crate::bpf::{BpfError, Object, Pages};
use crate::command::Command;
use crate::files::RegularFile;
use crate::host_bytes::HostBytes;
use crate::naming::Naming;
use crate::options::RunOptions;
use crate::perf::{Attachments, Catalog};
use crate::plugin::{Abort, Limiter, Limits, PluginState, SharedMemory, StopHandle, StopReason};
use crate::policy::{Class, Limit, Policy};
use crate::procfs;
use crate::record::Stream;
use crate::symbols::Symbols;
use crate::text;

/// Most different lines of `warn-once` that are remembered; later ones are dropped. Guards against a plugin that
/// warns of every value it sees.
const MAX_WARNINGS: usize = 4096;

/// Lines of the kernel half are shown when they are so many bytes.
const PRINTED_AT_ONCE: usize = 64 << 10;

/// How often it is looked whether CPUs have gone or come, whatever the plugin does: a look costs a microsecond or two.
const FOLLOWED_EVERY: Duration = Duration::from_millis(500);

/// The state in a plugin's store. The order of the fields is the order in which they are dropped: handles first, then
/// what is attached, then the object that holds programs and maps.
pub struct State {
    pub(super) table: ResourceTable,
    pub(super) attached: AttachedPrograms,
    pub(super) attachments: Attachments,
    pub(super) misses: Misses,
    pub(super) losses: Losses,
    /// The files that events of probes hold open, as long as they do.
    pub(super) probed_files: Vec<Weak<RegularFile>>,
    pub(super) rings: Rings,
    /// The lines of the kernel half; none before the object is loaded, or if it prints nothing.
    printer: Option<Printer>,
    /// What they mean, before the object is loaded.
    prints: Option<Table>,
    /// Taken before the object goes: its pages are the object's maps.
    shared: Option<SharedMemory>,
    share_memory: bool,
    object: ObjectSlot,
    pub(super) policy: Policy,
    /// What the host keeps for the plugin.
    pub(super) host_bytes: HostBytes,
    /// Where events are looked up.
    pub(super) catalog: Catalog,
    command: Option<Command>,
    pub(super) has_command: bool,
    stacks: Option<StackRequest>,
    /// When it was looked last which CPUs are online; none if nothing depended on it then.
    followed: Option<Instant>,
    /// Whether the plugin has waited for time or records.
    waited: bool,
    /// Keys and digests of what was warned of once: the words themselves may be long.
    warned: BTreeSet<(u64, u64)>,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) settings: Settings,
    pub(super) symbols: Symbols,
    pub(super) stop: StopHandle,
    pub(super) audit: Option<PluginAudit>,
    /// What the audit has of the plugin's looks.
    pub(super) looked: BTreeSet<(&'static str, String)>,
    pub(super) budget: Option<Budget>,
    pub(super) recording: CallRecording,
    output: Output,
    /// Why standard output takes nothing any more.
    output_lost: Option<String>,
    limiter: Limiter,
    /// How often the plugin has called the host.
    calls: u64,
}

/// The BPF object is loaded when it is first needed: a plugin that only counts needs none.
enum ObjectSlot {
    Absent,
    Opened(Box<Object>),
    Refused(BpfError),
}

impl State {
    /// The state of a plugin that has not run yet.
    ///
    /// `object` is the BPF object for this machine, or why it is refused; `command` the one that the plugin observes.
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
        let streams = Streams {
            name: name.clone(),
            form: options.form,
            raw: options.raw,
            stdout: options.stdout,
            stderr: options.stderr,
            limit: options.policy.limit(Limit::PrintBytes),
        };
        let output = Output::new(streams, &host_bytes);
        State {
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
            // Loads and stores are no calls.
            share_memory: options.share_memory && matches!(options.calls, Calls::Answered),
            policy: options.policy,
            host_bytes,
            catalog: options.catalog,
            has_command: command.is_some(),
            command,
            stacks: options.stacks,
            followed: None,
            waited: false,
            warned: BTreeSet::new(),
            name,
            arguments: options.arguments,
            settings: options.settings,
            symbols: Symbols::default(),
            stop: options.stop,
            audit: options.audit.map(PluginAudit::new),
            looked: BTreeSet::new(),
            budget: options.bpf_share.map(Budget::new),
            recording: CallRecording::of(options.calls),
            output,
            output_lost: None,
            limiter: Limiter::new(limits),
            calls: 0,
        }
    }

    /// With somebody who names functions of processes.
    #[must_use]
    pub(crate) fn naming_by(mut self, naming: Option<Naming>) -> State {
        self.symbols = Symbols::new(naming);
        self
    }

    /// The state for one call of the host, which is counted.
    pub(super) fn called(&mut self) -> &mut State {
        self.calls = self.calls.wrapping_add(1);
        self
    }

    /// The plugin is about to wait, or asks whether it may go on: the command that it observes runs from now on.
    ///
    /// # Errors
    /// A trap if the command cannot run: the plugin would wait for nothing.
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

    /// Whether the policy allows an act.
    ///
    /// # Errors
    /// `denied-by-policy`, with what would allow it.
    pub(super) fn allow(&self, class: Class, target: &str) -> Result<(), HostError> {
        self.policy.check(class, target).map_err(|denied| HostError::denied(denied.to_string()))
    }

    /// Whether some act of a class is allowed.
    pub(super) fn allow_class(&self, class: Class) -> Result<(), HostError> {
        self.policy.check_class(class).map_err(|denied| HostError::denied(denied.to_string()))
    }

    /// Says once what numbers of tasks mean where this host runs.
    pub(super) fn report_namespace(&mut self) {
        if !procfs::is_own() {
            self.warn_once(
                0,
                &format!(
                    "/proc shows the tasks of another PID namespace: tasks have no names here, nor have their functions\n  \
                     do: {}",
                    procfs::REMEDY
                ),
            );
        }
        let ObjectSlot::Opened(object) = &self.object else { return };
        if object.is_loaded() && object.numbers_tasks_inside() {
            self.warn_once(
                0,
                "numbers of tasks in programs (`pid()`, `tid()`) are those of the PID namespace that ks-host runs in: tasks \
                 outside of it have 0; fields of the kernel, such as `prev_pid`, have those of the first namespace",
            );
        }
    }

    /// The plugin's BPF object.
    pub(super) fn object(&mut self) -> Result<&mut Object, BpfError> {
        open_object(&mut self.object)
    }

    /// Whether the kernel holds the object.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(&self.object, ObjectSlot::Opened(object) if object.is_loaded())
    }

    /// What of the object the kernel holds, in words; none before the load.
    pub(super) fn loaded(&self) -> Option<String> {
        let ObjectSlot::Opened(object) = &self.object else { return None };
        let (programs, maps) = object.loaded()?;
        Some(format!("programs {}; maps {}", programs.join(", "), maps.join(", ")))
    }

    /// The time that programs of the object took.
    pub(super) fn run_times(&self) -> Vec<RunTime> {
        match &self.object {
            ObjectSlot::Opened(object) => object.run_times(),
            _ => Vec::new(),
        }
    }

    /// Where so many bytes of a map lie in the plugin's memory.
    pub(super) fn map_pages(&mut self, pages: Option<Pages>) -> Option<u32> {
        let Pages { name, bytes, descriptor } = pages?;
        self.shared.as_mut()?.map_pages(&name, bytes, descriptor.as_fd())
    }

    /// Shows what the kernel half has printed up to now, so that its lines stand before those that come after it.
    pub(super) fn show_prints(&mut self) {
        if let ObjectSlot::Opened(object) = &mut self.object
            && object.is_loaded()
            && let Some(table) = self.prints.take()
        {
            self.printer = Printer::new(object, table);
        }
        let Some(mut printer) = self.printer.take() else { return };
        // Programs may print faster than somebody reads: what comes later is shown later.
        let mut waiting = printer.ring.waiting();
        while waiting > 0 {
            let mut lines = Vec::new();
            let taken = printer.take(|line| {
                lines.extend(line);
                if lines.len() >= PRINTED_AT_ONCE {
                    self.show(&std::mem::take(&mut lines));
                }
                // What would be lost is not made; the lines that are made already lose something, which is told.
                self.output.has_room() && self.output_lost.is_none()
            });
            if !lines.is_empty() {
                self.show(&lines);
            }
            if taken == 0 {
                break;
            }
            waiting = waiting.saturating_sub(taken);
        }
        self.printer = Some(printer);
    }

    /// Follows CPUs that have gone or come, if it is time to; when to look again, if anything depends on them.
    fn follow_cpus(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.followed.map(|last| last + FOLLOWED_EVERY).filter(|due| now < *due);
        if due.is_some() {
            return due;
        }
        let follows = self.attachments.follow_cpus();
        self.report_notices();
        self.followed = follows.then_some(now);
        follows.then_some(now + FOLLOWED_EVERY)
    }

    /// Waits until one of these descriptors is readable, the deadline is reached, or the plugin is asked to stop, and
    /// shows meanwhile what the kernel half prints. True if one is readable.
    pub(super) fn wait(&mut self, names: &[String], deadline: Option<Instant>) -> Result<bool, Errno> {
        self.waited = true;
        loop {
            self.show_prints();
            self.report_losses(false);
            let look = self.follow_cpus();
            let wake = deadline.into_iter().chain(look).min();
            let mut descriptors = self.rings.descriptors(names);
            let own = descriptors.len();
            descriptors.extend(self.printer.as_ref().map(|printer| printer.ring.descriptor()));
            let readable = self.stop.wait_readable(&descriptors, self.until_look(wake))?;
            // An audit that cannot be written ends the plugin at its next act.
            let _ = self.look_at_budget();
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if readable.iter().take(own).any(|one| *one) || is_over || self.stop.stopping() {
                self.show_prints();
                return Ok(readable.iter().take(own).any(|one| *one));
            }
        }
    }

    /// Why what the plugin printed last is lost; none if nothing is.
    pub(crate) fn output_lost(&self) -> Option<String> {
        let reason = self.output_lost.as_ref()?;
        Some(format!("{}: cannot write to standard output, and stopped: {reason}", self.name))
    }

    /// The plugin is done. If it has something registered and never waited, this waits until it is asked to stop, and shows
    /// meanwhile what the kernel half prints.
    ///
    /// # Errors
    /// Why the host cannot wait, in words.
    pub(crate) fn linger(&mut self) -> Result<(), String> {
        let registered = self.attached.registered();
        if self.waited || registered.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = registered.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        self.report(&format!(
            "waiting, with {names} registered, until this is stopped (Ctrl-C or SIGTERM; --no-wait ends at once)"
        ));
        self.stop.linger();
        self.release_command().map_err(|error| error.to_string())?;
        self.wait(&[], None).map_err(|errno| format!("cannot wait for the end: {errno}"))?;
        Ok(())
    }

    /// Writes text of the host's own to standard output: what the plugin did not give to `console`.
    pub(super) fn show(&mut self, text: &[u8]) {
        self.record_text(Stream::Stdout, text);
        self.write_out(text);
    }

    /// Writes to standard output, at once.
    pub(super) fn write_out(&mut self, text: &[u8]) {
        self.put_out(|output| output.print(text));
    }

    /// Writes a histogram to standard output.
    pub(super) fn show_histogram(&mut self, histogram: &Histogram) {
        self.put_out(|output| output.print_histogram(histogram));
    }

    /// Puts something out. A reader that has gone asks the plugin to stop, as SIGPIPE would another program; so does any other
    /// failure, which is kept: output with a gap is worse than none.
    fn put_out(&mut self, put: impl FnOnce(&mut Output) -> io::Result<()>) {
        if self.output_lost.is_some() {
            return;
        }
        match put(&mut self.output) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stop.ask(StopReason::OutputClosed)
            }
            Err(error) => {
                self.output_lost = Some(error.to_string());
                self.stop.ask(StopReason::OutputLost);
            }
        }
        self.report_output_loss();
    }

    /// Says once that the plugin writes more than it may.
    fn report_output_loss(&mut self) {
        if self.output.notice() {
            let (limit, name) = (self.policy.limit(Limit::PrintBytes), Limit::PrintBytes.name());
            self.report(&format!(
                "it writes more than {limit} bytes in a second, and the rest is lost: --limit {name}=.."
            ));
        }
    }

    /// Writes one line of the plugin's own to standard error, after its name, whatever lines the message has.
    pub(super) fn say_warning(&mut self, message: &str) {
        let line = self.output.line(message);
        self.write_error(&line);
    }

    /// As [`State::say_warning`], of what the plugin's calls came to.
    pub(super) fn warn(&mut self, message: &str) {
        let line = self.output.line(message);
        self.record_and_write_error(&line);
    }

    /// As [`State::warn`], of what the host has to say itself: no limit of the plugin keeps it back.
    pub(super) fn report(&mut self, message: &str) {
        let line = self.output.line(message);
        self.record_text(Stream::Stderr, line.as_bytes());
        self.output.write_error(&line);
    }

    /// Writes how the plugin is used to standard error.
    pub(super) fn report_usage(&mut self, text: &str) {
        let block = self.output.block(text);
        self.record_and_write_error(&block);
    }

    /// Writes what the plugin wrote to standard error by itself.
    pub(super) fn write_error_stream(&mut self, bytes: &[u8]) {
        self.output.write_error_stream(bytes);
        self.report_output_loss();
    }

    /// Writes lines to standard error that stood there when the run was recorded.
    pub(super) fn write_recorded_error(&mut self, lines: &[u8]) {
        self.output.write_error(&text::lines(&String::from_utf8_lossy(lines)));
    }

    fn record_and_write_error(&mut self, lines: &str) {
        if self.output.take(lines.len()) {
            self.record_text(Stream::Stderr, lines.as_bytes());
            self.output.write_error(lines);
        }
        self.report_output_loss();
    }

    fn write_error(&mut self, lines: &str) {
        if self.output.take(lines.len()) {
            self.output.write_error(lines);
        }
        self.report_output_loss();
    }

    /// As [`State::warn`], once for each pair.
    pub(super) fn warn_once(&mut self, key: u64, message: &str) {
        if self.is_first(key, message) {
            self.warn(message);
        }
    }

    /// Whether it is the first warning of this pair, and not one too many.
    pub(super) fn is_first(&mut self, key: u64, message: &str) -> bool {
        let mut digest = DefaultHasher::new();
        message.hash(&mut digest);
        self.warned.len() < MAX_WARNINGS && self.warned.insert((key, digest.finish()))
    }
}

/// However the plugin ends, what it attached is detached first, so that counts are final; then it hears of what its
/// programs lost, of runs that did not do all they should, and of a command that never ran.
impl Drop for State {
    fn drop(&mut self) {
        self.stop.forget_news();
        self.table = ResourceTable::new();
        self.attached = AttachedPrograms::default();
        self.attachments.detach_all();
        self.report_notices();
        if let Some(command) = self.command.take_if(|command| command.is_waiting()) {
            let command_line = command.command_line();
            self.report(&format!(
                "`{command_line}` was not run: the plugin ended without waiting (`sleep`, `dispatch`)"
            ));
        }
        self.show_prints();
        self.show_last_recorded();
        self.put_out(Output::finish);
        self.report_losses(true);
        let ObjectSlot::Opened(object) = &mut self.object else { return };
        if let Some(StackRequest { map, to }) = self.stacks.take_if(|_| object.is_loaded()) {
            // Nobody listens if the plugin was left behind.
            let _ = to.send(map.read(object, &self.host_bytes).map_err(|error| error.to_string()));
        }
    }
}

/// The object, and what its printed lines mean.
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
        self.report_losses(false);
        self.look_at_budget()
    }

    fn stop(&self) -> &StopHandle {
        &self.stop
    }

    fn set_shared(&mut self, memory: SharedMemory) {
        self.shared = self.share_memory.then_some(memory);
    }
}
