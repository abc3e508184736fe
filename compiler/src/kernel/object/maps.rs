//! Maps of the object: those of the script, of config blocks and rings, and the compiler's own.

use ks_wit::object;

use super::super::mir::MapSymbol;
use super::super::scratch::SLOTS;
use super::Assembly;
use crate::bpf::MapRef;
use crate::defect::narrow;
use crate::hir::{ConfigId, CounterId, FuncId, Map, MapId, MapKind, OuterMap, RingId};
use crate::object::btf::{IntEncoding, Member, TypeId};
use crate::object::build::{MapDef, MapSide, Pinning};

impl Assembly<'_> {
    pub(super) fn add_map(&mut self, id: MapId) {
        let data = &self.hir.maps[id];
        let (key, value) = self.map_sides(data);
        let map = MapDef {
            name: data.name.clone(),
            map_type: map_type(data.kind),
            key,
            value,
            max_entries: data.max_entries,
            flags: data.flags | mapping(data),
            numa_node: (data.flags & NUMA_NODE != 0).then_some(data.numa_node),
            pinning: pinning(data.pinned),
            programs: Vec::new(),
            inner: None,
        };
        let map = match data.outer {
            Some(outer) => self.around(outer, data, map),
            None => map,
        };
        self.keep(MapSymbol::Map(id), map);
    }

    /// Returns the definition of a map of maps around that of its inner maps. These have sizes without types, as those that
    /// the host creates: to kernels before 6.2, maps of structs with and without a type have different shapes.
    ///
    /// Source: kernel/bpf/map_in_map.c, `bpf_map_meta_equal`, v6.1: it compares `timer_off`.
    fn around(&mut self, outer: OuterMap, data: &Map, inner: MapDef) -> MapDef {
        let types = &self.hir.types;
        let (key, inner_key) = data.nested_keys(types).unwrap_or((data.key, data.key));
        let bytes = |ty| MapSide::Bytes(narrow(types.size(ty)));
        let inner = MapDef { key: bytes(inner_key), value: bytes(data.value), ..inner };
        MapDef {
            name: data.name.clone(),
            map_type: if outer.kind.is_array() { ARRAY_OF_MAPS } else { HASH_OF_MAPS },
            key: MapSide::Type(self.ty(key)),
            value: MapSide::Bytes(4),
            max_entries: outer.max_entries,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: Some(Box::new(inner)),
        }
    }

    /// Adds the perf event array of a counter, with one entry for each CPU; the loader sets their number.
    pub(super) fn add_counter(&mut self, id: CounterId) {
        let map = MapDef {
            name: self.hir.counters[id].name.clone(),
            map_type: EVENT_ARRAY,
            key: MapSide::Bytes(4),
            value: MapSide::Bytes(4),
            max_entries: 0,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: None,
        };
        self.keep(MapSymbol::Counter(id), map);
    }

    /// Adds the one-entry array map of a config block, whose value is the struct of its fields. The loader of
    /// the object writes the defaults.
    pub(super) fn add_config(&mut self, id: ConfigId) {
        let config = &self.hir.configs[id];
        let key = self.builder.btf().int("u32", 4, IntEncoding::Unsigned);
        let value = self.ty(config.ty);
        let map = MapDef {
            name: format!("{}_config_map", config.name),
            map_type: map_type(MapKind::Array),
            key: MapSide::Type(key),
            value: MapSide::Type(value),
            max_entries: 1,
            flags: MMAPABLE,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: None,
        };
        self.keep(MapSymbol::Config(id), map);
    }

    /// Adds the program array of tail calls, which the loader fills.
    pub fn add_programs(&mut self, programs: &[FuncId]) {
        let Some(first) = programs.first() else { return };
        let before = self.maps.keys().filter(|map| matches!(map, MapSymbol::Programs(_))).count();
        let name = self.unused_name(&format!("__programs{before}"));
        let programs: Vec<_> = programs.iter().map(|id| self.functions[id]).collect();
        let map = self.builder.add_program_array(&name, programs);
        self.maps.insert(MapSymbol::Programs(*first), map);
    }

    /// Adds the map of scratch slots of `bytes` bytes each.
    pub fn add_scratch(&mut self, bytes: u32) {
        let name = self.unused_name("__scratch");
        let btf = self.builder.btf();
        let key = btf.int("u32", 4, IntEncoding::Unsigned);
        let byte = btf.int("u8", 1, IntEncoding::Unsigned);
        let value = btf.array(byte, bytes.next_multiple_of(8));
        let map = MapDef {
            name,
            map_type: map_type(MapKind::PercpuArray),
            key: MapSide::Type(key),
            value: MapSide::Type(value),
            max_entries: SLOTS,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: None,
        };
        self.keep(MapSymbol::Scratch, map);
    }

    /// The reference to a map. The ring buffer of printed lines is created on first use; all others exist.
    pub(super) fn map(&mut self, map: MapSymbol) -> MapRef {
        match (self.maps.get(&map), map) {
            (Some(found), _) => *found,
            (None, MapSymbol::Prints) => {
                self.keep(map, ring_buffer(object::PRINTS, PRINTS_BYTES, Pinning::None))
            }
            (None, _) => unreachable!("a map that the split does not have: {map:?}"),
        }
    }

    pub(super) fn add_ring(&mut self, id: RingId) {
        let ring = &self.hir.rings[id];
        self.keep(MapSymbol::Ring(id), ring_buffer(&ring.name, ring.bytes, pinning(ring.pinned)));
    }

    fn keep(&mut self, symbol: MapSymbol, map: MapDef) -> MapRef {
        let added = self.builder.add_map(map);
        self.maps.insert(symbol, added);
        added
    }

    /// Keys and values as BTF types; as plain sizes where the kernel accepts no types (kernel/bpf/syscall.c,
    /// `map_check_btf`, v6.12).
    fn map_sides(&mut self, map: &Map) -> (MapSide, MapSide) {
        let bytes = narrow(self.hir.types.size(map.value));
        match map.kind {
            MapKind::Queue | MapKind::Stack | MapKind::Bloom => (MapSide::None, MapSide::Bytes(bytes)),
            MapKind::StackTrace => (MapSide::Bytes(4), MapSide::Bytes(bytes)),
            kind => {
                // The key of local storage is a descriptor in userspace; the kernel half never uses it.
                let key = if kind.is_array() || kind.is_storage() {
                    self.builder.btf().int("u32", 4, IntEncoding::Unsigned)
                } else {
                    self.ty(map.nested_keys(&self.hir.types).map_or(map.key, |(_, inner)| inner))
                };
                (MapSide::Type(key), MapSide::Type(self.stored_value(map)))
            }
        }
    }

    /// The type of the values in the kernel: with a lock, a struct of the script's type and the lock behind it. The
    /// kernel finds the lock by the name of its type, as a member of the value itself. Source: kernel/bpf/btf.c,
    /// `btf_parse_fields`, v6.12; `btf_find_spin_lock`, v5.15.
    fn stored_value(&mut self, map: &Map) -> TypeId {
        let value = self.ty(map.value);
        let stored = map.stored_value(&self.hir.types);
        let Some(offset) = stored.lock else { return value };
        let word = self.builder.btf().int("u32", 4, IntEncoding::Unsigned);
        let lock = self.builder.btf().structure("bpf_spin_lock", 4, &[Member::at("val", word, 0)]);
        let members = [Member::at("value", value, 0), Member::at("lock", lock, offset)];
        self.builder.btf().structure(
            &format!("{}_locked", map.name.replace('.', "_")),
            stored.bytes,
            &members,
        )
    }
}

