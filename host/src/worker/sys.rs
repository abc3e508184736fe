//! The signal by which a broker interrupts its worker.
#![expect(unsafe_code, reason = "a handler of a signal")]

use std::sync::OnceLock;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The signal. Nothing else uses it in a worker.
pub(super) const INTERRUPT: Signal = Signal::SIGUSR1;

/// The engine of this worker.
static ENGINE: OnceLock<wasmtime::Engine> = OnceLock::new();

extern "C" fn interrupt(_: libc::c_int) {
    if let Some(engine) = ENGINE.get() {
        engine.increment_epoch();
    }
}

/// Makes the signal interrupt the plugins of this engine. Calls of the system go on after it.
///
/// # Errors
/// Of sigaction(2).
pub(super) fn interrupt_by_signal(engine: &wasmtime::Engine) -> Result<(), Errno> {
    ENGINE.get_or_init(|| engine.clone());
    let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler reads a value that was set before, and adds to an atomic number; both may be done in a
    // handler at any time.
    unsafe { sigaction(INTERRUPT, &action) }.map(drop)
}
