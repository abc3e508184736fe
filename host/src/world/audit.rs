//! The audit: a line of JSON for every act of a plugin that faces the kernel: what was asked, what was decided, what the
//! kernel answered.
//!
//! Acts change what the kernel holds for the plugin, or what the plugin gets to see: `ask` (what its file needs,
//! judged at the start), `load`, `program`, `map`, `ring`, `attach`, `register`, `open`, `enable`, `disable`, `show`
//! (an event to programs), `test-run`, `detach`, `find` (a process by its name), `over-budget`, `end`. Reads and
//! writes of what is open already are none: they are as many as the plugin likes. Nor is each look at what is not the
//! plugin's own: `symbols` (of the kernel or of a task) and `names` (of tasks) are written when the plugin first
//! looks there. `exec` is always denied.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use nix::errno::Errno;
use serde::Serialize;

use super::bindings::kernelscript::host::types::ErrorKind;
use super::error::HostError;
use super::state::State;
use crate::plugin::Abort;

/// Most targets that are remembered as looked at; later ones are written each time. Guards the host's memory.
const MAX_LOOKS: usize = 1 << 16;

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
pub(crate) struct Entry<'a> {
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

    /// Writes one line, with the time.
    pub(crate) fn write(&self, entry: &Entry<'_>) -> Result<(), AuditError> {
        #[derive(Serialize)]
        struct Timed<'a> {
            time: String,
            #[serde(flatten)]
            entry: &'a Entry<'a>,
        }
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let mut line = serde_json::to_vec(&Timed { time, entry }).map_err(io::Error::from)?;
        line.push(b'\n');
        // A writer that panicked has written nothing, or half a line, and the next one says more.
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write_all(&line)?;
        Ok(sink.flush()?)
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
        let entry = Entry { plugin: &self.name, act, target, id, allowed, answer };
        audit.write(&entry).map_err(|error| wasmtime::Error::new(Abort(error.to_string())))
    }
}

fn errno_name(number: u32) -> String {
    match i32::try_from(number).map(Errno::from_raw) {
        Ok(errno) if errno != Errno::UnknownErrno => format!("{errno:?}"),
        _ => format!("errno {number}"),
    }
}
