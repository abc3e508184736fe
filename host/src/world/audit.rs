//! The audit: a line of JSON for every act of a plugin that faces the kernel: what was asked, what was decided, what the
//! kernel answered.
//!
//! Acts change what the kernel holds for the plugin, or what the plugin gets to see: `ask` (what its file needs,
//! judged at the start), `load`, `program`, `map`, `ring`, `attach`, `register`, `open`, `enable`, `disable`, `show`
//! (an event to programs), `test-run`, `detach`, `find` (a process by its name), `over-budget`, `end`. Reads and
//! writes of what is open already are none: they are as many as the plugin likes. Nor is each look at what is not the
//! plugin's own: `symbols` (of the kernel or of a task) and `names` (of tasks) are written when the plugin first
//! looks there. `exec` is always denied.

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

/// Most targets that are remembered as looked at; later ones are written each time. Guards the host's memory.
const MAX_LOOKS: usize = 1 << 16;

/// Bytes of lines that one plugin may cause at once: several for each event that it may have open.
const MAX_AT_ONCE: u64 = 16 << 20;

/// Bytes of lines that one plugin may cause in a second, after that. Guards the disk, and with it all others that are
/// audited: a plugin that cannot be written down is ended.
const MAX_IN_A_SECOND: u64 = 1 << 20;

/// Where the lines go; clones write to the same place.
#[derive(Clone)]
pub struct Audit {
    sink: Arc<Mutex<Box<dyn Write + Send>>>,
}

/// What takes the place of an act that nobody would see.
#[derive(Debug, thiserror::Error)]
#[error("the audit cannot be written, and nothing goes on unseen: {0}")]
pub(crate) struct AuditError(#[from] io::Error);

/// One line. Members are added, never changed.
#[derive(Debug, Serialize)]
pub(crate) struct AuditEntry<'a> {
    /// The plugin's name in messages.
    pub(crate) plugin: &'a str,
    /// The act.
    pub(crate) act: &'a str,
    /// What it was about.
    pub(crate) target: &'a str,
    /// The number of what was opened or closed, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<u64>,
    /// What the policy said.
    pub(crate) allowed: bool,
    /// What the kernel said: `ok`, the name of an errno, or why it was not asked. None if it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
}

impl Audit {
    /// Writes there, each line in one piece.
    pub fn new(sink: impl Write + Send + 'static) -> Audit {
        Audit { sink: Arc::new(Mutex::new(Box::new(sink))) }
    }

    /// Writes one line, with the time; the texts are cut, and their control characters are visible.
    pub(crate) fn write(&self, entry: &AuditEntry<'_>) -> Result<(), AuditError> {
        self.write_line(&line_of(entry)?)
    }

    fn write_line(&self, line: &[u8]) -> Result<(), AuditError> {
        // A writer that panicked has written nothing, or half a line, and the next one says more.
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

/// The audit of one plugin, which is ended if it causes more lines than anybody reads.
pub(super) struct PluginAudit {
    audit: Audit,
    /// Bytes that it may still cause, and since when.
    left: Cell<(u64, Instant)>,
}

impl PluginAudit {
    /// Nothing is written yet.
    pub(super) fn new(audit: Audit) -> PluginAudit {
        PluginAudit { audit, left: Cell::new((MAX_AT_ONCE, Instant::now())) }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// A trap if it cannot be written, or is too much.
    fn write(&self, entry: &AuditEntry<'_>) -> wasmtime::Result<()> {
        let failed = |error: AuditError| wasmtime::Error::new(Abort(error.to_string()));
        let line = line_of(entry).map_err(|error| failed(error.into()))?;
        if !self.take(line.len() as u64, Instant::now()) {
            let text = format!(
                "it acts more often than is written down: its lines of the audit are above {MAX_IN_A_SECOND} bytes in a \
                 second, and were above {MAX_AT_ONCE} at once"
            );
            return Err(wasmtime::Error::new(Abort(text)));
        }
        self.audit.write_line(&line).map_err(failed)
    }

    /// Whether so many bytes more may be written; they count if they may.
    fn take(&self, bytes: u64, now: Instant) -> bool {
        let (left, since) = self.left.get();
        let earned = now.saturating_duration_since(since).as_millis() * u128::from(MAX_IN_A_SECOND) / 1000;
        let left = left.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX)).min(MAX_AT_ONCE);
        let after = left.checked_sub(bytes);
        // Parts of a millisecond count the next time.
        let since = if earned > 0 { now } else { since };
        self.left.set((after.unwrap_or(left), since));
        after.is_some()
    }
}

impl State {
    /// Does an act and writes what came of it, and that the object was loaded if it was for this act.
    ///
    /// # Errors
    /// Those of the act; a trap if the audit cannot be written: the plugin ends, and the act with it.
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
            self.note("load", &parts, None, true, Some("ok".into()))?;
        }
        let (allowed, answer) = match &result {
            Ok(_) => (true, Some("ok".to_owned())),
            Err(HostError::Guest(error)) => match (&error.kind, error.errno) {
                (ErrorKind::DeniedByPolicy, _) => (false, None),
                (_, Some(errno)) => (true, Some(errno_name(errno))),
                (_, None) => (true, Some(error.message.clone())),
            },
            Err(HostError::Trap(error)) => (true, Some(error.to_string())),
        };
        let id = result.as_ref().ok().and_then(id);
        self.note(act, target, id, allowed, answer)?;
        result
    }

    /// Writes that the plugin looks at something for the first time, and whether it may.
    ///
    /// # Errors
    /// A trap if it cannot be written.
    pub(super) fn note_look(
        &mut self,
        act: &'static str,
        target: &str,
        allowed: bool,
    ) -> wasmtime::Result<()> {
        if self.audit.is_none() || self.looked.contains(&(act, target.to_owned())) {
            return Ok(());
        }
        if self.looked.len() < MAX_LOOKS {
            self.looked.insert((act, target.to_owned()));
        }
        self.note(act, target, None, allowed, allowed.then(|| "ok".into()))
    }

    /// Writes one line, if somebody wants it.
    ///
    /// # Errors
    /// A trap if it cannot be written.
    pub(super) fn note(
        &self,
        act: &str,
        target: &str,
        id: Option<u64>,
        allowed: bool,
        answer: Option<String>,
    ) -> wasmtime::Result<()> {
        let Some(audit) = &self.audit else { return Ok(()) };
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
