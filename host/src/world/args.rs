//! `args`: the plugin's arguments, and its exit.

use super::arguments::{self, ParsedArguments};
use super::bindings::kernelscript::host::args::{Host, OptionSpec, Parsed};
use super::state::State;
use crate::plugin::Exit;

impl Host for State {
    fn words(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(self.arguments.clone())
    }

    fn parse(&mut self, options: Vec<OptionSpec>) -> wasmtime::Result<Parsed> {
        let parsed = arguments::parse(&self.name, &self.called_as, &self.arguments, &options)
            .map_err(wasmtime::Error::new)?;
        Ok(match parsed {
            ParsedArguments::Values(values) => Parsed::Values(values),
            ParsedArguments::Help(usage) => {
                self.output.print_from_host(usage.as_bytes());
                Parsed::Exit(0)
            }
            ParsedArguments::Wrong(text) => {
                self.output.warn_usage(&text);
                Parsed::Exit(1)
            }
        })
    }

    fn config(&mut self, block: String, mut defaults: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        self.settings.apply(&block, &mut defaults);
        Ok(defaults)
    }

    fn has_command(&mut self) -> wasmtime::Result<bool> {
        Ok(self.has_command)
    }

    fn restart_command(&mut self) -> wasmtime::Result<bool> {
        State::restart_command(self)
    }

    fn exit(&mut self, code: u8) -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exit(code)))
    }
}
