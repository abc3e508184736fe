//! `clock`: time, waiting, and requests to stop.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::bindings::kernelscript::host::clock::Host;
use super::error::HostError;
use super::state::State;

impl Host for State {
    fn now(&mut self) -> wasmtime::Result<u64> {
        since_start(ClockId::CLOCK_MONOTONIC)
    }

    fn wall_clock(&mut self) -> wasmtime::Result<u64> {
        since_start(ClockId::CLOCK_REALTIME)
    }

    fn boottime(&mut self) -> wasmtime::Result<u64> {
        since_start(ClockId::CLOCK_BOOTTIME)
    }

    fn sleep(&mut self, duration: u64) -> Result<(), HostError> {
        self.release_command()?;
        // A deadline that overflows the clock means no deadline.
        let deadline = Instant::now().checked_add(Duration::from_nanos(duration));
        self.wait(&[], deadline).map_err(wasmtime::Error::from)?;
        if self.stop.stopping() { Err(HostError::interrupted()) } else { Ok(()) }
    }

    fn sleep_until(&mut self, deadline: u64) -> Result<(), HostError> {
        let now = Host::now(self)?;
        self.sleep(deadline.saturating_sub(now))
    }

    fn stopping(&mut self) -> wasmtime::Result<bool> {
        self.release_command()?;
        Ok(self.stop.stopping())
    }
}

/// Returns the time of a clock, in nanoseconds.
fn since_start(clock: ClockId) -> wasmtime::Result<u64> {
    let time = Duration::from(clock_gettime(clock).map_err(wasmtime::Error::new)?);
    // 64 bits of nanoseconds suffice for 584 years.
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
