//! `console`: text for the person who runs the plugin.

use super::bindings::kernelscript::host::console::{Host, Scale, Value};
use super::format;
use super::histogram::Histogram;
use super::state::State;
use crate::plugin::Abort;
use crate::text::indented;

/// Upper limit of a histogram's slots, each of which is a line of output.
const MAX_SLOTS: usize = 4096;

impl Host for State {
    fn print(&mut self, format: Vec<u8>, values: Vec<Value>) -> wasmtime::Result<()> {
        let line = format::line(&format, &values);
        self.show_prints();
        self.output.print(&line);
        Ok(())
    }

    fn histogram(&mut self, title: Vec<u8>, scale: Scale, counts: Vec<u64>) -> wasmtime::Result<()> {
        if counts.len() > MAX_SLOTS {
            let text = format!("a histogram has at most {MAX_SLOTS} slots, not {}", counts.len());
            return Err(wasmtime::Error::new(Abort(text)));
        }
        let histogram = Histogram::new(&String::from_utf8_lossy(&title), scale, &counts);
        self.show_prints();
        self.output.print_histogram(&histogram);
        Ok(())
    }

    fn warn(&mut self, message: String) -> wasmtime::Result<()> {
        self.output.plugin_warn(&message);
        Ok(())
    }

    fn warn_once(&mut self, key: u64, message: String) -> wasmtime::Result<()> {
        self.output.plugin_warn_once(key, &message);
        Ok(())
    }

    fn abort(&mut self, message: String) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Abort(indented(&message))))
    }
}
