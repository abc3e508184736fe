//! What the kernel charges for the maps of a loaded object.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use super::delivered::LoadedMap;
use super::error::BpfError;
use super::map::{MapShape, possible_cpus};
use crate::policy::Admitted;
use crate::processes::limits::page_bytes;

/// Compares the charge with the limits under which the object was admitted. The thread may be confined: a
/// process may always read what it says about its own descriptors.
///
/// # Errors
/// [`BpfError::OverLimits`].
pub(super) fn check(maps: &[LoadedMap], admitted: &Admitted) -> Result<(), BpfError> {
    let cpus = possible_cpus()?;
    let charge = |name: &str| {
        let map = maps.iter().find(|map| map.name == name)?;
        charged(map.descriptor.as_fd(), map.shape, cpus as u64)
    };
    admitted.check_charges(cpus, charge).map_err(BpfError::OverLimits)
}

/// Returns the bytes that the kernel charges for a map; none if it does not say.
pub(super) fn charged(map: BorrowedFd<'_>, shape: MapShape, cpus: u64) -> Option<u64> {
    memlock(map).filter(|bytes| *bytes != footprint(shape, cpus))
}

/// Returns what the kernel says about the memory of a map.
fn memlock(map: BorrowedFd<'_>) -> Option<u64> {
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd())).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
}

/// Returns what kernels before Linux 6.4 say instead of the charge: the sizes of keys and values in pages.
///
/// Source: kernel/bpf/syscall.c, `bpf_map_memory_footprint`, v6.1; `bpf_map_show_fdinfo`.
fn footprint(shape: MapShape, cpus: u64) -> u64 {
    let value = u64::from(shape.value_size);
    let values = if shape.per_cpu { value.next_multiple_of(8).saturating_mul(cpus) } else { value };
    let entry = values.saturating_add(shape.key_size.into()).next_multiple_of(8);
    entry.saturating_mul(shape.max_entries.into()).checked_next_multiple_of(page_bytes()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_say_the_sizes_of_keys_and_values() {
        let shape = MapShape { ty: 1, key_size: 4, value_size: 12, max_entries: 1024, per_cpu: false };
        let page = page_bytes();
        assert_eq!(footprint(shape, 4), (16_u64 << 10).next_multiple_of(page));
        assert_eq!(footprint(MapShape { per_cpu: true, ..shape }, 4), (72_u64 << 10).next_multiple_of(page));
        let most = MapShape { value_size: u32::MAX, max_entries: u32::MAX, ..shape };
        assert!(footprint(most, 4) > u64::from(u32::MAX) * u64::from(u32::MAX));
    }
}
