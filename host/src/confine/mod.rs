//! Least privilege: drops the privileges of a plugin's thread before the plugin's first instruction.
//!
//! ```text
//! admitted object, imported functions, policy -> Confinement -> enter, on the plugin's own thread
//!     |- drops the capabilities that no later action of this plugin needs
//!     |- sets no_new_privs
//!     \- installs a filter of system calls (seccomp): only those that the host makes for plugins
//! ```
//!
//! A second line of defence after the engine's sandbox and the policy. An attacker who breaks out of both is
//! on a thread that cannot start programs, write files, connect to other hosts, trace processes, change users
//! or map executable memory. Threads of one process share their memory, so this does not isolate plugins from
//! each other. Plugins are compiled before, on threads that are not confined. Not here: what the plugin may
//! request (`policy`).

mod capabilities;
mod filter;
mod search;

use std::collections::BTreeSet;

use ks_compiler::object::model::Program;

use crate::policy::{self, Class, PluginObject, Policy};

/// The privileges that a plugin's thread needs after its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// Loads programs that are attached to interfaces, cgroups or connections, or creates maps of these.
    network: bool,
    /// Attaches programs to packet sockets.
    packets: bool,
    /// Creates directories and files in the BPF file system.
    pins: bool,
    /// Resolves names of kernel functions and of other processes' functions.
    symbols: bool,
    /// Sends signals to the command that it observes.
    command: bool,
}

/// The needs that follow from the options of a run rather than from the plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunNeeds {
    /// Whether the plugin may observe a command.
    pub command: bool,
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
        Confinement {
            events: has("perf.") && policy.check_class(Class::Event).is_ok(),
            breakpoints: has("perf.[static]event.breakpoint") && opens("breakpoint"),
            user_probes: has("perf.[static]event.uprobe") && opens("uprobe") || is_of(Class::Uprobe),
            object: object.is_some_and(|object| {
                let model = object.model();
                !model.programs.is_empty()
                    || !model.maps.is_empty()
                    || !model.data.is_empty()
                    || !model.struct_ops.is_empty()
            }),
            network: object.is_some_and(|object| object.model().needs_net_admin()),
            packets: is_of(Class::SocketFilter),
            pins: object.is_some_and(|object| object.pins().next().is_some()),
            symbols: run.stacks || has("symbols.") && policy.check_class(Class::Symbols).is_ok(),
            command: run.command,
        }
    }

    /// Confines the calling thread, permanently, and the threads that it starts.
    ///
    /// # Errors
    /// [`ConfineError`]. The thread may then have fewer privileges than before, never more.
    pub fn enter(self) -> Result<(), ConfineError> {
        if self.events || self.object {
            // Mount tracefs now if necessary: the confined thread cannot.
            crate::tracefs::prepare();
        }
        capabilities::drop_others(&capabilities::needed(self))?;
        filter::enter(self)?;
        Ok(())
    }
}

/// Returns the filter of system calls as a Markdown table, for docs/system-calls.md. Rows differ between
/// architectures.
#[must_use]
pub fn system_calls() -> String {
    filter::table()
}
