//! Kernel memory that is charged for maps.
//!
//! Source: the `*_map_mem_usage` functions of kernel/bpf/ and net/, v6.18; the sizes of the kernel's structs
//! were measured there by `memlock` of fdinfo, on x86-64. Growing maps are counted as if they were full. Not
//! counted: storage of sockets, tasks, inodes and control groups, which the kernel charges with the owning
//! object.

use super::super::table::{MapKind, flag};
use super::{DataSection, Map, MapShape, Object, StructOps};

/// Page size in bytes. On kernels with larger pages, small maps and ring buffers take more.
const PAGE: u64 = 4096;
/// Size of `struct bpf_array`, and of others that are a few bytes smaller.
const ARRAY: u64 = 312;
/// `struct bpf_htab`
const HASH: u64 = 896;
/// `struct bucket`
const BUCKET: u64 = 16;
/// `struct htab_elem`
const HASH_ENTRY: u64 = 48;
/// Size of a pointer, or of `struct llist_node`.
const POINTER: u64 = 8;
/// `struct bpf_stack_map`
const STACK_MAP: u64 = 320;
/// `struct stack_map_bucket`
const STACK_ENTRY: u64 = 16;
/// `struct lpm_trie_node`
const TRIE_NODE: u64 = 24;
/// Size in bytes of the prefix length at the start of an LPM trie's key.
const PREFIX_LEN: u64 = 4;
/// `struct bpf_dtab`
const DEVICES: u64 = 344;
/// `struct bpf_dtab_netdev`
const DEVICE: u64 = 64;
/// `struct bpf_stab`
const SOCKET_ARRAY: u64 = 376;
/// `struct bpf_shtab`
const SOCKETS: u64 = 384;
/// `struct bpf_shtab_elem`
const SOCKET: u64 = 48;
/// `struct bpf_local_storage_map`
const STORAGE: u64 = 448;
/// `struct bpf_ringbuf_map`
const RING: u64 = 304;
/// Pages of a ring buffer without records (kernel/bpf/ringbuf.c, `RINGBUF_NR_META_PAGES`).
const RING_META_PAGES: u64 = 3;
/// `struct bpf_struct_ops_map` plus the page of its trampolines.
const STRUCT_OPS: u64 = 512 + PAGE;
/// Default number of hash functions of a bloom filter (kernel/bpf/bloom_filter.c, `bloom_map_alloc`).
const BLOOM_HASHES: u64 = 5;

impl MapShape {
    /// Returns the bytes that the kernel charges for a map of this shape with `cpus` possible CPUs, all
    /// entries included.
    #[must_use]
    pub fn memory_bytes(&self, cpus: u32) -> u64 {
        let cpus = u64::from(cpus);
        let entries = u64::from(self.entries);
        let (key, value) = (u64::from(self.key.bytes()), u64::from(self.value.bytes()));
        let value_slot = round_up(value, 8);
        match self.kind {
            MapKind::Array if self.flags & flag::MMAPABLE != 0 => {
                PAGE.saturating_add(round_up(entries.saturating_mul(value_slot), PAGE))
            }
            MapKind::Array => list(ARRAY, entries, value_slot),
            MapKind::PerCpuArray => {
                list(ARRAY, entries, POINTER.saturating_add(value_slot.saturating_mul(cpus)))
            }
            MapKind::PerfEventArray if entries == 0 => list(ARRAY, cpus, POINTER),
            MapKind::ProgArray
            | MapKind::PerfEventArray
            | MapKind::CgroupArray
            | MapKind::ArrayOfMaps
            | MapKind::CpuMap
            | MapKind::XskMap => list(ARRAY, entries, POINTER),
            MapKind::SockMap => list(SOCKET_ARRAY, entries, POINTER),
            MapKind::Hash
            | MapKind::PerCpuHash
            | MapKind::LruHash
            | MapKind::LruPerCpuHash
            | MapKind::HashOfMaps => self.hash_bytes(cpus),
            MapKind::StackTrace => list(STACK_MAP, buckets(entries), POINTER).saturating_add(list(
                0,
                entries,
                STACK_ENTRY + value,
            )),
            // Where two prefixes part lies a node more, so there are at most twice as many as entries.
            MapKind::LpmTrie => list(ARRAY, 2 * entries, TRIE_NODE + key.saturating_sub(PREFIX_LEN) + value),
            MapKind::DevMap => list(DEVICES, entries, POINTER + DEVICE),
            MapKind::DevMapHash => {
                list(DEVICES, buckets(entries), POINTER).saturating_add(list(0, entries, DEVICE))
            }
            MapKind::SockHash => list(SOCKETS, buckets(entries), BUCKET).saturating_add(list(
                0,
                entries,
                SOCKET + round_up(key, 8),
            )),
            MapKind::Queue | MapKind::Stack => list(ARRAY, entries + 1, value),
            MapKind::SkStorage | MapKind::InodeStorage | MapKind::TaskStorage | MapKind::CgrpStorage => {
                list(STORAGE, buckets(cpus).max(2), BUCKET)
            }
            MapKind::RingBuf | MapKind::UserRingBuf => ring_bytes(entries),
            MapKind::BloomFilter => {
                let hashes = self.bloom_hashes.map_or(BLOOM_HASHES, u64::from);
                let bits = entries.saturating_mul(hashes).saturating_mul(7) / 5;
                ARRAY + bits.max(64).next_power_of_two().min(1 << 32) / 8
            }
        }
    }

