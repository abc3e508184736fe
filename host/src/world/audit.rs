//! The audit log: one line of JSON for every action of a plugin that involves the kernel, with the request,
//! the policy's decision and the kernel's answer.
//!
//! Actions change what the kernel holds for the plugin, or what the plugin can read: `ask` (what its file
//! needs, judged at the start), `load`, `program`, `map`, `ring`, `attach`, `register`, `open`, `enable`,
//! `disable`, `show` (an event to programs), `test-run`, `detach`, `find` (a process by its name),
//! `over-budget`, `end`. Reads and writes of open objects are not logged: a plugin makes arbitrarily many.
//! Lookups of data that is not the plugin's own, `symbols` (of the kernel or of a task) and `names` (of
//! tasks), are logged only the first time. `exec` is always denied.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use serde::Serialize;

use super::bindings::kernelscript::host::types::ErrorKind;
use super::error::HostError;
use super::state::State;
use crate::plugin::Abort;
use crate::text::{MOST_BYTES, one_line, visible};

/// Upper limit of remembered lookups; later ones are logged each time. Guards the host's memory.
const MAX_LOOKS: usize = 1 << 16;

/// Burst size in bytes of the lines that one plugin may cause: several for each event that it may have open.
const MAX_AT_ONCE: u64 = 16 << 20;

/// Sustained rate in bytes per second of the lines that one plugin may cause. Guards the disk, and with it
/// all other audited plugins: a plugin that exceeds it is ended.
const MAX_IN_A_SECOND: u64 = 1 << 20;

/// The sink of audit lines; clones write to the same sink.
#[derive(Clone)]
pub struct Audit {
    sink: Arc<Mutex<Box<dyn Write + Send>>>,
}

/// A failed write of the audit log. It replaces the result of the action, so that none goes unlogged.
#[derive(Debug, thiserror::Error)]
#[error("the audit cannot be written, and nothing goes on unseen: {0}")]
pub(crate) struct AuditError(#[from] io::Error);

/// One line of the audit log. Members may be added, but never changed.
#[derive(Debug, Serialize)]
pub(crate) struct AuditEntry<'a> {
    /// Name of the plugin in messages.
    pub(crate) plugin: &'a str,
    /// Name of the action, as listed in the module's documentation.
    pub(crate) act: &'a str,
    /// Target of the action, for example a program or an event.
    pub(crate) target: &'a str,
    /// Id of the opened or closed object; none if it has no id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<u64>,
    /// Decision of the policy.
    pub(crate) allowed: bool,
    /// The kernel's answer: `ok`, the name of an errno, or why it was not asked. None if the policy denied
    /// the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
}

/// The policy's decision on an action, as the audit log records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    Denied,
}

impl Audit {
    /// Writes to this sink, each line by one call.
    pub fn new(sink: impl Write + Send + 'static) -> Audit {
        Audit { sink: Arc::new(Mutex::new(Box::new(sink))) }
    }

    /// Writes one line with the time. Truncates the texts and escapes their control characters.
    pub(crate) fn write(&self, entry: &AuditEntry<'_>) -> Result<(), AuditError> {
        self.write_line(&line_of(entry)?)
    }

    fn write_line(&self, line: &[u8]) -> Result<(), AuditError> {
        // A writer that panicked wrote nothing or part of a line; continue with the next line.
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write_all(line)?;
        Ok(sink.flush()?)
    }
}

fn line_of(entry: &AuditEntry<'_>) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Timed<'a> {
        time: String,
        #[serde(flatten)]
        entry: AuditEntry<'a>,
    }
    let (plugin, target) = (visible(entry.plugin, MOST_BYTES), visible(entry.target, MOST_BYTES));
    let answer = entry.answer.as_deref().map(one_line);
    let entry = AuditEntry { plugin: &plugin, target: &target, answer, ..*entry };
    let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    let mut line = serde_json::to_vec(&Timed { time, entry })?;
    line.push(b'\n');
    Ok(line)
}

/// The audit log of one plugin, with the limit of its rate.
pub(super) struct PluginAudit {
    audit: Audit,
    /// Remaining bytes, and when they were last refilled.
    left: Cell<(u64, Instant)>,
}

