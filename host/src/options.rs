//! Options for running a plugin.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::command::ExecStatus;
use crate::naming::NamingProcess;
use crate::perf::Catalog;
use crate::plugin::{GRACE, OUTPUT_WAIT, StopHandle};
use crate::policy::Policy;
use crate::world::{Audit, Calls, Form, Settings, Share, StackRequest, View};
use crate::writer::Writer;

/// Options for one run of a plugin.
pub struct RunOptions {
    /// The plugin's name in messages.
    pub name: String,
    /// How a user calls the plugin with options, for its usage: `ks-host stat.ks --`.
    pub called_as: String,
    /// Arguments of the plugin.
    pub arguments: Vec<String>,
    /// Settings of the plugin's config blocks.
    pub settings: Settings,
    /// Destination of the plugin's printed lines. A [`Writer`] never keeps a plugin that was ended.
    pub stdout: Box<dyn Write + Send>,
    /// Form of the printed lines: text or JSON.
    pub form: Form,
    /// Whether `stdout` is a terminal on which a new picture of the plugin (`console.redraw`) replaces the one before.
    pub redraws: bool,
    /// Whether control characters of printed text reach `stdout` unchanged; otherwise they are made visible.
    pub raw: bool,
    /// Destination of warnings, of the plugin and of the host.
    pub stderr: Box<dyn Write + Send>,
    /// Takes tables and histograms instead of `stdout`; none if they are written as text.
    pub view: Option<Arc<dyn View>>,
    /// The handle that stops the run.
    pub stop: StopHandle,
    /// Time after which it is asked to stop, with the outcome
    /// [`Outcome::TimedOut`](crate::plugin::Outcome::TimedOut); none means no limit.
    pub timeout: Option<Duration>,
    /// Time that it may continue after it was asked to stop.
    pub grace: Duration,
    /// Time that its output then waits for its reader, besides that, unless a person wants it to stop.
    pub output_wait: Duration,
    /// The permissions and resource limits of the plugin.
    pub policy: Policy,
    /// Events of this machine, and of vendors' tables.
    pub catalog: Catalog,
    /// A command line to observe; empty if there is none. The command starts when the plugin waits for the
    /// first time.
    pub exec: Vec<OsString>,
    /// Whether the output of that command is dropped; otherwise it has the output of this process.
    pub exec_is_silent: bool,
    /// Receives the exit status of that command.
    pub exec_status: ExecStatus,
    /// Whether a plugin stays after it returned 0, if it registered something and never waited: until it is
    /// asked to stop.
    pub linger: bool,
    /// Receives the stacks that the plugin counted, after it has ended and its programs are detached; none if
    /// nobody wants them.
    pub stacks: Option<StackRequest>,
    /// Whether variables and maps of the BPF object are mapped into the plugin's memory; otherwise host calls
    /// read and write them, with the same results.
    pub share_memory: bool,
    /// Whether the plugin's thread drops, before the plugin starts, the capabilities and system calls that it
    /// does not need.
    pub confine: bool,
    /// Log of its kernel operations; none if none is written.
    pub audit: Option<Audit>,
    /// Limit on the share of all CPUs' time for each of its programs. Needs the kernel's statistics
    /// ([`Statistics::enable`](crate::bpf::statistics::Statistics::enable)).
    pub bpf_share: Option<Share>,
    /// The implementation of its host calls: this machine, a recorded run, or a replay.
    pub calls: Calls,
    /// The process that symbolises user-space addresses, separate since it reads untrusted files. None: such
    /// addresses stay without names.
    pub naming: Option<NamingProcess>,
}

impl RunOptions {
    /// Creates options without arguments and settings, with the process's own output, no time limit, and the
    /// policy that only permits observing.
    pub fn new(name: impl Into<String>) -> RunOptions {
        let name = name.into();
        RunOptions {
            called_as: format!("ks-host {name} --"),
            name,
            arguments: Vec::new(),
            settings: Settings::default(),
            stdout: Box::new(Writer::stdout()),
            form: Form::Plain,
            redraws: false,
            raw: false,
            stderr: Box::new(Writer::stderr()),
            view: None,
            stop: StopHandle::new(),
            timeout: None,
            grace: GRACE,
            output_wait: OUTPUT_WAIT,
            policy: Policy::observing(),
            catalog: Catalog::default(),
            exec: Vec::new(),
            exec_is_silent: false,
            exec_status: ExecStatus::default(),
            linger: true,
            stacks: None,
            share_memory: true,
            confine: true,
            audit: None,
            bpf_share: None,
            calls: Calls::Answered,
            naming: None,
        }
    }
}
