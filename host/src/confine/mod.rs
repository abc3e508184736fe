//! Least privilege: drops the privileges of a plugin's thread before the plugin's first instruction.
//!
//! ```text
//! admitted object, imported functions, policy -> Confinement -> enter, on the plugin's own thread
//!     |- accesses files as nobody, and starts a thread that opens the few others for it
//!     |- drops the capabilities that no later action of this plugin needs
//!     |- sets no_new_privs
//!     \- installs a filter of system calls (seccomp): only those that the host makes for plugins
//! ```
//!
//! A second line of defence after the engine's sandbox and the policy. An attacker who breaks out of both is
//! on a thread that cannot start programs, write files, connect to other hosts, trace processes, change users
//! or map executable memory, and that opens only files that everybody may read: for a few others it asks another
//! thread (`opener`). Threads of one process share their memory, so this does not isolate plugins from
//! each other. Plugins are compiled before, on threads that are not confined. Not here: what the plugin may
//! request (`policy`).

mod capabilities;
mod emptiness;
mod filter;
mod loader;
mod reader;
mod search;
mod surroundings;
mod sys;
mod worker;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ks_compiler::object::model::{Ksym, KsymKind, Object, Program};
use ks_compiler::object::table::{MapKind, Target};
use ks_wit::object::FUNCTION_PREFIX;

pub(crate) use loader::{leave_rights_to_load, loader_rights};
pub use reader::ReaderFiles;
pub(crate) use reader::enter_reader;
pub(crate) use surroundings::FileOfOne;
pub use surroundings::Outputs;
pub(crate) use worker::{WorkerFilter, leave_rights};

use crate::bpf;
use crate::opener::{Openable, Opener};
use crate::policy::{self, Class, PluginObject, Policy};

/// The privileges that a plugin's thread needs after its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Opens events with perf_event_open(2).
    events: bool,
    /// Opens breakpoints. At kernel addresses the kernel requires CAP_SYS_ADMIN
    /// (kernel/events/hw_breakpoint.c, `hw_breakpoint_parse`, v6.18).
    breakpoints: bool,
    /// Puts probes into user programs, for which newer kernels require CAP_SYS_ADMIN (kernel/events/core.c,
    /// `perf_uprobe_event_init`, v6.18).
    user_probes: bool,
    /// Loads programs and creates maps.
    object: bool,
    /// Loads programs.
    programs: bool,
    /// Loads programs that observe, most of which are attached to events.
    observing: bool,
    /// Calls functions of kernel modules, whose types the kernel shows only with CAP_SYS_ADMIN
    /// (kernel/bpf/syscall.c, `bpf_obj_get_next_id`, v6.18).
    modules: bool,
    /// The tracepoints of its programs, by category and name.
    tracepoints: Vec<(String, String)>,
    /// Has buffers of events that programs write to.
    buffers: bool,
    /// Loads programs that are attached to interfaces, cgroups or connections, or creates maps of these.
    network: bool,
    /// Attaches programs to packet sockets.
    packets: bool,
    /// Maps that are pinned: paths in the BPF file system.
    pins: Vec<PathBuf>,
    /// Looks up addresses and names of kernel functions.
    symbols: bool,
    /// Lists the BPF programs of the machine, which another thread does for it.
    lists_programs: bool,
}

/// The needs that follow from the options of a run rather than from the plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunNeeds {
    /// Whether the stacks that it counts are to be symbolised.
    pub stacks: bool,
}

