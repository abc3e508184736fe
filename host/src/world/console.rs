//! `console`: text for the person who runs the plugin.

use super::bindings::kernelscript::host::console::{Host, Value};
use super::format;
use super::state::State;
use crate::plugin::Abort;

impl Host for State {
    fn print(&mut self, format: Vec<u8>, values: Vec<Value>) -> wasmtime::Result<()> {
        let line = format::line(&format, &values);
        self.show_prints();
        self.write_out(&line);
        Ok(())
    }

    fn warn(&mut self, message: String) -> wasmtime::Result<()> {
        State::warn(self, &message);
        Ok(())
    }

    fn warn_once(&mut self, key: u64, message: String) -> wasmtime::Result<()> {
        State::warn_once(self, key, &message);
        Ok(())
    }

    fn abort(&mut self, message: String) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Abort(message)))
    }
}