    /// Returns the charge for one map of this shape.
    fn memory(&self, cpus: u32) -> Memory {
        let bytes = self.memory_bytes(cpus);
        let (map_bytes, ring_bytes) = if self.kind.is_ring() { (0, bytes) } else { (bytes, 0) };
        Memory { maps: 1, map_bytes, ring_bytes }
    }

    fn hash_bytes(&self, cpus: u64) -> u64 {
        let entries = u64::from(self.entries);
        let value = round_up(self.value.bytes().into(), 8);
        let is_per_cpu = self.kind.is_per_cpu();
        let is_lru = matches!(self.kind, MapKind::LruHash | MapKind::LruPerCpuHash);
        let inline_bytes = if is_per_cpu { POINTER } else { value };
        let mut entry = HASH_ENTRY + round_up(self.key.bytes().into(), 8) + inline_bytes;
        if is_per_cpu {
            entry = entry.saturating_add(value.saturating_mul(cpus));
        }
        let is_allocated_later = self.flags & flag::NO_PREALLOC != 0;
        let (mut count, mut rest) = (entries, 0);
        match (is_allocated_later, is_per_cpu) {
            // Each entry has free-list links; per CPU a second one.
            (true, true) => entry = entry.saturating_add(3 * POINTER),
            (true, false) => entry = entry.saturating_add(POINTER),
            (false, false) if !is_lru => {
                // The kernel reserves one entry per CPU, except for maps of maps.
                count += if self.kind == MapKind::HashOfMaps { 0 } else { cpus };
                rest = POINTER.saturating_mul(cpus);
            }
            (false, _) => {}
        }
        list(HASH, buckets(entries), BUCKET).saturating_add(list(rest, count, entry))
    }
}

impl Map {
    /// Returns the bytes like [`MapShape::memory_bytes`]; for a map of maps, including the inner map that the
    /// loader creates with it.
    #[must_use]
    pub fn memory_bytes(&self, cpus: u32) -> u64 {
        let inner = self.inner.as_ref().map_or(0, |inner| inner.memory_bytes(cpus));
        self.shape.memory_bytes(cpus).saturating_add(inner)
    }
}

impl DataSection {
    /// Returns the bytes that the kernel charges for the section's array. The host makes every array
    /// mappable; libbpf does so only if a variable is global.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        PAGE + round_up(self.content.bytes().into(), PAGE)
    }
}

impl StructOps {
    /// Returns the bytes that the kernel charges for the struct_ops map; `struct_bytes` is the size in the
    /// object, and the kernel's may be larger.
    fn memory_bytes(&self, struct_bytes: u32) -> u64 {
        STRUCT_OPS + 2 * u64::from(struct_bytes) + 2 * POINTER * self.members.len() as u64
    }
}

