//! What lies in a BPF map: a map of the script, or a config block.

use crate::hir::{ConfigId, Hir, MapId, MapKind};
use crate::types::TypeId;

/// Whether keys have 4 bytes in the kernel, whatever the script's type.
pub fn has_index(kind: MapKind) -> bool {
    kind.is_array() || kind == MapKind::StackTrace
}

/// A BPF map that the userspace half uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// A map of the script.
    Map(MapId),
    /// The map of one entry that holds a config block.
    Config(ConfigId),
}

impl From<MapId> for Table {
    fn from(id: MapId) -> Table {
        Table::Map(id)
    }
}

impl Table {
    /// Its name in the BPF object.
    pub fn name(self, hir: &Hir) -> String {
        match self {
            Table::Map(id) => hir.maps[id].name.clone(),
            Table::Config(id) => format!("{}_config_map", hir.configs[id].name),
        }
    }

    /// The type of its values, of one CPU.
    pub fn value(self, hir: &Hir) -> TypeId {
        match self {
            Table::Map(id) => hir.maps[id].value,
            Table::Config(id) => hir.configs[id].ty,
        }
    }

    /// Whether it has one value per CPU.
    pub fn is_per_cpu(self, hir: &Hir) -> bool {
        matches!(self, Table::Map(id) if hir.maps[id].kind.is_per_cpu())
    }

    /// Bytes of its keys, in the kernel.
    pub fn key_size(self, hir: &Hir) -> u32 {
        match self {
            Table::Map(id) if !has_index(hir.maps[id].kind) => hir.types.size(hir.maps[id].key) as u32,
            _ => 4,
        }
    }
}
