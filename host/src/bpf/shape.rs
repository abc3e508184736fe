//! What libbpf has read of an object that is not loaded yet: exactly what it will create.

use std::ffi::OsStr;

use ks_wit::object::timer_map;
use libbpf_rs::{MapType, OpenObject};

use super::map::possible_cpus;
use super::program::ProgramKind;

/// What an object will create when it is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectShape {
    /// Its programs.
    pub programs: Vec<ProgramShape>,
    /// Its maps, those of its variables included; not the structs.
    pub maps: Vec<MapSize>,
    /// Its pins, as paths in the BPF file system: `PROJECT/maps/MAP`.
    pub pins: Vec<String>,
    /// The structs of the kernel that it fills in.
    pub structs: Vec<String>,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramShape {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Its type.
    pub kind: ProgramKind,
}

/// One map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSize {
    /// Its name.
    pub name: String,
    /// Bytes of the keys and values of all entries; of a ring buffer, its size.
    pub bytes: u64,
    /// Whether it is a ring buffer.
    pub is_ring: bool,
}

/// The shape of an open object, without its pins.
pub(super) fn of(open: &OpenObject) -> ObjectShape {
    let programs = open.progs().map(|program| {
        let name = program.name().to_string_lossy().into_owned();
        let timer = timer_map(&name);
        let has_timer = open.maps().any(|map| map.name() == OsStr::new(&timer));
        let section = program.section().to_string_lossy().into_owned();
        let kind = ProgramKind::with_timer(program.prog_type() as u32, has_timer);
        ProgramShape { name, section, kind }
    });
    let maps = open.maps().filter(|map| map.map_type() != MapType::StructOps);
    let structs = open.maps().filter(|map| map.map_type() == MapType::StructOps);
    ObjectShape {
        programs: programs.collect(),
        maps: maps.map(|map| size_of(&map)).collect(),
        pins: Vec::new(),
        structs: structs.map(|map| map.name().to_string_lossy().into_owned()).collect(),
    }
}

fn size_of(map: &libbpf_rs::OpenMap<'_>) -> MapSize {
    let ty = map.map_type();
    let values = if ty.is_percpu() { possible_cpus().unwrap_or(1) as u64 } else { 1 };
    let entry = u64::from(map.key_size()) + u64::from(map.value_size()).next_multiple_of(8) * values;
    let entries = u64::from(map.max_entries());
    let is_ring = matches!(ty, MapType::RingBuf | MapType::UserRingBuf);
    let bytes = if is_ring { entries } else { entries.saturating_mul(entry) };
    MapSize { name: map.name().to_string_lossy().into_owned(), bytes, is_ring }
}
