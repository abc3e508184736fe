//! Writes a recording: each line as soon as its event has happened.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::{Call, End, FORMAT, Header, Stream, Text};
use crate::plugin::{Abort, Outcome};

/// A recording that is being written; clones write to the same file.
#[derive(Clone)]
pub struct Recording {
    sink: Arc<Mutex<Sink>>,
}

struct Sink {
    to: Box<dyn Write + Send>,
    /// The first write error. Nothing is written after it: later lines would be at a wrong position.
    failed: Option<String>,
}

impl Recording {
    /// Begins the recording of a plugin with this name.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn start(to: impl Write + Send + 'static, plugin: &str) -> io::Result<Recording> {
        let recording = Recording { sink: Arc::new(Mutex::new(Sink { to: Box::new(to), failed: None })) };
        let contract = ks_wit::CONTRACT.to_owned();
        recording
            .write(&Header { format: FORMAT, contract, plugin: plugin.to_owned() })
            .map_err(io::Error::other)?;
        Ok(recording)
    }

    /// Writes a call and its answer, or why it did not return.
    ///
    /// # Errors
    /// A trap that ends the plugin, if this line or an earlier one cannot be written.
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

    /// Writes text that the host printed. The next call reports a failure.
    pub(crate) fn text(&self, host: Stream, text: &[u8]) {
        let _ = self.write(&Text { host, text: super::bytes(text) });
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn end(&self, outcome: &Outcome) -> Result<(), String> {
        self.write(&End::of(outcome))
    }

    fn write(&self, line: &impl Serialize) -> Result<(), String> {
        // A writer that panicked has written nothing, or half a line, which the reader rejects.
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
