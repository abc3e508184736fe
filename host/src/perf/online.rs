//! Which CPUs are online, and whether that may have changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::time::{ClockId, clock_gettime};

use super::locations::Surroundings;
use super::pmu;

/// More than the time between two clocks that are read one after the other, less than any sleep of a machine, in
/// nanoseconds.
const SHORTEST_SLEEP: i64 = 100_000_000;

/// Which CPUs are online, as the kernel wrote it when it was last asked.
pub(super) struct Online {
    file: File,
    list: Vec<u8>,
    /// Counts what the kernel tells of devices: of every CPU that goes or comes, so that one that does both is noticed.
    uevents: Option<File>,
    seen: u64,
    /// How long the machine has slept, in nanoseconds. All CPUs but one go for that, without a word.
    slept: i64,
}

impl Online {
    /// The list as it is now. None if the kernel does not tell.
    pub(super) fn of(surroundings: &Surroundings) -> Option<Online> {
        let file = File::open(surroundings.sysfs.online_file()).ok()?;
        let uevents = File::open(surroundings.sysfs.uevent_file()).ok();
        let mut online = Online { file, list: Vec::new(), uevents, seen: 0, slept: 0 };
        online.has_changed();
        Some(online)
    }

    /// Whether CPUs may have gone or come since the last time.
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

    /// The CPUs, as they were the last time.
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

/// Source: clock_gettime(2): the one clock goes on while the machine sleeps, the other does not.
fn slept() -> i64 {
    let now = |clock| clock_gettime(clock).map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec());
    now(ClockId::CLOCK_BOOTTIME) - now(ClockId::CLOCK_MONOTONIC)
}
