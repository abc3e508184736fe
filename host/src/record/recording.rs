//! Writes a record: each line when what it says has happened.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::{Call, End, FORMAT, Header, Stream, Text};
use crate::plugin::{Abort, Outcome};

/// Where a run is written down; clones write to the same place.
#[derive(Clone)]
pub struct Recording {
    sink: Arc<Mutex<Sink>>,
}

struct Sink {
    to: Box<dyn Write + Send>,
    /// Why something could not be written. What comes later would stand in a wrong place.
    failed: Option<String>,
}

impl Recording {
    /// Begins a record of a plugin of this name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn start(to: impl Write + Send + 'static, plugin: &str) -> io::Result<Recording> {
        let recording = Recording { sink: Arc::new(Mutex::new(Sink { to: Box::new(to), failed: None })) };
        let contract = ks_wit::CONTRACT.to_owned();
        recording
            .write(&Header { format: FORMAT, contract, plugin: plugin.to_owned() })
            .map_err(io::Error::other)?;
        Ok(recording)
    }

    /// Writes a call and its answer, or why it did not come back.
    ///
    /// # Errors
    /// What ends the plugin: a line that cannot be written, now or before.
    pub(crate) fn call(
        &self,
        function: &str,
        args: Vec<Value>,
        answer: Result<Value, String>,
    ) -> wasmtime::Result<()> {
        let (answer, trap) = match answer {
            Ok(answer) => (answer, None),
            Err(trap) => (Value::Null, Some(trap)),
        };
        self.write(&Call { call: function.to_owned(), args, answer, trap })
            .map_err(|reason| wasmtime::Error::new(Abort(reason)))
    }

    /// Writes text that the host showed. A failure is told by the next call.
    pub(crate) fn text(&self, host: Stream, text: &[u8]) {
        let _ = self.write(&Text { host, text: super::bytes(text) });
    }

    /// Ends the record.
    ///
    /// # Errors
    /// Why a line of it could not be written.
    pub(crate) fn end(&self, outcome: &Outcome) -> Result<(), String> {
        self.write(&End::of(outcome))
    }

    fn write(&self, line: &impl Serialize) -> Result<(), String> {
        // A writer that panicked has written nothing, or half a line, which a reader refuses.
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if sink.failed.is_none() {
            let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut line| {
                line.push(b'\n');
                sink.to.write_all(&line)?;
                sink.to.flush()
            });
            sink.failed = written.err().map(|error| format!("the record cannot be written: {error}"));
        }
        sink.failed.clone().map_or(Ok(()), Err)
    }
}
