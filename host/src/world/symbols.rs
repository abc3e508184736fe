//! `symbols`: names and source lines of addresses.

use super::audit::Decision;
use super::bindings::kernelscript::host::symbols::Host;
use super::state::State;
use crate::policy::Class;
use crate::symbols::Symbol;

impl Host for State {
    fn name(&mut self, process: Option<i32>, address: u64) -> wasmtime::Result<String> {
        let symbol = self.symbol(process, address)?;
        let name = |symbol: Symbol| format!("{}+{:#x}", symbol.function, symbol.offset);
        Ok(symbol.map_or_else(|| format!("{address:#x}"), name))
    }

    fn kernel_function(&mut self, address: u64) -> wasmtime::Result<String> {
        self.function(None, address)
    }

    fn process_function(&mut self, process: i32, address: u64) -> wasmtime::Result<String> {
        self.function(Some(process), address)
    }
}

impl State {
    /// Returns the name of the function at an address of a process, or of the kernel; the address if it has none.
    ///
    /// # Errors
    /// A trap if the audit log cannot be written.
    pub(super) fn function(&mut self, process: Option<i32>, address: u64) -> wasmtime::Result<String> {
        let symbol = self.symbol(process, address)?;
        Ok(symbol.map_or_else(|| format!("{address:#x}"), |symbol| symbol.function))
    }

    /// Looks up an address if the policy allows it. A failure is reported once.
    fn symbol(&mut self, process: Option<i32>, address: u64) -> wasmtime::Result<Option<Symbol>> {
        let owner = if process.is_some() { "process" } else { "kernel" };
        let decided = self.policy.check(Class::Symbols, owner).map_err(|denied| denied.to_string());
        let whose = process.map_or_else(|| owner.to_owned(), |pid| format!("task {pid}"));
        let decision = if decided.is_ok() { Decision::Allowed } else { Decision::Denied };
        self.note_look("symbols", &whose, decision)?;
        if let Err(denied) = decided {
            self.output.warn_once(0, &denied);
            return Ok(None);
        }
        Ok(self.symbols.find(process, address).unwrap_or_else(|error| {
            // One line for each task, because a profile resolves thousands of addresses.
            self.output.warn_once(0, &error.to_string());
            None
        }))
    }
}
