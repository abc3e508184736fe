//! The plugins of one `ks-host`. Each runs independently, is restarted as `--restart` says, and is replaced
//! by a changed file on SIGHUP.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ks_host::naming::NamingProcess;
use ks_host::perf::Catalog;
use ks_host::plugin::{Outcome, PluginError, StopHandle, StopReason};
use ks_host::policy::{Limit, Policy};
use ks_host::world::{Audit, Calls, Form, Share};
use ks_host::{ExecStatus, Host, RunOptions, Writer};
use ks_wit::command_output::{shown, with_causes};
use nix::sys::signal::Signal;

use crate::prepare::{self, Prepared, Source};
use crate::stacks::Stacks;
use crate::watch::WatchRequest;
use crate::{not_a_plugin, output, replay};

/// Stack bytes of a thread that waits for a plugin; the plugin has a thread of its own.
const KEEPER_STACK_BYTES: usize = 128 << 10;

/// The pause before the first restart, doubled with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When an ended plugin is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Restart {
    /// Never: one run only.
    Never,
    /// If it trapped or its exit code is not 0. The pause before it doubles from 0.1 to 30 seconds.
    OnFailure,
}

/// A plugin to run, with its settings from the command line.
pub(crate) struct Member {
    pub(crate) source: Source,
    /// The plugin's name in messages.
    pub(crate) name: String,
    pub(crate) prepared: Prepared,
    /// Arguments of the script.
    pub(crate) arguments: Vec<String>,
    /// Settings of config blocks, `block.field=value`.
    pub(crate) config: Vec<String>,
    /// The command line to observe; empty if there is none.
    pub(crate) exec: Vec<OsString>,
    /// Whether the exit code of that command replaces the plugin's own if that is 0.
    pub(crate) exec_code: bool,
    /// Whether the plugin stays while something that it registered is in the kernel.
    pub(crate) linger: bool,
    /// Whether variables and maps are mapped into the plugin's memory.
    pub(crate) share_memory: bool,
    /// Whether the plugin's thread drops the capabilities and system calls that it does not need.
    pub(crate) confine: bool,
    /// Log of the plugin's kernel operations, if one is written.
    pub(crate) audit: Option<Audit>,
    /// Limit on the share of all CPUs' time that each of its programs may take.
    pub(crate) bpf_share: Option<Share>,
    /// File of the recording of calls and answers, if one is made.
    pub(crate) record: Option<PathBuf>,
    pub(crate) catalog: Catalog,
    pub(crate) policy: Policy,
    /// Time limit of a run; none if there is no limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) restart: Restart,
    /// How to show the stacks that the plugin counted; none to show nothing.
    pub(crate) stacks: Option<Stacks>,
    /// The view of what it prints; none if that is written.
    pub(crate) watch: Option<WatchRequest>,
    /// Output form of the plugin's prints.
    pub(crate) form: Form,
    /// Whether a new picture replaces the one before.
    pub(crate) redraws: bool,
    /// File for the prints; none means standard output.
    pub(crate) output: Option<Writer>,
    /// Whether control characters in the prints stay as they are.
    pub(crate) raw: bool,
}

/// State that the signal thread and the plugins' threads share. No thread writes output or waits for anything
/// else while it holds the lock, since the signal thread needs it to end the plugins.
pub(crate) struct Fleet {
    slots: Mutex<PluginSlots>,
    changed: Condvar,
    host: OnceLock<Host>,
}

#[derive(Default)]
struct PluginSlots {
    /// How many times all plugins were asked to stop.
    asked: u32,
    /// One slot per plugin; empty until the plugins are prepared.
    slots: Vec<PluginSlot>,
}

/// The state of a plugin that other threads may change while it runs.
struct PluginSlot {
    source: Source,
    name: String,
    digest: [u8; 32],
    /// Handle of the current run, or of the last one.
    stop: StopHandle,
    /// The replacement that starts as soon as this run has stopped.
    next: Option<Prepared>,
    /// The run has ended, and its counted stacks are being symbolised and shown.
    shows: bool,
    ended: bool,
}

