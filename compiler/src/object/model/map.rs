//! Maps.

use std::collections::BTreeMap;

use super::super::name::Name;
use super::super::table::MapKind;
use super::{MapId, ProgramId};
use crate::btf::TypeId;

/// A map of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// Its name, unique among maps, variables and structs.
    pub name: Name,
    /// What it is made of.
    pub shape: MapShape,
    /// Whether it outlives the object.
    pub pinning: Pinning,
    /// For a map of maps: what its values are. The loader makes one such map while it makes the outer one.
    pub inner: Option<MapShape>,
    /// What is put into it before programs run, by key.
    pub slots: BTreeMap<u32, MapInitSlot>,
}

/// What a map is made of. Sizes and flags are within the kind's row ([`MapKind::row`]); a number of entries or bytes of 0
/// is left to the loader to set where the kind needs one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapShape {
    /// Its kind.
    pub kind: MapKind,
    /// Its keys.
    pub key: Side,
    /// Its values.
    pub value: Side,
    /// Most entries; bytes of a ring buffer.
    pub entries: u32,
    /// Flags of [`super::super::table::flag`].
    pub flags: u32,
    /// The NUMA node of its memory. The flag [`super::super::table::flag::NUMA_NODE`] makes it count.
    pub numa_node: Option<u32>,
    /// The hash functions of a bloom filter, 1 to 15; none for the kernel's choice, and for other kinds.
    pub bloom_hashes: Option<u8>,
}

/// Keys or values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// None.
    Nothing,
    /// So many bytes.
    Bytes(u32),
    /// A type.
    Typed {
        /// The type.
        ty: TypeId,
        /// Its size.
        bytes: u32,
    },
}

impl Side {
    /// The size; 0 for none.
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
    /// It does not.
    #[default]
    None,
    /// The loader pins it under its own name in a folder that the loader chooses.
    #[doc(alias = "LIBBPF_PIN_BY_NAME")]
    ByName,
}

/// What the loader puts into a map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapInitSlot {
    /// A program, into an array of programs.
    Program(ProgramId),
    /// A map, into a map of maps.
    Map(MapId),
}
