//! Outcomes of runs, and their exit codes.

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
    /// The plugin trapped, aborted, or exceeded a limit, for the reason in the text.
    Trapped(String),
    /// The time limit of the run was reached.
    TimedOut,
    /// The plugin was asked to stop and did not, or was killed at once.
    Killed,
    /// The policy denies something that the plugin needs, so it was not started; the text says what.
    Denied(String),
    /// The host could not start or continue the run, for the reason in the text.
    Failed(String),
}

impl Outcome {
    /// Returns the exit code of a process that ran just this plugin.
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

/// Error that unwinds the guest's stack when the plugin calls `exit`, with the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub u8);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit with code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Error that unwinds the guest's stack when the plugin aborts, with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort(pub String);

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Abort {}

/// Converts the error of a call into the guest. An epoch interruption, which the host caused, becomes
/// `killed`. The reason of a trap includes the script's call stack, the innermost function first.
pub(super) fn of_error(error: &wasmtime::Error, lines: &[Lines]) -> Outcome {
    match reason(error) {
        // The text contains names from the plugin.
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
        // Only the trap's own text: the surrounding errors name stack frames, which mean nothing to the
        // author of a script.
        Some(trap) => Outcome::Trapped(trap.to_string()),
        None => Outcome::Trapped(format!("{error:#}")),
    }
}