impl Fleet {
    /// Creates a fleet without plugins.
    pub(crate) fn new() -> Fleet {
        Fleet { slots: Mutex::default(), changed: Condvar::new(), host: OnceLock::new() }
    }

    /// Runs all plugins until they end, and returns their exit codes in the same order.
    pub(crate) fn run(&self, host: Host, members: Vec<Member>) -> Vec<u8> {
        let slot = |member: &Member| PluginSlot {
            source: member.source.clone(),
            name: member.name.clone(),
            digest: member.prepared.digest,
            stop: StopHandle::new(),
            next: None,
            shows: false,
            ended: false,
        };
        self.lock().slots = members.iter().map(slot).collect();
        // Set once: nothing else sets it, and a fleet runs once.
        let _ = self.host.set(host);
        std::thread::scope(|scope| {
            let mut others = members.into_iter().enumerate();
            let first = others.next();
            let keepers: Vec<_> = others
                .map(|(index, member)| {
                    let name = member.name.clone();
                    let keeper = std::thread::Builder::new().stack_size(KEEPER_STACK_BYTES);
                    let keeper = keeper.spawn_scoped(scope, move || self.keep(index, member));
                    keeper.map_err(|error| {
                        output::report("ks-host", &format!("cannot start a thread for {name}: {error}"));
                        crate::HOST_FAILURE
                    })
                })
                .collect();
            let mut codes: Vec<u8> =
                first.map(|(index, member)| self.keep(index, member)).into_iter().collect();
            codes.extend(keepers.into_iter().map(|keeper| match keeper {
                Ok(keeper) => keeper.join().unwrap_or(crate::HOST_FAILURE),
                Err(code) => code,
            }));
            codes
        })
    }

    /// Runs one plugin, and restarts it as its settings say. Returns its last exit code.
    fn keep(&self, index: usize, mut member: Member) -> u8 {
        let mut pause = FIRST_PAUSE;
        loop {
            let stop = self.start(index);
            let began = Instant::now();
            let settings = match member.prepared.plugin.settings(&member.config) {
                Ok(settings) => settings,
                Err(error) => {
                    output::report(&format!("ks-host: {}", member.name), &format!("--config: {error}"));
                    return self.ended(index, crate::HOST_FAILURE);
                }
            };
            let calls = match member.record.as_deref().map(|file| replay::record_to(file, &member.name)) {
                None => Calls::Answered,
                Some(Ok(recording)) => Calls::Recorded(recording),
                Some(Err(error)) => {
                    output::report(&format!("ks-host: {}", member.name), &with_causes(&*error));
                    return self.ended(index, crate::HOST_FAILURE);
                }
            };
            let (request, answer) = member.stacks.as_ref().map(Stacks::request).unzip();
            let exec_status = ExecStatus::default();
            let mut options = RunOptions {
                exec_status: exec_status.clone(),
                stacks: request,
                arguments: member.arguments.clone(),
                settings,
                exec: member.exec.clone(),
                linger: member.linger,
                share_memory: member.share_memory,
                confine: member.confine,
                audit: member.audit.clone(),
                bpf_share: member.bpf_share,
                calls,
                catalog: member.catalog.clone(),
                policy: member.policy.clone(),
                stdout: Box::new(member.output.clone().unwrap_or_else(Writer::stdout)),
                form: member.form,
                redraws: member.redraws,
                raw: member.raw,
                stop: stop.clone(),
                timeout: member.timeout,
                naming: Some(NamingProcess::of_this_program()),
                ..RunOptions::new(member.name.clone())
            };
            if member.source.is_tool {
                options.called_as = format!("ks-host tool {}", member.name);
            }
            let watch = match member.watch.as_ref().map(|watch| watch.begin(&member.name)).transpose() {
                Ok(watch) => watch,
                Err(error) => {
                    output::report("ks-host", &with_causes(&*error));
                    return self.ended(index, crate::HOST_FAILURE);
                }
            };
            if let Some(watch) = &watch {
                options.view = Some(watch.view());
                options.stdout = watch.output();
                options.stderr = watch.messages();
                // Its output would stand in the middle of the view.
                options.exec_is_silent = true;
            }
            let outcome = member.prepared.plugin.run(options);
            if let Some(watch) = watch {
                watch.end();
            }
            match member.prepared.plugin.misfit() {
                None => {}
                Some(PluginError::OtherEngine(_)) if let Some(host) = self.host.get() => {
                    match prepare::anew(host, &member.source) {
                        Ok(next) => {
                            member.prepared = next;
                            continue;
                        }
                        Err(reported) => return self.ended(index, reported.code),
                    }
                }
                Some(error) => return self.ended(index, not_a_plugin(&member.source.path, &error)),
            }
            self.lock().slots[index].shows = true;
            let stacks_written =
                member.stacks.as_ref().zip(answer).map(|(stacks, answer)| stacks.show(&member.name, answer));
            self.lock().slots[index].shows = false;
            if let Some(next) = self.take_next(index) {
                member.prepared = next;
                continue;
            }
            report(&member, &outcome);
            let exec_code = report_exec(&member, &exec_status);
            let unshown = match stacks_written {
                Some(Err(error)) => {
                    output::report(&format!("ks-host: {}", member.name), &with_causes(&*error));
                    true
                }
                _ => false,
            };
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            let again = member.restart == Restart::OnFailure && failed(&outcome) && !stop.stopping();
            if !again {
                let code = match outcome.exit_code() {
                    0 if unshown => crate::HOST_FAILURE,
                    0 if member.exec_code => exec_code.unwrap_or(0),
                    code => code,
                };
                return self.ended(index, code);
            }
            let again = format!("{} starts again in {:.1} s", member.name, pause.as_secs_f64());
            output::warn("ks-host", &again);
            if self.wait_for_restart(index, pause) {
                return outcome.exit_code();
            }
            pause = LONGEST_PAUSE.min(pause * 2);
            if let Some(next) = self.take_next(index) {
                member.prepared = next;
            }
        }
    }