/// Memory of the maps of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Number of maps, including those of variables and inner ones.
    pub maps: u64,
    /// Bytes of all maps except ring buffers.
    pub map_bytes: u64,
    /// Bytes of ring buffers, those inside other maps included.
    pub ring_bytes: u64,
}

impl Memory {
    /// Returns the memory of both.
    #[must_use]
    pub fn with(self, other: Memory) -> Memory {
        Memory {
            maps: self.maps.saturating_add(other.maps),
            map_bytes: self.map_bytes.saturating_add(other.map_bytes),
            ring_bytes: self.ring_bytes.saturating_add(other.ring_bytes),
        }
    }

    /// Returns the larger of each number.
    #[must_use]
    pub fn largest(self, other: Memory) -> Memory {
        Memory {
            maps: self.maps.max(other.maps),
            map_bytes: self.map_bytes.max(other.map_bytes),
            ring_bytes: self.ring_bytes.max(other.ring_bytes),
        }
    }
}

impl Object {
    /// Returns the charge for all maps with `cpus` possible CPUs.
    #[must_use]
    pub fn memory(&self, cpus: u32) -> Memory {
        self.map_memory(cpus).map(|(_, memory)| memory).fold(Memory::default(), Memory::with)
    }

    /// Returns the charge for the inner maps of each map of maps that is full of them, with its name.
    pub fn inner_memory(&self, cpus: u32) -> impl Iterator<Item = (String, Memory)> {
        self.maps.iter().filter_map(move |map| {
            let (one, maps) = (map.inner.as_ref()?.memory(cpus), u64::from(map.shape.entries));
            let all = Memory {
                maps,
                map_bytes: one.map_bytes.saturating_mul(maps),
                ring_bytes: one.ring_bytes.saturating_mul(maps),
            };
            Some((map.name.as_str().to_owned(), all))
        })
    }

    /// Returns the charge for each map, those of variables and structs included, with its name.
    pub fn map_memory(&self, cpus: u32) -> impl Iterator<Item = (String, Memory)> {
        let maps = self.maps.iter().map(move |map| {
            let shapes = std::iter::once(&map.shape).chain(&map.inner);
            let memory = shapes.map(|shape| shape.memory(cpus)).fold(Memory::default(), Memory::with);
            (map.name.as_str().to_owned(), memory)
        });
        let data = self.data.iter().map(|section| (section.name(), section.memory_bytes()));
        let structs = self.struct_ops.iter().map(|one| {
            let bytes = one.memory_bytes(self.types.bytes(one.ty).unwrap_or_default());
            (one.name.as_str().to_owned(), bytes)
        });
        // The kernel settings are the variables of one more map.
        let settings = (!self.kconfig.is_empty()).then(|| (".kconfig".to_owned(), 2 * PAGE));
        let others = data.chain(structs).chain(settings);
        maps.chain(others.map(|(name, map_bytes)| (name, Memory { maps: 1, map_bytes, ring_bytes: 0 })))
    }
}

/// Returns the size of a header followed by a list, saturated.
fn list(head: u64, count: u64, element: u64) -> u64 {
    head.saturating_add(count.saturating_mul(element))
}

/// Returns the number of hash buckets, which the kernel rounds up to a power of two.
fn buckets(entries: u64) -> u64 {
    entries.max(1).next_power_of_two()
}

fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// Returns the charge for a ring buffer. The loader rounds its size up to a power of two of pages; the kernel
/// maps the pages twice, so that records do not wrap.
fn ring_bytes(bytes: u64) -> u64 {
    let pages = (round_up(bytes, PAGE) / PAGE).max(1).next_power_of_two();
    RING + (pages + RING_META_PAGES) * PAGE + (RING_META_PAGES + 2 * pages) * POINTER
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;

    fn shape(kind: MapKind, key: u32, value: u32, entries: u32, flags: u32) -> MapShape {
        let side = |bytes| if bytes == 0 { Side::Nothing } else { Side::Bytes(bytes) };
        let (key, value) = (side(key), side(value));
        MapShape { kind, key, value, entries, flags, numa_node: None, bloom_hashes: None }
    }

    /// The expected values are from fdinfo of a 6.18 kernel with two CPUs; growing maps were full.
    #[test]
    fn bytes_are_those_of_the_kernel() {
        let no_prealloc = flag::NO_PREALLOC;
        let cases = [
            (shape(MapKind::Hash, 4, 8, 1, 0), 1120),
            (shape(MapKind::Hash, 4, 8, 1000, 0), 81_424),
            (shape(MapKind::Hash, 20, 100, 1000, 0), 193_648),
            (shape(MapKind::Hash, 4, 8, 1000, no_prealloc), 89_280),
            (shape(MapKind::Array, 4, 100, 1000, 0), 104_312),
            (shape(MapKind::Array, 4, 100, 1000, flag::MMAPABLE), 110_592),
            (shape(MapKind::ProgArray, 4, 4, 1000, 0), 8312),
            (shape(MapKind::PerfEventArray, 4, 4, 0, 0), 328),
            (shape(MapKind::PerCpuHash, 4, 100, 1000, 0), 289_280),
            (shape(MapKind::PerCpuHash, 4, 8, 1000, no_prealloc), 121_280),
            (shape(MapKind::PerCpuArray, 4, 100, 1000, 0), 216_312),
            (shape(MapKind::StackTrace, 4, 1016, 1000, 0), 1_040_512),
            (shape(MapKind::LruHash, 4, 8, 1000, 0), 81_280),
            (shape(MapKind::LruPerCpuHash, 4, 100, 1001, 0), 289_552),
            (shape(MapKind::DevMap, 4, 4, 1000, 0), 72_344),
            (shape(MapKind::DevMapHash, 4, 4, 1000, 0), 72_536),
            (shape(MapKind::HashOfMaps, 4, 4, 1000, 0), 81_296),
            (shape(MapKind::ArrayOfMaps, 4, 4, 1000, 0), 8312),
            (shape(MapKind::Queue, 0, 100, 1000, 0), 100_412),
            (shape(MapKind::TaskStorage, 4, 8, 0, no_prealloc), 480),
            (shape(MapKind::RingBuf, 0, 0, 4096, 0), 16_728),
            (shape(MapKind::RingBuf, 0, 0, 1 << 20, 0), 1_065_288),
            (shape(MapKind::BloomFilter, 0, 4, 1000, 0), 1336),
        ];
        for (shape, bytes) in cases {
            assert_eq!(shape.memory_bytes(2), bytes, "{shape:?}");
        }
        // For these kinds the kernel's structs are some bytes smaller, or the sum has no struct of the LPM
        // trie, whose inner nodes are as many as its entries.
        for (shape, bytes) in [
            (shape(MapKind::CpuMap, 4, 4, 1000, 0), 8304),
            (shape(MapKind::XskMap, 4, 4, 1000, 0), 8304),
            (shape(MapKind::SockMap, 4, 4, 1000, 0), 8376),
            (shape(MapKind::LpmTrie, 8, 4, 1000, no_prealloc), 64_000),
        ] {
            assert!(shape.memory_bytes(2).abs_diff(bytes) * 100 <= bytes, "{shape:?}");
        }
    }

    /// The loader creates a ring buffer for a map of ring buffers.
    #[test]
    fn a_ring_inside_a_map_counts_as_a_ring() {
        let ring = shape(MapKind::RingBuf, 0, 0, 1 << 20, 0);
        let map = Map {
            name: crate::object::Name::new("rings").expect("a name"),
            shape: shape(MapKind::ArrayOfMaps, 4, 4, 1000, 0),
            pinning: crate::object::model::Pinning::None,
            inner: Some(ring),
            slots: Default::default(),
        };
        let object = Object { maps: vec![map], ..Object::default() };
        let expected = Memory { maps: 2, map_bytes: 8312, ring_bytes: 1_065_288 };
        assert_eq!(object.memory(2), expected);
    }

    #[test]
    fn the_largest_maps_do_not_overflow() {
        let largest = shape(MapKind::PerCpuHash, 512, 1 << 30, 1 << 30, flag::NO_PREALLOC);
        assert_eq!(largest.memory_bytes(u32::MAX), u64::MAX);
    }
}
