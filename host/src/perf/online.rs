//! The list of online CPUs, and a cheap check whether it may have changed.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::time::{ClockId, clock_gettime};

use super::descriptors::CountedDescriptors;
use super::locations::Surroundings;
use super::pmu;

/// More than the time between reading two clocks, and less than any sleep of a machine, in nanoseconds.
const SHORTEST_SLEEP: i64 = 100_000_000;

/// A moment, as far as CPUs that go offline and come online can tell it from others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(super) struct CpuMoment {
    /// The kernel's number of device events. It counts every CPU that goes offline or comes online, so a CPU
    /// that does both is noticed.
    events: u64,
    /// How long the machine has slept, in nanoseconds. All CPUs but one go offline for a sleep, without a
    /// device event.
    slept: i64,
}

impl CpuMoment {
    /// Returns the current moment, by the file that has the number of device events.
    pub(super) fn now(uevents: &File) -> CpuMoment {
        CpuMoment { events: number(uevents), slept: slept() }
    }

    /// Whether CPUs may have gone offline or come online since an earlier moment.
    pub(super) fn differs_from(self, earlier: CpuMoment) -> bool {
        self.events != earlier.events || self.slept - earlier.slept >= SHORTEST_SLEEP
    }
}

/// The online CPUs, as the kernel listed them at the last check.
pub(super) struct Online {
    file: File,
    list: Vec<u8>,
    /// The number of device events; none if the kernel does not publish it.
    uevents: Option<File>,
    checked: CpuMoment,
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
        let checked = CpuMoment::default();
        let mut online = Online { file, list: Vec::new(), uevents, checked, _descriptors: descriptors };
        online.has_changed();
        Some(online)
    }

    /// Whether CPUs may have gone offline or come online since the last call.
    pub(super) fn has_changed(&mut self) -> bool {
        if let Some(uevents) = &self.uevents {
            // Before the list is read: a later change has a later moment.
            let now = CpuMoment::now(uevents);
            if !now.differs_from(self.checked) {
                return false;
            }
            self.checked = now;
        }
        let mut list = [0; 4096];
        let Ok(length) = self.file.read_at(&mut list, 0) else { return false };
        let changed = self.list != list[..length];
        if changed {
            self.list = list[..length].to_vec();
        }
        changed || self.uevents.is_some()
    }

    /// Returns the moment of the last check, and the file that tells it from later ones; none if only the list tells.
    pub(super) fn checked(&self) -> Option<(CpuMoment, BorrowedFd<'_>)> {
        Some((self.checked, self.uevents.as_ref()?.as_fd()))
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
