//! Map definitions.

use std::collections::BTreeMap;

use super::super::name::Name;
use super::super::table::MapKind;
use super::{MapId, ProgramId};
use crate::object::btf::TypeId;

/// A map that the object defines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// Name, unique among maps, variables and structs.
    pub name: Name,
    /// Kind, sizes and flags.
    pub shape: MapShape,
    /// Whether the map outlives the object.
    pub pinning: Pinning,
    /// Shape of the inner maps, for a map of maps. The loader creates one inner map while it creates the
    /// outer one.
    pub inner: Option<MapShape>,
    /// Initial values by key, stored before programs run.
    pub slots: BTreeMap<u32, MapInitSlot>,
}

/// Kind, sizes and flags of a map. Sizes and flags are within the kind's row ([`MapKind::row`]). A size or
/// number of entries of 0 is left to the loader where the kind needs one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapShape {
    /// Map kind (`BPF_MAP_TYPE_*`).
    pub kind: MapKind,
    /// Size and type of the keys.
    pub key: Side,
    /// Size and type of the values.
    pub value: Side,
    /// Maximum number of entries; for a ring buffer its size in bytes.
    pub entries: u32,
    /// Creation flags of [`super::super::table::flag`].
    pub flags: u32,
    /// NUMA node of the memory; used only with the flag [`super::super::table::flag::NUMA_NODE`].
    pub numa_node: Option<u32>,
    /// Number of hash functions of a bloom filter, 1 to 15; none for the kernel's default, and for other
    /// kinds.
    pub bloom_hashes: Option<u8>,
}

/// Size and type of keys or of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The map has no keys or no values.
    Nothing,
    /// A size in bytes, without a type.
    Bytes(u32),
    /// A type with a size.
    Typed {
        /// Type of the key or value.
        ty: TypeId,
        /// Size in bytes.
        bytes: u32,
    },
}

impl Side {
    /// Returns the size in bytes; 0 for none.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Side::Nothing => 0,
            Side::Bytes(bytes) | Side::Typed { bytes, .. } => bytes,
        }
    }
}

/// Whether a map outlives the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Pinning {
    /// The map is destroyed with the object.
    #[default]
    None,
    /// The loader pins the map under its own name in a directory that the loader chooses.
    #[doc(alias = "LIBBPF_PIN_BY_NAME")]
    ByName,
}

/// An initial value of a map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapInitSlot {
    /// A program, for an array of programs.
    Program(ProgramId),
    /// An inner map, for a map of maps.
    Map(MapId),
}
