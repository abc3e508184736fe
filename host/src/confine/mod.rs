//! Least privilege: what the thread of a plugin gives up before the plugin's first instruction.
//!
//! ```text
//! admitted object, imported functions, policy -> Confinement -> enter, on the plugin's own thread
//!                                          |- capabilities that no later act of this plugin needs are dropped
//!                                          |- no_new_privs
//!                                          \- a filter of system calls (seccomp): what the host does for plugins, no more
//! ```
//!
//! A second line behind the sandbox of the engine and the policy: whoever breaks out of both is on a thread that cannot
//! start programs, write files, connect to others, trace processes, change users or make memory executable. Threads
//! of one process share their memory, so it is no wall between plugins. Plugins are compiled before, on threads that are
//! not confined. Not here: what the plugin may ask for (`policy`).

mod capabilities;
mod filter;

use std::collections::BTreeSet;

use ks_compiler::object::model::Program;
use ks_compiler::object::table::ProgramType;

use crate::policy::{self, Class, PluginObject, Policy};

/// What a plugin's thread must be able to do after its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Opens events.
    events: bool,
    /// Opens breakpoints, which the kernel gives to CAP_SYS_ADMIN only if they are at addresses of its own
    /// (kernel/events/hw_breakpoint.c, `hw_breakpoint_parse`, v6.18).
    breakpoints: bool,
    /// Puts probes into user programs, which newer kernels give to CAP_SYS_ADMIN only (kernel/events/core.c,
    /// `perf_uprobe_event_init`, v6.18).
    user_probes: bool,
    /// Loads programs and makes maps.
    object: bool,
    /// Loads programs that are attached to interfaces, control groups or connections, as those of kinds that this host does
    /// not know may be.
    network: bool,
    /// Attaches programs to sockets that see all packets.
    packets: bool,
    /// Makes folders and files of the BPF file system.
    pins: bool,
    /// Names functions of the kernel and of other processes.
    symbols: bool,
    /// Ends the command that it observes.
    command: bool,
}

/// Whether loading programs of a type takes CAP_PERFMON and no right over the network. Source: kernel/bpf/syscall.c,
/// `is_perfmon_prog_type`, v6.18.
pub(crate) fn observes(program: ProgramType) -> bool {
    matches!(
        program,
        ProgramType::Kprobe
            | ProgramType::Tracepoint
            | ProgramType::PerfEvent
            | ProgramType::RawTracepoint
            | ProgramType::Tracing
            | ProgramType::Lsm
    )
}

/// Why a thread cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The capabilities cannot be dropped.
    #[error("cannot drop the capabilities that the plugin does not need: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The filter is refused.
    #[error("cannot filter the system calls of the plugin's thread: {0}")]
    Filter(#[from] seccompiler::Error),
}

impl Confinement {
    /// For a plugin with this object, that imports these functions (`perf.[static]event.named`), under this policy, and may
    /// observe a command, and whose stacks somebody wants named. For what the policy denies in any case nothing is kept.
    pub fn of(
        object: Option<&PluginObject>,
        functions: &BTreeSet<String>,
        policy: &Policy,
        command: bool,
        stacks: bool,
    ) -> Confinement {
        let has = |part: &str| functions.iter().any(|function| function.starts_with(part));
        let opens = |family| policy.may_open(family);
        let programs: Vec<(&PluginObject, &Program)> = object
            .iter()
            .flat_map(|one| one.model().programs.iter().map(move |program| (*one, program)))
            .collect();
        let is_of = |class| programs.iter().any(|(one, program)| policy::class_of(one, program) == class);
        let steers = |one: &PluginObject, program: &Program| {
            !observes(program.section.kind.program) && !one.is_timer(program)
        };
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
            network: programs.iter().any(|(one, program)| steers(one, program)),
            packets: is_of(Class::SocketFilter),
            pins: object.is_some_and(|object| object.pins().next().is_some()),
            symbols: stacks || has("symbols.") && policy.check_class(Class::Symbols).is_ok(),
            command,
        }
    }

    /// Confines the calling thread, for ever, and the threads that it starts.
    ///
    /// # Errors
    /// [`ConfineError`]. The thread may have less than before then, never more.
    pub fn enter(self) -> Result<(), ConfineError> {
        if self.events || self.object {
            // Where it is not mounted, mounting it is an act for a thread that may.
            crate::tracefs::prepare();
        }
        capabilities::drop_others(&capabilities::needed(self))?;
        filter::enter(self)?;
        Ok(())
    }
}
