//! `exec`: programs outside of the sandbox. No policy of this version allows one, so that a plugin stays as limited as
//! the rest of the contract says.

use super::bindings::kernelscript::host::console::Value;
use super::bindings::kernelscript::host::exec::Host;
use super::error::HostError;
use super::state::State;

impl Host for State {
    fn run(&mut self, file: String) -> Result<(), HostError> {
        Err(denied(&format!("run `{file}`")))
    }

    fn call(&mut self, module: String, function: String, _args: Vec<Value>) -> Result<u64, HostError> {
        Err(denied(&format!("call `{function}` of the Python module `{module}`")))
    }
}

fn denied(what: &str) -> HostError {
    HostError::denied(format!(
        "cannot {what}\n  because: a plugin runs nothing outside of its sandbox\n  do: start it yourself, beside \
         the plugin; pinned maps are the data that both can see"
    ))
}
