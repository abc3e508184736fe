//! What WASI functions do beyond their own handles: output, waits, and the words of the plugin. In a worker the
//! broker does it.

use std::time::{Duration, Instant};

use super::super::served::{Number, Served};
use super::super::state::State;
use super::super::wire;

impl State {
    /// Returns the plugin's name and its arguments, as a program expects them.
    pub(super) fn wasi_words(&mut self) -> wasmtime::Result<Vec<String>> {
        if self.broker.is_some() {
            return Ok(wire::read(&self.ask_broker(Number::WASI_WORDS, |_| ())?)?);
        }
        Ok(std::iter::once(&self.name).chain(&self.arguments).cloned().collect())
    }

    /// Writes to the standard output or error.
    pub(super) fn wasi_write(&mut self, to_error: bool, bytes: Vec<u8>) -> wasmtime::Result<()> {
        if self.broker.is_some() {
            let written = (to_error, bytes);
            return Ok(wire::read(&self.ask_broker(Number::WASI_WRITE, |call| wire::put(&written, call))?)?);
        }
        if to_error {
            self.output.plugin_error(&bytes);
        } else {
            self.show_prints();
            self.output.print(&bytes);
        }
        Ok(())
    }

    /// Reports something once.
    pub(super) fn wasi_warning(&mut self, message: &str) -> wasmtime::Result<()> {
        if self.broker.is_some() {
            let message = message.to_owned();
            return Ok(wire::read(
                &self.ask_broker(Number::WASI_WARNING, |call| wire::put(&message, call))?,
            )?);
        }
        self.output.warn_once(0, message);
        Ok(())
    }

    /// Waits for a time, or only starts the observed command. Returns whether the plugin is to stop.
    pub(super) fn wasi_wait(&mut self, time: Option<Duration>) -> wasmtime::Result<bool> {
        if self.broker.is_some() {
            let nanoseconds = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            return Ok(wire::read(
                &self.ask_broker(Number::WASI_WAIT, |call| wire::put(&nanoseconds, call))?,
            )?);
        }
        self.release_command()?;
        if let Some(deadline) = time.and_then(|time| Instant::now().checked_add(time)) {
            self.wait(&[], Some(deadline)).map_err(wasmtime::Error::from)?;
        }
        Ok(self.stop.stopping())
    }
}

/// Adds what the WASI functions of a worker ask for. It asks for nothing that the contract has not, and a policy
/// that denies WASI has denied the plugin.
pub(crate) fn serve(served: &mut Served<State>) {
    served.add_own(Number::WASI_WORDS, |state, ()| state.wasi_words());
    served.add_own(Number::WASI_WRITE, |state, (to_error, bytes): (bool, Vec<u8>)| {
        state.wasi_write(to_error, bytes)
    });
    served.add_own(Number::WASI_WARNING, |state, message: String| state.wasi_warning(&message));
    served.add_own(Number::WASI_WAIT, |state, nanoseconds: Option<u64>| {
        state.wasi_wait(nanoseconds.map(Duration::from_nanos))
    });
}