    /// Marks a plugin as ended. Returns its exit code.
    fn ended(&self, index: usize, code: u8) -> u8 {
        self.lock().slots[index].ended = true;
        code
    }

    /// Creates a handle for the next run. The run is asked to stop at once if all plugins were asked before.
    fn start(&self, index: usize) -> StopHandle {
        let mut slots = self.lock();
        let stop = StopHandle::new();
        if slots.asked > 0 {
            stop.ask(StopReason::Asked);
        }
        slots.slots[index].stop = stop.clone();
        stop
    }

    fn take_next(&self, index: usize) -> Option<Prepared> {
        let mut slots = self.lock();
        let stopping = slots.asked > 0;
        slots.slots[index].next.take().filter(|_| !stopping)
    }

    /// Waits before a restart. Returns true if all plugins were asked to stop meanwhile.
    fn wait_for_restart(&self, index: usize, pause: Duration) -> bool {
        let waiting = |slots: &mut PluginSlots| slots.asked == 0 && slots.slots[index].next.is_none();
        let waited = self.changed.wait_timeout_while(self.lock(), pause, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.asked > 0
    }

    /// Asks all plugins to stop; later calls end them. Returns true for these: the process must end soon,
    /// whatever its threads wait for.
    #[must_use]
    pub(crate) fn stop(&self) -> bool {
        let mut slots = self.lock();
        if slots.slots.is_empty() {
            // They are still compiled: nothing is attached yet.
            std::process::exit(crate::ENDED.into());
        }
        slots.asked += 1;
        if slots.asked > 1 && slots.slots.iter().any(|slot| slot.shows) {
            // All programs are detached by now; the output only reads other processes' files.
            std::process::exit(crate::ENDED.into());
        }
        for slot in &slots.slots {
            if slots.asked == 1 { slot.stop.ask(StopReason::Asked) } else { slot.stop.kill() }
        }
        self.changed.notify_all();
        slots.asked > 1
    }

    /// Reads every plugin's file again, and replaces the plugins whose file has changed. A plugin whose file
    /// has become unusable keeps running.
    pub(crate) fn reload(&self) {
        let Some(host) = self.host.get() else { return };
        let files: Vec<_> = {
            let slots = self.lock();
            let running = slots.slots.iter().enumerate().filter(|(_, slot)| !slot.ended);
            running.map(|(index, slot)| (index, slot.source.clone(), slot.digest)).collect()
        };
        for (index, source, digest) in files {
            match prepare::changed(host, &source, digest) {
                Ok(Some(next)) => self.replace(index, next),
                Ok(None) => {}
                Err(_) => output::warn("ks-host", &format!("{} runs on as it was", shown(&source.path))),
            }
        }
    }

    fn replace(&self, index: usize, next: Prepared) {
        let name = {
            let mut slots = self.lock();
            let slot = &mut slots.slots[index];
            slot.digest = next.digest;
            slot.next = Some(next);
            slot.stop.ask(StopReason::Asked);
            slot.name.clone()
        };
        self.changed.notify_all();
        output::warn("ks-host", &format!("{name} has changed and is started again"));
    }

    fn lock(&self) -> MutexGuard<'_, PluginSlots> {
        // No change of the slots can panic half-way.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an outcome counts for `--restart on-failure`. A time limit is not a failure, and a denied plugin
/// would be denied again.
fn failed(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::TimedOut | Outcome::Denied(_)) && outcome.exit_code() != 0
}

fn report(member: &Member, outcome: &Outcome) {
    let name = &member.name;
    if member.form == Form::Json {
        let reason = match outcome {
            Outcome::Trapped(reason) | Outcome::Failed(reason) | Outcome::Denied(reason) => reason.clone(),
            Outcome::TimedOut => format!("stopped after the time limit: {}", time_limit(member)),
            Outcome::Killed => "ended".to_owned(),
            Outcome::Returned(_) | Outcome::Exited(_) => return,
        };
        return output::report(name, &reason);
    }
    match outcome {
        Outcome::Trapped(reason) if member.form == Form::Plain => output::report(name, reason),
        Outcome::Trapped(reason) => output::report_among_others(name, reason),
        Outcome::Failed(reason) => output::report("ks-host", reason),
        Outcome::Denied(reason) => output::report_among_others(&format!("ks-host: {name}"), reason),
        Outcome::TimedOut => {
            output::report(name, &format!("stopped after the time limit: {}", time_limit(member)));
        }
        Outcome::Killed => output::report(name, "ended"),
        Outcome::Returned(_) | Outcome::Exited(_) => {}
    }
}

/// Reports how the observed command ended, unless its exit code is 0. Returns the exit code: 128 plus the
/// signal number if a signal ended it, as in a shell; none if it never ran, or still runs.
fn report_exec(member: &Member, status: &ExecStatus) -> Option<u8> {
    let status = status.get()?;
    let command = member.exec.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let (how, code) = match (status.code(), status.signal()) {
        (Some(0), _) => return Some(0),
        (Some(code), _) => (format!("ended with exit code {code}"), code),
        (None, Some(number)) => {
            let name =
                Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.to_string());
            (format!("was ended by the signal {name}"), 128 + number)
        }
        (None, None) => return None,
    };
    output::warn("ks-host", &format!("`{command}` {how}"));
    u8::try_from(code).ok()
}

/// Describes the time limit that ended the plugin, with the option that sets it.
fn time_limit(member: &Member) -> String {
    let (own, policy) = (member.timeout, member.policy.run_time());
    match (own, policy) {
        (Some(own), policy) if policy.is_none_or(|policy| own <= policy) => {
            format!("--timeout {}", own.as_secs_f64())
        }
        _ => Limit::RunMs.reached(member.policy.limit(Limit::RunMs)).replace("\n  do:", ";"),
    }
}
