//! `clock`: the simulated time of the test, which advances when the plugin waits.

use crate::bindings::kernelscript::host::types::Error;

use super::super::state::with;

pub(crate) fn now() -> u64 {
    with(|state| state.now)
}

/// A test's machine is never suspended.
pub(crate) fn boottime() -> u64 {
    now()
}

/// A test's time starts with that of the world.
pub(crate) fn wall_clock() -> u64 {
    now()
}

pub(crate) fn sleep(duration: u64) -> Result<(), Error> {
    with(|state| state.wait(state.now.saturating_add(duration)))
}

pub(crate) fn sleep_until(deadline: u64) -> Result<(), Error> {
    with(|state| state.wait(state.now.max(deadline)))
}

pub(crate) fn stopping() -> bool {
    with(|state| state.now >= state.stop)
}
