//! Timers: programs that the kernel runs periodically.
//!
//! A timer has no link and no descriptor of its own. It lives in the value of a map for as long as a process
//! holds that map, so it ends with this process, for whatever reason.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::super::error::BpfError;
use super::super::link::Link;
use super::super::map::{Map, UpdateMode};
use super::super::program::Program;
use super::super::sys;
use super::super::test_run::MIN_PACKET_BYTES;

/// The only key of a timer's map: index 0.
const KEY: [u8; 4] = [0; 4];

/// Arming is attempted up to 100 times, because it may fail with ENOMEM while plenty of memory is free. The
/// kernel allocates a timer without sleeping and frees ended ones only some 20 ms later
/// (kernel/bpf/helpers.c, `__bpf_async_init`, v6.18).
const MAX_ATTEMPTS: u32 = 100;
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

impl Program<'_> {
    /// Starts the program's timer by running the program once, which arms it.
    pub(super) fn start_timer(&self, cookie: u64) -> Result<Link, BpfError> {
        let Some(map) = self.timer else {
            return Err(BpfError::UnsupportedKind { program: self.name(), kind: self.kind() });
        };
        if cookie != 0 {
            return Err(BpfError::NoCookie { program: self.name(), since: None });
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
        let packet = vec![0; MIN_PACKET_BYTES as usize];
        let run = sys::TestRun { packet, context: Vec::new(), repeat: 1 };
        match sys::test_run(self.descriptor(), &run)?.return_value.cast_signed() {
            0 => Ok(()),
            error => Err(Errno::from_raw(error.saturating_neg())),
        }
    }
}

/// An armed timer. Dropping it cancels the timer and waits for a running callback.
#[derive(Debug)]
pub struct Running {
    map: Arc<Map>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Writing the value cancels its timer (kernel/bpf/arraymap.c, `array_map_update_elem`, v5.15).
        let value = vec![0; self.map.shape().value_size as usize];
        if let Err(error) = self.map.update(&KEY, &value, UpdateMode::Any) {
            tracing::error!("a timer runs on until this process ends: {error}");
        }
    }
}