/// Failure to confine a thread.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The capabilities cannot be dropped.
    #[error("cannot drop the capabilities that the plugin does not need: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The seccomp filter was rejected.
    #[error("cannot filter the system calls of the plugin's thread: {0}")]
    Filter(#[from] seccompiler::Error),
    /// A limit of the process.
    #[error("cannot limit the process: {0}")]
    Limits(#[from] nix::errno::Errno),
    /// Landlock is there, and refuses.
    #[error("cannot take files from the plugin's process: {0}")]
    Files(#[from] landlock::RulesetError),
    /// The thread that opens files for it cannot be started.
    #[error("cannot start the thread that opens files for the plugin: {0}")]
    Opener(std::io::Error),
}

impl Confinement {
    /// Computes the privileges of a plugin. `functions` are the functions it imports, for example
    /// `perf.[static]event.named`. Keeps no privilege for an action that the policy denies in any case.
    pub fn of(
        object: Option<&PluginObject>,
        functions: &BTreeSet<String>,
        policy: &Policy,
        run: RunNeeds,
    ) -> Confinement {
        let has = |part: &str| functions.iter().any(|function| function.starts_with(part));
        let opens = |family| policy.may_open(family);
        let programs: Vec<(&PluginObject, &Program)> = object
            .iter()
            .flat_map(|one| one.model().programs.iter().map(move |program| (*one, program)))
            .collect();
        let is_of = |class| programs.iter().any(|(one, program)| policy::class_of(one, program) == class);
        let model = object.map(PluginObject::model);
        let any = |needs: fn(&Object) -> bool| model.is_some_and(needs);
        let breakpoints = has("perf.[static]event.breakpoint") && opens("breakpoint");
        Confinement {
            events: has("perf.") && policy.check_class(Class::Event).is_ok(),
            breakpoints,
            user_probes: has("perf.[static]event.uprobe") && opens("uprobe") || is_of(Class::Uprobe),
            object: any(|model| {
                !model.programs.is_empty()
                    || !model.maps.is_empty()
                    || !model.data.is_empty()
                    || !model.struct_ops.is_empty()
            }),
            programs: any(|model| !model.programs.is_empty() || !model.struct_ops.is_empty()),
            observing: any(Object::needs_perfmon),
            modules: any(|model| {
                let is_function = |ksym: &&Ksym| matches!(ksym.kind, KsymKind::Function(_));
                !model.ksyms.iter().filter(is_function).all(|ksym| bpf::has_function(ksym.name.as_str()))
            }),
            tracepoints: programs
                .iter()
                .flat_map(|(_, program)| program.targets())
                .filter_map(tracepoint)
                .collect(),
            buffers: any(|model| model.maps.iter().any(|map| map.shape.kind == MapKind::PerfEventArray)),
            network: any(Object::needs_net_admin),
            packets: is_of(Class::SocketFilter),
            pins: object.map(bpf::pin::paths).unwrap_or_default(),
            lists_programs: has("programs.") && policy.check_class(Class::Programs).is_ok(),
            symbols: run.stacks
                || breakpoints
                || (has("symbols.") || object.is_some_and(PluginObject::names_functions))
                    && policy.check_class(Class::Symbols).is_ok()
                || any(Object::needs_syslog)
                || any(asks_for_functions),
        }
    }

    /// Confines the calling thread, permanently, and the threads that it starts. They write to these
    /// descriptors only.
    ///
    /// # Errors
    /// [`ConfineError`]. The thread may then have fewer privileges than before, never more.
    pub fn enter(&self, outputs: &Outputs) -> Result<(), ConfineError> {
        if self.events || self.object {
            // Mount tracefs now if necessary: the confined thread cannot.
            crate::tracefs::prepare();
        }
        let mut opener = Opener::start(self.openable()).map_err(ConfineError::Opener)?;
        if let Some(opener) = &mut opener {
            self.tracepoints.iter().cloned().for_each(|tracepoint| opener.ask_ahead(tracepoint));
        }
        let surroundings = surroundings::now(outputs);
        // Of a thread without root's ids the files are those of a user who was trusted with this process.
        if nix::unistd::geteuid().is_root() {
            sys::access_files_as_nobody();
        }
        capabilities::drop_others(&capabilities::needed(self))?;
        filter::enter(self, &surroundings)?;
        if let Some(opener) = opener {
            opener.serve_this_thread();
        }
        Ok(())
    }

    /// Returns what another thread opens for the plugin.
    fn openable(&self) -> Openable {
        Openable {
            tracepoints: self.events || self.observing,
            programs: self.user_probes,
            processes: self.events,
            pins: self.pins.clone(),
            loaded_programs: self.lists_programs,
        }
    }
}

/// Returns the filters of system calls as Markdown tables, for docs/system-calls.md. Rows differ between
/// architectures.
#[must_use]
pub fn system_calls() -> String {
    let of_worker = "## A process of its own\n\n\
        The plugin runs in a process that makes these calls and no others. It has the user nobody, no capability, a socket to \
        ks-host, and the maps whose pages it shares; the thread of ks-host that answers it has the filter above, and with \
        `--isolation thread` runs the plugin, too.\n\n";
    let of_loader = "\n## The process that loads an object\n\n\
        Another process loads the plugin's BPF object. It has the user nobody, the capabilities to load \
        what this object has, and a socket to ks-host, which attaches what it delivers. It reads types, names and settings of the \
        kernel, and no other files where the kernel has Landlock.\n\n";
    format!("{}\n{of_worker}{}{of_loader}{}", filter::table(), worker::table(), loader::table())
}

fn tracepoint(target: Target) -> Option<(String, String)> {
    match target {
        Target::Event { category, name } => Some((category, name)),
        _ => None,
    }
}

/// Whether programs ask which functions the kernel has.
fn asks_for_functions(model: &Object) -> bool {
    let mut variables = model.data.iter().flat_map(|section| &section.variables);
    variables.any(|variable| variable.name.as_str().starts_with(FUNCTION_PREFIX))
}
