//! Which CPUs are online, and whether that has changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::places::Surroundings;
use super::pmu;

/// Which CPUs are online, as the kernel wrote it when it was last asked.
pub(super) struct Online {
    file: File,
    list: Vec<u8>,
}

impl Online {
    /// The list as it is now. None if the kernel does not tell.
    pub(super) fn of(surroundings: &Surroundings) -> Option<Online> {
        let file = File::open(surroundings.sysfs.online_file()).ok()?;
        let mut online = Online { file, list: Vec::new() };
        online.has_changed();
        Some(online)
    }

    /// Whether it is another list than the last time.
    pub(super) fn has_changed(&mut self) -> bool {
        let mut list = [0; 4096];
        let Ok(length) = self.file.read_at(&mut list, 0) else { return false };
        let changed = self.list != list[..length];
        if changed {
            self.list = list[..length].to_vec();
        }
        changed
    }

    /// The CPUs, as they were the last time.
    pub(super) fn cpus(&self) -> Vec<i32> {
        std::str::from_utf8(&self.list).ok().and_then(pmu::cpus).unwrap_or_default()
    }
}
