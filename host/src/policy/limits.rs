//! How much a plugin may take.

use super::Policy;
use super::file::PolicyError;
use crate::bpf::ObjectShape;
use crate::near::near;

/// Something of which a plugin may take a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Maps of its object, those of its variables included.
    Maps,
    /// Bytes of all its maps and ring buffers, as far as their shapes tell: keys and values of all entries.
    MapBytes,
    /// Bytes that it may write to standard output and standard error in a second.
    PrintBytes,
    /// Events that it has open at a time; one on every CPU is one.
    Attachments,
    /// Handles of all kinds that it holds at a time.
    Handles,
    /// Bytes of each of its memories.
    MemoryBytes,
    /// Elements of each of its tables.
    TableElements,
}

impl Limit {
    const ALL: [Limit; 7] = [
        Limit::Maps,
        Limit::MapBytes,
        Limit::PrintBytes,
        Limit::Attachments,
        Limit::Handles,
        Limit::MemoryBytes,
        Limit::TableElements,
    ];

    /// Its name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Maps => "maps",
            Limit::MapBytes => "map_bytes",
            Limit::PrintBytes => "print_bytes_per_second",
            Limit::Attachments => "attachments",
            Limit::Handles => "handles",
            Limit::MemoryBytes => "memory_bytes",
            Limit::TableElements => "table_elements",
        }
    }

    /// What holds if nobody sets it.
    pub(super) fn default(self) -> u64 {
        match self {
            Limit::Maps => 256,
            Limit::MapBytes => 1 << 30,
            // Whoever reads decides how fast.
            Limit::PrintBytes => u64::MAX,
            Limit::Attachments => 16_384,
            // Guards the host's memory; descriptors have the process's limit.
            Limit::Handles => 1 << 16,
            Limit::MemoryBytes => ks_wit::MEMORY_BYTES as u64,
            // An element costs the host a pointer, a page of memory costs the guest nothing.
            Limit::TableElements => 100_000,
        }
    }

    /// The limit of this name.
    pub(super) fn named(name: &str) -> Result<Limit, PolicyError> {
        let found = Limit::ALL.into_iter().find(|limit| limit.name() == name);
        found.ok_or_else(|| {
            let names = Limit::ALL.into_iter().map(|limit| limit.name().to_owned());
            PolicyError::UnknownLimit { name: name.into(), near: near(name, names) }
        })
    }
}

/// What of an object is above the limits, in words.
pub(super) fn exceeded(policy: &Policy, shape: &ObjectShape) -> Vec<String> {
    let bytes = shape.maps.iter().fold(0_u64, |sum, map| sum.saturating_add(map.bytes));
    let taken = [(Limit::Maps, shape.maps.len() as u64), (Limit::MapBytes, bytes)];
    let above = taken.into_iter().filter(|(limit, number)| *number > policy.limit(*limit));
    above
        .map(|(limit, number)| {
            let name = limit.name();
            format!(
                "its maps: {name} is {number}, and the limit is {}: --limit {name}={number} would allow it",
                policy.limit(limit)
            )
        })
        .collect()
}
