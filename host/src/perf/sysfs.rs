//! The PMUs that the kernel publishes.

use std::fs;
use std::path::Path;

/// One directory per PMU, each with a file `type`.
const PMUS: &str = "/sys/bus/event_source/devices";

/// The name of the PMU whose events have this type, or None if the kernel publishes none.
///
/// Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices`.
pub(super) fn pmu_name(type_: u32) -> Option<String> {
    fs::read_dir(PMUS).ok()?.flatten().find_map(|entry| {
        let published = type_of(&entry.path())?;
        (published == type_).then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

fn type_of(pmu: &Path) -> Option<u32> {
    fs::read_to_string(pmu.join("type")).ok()?.trim().parse().ok()
}