impl PluginAudit {
    /// Starts with the full burst size.
    pub(super) fn new(audit: Audit) -> PluginAudit {
        PluginAudit { audit, left: Cell::new((MAX_AT_ONCE, Instant::now())) }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// A trap if it cannot be written or exceeds the rate.
    fn write(&self, entry: &AuditEntry<'_>) -> wasmtime::Result<()> {
        let failed = |error: AuditError| wasmtime::Error::new(Abort(error.to_string()));
        let line = line_of(entry).map_err(|error| failed(error.into()))?;
        if !self.take(line.len() as u64, Instant::now()) {
            let text = format!(
                "it acts more often than the audit records: its lines are above {MAX_IN_A_SECOND} \
                 bytes in a second, and were above {MAX_AT_ONCE} at once"
            );
            return Err(wasmtime::Error::new(Abort(text)));
        }
        self.audit.write_line(&line).map_err(failed)
    }

    /// Takes bytes from the remaining ones and returns true, or returns false if they do not suffice.
    fn take(&self, bytes: u64, now: Instant) -> bool {
        let (left, since) = self.left.get();
        let earned = now.saturating_duration_since(since).as_millis() * u128::from(MAX_IN_A_SECOND) / 1000;
        let left = left.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX)).min(MAX_AT_ONCE);
        let after = left.checked_sub(bytes);
        // Fractions of a millisecond count at the next refill.
        let since = if earned > 0 { now } else { since };
        self.left.set((after.unwrap_or(left), since));
        after.is_some()
    }
}

impl State {
    /// Performs an action and logs the result, and the load of the object if the action caused it.
    ///
    /// # Errors
    /// Those of the action; a trap if the log cannot be written: the plugin ends, and with it the effect of
    /// the action.
    pub(super) fn audited<T>(
        &mut self,
        act: &str,
        target: &str,
        id: impl FnOnce(&T) -> Option<u64>,
        f: impl FnOnce(&mut State) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        if self.audit.is_none() {
            return f(self);
        }
        let was_loaded = self.is_loaded();
        let result = f(self);
        if !was_loaded && let Some(parts) = self.loaded() {
            self.note("load", &parts, None, Decision::Allowed, Some("ok".into()))?;
        }
        let (decision, answer) = match &result {
            Ok(_) => (Decision::Allowed, Some("ok".to_owned())),
            Err(HostError::Guest(error)) => match (&error.kind, error.errno) {
                (ErrorKind::DeniedByPolicy, _) => (Decision::Denied, None),
                (_, Some(errno)) => (Decision::Allowed, Some(errno_name(errno))),
                (_, None) => (Decision::Allowed, Some(error.message.clone())),
            },
            Err(HostError::Trap(error)) => (Decision::Allowed, Some(error.to_string())),
        };
        let id = result.as_ref().ok().and_then(id);
        self.note(act, target, id, decision, answer)?;
        result
    }

    /// Logs the first lookup of a kind and target.
    ///
    /// # Errors
    /// A trap if the log cannot be written.
    pub(super) fn note_look(
        &mut self,
        act: &'static str,
        target: &str,
        decision: Decision,
    ) -> wasmtime::Result<()> {
        if self.audit.is_none() || self.looked.contains(&(act, target.to_owned())) {
            return Ok(());
        }
        if self.looked.len() < MAX_LOOKS {
            self.looked.insert((act, target.to_owned()));
        }
        let answer = (decision == Decision::Allowed).then(|| "ok".into());
        self.note(act, target, None, decision, answer)
    }

    /// Writes one line if there is an audit log.
    ///
    /// # Errors
    /// A trap if it cannot be written.
    pub(super) fn note(
        &self,
        act: &str,
        target: &str,
        id: Option<u64>,
        decision: Decision,
        answer: Option<String>,
    ) -> wasmtime::Result<()> {
        let Some(audit) = &self.audit else { return Ok(()) };
        let allowed = decision == Decision::Allowed;
        audit.write(&AuditEntry { plugin: &self.name, act, target, id, allowed, answer })
    }
}

fn errno_name(number: u32) -> String {
    match i32::try_from(number).map(Errno::from_raw) {
        Ok(errno) if errno != Errno::UnknownErrno => format!("{errno:?}"),
        _ => format!("errno {number}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_short_and_readable_whatever_its_target() {
        let target = "\u{1}\x1b".repeat(4 << 20);
        let entry = AuditEntry {
            plugin: "p.wasm",
            act: "exec",
            target: &target,
            id: None,
            allowed: false,
            answer: Some("cannot\n  because: \x07".into()),
        };
        let line = line_of(&entry).expect("JSON");
        assert!(line.len() < 3 * MOST_BYTES, "{}", line.len());
        let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        let display = line["target"].as_str().expect("text");
        assert!(display.starts_with("\\u{1}\\u{1b}") && display.ends_with(".. (8388608 bytes)"), "{display}");
        assert_eq!(line["answer"], "cannot; because: \\u{7}");
    }

    #[test]
    fn a_plugin_may_cause_many_lines_at_once_and_fewer_all_the_time() {
        let audit = PluginAudit::new(Audit::new(io::sink()));
        let start = audit.left.get().1;
        assert!(audit.take(MAX_AT_ONCE, start) && !audit.take(1, start));
        let later = start + Duration::from_millis(500);
        assert!(audit.take(MAX_IN_A_SECOND / 2, later) && !audit.take(2000, later));
        let much_later = later + Duration::from_secs(1 << 30);
        assert!(audit.take(MAX_AT_ONCE, much_later) && !audit.take(1, much_later));
    }
}