fn ring_buffer(name: &str, bytes: u32, pinning: Pinning) -> MapDef {
    MapDef {
        name: name.into(),
        map_type: RING_BUFFER,
        key: MapSide::None,
        value: MapSide::None,
        max_entries: bytes,
        flags: 0,
        numa_node: None,
        pinning,
        programs: Vec::new(),
        inner: None,
    }
}

fn pinning(pinned: bool) -> Pinning {
    if pinned { Pinning::ByName } else { Pinning::None }
}

/// The flags that let the userspace half access a map through mmap without system calls. The kernel maps no values
/// with locks, and the host no inner maps.
fn mapping(map: &Map) -> u32 {
    if map.kind == MapKind::Array && !map.locked && map.outer.is_none() { MMAPABLE } else { 0 }
}

/// BPF_F_MMAPABLE, since 5.5. Source: include/uapi/linux/bpf.h, v6.12.
const MMAPABLE: u32 = 1 << 10;
/// BPF_F_NUMA_NODE. Source: include/uapi/linux/bpf.h, v6.12.
const NUMA_NODE: u32 = 4;
/// Bytes of the ring buffer of printed lines: some thousands of lines with a path each, while the host waits for a busy CPU.
const PRINTS_BYTES: u32 = 1 << 20;
/// BPF_MAP_TYPE_ARRAY of `enum bpf_map_type`.
pub(super) const ARRAY: u32 = 2;
/// BPF_MAP_TYPE_PERF_EVENT_ARRAY of `enum bpf_map_type`.
const EVENT_ARRAY: u32 = 4;
/// BPF_MAP_TYPE_ARRAY_OF_MAPS of `enum bpf_map_type`.
const ARRAY_OF_MAPS: u32 = 12;
/// BPF_MAP_TYPE_HASH_OF_MAPS of `enum bpf_map_type`.
const HASH_OF_MAPS: u32 = 13;
/// BPF_MAP_TYPE_RINGBUF of `enum bpf_map_type`.
const RING_BUFFER: u32 = 27;

/// Returns the `bpf_map_type` of a map kind. Source: include/uapi/linux/bpf.h, `enum bpf_map_type`, v6.12.
fn map_type(kind: MapKind) -> u32 {
    match kind {
        MapKind::Hash => 1,
        MapKind::Array => ARRAY,
        MapKind::PercpuHash => 5,
        MapKind::PercpuArray => 6,
        MapKind::StackTrace => 7,
        MapKind::LruHash => 9,
        MapKind::LruPercpuHash => 10,
        MapKind::LpmTrie => 11,
        MapKind::Queue => 22,
        MapKind::Stack => 23,
        MapKind::SkStorage => 24,
        MapKind::InodeStorage => 28,
        MapKind::TaskStorage => 29,
        MapKind::Bloom => 30,
        MapKind::CgroupStorage => 32,
    }
}
