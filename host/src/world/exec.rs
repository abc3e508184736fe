//! `exec`: programs outside of the sandbox. No policy of this version allows one, so that a plugin stays as
//! limited as the rest of the contract promises.

use super::audit::Decision;
use super::bindings::kernelscript::host::console::Value;
use super::bindings::kernelscript::host::exec::Host;
use super::error::HostError;
use super::state::State;
use crate::text::{MOST_BYTES, visible};

impl Host for State {
    fn run(&mut self, file: String) -> Result<(), HostError> {
        self.refused(&format!("run `{}`", visible(&file, MOST_BYTES)))
    }

    fn call(&mut self, module: String, function: String, _args: Vec<Value>) -> Result<u64, HostError> {
        let (module, function) = (visible(&module, MOST_BYTES), visible(&function, MOST_BYTES));
        self.refused(&format!("call `{function}` of the Python module `{module}`"))
    }
}

impl State {
    fn refused<T>(&mut self, what: &str) -> Result<T, HostError> {
        self.note("exec", what, None, Decision::Denied, None)?;
        Err(HostError::denied(format!(
            "cannot {what}\n  because: a plugin runs nothing outside of its sandbox\n  \
             do: start it yourself, next to the plugin; pinned maps are the data that both can see"
        )))
    }
}
