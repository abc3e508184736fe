//! How a plugin is run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use crate::command::ExecStatus;
use crate::naming::NamingProcess;
use crate::perf::Catalog;
use crate::plugin::{GRACE, StopHandle};
use crate::policy::Policy;
use crate::world::{Audit, Calls, Form, Settings, Share, StackRequest};

/// How a plugin is run.
pub struct RunOptions {
    /// The plugin's name in messages.
    pub name: String,
    /// The plugin's words.
    pub arguments: Vec<String>,
    /// What was set of its config blocks.
    pub settings: Settings,
    /// Where `print` writes.
    pub stdout: Box<dyn Write + Send>,
    /// In which form.
    pub form: Form,
    /// Whether control characters of what it prints reach `stdout` as they are; else they are made visible.
    pub raw: bool,
    /// Where warnings go.
    pub stderr: Box<dyn Write + Send>,
    /// How to stop it.
    pub stop: StopHandle,
    /// After this time it is asked to stop, and the outcome is [`Outcome::TimedOut`](crate::plugin::Outcome::TimedOut).
    pub timeout: Option<Duration>,
    /// How long it may go on after it was asked to stop.
    pub grace: Duration,
    /// What it may do, and what it may take of the host.
    pub policy: Policy,
    /// Where events are looked up: this machine, and vendors' tables.
    pub catalog: Catalog,
    /// A command to observe, program and arguments; empty: none. It runs when the plugin waits for the first time.
    pub exec: Vec<OsString>,
    /// How that command ended, once it has.
    pub exec_status: ExecStatus,
    /// Whether a plugin stays when it is done and returned 0, but has something registered and never waited: until it is
    /// asked to stop.
    pub linger: bool,
    /// Who wants to see the stacks that the plugin counted, when it has ended and all that it attached is detached.
    pub stacks: Option<StackRequest>,
    /// Whether variables and maps of the BPF object are mapped into the plugin's memory; else they are read and written by
    /// host calls, which mean the same.
    pub share_memory: bool,
    /// Whether the plugin's thread drops, before the plugin starts, the capabilities and system calls that it does not need.
    pub confine: bool,
    /// Where its acts that face the kernel are written down.
    pub audit: Option<Audit>,
    /// How much of the time of all CPUs each of its programs may take. The kernel must count it
    /// ([`Statistics::enable`](crate::bpf::statistics::Statistics::enable)).
    pub bpf_share: Option<Share>,
    /// Who answers its calls.
    pub calls: Calls,
    /// How functions of processes are named for it: by another process, since they are read from files of others. None: they
    /// have no names.
    pub naming: Option<NamingProcess>,
}

impl RunOptions {
    /// No words, no settings, the process's own output, no time limit; it may observe.
    pub fn new(name: impl Into<String>) -> RunOptions {
        RunOptions {
            name: name.into(),
            arguments: Vec::new(),
            settings: Settings::default(),
            stdout: Box::new(io::stdout()),
            form: Form::Plain,
            raw: false,
            stderr: Box::new(io::stderr()),
            stop: StopHandle::new(),
            timeout: None,
            grace: GRACE,
            policy: Policy::observing(),
            catalog: Catalog::default(),
            exec: Vec::new(),
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
