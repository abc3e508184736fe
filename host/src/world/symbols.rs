//! `symbols`: names and source lines of addresses.

use super::audit::Decision;
use super::bindings::kernelscript::host::symbols::Host;
use super::stacks;
use super::state::State;
use crate::policy::Class;
use crate::stacks::{LOST, NO_STACK, StackAddresses};
use crate::symbols::Symbol;

/// Upper limit of the text of a stack in bytes.
const MAX_STACK_BYTES: usize = (8 << 10) - 1;

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

    fn kernel_stack(&mut self, map: String, id: i64) -> wasmtime::Result<String> {
        self.stack(&map, None, id)
    }

    fn process_stack(&mut self, map: String, process: i32, id: i64) -> wasmtime::Result<String> {
        self.stack(&map, Some(process), id)
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

    /// Returns the functions of a stack, one on each line: of a process, or of the kernel.
    ///
    /// # Errors
    /// A trap if the audit log cannot be written.
    pub(super) fn stack(&mut self, map: &str, process: Option<i32>, id: i64) -> wasmtime::Result<String> {
        let addresses = match self.stack_addresses(map, id) {
            StackAddresses::Known(addresses) => addresses,
            StackAddresses::None => return Ok(NO_STACK.to_owned()),
            StackAddresses::Lost => return Ok(LOST.to_owned()),
        };
        let functions = if self.may_name(process)? {
            let _work = self.stop.work();
            let (functions, error) = self.symbols.stack(process, &addresses);
            if let Some(error) = error {
                self.output.warn_once(0, &error.to_string());
            }
            functions
        } else {
            vec![None; addresses.len()]
        };
        let line =
            |(address, function): (&u64, Option<String>)| function.unwrap_or_else(|| format!("{address:#x}"));
        Ok(joined(&addresses.iter().zip(functions).map(line).collect::<Vec<String>>()))
    }

    fn stack_addresses(&mut self, map: &str, id: i64) -> StackAddresses {
        let Ok(key) = u32::try_from(id) else {
            return if id == stacks::NO_STACK { StackAddresses::None } else { StackAddresses::Lost };
        };
        let map = self.object().and_then(|object| object.map(map));
        stacks::addresses(map, key).unwrap_or(StackAddresses::Lost)
    }

    /// Looks up an address if the policy allows it. A failure is reported once.
    fn symbol(&mut self, process: Option<i32>, address: u64) -> wasmtime::Result<Option<Symbol>> {
        if !self.may_name(process)? {
            return Ok(None);
        }
        Ok(self.symbols.find(process, address).unwrap_or_else(|error| {
            // One line for each task, because a profile resolves thousands of addresses.
            self.output.warn_once(0, &error.to_string());
            None
        }))
    }

    /// Whether the policy lets addresses of a process, or of the kernel, be named. A refusal is reported once.
    fn may_name(&mut self, process: Option<i32>) -> wasmtime::Result<bool> {
        let owner = if process.is_some() { "process" } else { "kernel" };
        let decided = self.policy.check(Class::Symbols, owner).map_err(|denied| denied.to_string());
        let whose = process.map_or_else(|| owner.to_owned(), |pid| format!("task {pid}"));
        let decision = if decided.is_ok() { Decision::Allowed } else { Decision::Denied };
        self.note_look("symbols", &whose, decision)?;
        if let Err(denied) = decided {
            self.output.warn_once(0, &denied);
            return Ok(false);
        }
        Ok(true)
    }
}

/// Joins the lines of a stack. Those that do not fit are counted in a last line.
fn joined(lines: &[String]) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let left_out = format!("[{} more]", lines.len() - at);
        if text.len() + line.len() + left_out.len() + 2 > MAX_STACK_BYTES {
            return text + &left_out;
        }
        text.push_str(line);
        if at + 1 < lines.len() {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stack_says_how_much_is_left_out() {
        let lines = |count: usize| vec!["x".repeat(99); count];
        assert_eq!(joined(&lines(2)), format!("{0}\n{0}", "x".repeat(99)));
        let long = joined(&lines(127));
        assert!(long.len() <= MAX_STACK_BYTES && long.len() > MAX_STACK_BYTES - 200, "{}", long.len());
        let shown = long.lines().filter(|line| line.starts_with('x')).count();
        assert_eq!(long.lines().last(), Some(format!("[{} more]", 127 - shown).as_str()));
    }
}
