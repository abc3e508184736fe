//! What a worker may send, given to a broker without a worker: for fuzzing.

use std::io;

use wasmtime::Store;

use super::protocol::{FromWorker, decoded, most_bytes};
use crate::options::RunOptions;
use crate::plugin::{Engine, EngineError, Limits, StopHandle, StopReason};
use crate::policy::Policy;
use crate::world::{self, Answers, Served, State};

/// Interfaces that the worker of [`HostileBroker`] may call.
const INTERFACES: [&str; 15] = [
    "args", "bpf", "clock", "console", "display", "globals", "layouts", "losses", "maps", "perf", "programs",
    "ring", "symbols", "system", "types",
];

/// A broker whose plugin has no object, may do nothing, and was asked to stop, so that no call waits.
#[doc(hidden)]
pub struct HostileBroker {
    engine: Engine,
    functions: Served<State>,
}

impl HostileBroker {
    /// Creates a broker that answers every function of the contract.
    ///
    /// # Errors
    /// If the engine does not start.
    pub fn new() -> Result<HostileBroker, EngineError> {
        let imports = INTERFACES.map(|interface| format!("kernelscript:host/{interface}@0.2.0"));
        Ok(HostileBroker { engine: Engine::new()?, functions: world::served(Answers::Host, &imports)? })
    }

    /// Reads messages, each a length of two bytes and that many, and answers the calls among them in one state. Returns
    /// the number of calls that were answered.
    pub fn answer(&self, mut messages: &[u8]) -> usize {
        let stop = StopHandle::new();
        stop.ask(StopReason::Asked);
        let options = RunOptions {
            stdout: Box::new(io::sink()),
            stderr: Box::new(io::sink()),
            policy: Policy::nothing(),
            stop,
            ..RunOptions::new("hostile")
        };
        let most = most_bytes(Limits::of(&options.policy).call_bytes);
        let engine = self.engine.inner().expect("it was made");
        let mut store = Store::new(engine, State::new(options, None, None));
        let mut answered = 0;
        while let Some((len, rest)) = messages.split_first_chunk() {
            let Some((message, rest)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else { break };
            messages = rest;
            let Ok(FromWorker::Call(call) | FromWorker::Tell(call)) = decoded(message) else { continue };
            answered += usize::from(self.functions.answer(&mut store, &call, most).is_ok());
        }
        answered
    }
}
