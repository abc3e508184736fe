//! `symbols`: names and source lines of addresses.

use super::audit::Decision;
use super::bindings::kernelscript::host::symbols::Host;
use super::state::State;
use crate::policy::Class;

impl Host for State {
    fn name(&mut self, process: Option<i32>, address: u64) -> wasmtime::Result<String> {
        let owner = if process.is_some() { "process" } else { "kernel" };
        let decided = self.policy.check(Class::Symbols, owner).map_err(|denied| denied.to_string());
        let whose = process.map_or_else(|| owner.to_owned(), |pid| format!("task {pid}"));
        let decision = if decided.is_ok() { Decision::Allowed } else { Decision::Denied };
        self.note_look("symbols", &whose, decision)?;
        if let Err(denied) = decided {
            self.output.warn_once(0, &denied);
            return Ok(format!("{address:#x}"));
        }
        let name = self.symbols.name(process, address).unwrap_or_else(|error| {
            // One line for each task, because a profile resolves thousands of addresses.
            self.output.warn_once(0, &error.to_string());
            None
        });
        Ok(name.unwrap_or_else(|| format!("{address:#x}")))
    }
}
