//! The list of online CPUs, and a cheap check whether it may have changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::time::{ClockId, clock_gettime};

use super::descriptors::CountedDescriptors;
use super::locations::Surroundings;
use super::pmu;

/// More than the time between reading two clocks, and less than any sleep of a machine, in nanoseconds.
const SHORTEST_SLEEP: i64 = 100_000_000;

/// The online CPUs, as the kernel listed them at the last check.
pub(super) struct Online {
    file: File,
    list: Vec<u8>,
    /// The kernel's counter of device events. It counts every CPU that goes offline or comes online, so a CPU
    /// that does both is noticed.
    uevents: Option<File>,
    seen: u64,
    /// How long the machine has slept, in nanoseconds. All CPUs but one go offline for a sleep, without a
    /// device event.
    slept: i64,
    _descriptors: CountedDescriptors,
}

impl Online {
    /// Number of descriptors that it holds open.
    pub(super) const DESCRIPTORS: usize = 2;

    /// Reads the current list. None if the kernel does not publish it.
    pub(super) fn of(surroundings: &Surroundings) -> Option<Online> {
        let file = File::open(surroundings.sysfs.online_file()).ok()?;
        let uevents = File::open(surroundings.sysfs.uevent_file()).ok();
        let descriptors = surroundings.descriptors.hold(Online::DESCRIPTORS);
        let mut online =
            Online { file, list: Vec::new(), uevents, seen: 0, slept: 0, _descriptors: descriptors };
        online.has_changed();
        Some(online)
    }

    /// Whether CPUs may have gone offline or come online since the last call.
    pub(super) fn has_changed(&mut self) -> bool {
        if let Some(uevents) = &self.uevents {
            let seen = number(uevents);
            let slept = slept();
            if self.seen == seen && slept - self.slept < SHORTEST_SLEEP {
                return false;
            }
            (self.seen, self.slept) = (seen, slept);
        }
        let mut list = [0; 4096];
        let Ok(length) = self.file.read_at(&mut list, 0) else { return false };
        let changed = self.list != list[..length];
        if changed {
            self.list = list[..length].to_vec();
        }
        changed || self.uevents.is_some()
    }

    /// Returns the online CPUs as of the last check.
    pub(super) fn cpus(&self) -> Vec<i32> {
        std::str::from_utf8(&self.list).ok().and_then(pmu::cpus).unwrap_or_default()
    }
}

fn number(file: &File) -> u64 {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Source: clock_gettime(2): the difference of CLOCK_BOOTTIME, which includes sleep, and CLOCK_MONOTONIC.
fn slept() -> i64 {
    let now = |clock| clock_gettime(clock).map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec());
    now(ClockId::CLOCK_BOOTTIME) - now(ClockId::CLOCK_MONOTONIC)
}
