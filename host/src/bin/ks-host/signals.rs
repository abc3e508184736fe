//! Ctrl-C and SIGTERM: the first asks the plugin to stop, the second ends it.

use ks_host::plugin::{StopHandle, StopReason};
use nix::sys::signal::{SigSet, Signal};

/// Blocks the signals in the calling thread, and so in all that it starts, and waits for them on a thread of its own:
/// no code runs in a signal handler.
pub(crate) fn stop_on_signals(stop: StopHandle) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        // The set holds valid signals only, so waiting does not fail.
        while signals.wait().is_ok() {
            if asked {
                stop.kill();
            } else {
                stop.ask(StopReason::Asked);
                asked = true;
            }
        }
    })?;
    Ok(())
}
