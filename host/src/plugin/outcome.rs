//! How a run ended.

use std::fmt;

use ks_wit::lines::Lines;

use super::backtrace;
use crate::text;

/// How the run of a plugin ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `run` returned this number.
    Returned(i32),
    /// The plugin called `exit` with this code.
    Exited(u8),
    /// The plugin trapped, aborted, or broke a limit; for a person.
    Trapped(String),
    /// The time limit of the run was reached.
    TimedOut,
    /// It was asked to stop and did not, or was told to end at once.
    Killed,
    /// The policy does not allow what it asks for: it was not started. For a person.
    Denied(String),
    /// The host could not start or go on; for a person.
    Failed(String),
}

impl Outcome {
    /// The exit code of a process that ran just this plugin.
    pub fn exit_code(&self) -> u8 {
        match self {
            // The low 8 bits, as exit(3) takes them.
            Outcome::Returned(code) => code.to_le_bytes()[0],
            Outcome::Exited(code) => *code,
            Outcome::TimedOut => 124,
            Outcome::Trapped(_) | Outcome::Failed(_) => 125,
            Outcome::Denied(_) => 126,
            Outcome::Killed => 130,
        }
    }
}

/// Carried through the guest's frames when the plugin calls `exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub u8);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit with code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Carried through the guest's frames when the plugin aborts with a message of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort(pub String);

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Abort {}

/// What a call into the guest came to, in the words of an outcome. `killed` is for an epoch interruption, which the
/// host caused. A trap is told with the lines of the script that led to it, the innermost first.
pub(super) fn of_error(error: &wasmtime::Error, lines: &[Lines]) -> Outcome {
    match reason(error) {
        // Names of the plugin's functions are in it.
        Outcome::Trapped(reason) => Outcome::Trapped(text::lines(&backtrace::describe(reason, error, lines))),
        other => other,
    }
}

fn reason(error: &wasmtime::Error) -> Outcome {
    if let Some(Exit(code)) = error.downcast_ref::<Exit>() {
        return Outcome::Exited(*code);
    }
    if let Some(Abort(message)) = error.downcast_ref::<Abort>() {
        return Outcome::Trapped(message.clone());
    }
    match error.downcast_ref::<wasmtime::Trap>() {
        Some(wasmtime::Trap::Interrupt) => Outcome::Killed,
        // The trap's own words: the chain around it names frames, which mean nothing to the author of a script.
        Some(trap) => Outcome::Trapped(trap.to_string()),
        None => Outcome::Trapped(format!("{error:#}")),
    }
}
