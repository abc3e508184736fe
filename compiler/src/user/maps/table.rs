//! Contents of a BPF map: a map of the script, or a config block.

use crate::hir::{ConfigId, Hir, MapId};
use crate::types::TypeId;

/// A BPF map that the userspace half uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// A map declared in the script.
    Map(MapId),
    /// The one-entry map of a config block.
    Config(ConfigId),
}

impl From<MapId> for Table {
    fn from(id: MapId) -> Table {
        Table::Map(id)
    }
}

impl Table {
    /// Returns the map's name in the BPF object.
    pub fn name(self, hir: &Hir) -> String {
        match self {
            Table::Map(id) => hir.maps[id].name.clone(),
            Table::Config(id) => format!("{}_config_map", hir.configs[id].name),
        }
    }

    /// Returns the type of one CPU's value.
    pub fn value(self, hir: &Hir) -> TypeId {
        match self {
            Table::Map(id) => hir.maps[id].value,
            Table::Config(id) => hir.configs[id].ty,
        }
    }

    /// Returns the size of one CPU's value in the kernel in bytes; with a lock, more than the type has.
    pub fn stored_size(self, hir: &Hir) -> u32 {
        match self {
            Table::Map(id) => hir.maps[id].stored_value(&hir.types).bytes,
            Table::Config(id) => hir.types.size(hir.configs[id].ty) as u32,
        }
    }

    /// Returns whether each value has a lock.
    pub fn is_locked(self, hir: &Hir) -> bool {
        matches!(self, Table::Map(id) if hir.maps[id].locked)
    }

    /// Returns whether an iteration returns keys alone, whose values are looked up one by one: where the values of all
    /// CPUs are merged, and where each is read under its lock.
    pub fn iterates_keys(self, hir: &Hir) -> bool {
        self.is_per_cpu(hir) || self.is_locked(hir)
    }

    /// Returns whether the map has one value per CPU.
    pub fn is_per_cpu(self, hir: &Hir) -> bool {
        matches!(self, Table::Map(id) if hir.maps[id].kind.is_per_cpu())
    }

    /// Returns whether every index below the size has an element, which is never created.
    pub fn is_array(self, hir: &Hir) -> bool {
        matches!(self, Table::Map(id) if hir.maps[id].kind.is_array() && hir.maps[id].outer.is_none())
    }

    /// Returns the size of a key in bytes, in the kernel.
    pub fn key_size(self, hir: &Hir) -> u32 {
        match self {
            Table::Map(id) if !hir.maps[id].has_index() => hir.types.size(hir.maps[id].key) as u32,
            _ => 4,
        }
    }
}
