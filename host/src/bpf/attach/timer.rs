//! Timers: programs that the kernel runs again and again.
//!
//! A timer has no link and no descriptor of its own: it lives in the value of a map, as long as a process holds that map.
//! So it ends with this process, however that ends.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::super::error::BpfError;
use super::super::link::Link;
use super::super::map::{Map, UpdateMode};
use super::super::program::Program;
use super::super::sys;
use super::super::test_run::MIN_PACKET_BYTES;

/// The only key of a timer's map.
const KEY: [u8; 4] = [0; 4];

/// The kernel takes the memory of a timer without waiting for any, and gives that of ended ones back some 20 ms later: it may
/// say ENOMEM with plenty left (kernel/bpf/helpers.c, `__bpf_async_init`, v6.18).
const MAX_ATTEMPTS: u32 = 100;
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

impl Program<'_> {
    /// Starts the program's timer: one run of the program arms it.
    pub(super) fn start_timer(&self, target: &str) -> Result<Link, BpfError> {
        let Some(map) = self.timer else {
            return Err(BpfError::UnsupportedKind { program: self.name(), kind: self.kind() });
        };
        if !target.is_empty() {
            return Err(self.target(target, "a timer has none: an empty string"));
        }
        let mut armed = self.arm();
        for _ in 0..MAX_ATTEMPTS {
            if armed != Err(Errno::ENOMEM) {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            armed = self.arm();
        }
        match armed {
            Ok(()) => Ok(Link::of_timer(Running { map: map.clone() })),
            Err(errno) => Err(self.kernel("start the timer", "bpf(BPF_PROG_TEST_RUN)", errno)),
        }
    }

    fn arm(&self) -> Result<(), Errno> {
        let packet = [0; MIN_PACKET_BYTES as usize];
        match sys::test_run(self.inner.as_fd(), &packet, &[])?.cast_signed() {
            0 => Ok(()),
            error => Err(Errno::from_raw(error.saturating_neg())),
        }
    }
}

/// A timer that runs. Dropping it ends the timer and waits for a turn that is under way.
#[derive(Debug)]
pub struct Running {
    map: Arc<Map>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The kernel cancels the timer of a value that is written (kernel/bpf/arraymap.c, `array_map_update_elem`, v5.15).
        let value = vec![0; self.map.shape().value_size as usize];
        if let Err(error) = self.map.update(&KEY, &value, UpdateMode::Any) {
            tracing::error!("a timer runs on until this process ends: {error}");
        }
    }
}
