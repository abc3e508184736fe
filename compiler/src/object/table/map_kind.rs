//! Map kinds of the kernel, and the subset that plugins may have.
//!
//! Source: include/uapi/linux/bpf.h, `enum bpf_map_type` and the flags of `BPF_MAP_CREATE`, v6.18. The
//! constraints of a kind are in the `*_map_alloc_check` function of its file in kernel/bpf/ or net/.

use super::Class;

/// A map kind that a plugin may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MapKind {
    /// `BPF_MAP_TYPE_HASH`
    Hash,
    /// `BPF_MAP_TYPE_ARRAY`
    Array,
    /// `BPF_MAP_TYPE_PROG_ARRAY`
    ProgArray,
    /// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`
    PerfEventArray,
    /// `BPF_MAP_TYPE_PERCPU_HASH`
    PerCpuHash,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`
    PerCpuArray,
    /// `BPF_MAP_TYPE_STACK_TRACE`
    StackTrace,
    /// `BPF_MAP_TYPE_CGROUP_ARRAY`
    CgroupArray,
    /// `BPF_MAP_TYPE_LRU_HASH`
    LruHash,
    /// `BPF_MAP_TYPE_LRU_PERCPU_HASH`
    LruPerCpuHash,
    /// `BPF_MAP_TYPE_LPM_TRIE`
    LpmTrie,
    /// `BPF_MAP_TYPE_ARRAY_OF_MAPS`
    ArrayOfMaps,
    /// `BPF_MAP_TYPE_HASH_OF_MAPS`
    HashOfMaps,
    /// `BPF_MAP_TYPE_DEVMAP`
    DevMap,
    /// `BPF_MAP_TYPE_SOCKMAP`
    SockMap,
    /// `BPF_MAP_TYPE_CPUMAP`
    CpuMap,
    /// `BPF_MAP_TYPE_XSKMAP`
    XskMap,
    /// `BPF_MAP_TYPE_SOCKHASH`
    SockHash,
    /// `BPF_MAP_TYPE_QUEUE`
    Queue,
    /// `BPF_MAP_TYPE_STACK`
    Stack,
    /// `BPF_MAP_TYPE_SK_STORAGE`
    SkStorage,
    /// `BPF_MAP_TYPE_DEVMAP_HASH`
    DevMapHash,
    /// `BPF_MAP_TYPE_RINGBUF`
    RingBuf,
    /// `BPF_MAP_TYPE_INODE_STORAGE`
    InodeStorage,
    /// `BPF_MAP_TYPE_TASK_STORAGE`
    TaskStorage,
    /// `BPF_MAP_TYPE_BLOOM_FILTER`
    BloomFilter,
    /// `BPF_MAP_TYPE_USER_RINGBUF`
    UserRingBuf,
    /// `BPF_MAP_TYPE_CGRP_STORAGE`
    CgrpStorage,
}

/// Whether a plugin may have maps of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapUse {
    /// Allowed; only the plugin's own programs access the map.
    Allowed(MapKind),
    /// Allowed if the policy allows the class.
    NeedsClass(MapKind, Class),
    /// Refused, with the reason.
    Refused(&'static str),
}

/// Accepted sizes of the keys of a map kind, or of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeRule {
    /// The kind has no keys or no values.
    Absent,
    /// An exact size in bytes.
    Exactly(u32),
    /// An inclusive range of sizes in bytes.
    Between(u32, u32),
    /// One of two sizes in bytes.
    Either(u32, u32),
    /// A multiple of the first number of bytes, up to the second.
    MultipleOf(u32, u32),
}

impl SizeRule {
    /// Returns whether a size is accepted; 0 bytes for a side that does not exist.
    #[must_use]
    pub fn allows(self, bytes: u32) -> bool {
        match self {
            SizeRule::Absent => bytes == 0,
            SizeRule::Exactly(exact) => bytes == exact,
            SizeRule::Between(least, most) => (least..=most).contains(&bytes),
            SizeRule::Either(one, other) => bytes == one || bytes == other,
            SizeRule::MultipleOf(unit, most) => bytes != 0 && bytes <= most && bytes.is_multiple_of(unit),
        }
    }
}

/// Accepted values of `max_entries`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntriesRule {
    /// From 1 to 2^30.
    AtLeastOne,
    /// Zero: entries are created and deleted with objects of the kernel.
    Zero,
    /// Any number; for 0 the loader uses the number of CPUs.
    OrOnePerCpu,
    /// A size in bytes: a power of two, and a multiple of the page size.
    RingBytes,
}

impl EntriesRule {
    /// Returns whether a number of entries is accepted.
    #[must_use]
    pub fn allows(self, entries: u32) -> bool {
        match self {
            EntriesRule::AtLeastOne => (1..=MAX_ENTRIES).contains(&entries),
            EntriesRule::Zero => entries == 0,
            EntriesRule::OrOnePerCpu => entries <= MAX_ENTRIES,
            // libbpf rounds up to a power of two of pages; sizes that the kernel accepts stay unchanged.
            EntriesRule::RingBytes => (1..=MAX_ENTRIES).contains(&entries),
        }
    }
}

/// Maximum number of entries. Some kernel versions compute the size of some kinds with overflow beyond it;
/// policy limits are far lower.
pub const MAX_ENTRIES: u32 = 1 << 30;

/// A row of the table: the properties of a kind, except its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRow {
    /// Kernel name without `BPF_MAP_TYPE_`.
    pub name: &'static str,
    /// Whether a plugin may have it.
    pub usage: MapUse,
    /// Accepted creation flags.
    pub flags: u32,
    /// Accepted key sizes.
    pub key: SizeRule,
    /// Accepted value sizes.
    pub value: SizeRule,
    /// Accepted numbers of entries.
    pub entries: EntriesRule,
}

/// Flags of `BPF_MAP_CREATE` that maps of a plugin may have. Source: include/uapi/linux/bpf.h, v6.18. The
/// others (descriptors, tokens and access modes of userspace) are reserved for the loader.
pub mod flag {
    /// Allocates entries one by one.
    pub const NO_PREALLOC: u32 = 1 << 0;
    /// Gives each CPU its own LRU list.
    pub const NO_COMMON_LRU: u32 = 1 << 1;
    /// Allocates the memory on one NUMA node.
    pub const NUMA_NODE: u32 = 1 << 2;
    /// Stores stacks as build ids and offsets.
    pub const STACK_BUILD_ID: u32 = 1 << 5;
    /// Programs have read access only.
    pub const RDONLY_PROG: u32 = 1 << 7;
    /// Programs have write access only.
    pub const WRONLY_PROG: u32 = 1 << 8;
    /// Copies a socket's storage to its children.
    pub const CLONE: u32 = 1 << 9;
    /// Userspace can map the values.
    pub const MMAPABLE: u32 = 1 << 10;
    /// Keeps perf events when their descriptors are closed.
    pub const PRESERVE_ELEMS: u32 = 1 << 11;
    /// Inner maps may have different numbers of entries.
    pub const INNER_MAP: u32 = 1 << 12;
}

use flag::{
    CLONE, INNER_MAP, MMAPABLE, NO_COMMON_LRU, NO_PREALLOC, NUMA_NODE, PRESERVE_ELEMS, RDONLY_PROG,
    STACK_BUILD_ID, WRONLY_PROG,
};

/// Flags that restrict the access of programs.
const ACCESS: u32 = RDONLY_PROG | WRONLY_PROG;

/// Maximum key size in bytes: a key is on a program's stack (include/linux/filter.h, `MAX_BPF_STACK`).
const MAX_KEY: u32 = 512;
/// Maximum value size in bytes.
const MAX_VALUE: u32 = super::super::limits::MAX_VALUE_BYTES;
/// A 32-bit index as key.
const INDEX: SizeRule = SizeRule::Exactly(4);
/// A 32-bit file descriptor as value.
const DESCRIPTOR: SizeRule = SizeRule::Exactly(4);
/// A key of any accepted size.
const KEY: SizeRule = SizeRule::Between(1, MAX_KEY);
/// A prefix length followed by up to 256 bytes (kernel/bpf/lpm_trie.c, `LPM_KEY_SIZE_MAX`, v6.18).
const PREFIX: SizeRule = SizeRule::Between(5, 260);
/// Addresses, or build ids with offsets; the kernel's limit of stack frames is a sysctl.
const STACK: SizeRule = SizeRule::MultipleOf(8, 1 << 16);
/// A value of any accepted size.
const VALUE: SizeRule = SizeRule::Between(1, MAX_VALUE);

const fn row(kind: MapKind, name: &'static str, flags: u32, key: SizeRule, value: SizeRule) -> MapRow {
    MapRow { name, usage: MapUse::Allowed(kind), flags, key, value, entries: EntriesRule::AtLeastOne }
}

const fn entries(row: MapRow, entries: EntriesRule) -> MapRow {
    MapRow { entries, ..row }
}

/// Row of a kind that forwards packets and messages to other interfaces, CPUs and sockets. `redirect_map` and
/// similar helpers are not checked further.
const fn redirect(kind: MapKind, name: &'static str, flags: u32, key: SizeRule, value: SizeRule) -> MapRow {
    MapRow { usage: MapUse::NeedsClass(kind, Class::Redirect), ..row(kind, name, flags, key, value) }
}

const fn refused(name: &'static str, reason: &'static str) -> MapRow {
    MapRow {
        name,
        usage: MapUse::Refused(reason),
        flags: 0,
        key: SizeRule::Absent,
        value: SizeRule::Absent,
        entries: EntriesRule::Zero,
    }
}

const fn ring(kind: MapKind, name: &'static str) -> MapRow {
    entries(row(kind, name, NUMA_NODE, SizeRule::Absent, SizeRule::Absent), EntriesRule::RingBytes)
}

/// Rows of the kinds, indexed by kind number.
const ROWS: [MapRow; 35] = [
    refused("UNSPEC", "it is not a map kind"),
    row(MapKind::Hash, "HASH", NO_PREALLOC | NUMA_NODE | ACCESS, KEY, VALUE),
    row(MapKind::Array, "ARRAY", NUMA_NODE | ACCESS | MMAPABLE | INNER_MAP, INDEX, VALUE),
    row(MapKind::ProgArray, "PROG_ARRAY", 0, INDEX, DESCRIPTOR),
    entries(
        row(MapKind::PerfEventArray, "PERF_EVENT_ARRAY", PRESERVE_ELEMS, INDEX, DESCRIPTOR),
        EntriesRule::OrOnePerCpu,
    ),
    row(MapKind::PerCpuHash, "PERCPU_HASH", NO_PREALLOC | ACCESS, KEY, VALUE),
    row(MapKind::PerCpuArray, "PERCPU_ARRAY", ACCESS, INDEX, VALUE),
    row(MapKind::StackTrace, "STACK_TRACE", NUMA_NODE | STACK_BUILD_ID, INDEX, STACK),
    row(MapKind::CgroupArray, "CGROUP_ARRAY", 0, INDEX, DESCRIPTOR),
    row(MapKind::LruHash, "LRU_HASH", NO_COMMON_LRU | NUMA_NODE | ACCESS, KEY, VALUE),
    row(MapKind::LruPerCpuHash, "LRU_PERCPU_HASH", NO_COMMON_LRU | ACCESS, KEY, VALUE),
    row(MapKind::LpmTrie, "LPM_TRIE", NO_PREALLOC | NUMA_NODE | ACCESS, PREFIX, VALUE),
    row(MapKind::ArrayOfMaps, "ARRAY_OF_MAPS", NUMA_NODE, INDEX, DESCRIPTOR),
    row(MapKind::HashOfMaps, "HASH_OF_MAPS", NO_PREALLOC | NUMA_NODE | ACCESS, KEY, DESCRIPTOR),
    redirect(MapKind::DevMap, "DEVMAP", NUMA_NODE, INDEX, SizeRule::Either(4, 8)),
    redirect(MapKind::SockMap, "SOCKMAP", NUMA_NODE, INDEX, SizeRule::Either(4, 8)),
    redirect(MapKind::CpuMap, "CPUMAP", NUMA_NODE, INDEX, SizeRule::Either(4, 8)),
    redirect(MapKind::XskMap, "XSKMAP", NUMA_NODE, INDEX, DESCRIPTOR),
    redirect(MapKind::SockHash, "SOCKHASH", NUMA_NODE, KEY, SizeRule::Either(4, 8)),
    refused("CGROUP_STORAGE", "the kernel replaced it with CGRP_STORAGE"),
    refused(
        "REUSEPORT_SOCKARRAY",
        "it chooses among the sockets of other processes, and no program of a plugin uses it",
    ),
    refused("PERCPU_CGROUP_STORAGE", "the kernel replaced it with CGRP_STORAGE"),
    row(MapKind::Queue, "QUEUE", NUMA_NODE | ACCESS, SizeRule::Absent, VALUE),
    row(MapKind::Stack, "STACK", NUMA_NODE | ACCESS, SizeRule::Absent, VALUE),
    entries(row(MapKind::SkStorage, "SK_STORAGE", NO_PREALLOC | CLONE, INDEX, VALUE), EntriesRule::Zero),
    redirect(MapKind::DevMapHash, "DEVMAP_HASH", NUMA_NODE, INDEX, SizeRule::Either(4, 8)),
    refused("STRUCT_OPS", "the loader creates it from a variable in `.struct_ops.link`"),
    ring(MapKind::RingBuf, "RINGBUF"),
    entries(row(MapKind::InodeStorage, "INODE_STORAGE", NO_PREALLOC, INDEX, VALUE), EntriesRule::Zero),
    entries(row(MapKind::TaskStorage, "TASK_STORAGE", NO_PREALLOC, INDEX, VALUE), EntriesRule::Zero),
    row(MapKind::BloomFilter, "BLOOM_FILTER", NUMA_NODE | ACCESS, SizeRule::Absent, VALUE),
    ring(MapKind::UserRingBuf, "USER_RINGBUF"),
    entries(row(MapKind::CgrpStorage, "CGRP_STORAGE", NO_PREALLOC, INDEX, VALUE), EntriesRule::Zero),
    refused("ARENA", "its pages are mapped into the host at an address that the object chooses"),
    refused("INSN_ARRAY", "it is the jump table of a program, and indirect jumps are refused"),
];

/// Returns the row of a kind number; none if Linux 6.18 has no such kind.
#[must_use]
pub fn map_row(number: u32) -> Option<&'static MapRow> {
    ROWS.get(usize::try_from(number).ok()?)
}

impl MapKind {
    /// Returns the number in `enum bpf_map_type`.
    #[must_use]
    pub fn number(self) -> u32 {
        let is_this = |row: &MapRow| match row.usage {
            MapUse::Allowed(kind) | MapUse::NeedsClass(kind, _) => kind == self,
            MapUse::Refused(_) => false,
        };
        ROWS.iter().position(is_this).and_then(|at| u32::try_from(at).ok()).unwrap_or_default()
    }

    /// Returns the kind's row. Every kind has one, as a test of all numbers verifies.
    #[must_use]
    pub fn row(self) -> &'static MapRow {
        map_row(self.number()).unwrap_or(&ROWS[0])
    }

    /// Returns the kernel name without `BPF_MAP_TYPE_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the class that a policy must allow; none if no class is needed.
    #[must_use]
    pub fn class(self) -> Option<Class> {
        match self.row().usage {
            MapUse::NeedsClass(_, class) => Some(class),
            MapUse::Allowed(_) | MapUse::Refused(_) => None,
        }
    }

    /// Returns whether the values are maps.
    #[must_use]
    pub fn holds_maps(self) -> bool {
        matches!(self, MapKind::ArrayOfMaps | MapKind::HashOfMaps)
    }

    /// Returns whether there is one value per CPU.
    #[must_use]
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PerCpuHash | MapKind::PerCpuArray | MapKind::LruPerCpuHash)
    }

    /// Returns whether the kind is a ring buffer.
    #[must_use]
    pub fn is_ring(self) -> bool {
        matches!(self, MapKind::RingBuf | MapKind::UserRingBuf)
    }
}
