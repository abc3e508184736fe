//! What is declared at top level.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Expr, FuncId, ImplId, LocalId, MapId};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{IntType, TypeId};

/// Which half a function belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// BPF.
    Kernel,
    /// Wasm.
    User,
}

impl Half {
    /// The other one.
    pub fn other(self) -> Half {
        match self {
            Half::Kernel => Half::User,
            Half::User => Half::Kernel,
        }
    }

    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Half::Kernel => "kernel",
            Half::User => "userspace",
        }
    }
}

/// What calls a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Userspace functions.
    Plain,
    /// The test runner: `@test`. Userspace.
    Test,
    /// Kernel functions: `@helper`.
    Helper,
    /// Kernel functions, or BPF programs if it is built as a module: `@kfunc`.
    Kfunc,
    /// `@kfunc` functions: `@private`.
    Private,
    /// The kernel, through a struct_ops table, or other methods of the impl block.
    Method(ImplId),
    /// The kernel.
    Program(ProgramKind),
}

impl FunctionKind {
    /// The half it belongs to.
    pub fn half(self) -> Half {
        match self {
            FunctionKind::Plain | FunctionKind::Test => Half::User,
            _ => Half::Kernel,
        }
    }

    /// Whether the kernel enters it by an attachment of its own.
    pub fn is_program(self) -> bool {
        matches!(self, FunctionKind::Program(_))
    }
}

/// What makes the kernel run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProgramKind {
    /// An overflow of a perf event: `@perf_event`.
    PerfEvent,
    /// A packet, before the network stack: `@xdp`.
    Xdp,
    /// A packet, at an interface's ingress or egress: `@tc`.
    Tc,
    /// A kernel function, at its entry or at an offset: `@probe`.
    Probe,
    /// A kernel function's return: `@retprobe`.
    Retprobe,
    /// A tracepoint, with its record: `@tracepoint`.
    Tracepoint,
    /// A tracepoint, with its own arguments: `@raw_tracepoint`.
    RawTracepoint,
    /// A system call's entry: `@syscall_enter`.
    SyscallEnter,
    /// A system call's return: `@syscall_exit`.
    SyscallExit,
    /// A hook of the security module: `@lsm`.
    Lsm,
    /// A function of a user program: `@uprobe`.
    Uprobe,
    /// A return of a function of a user program: `@uretprobe`.
    Uretprobe,
    /// An operation of a task in a cgroup: `@cgroup`.
    Cgroup,
    /// A packet that reaches a socket: `@socket_filter`.
    SocketFilter,
    /// Time: `@timer`.
    Timer,
}

impl ProgramKind {
    /// Every kind.
    pub const ALL: &[ProgramKind] = &[
        ProgramKind::PerfEvent,
        ProgramKind::Xdp,
        ProgramKind::Tc,
        ProgramKind::Probe,
        ProgramKind::Retprobe,
        ProgramKind::Tracepoint,
        ProgramKind::RawTracepoint,
        ProgramKind::SyscallEnter,
        ProgramKind::SyscallExit,
        ProgramKind::Lsm,
        ProgramKind::Uprobe,
        ProgramKind::Uretprobe,
        ProgramKind::Cgroup,
        ProgramKind::SocketFilter,
        ProgramKind::Timer,
    ];

    /// The attribute's word.
    pub fn name(self) -> &'static str {
        match self {
            ProgramKind::PerfEvent => "perf_event",
            ProgramKind::Xdp => "xdp",
            ProgramKind::Tc => "tc",
            ProgramKind::Probe => "probe",
            ProgramKind::Retprobe => "retprobe",
            ProgramKind::Tracepoint => "tracepoint",
            ProgramKind::RawTracepoint => "raw_tracepoint",
            ProgramKind::SyscallEnter => "syscall_enter",
            ProgramKind::SyscallExit => "syscall_exit",
            ProgramKind::Lsm => "lsm",
            ProgramKind::Uprobe => "uprobe",
            ProgramKind::Uretprobe => "uretprobe",
            ProgramKind::Cgroup => "cgroup",
            ProgramKind::SocketFilter => "socket_filter",
            ProgramKind::Timer => "timer",
        }
    }

    /// Whether the kernel can run it on given input (BPF_PROG_TEST_RUN with a packet).
    pub fn has_test_run(self) -> bool {
        matches!(self, ProgramKind::Xdp | ProgramKind::Tc | ProgramKind::SocketFilter | ProgramKind::Cgroup)
    }
}

/// Where a program is attached, as its attribute says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Said at the attachment: xdp, perf events, socket filters; and no program at all.
    None,
    /// `@tc("egress")`; else ingress.
    Egress(bool),
    /// A kernel function, and a byte offset in it.
    Function {
        /// The function, as written.
        name: String,
        /// `+offset`.
        offset: Option<u64>,
    },
    /// `@tracepoint("category/event")`.
    Tracepoint {
        /// The category.
        category: String,
        /// The event.
        event: String,
    },
    /// An event, hook or system call by name.
    Name(String),
    /// A place in a user program.
    User {
        /// The program or library.
        path: String,
        /// A function of it, if it is named.
        symbol: Option<String>,
        /// Bytes from the symbol, or from the start of the file.
        offset: u64,
    },
    /// `@timer("10ms")`.
    Period {
        /// Between two runs.
        nanoseconds: u64,
    },
}

/// A function.
#[derive(Debug, Clone)]
pub struct HirFunction {
    /// Its name; with its module's before a `.` if it belongs to one. Methods: unique in their impl block.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// What calls it.
    pub kind: FunctionKind,
    /// Where a program is attached.
    pub target: Target,
    /// Parameters, in order; they are locals.
    pub params: Vec<LocalId>,
    /// The result; void if there is none.
    pub ret: TypeId,
    /// Parameters and variables.
    pub locals: IndexVec<LocalId, Local>,
    /// The body. If `ret` is not void, every path through it ends in `Return` with a value or in `Throw`.
    pub body: Block,
    /// A throw may leave it: it has a hidden result.
    pub throws: bool,
    /// What a probe on `sys_NAME` is really put on.
    pub system_call: Option<SystemCall>,
    /// Parameters that point to objects of the kernel, of exactly the types that it says.
    pub objects: BTreeSet<LocalId>,
}

/// The function of the kernel behind `sys_NAME` in a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemCall {
    /// Its name, for the architecture of the kernel whose types were read.
    pub target: String,
    /// It is the architecture's wrapper: its one argument leads to the registers of the call.
    pub wrapped: bool,
    /// How many arguments the call has, if that is known.
    pub arguments: Option<usize>,
}

/// A local variable or parameter.
#[derive(Debug, Clone)]
pub struct Local {
    /// Its name; not unique.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Where it is declared.
    pub span: Span,
    /// It may be bound to a map element (`Stmt::Bind`), and so carries a presence bit, true until a `Bind` finds no
    /// entry. Every other assignment sets it to true.
    pub binding: bool,
}

/// A global variable: one copy, visible from both halves.
#[derive(Debug, Clone)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// The name in the source.
    pub span: Span,
    /// `local`: not visible from the userspace half.
    pub kernel_only: bool,
    /// `pin`: lives in the pinned map of all such globals.
    pub pinned: bool,
    /// Nobody writes it but the host, before the object is loaded. Made by [`super::module`].
    pub constant: bool,
    /// The first bytes of the initial value, up to the last that is not zero; all others are.
    pub init: Vec<u8>,
}

/// A map's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// BPF_MAP_TYPE_HASH.
    Hash,
    /// BPF_MAP_TYPE_ARRAY.
    Array,
    /// BPF_MAP_TYPE_PERCPU_HASH.
    PercpuHash,
    /// BPF_MAP_TYPE_PERCPU_ARRAY.
    PercpuArray,
    /// BPF_MAP_TYPE_LRU_HASH.
    LruHash,
    /// BPF_MAP_TYPE_LRU_PERCPU_HASH.
    LruPercpuHash,
    /// BPF_MAP_TYPE_LPM_TRIE.
    LpmTrie,
    /// BPF_MAP_TYPE_QUEUE.
    Queue,
    /// BPF_MAP_TYPE_STACK.
    Stack,
    /// BPF_MAP_TYPE_STACK_TRACE.
    StackTrace,
    /// BPF_MAP_TYPE_BLOOM_FILTER.
    Bloom,
    /// BPF_MAP_TYPE_TASK_STORAGE.
    TaskStorage,
    /// BPF_MAP_TYPE_INODE_STORAGE.
    InodeStorage,
    /// BPF_MAP_TYPE_SK_STORAGE.
    SkStorage,
    /// BPF_MAP_TYPE_CGRP_STORAGE.
    CgroupStorage,
}

impl MapKind {
    /// Every kind.
    pub const ALL: &[MapKind] = &[
        MapKind::Hash,
        MapKind::Array,
        MapKind::PercpuHash,
        MapKind::PercpuArray,
        MapKind::LruHash,
        MapKind::LruPercpuHash,
        MapKind::LpmTrie,
        MapKind::Queue,
        MapKind::Stack,
        MapKind::StackTrace,
        MapKind::Bloom,
        MapKind::TaskStorage,
        MapKind::InodeStorage,
        MapKind::SkStorage,
        MapKind::CgroupStorage,
    ];

    /// The language's spelling.
    pub fn name(self) -> &'static str {
        match self {
            MapKind::Hash => "hash",
            MapKind::Array => "array",
            MapKind::PercpuHash => "percpu_hash",
            MapKind::PercpuArray => "percpu_array",
            MapKind::LruHash => "lru_hash",
            MapKind::LruPercpuHash => "lru_percpu_hash",
            MapKind::LpmTrie => "lpm_trie",
            MapKind::Queue => "queue",
            MapKind::Stack => "stack",
            MapKind::StackTrace => "stack_trace",
            MapKind::Bloom => "bloom",
            MapKind::TaskStorage => "task_storage",
            MapKind::InodeStorage => "inode_storage",
            MapKind::SkStorage => "sk_storage",
            MapKind::CgroupStorage => "cgroup_storage",
        }
    }

    /// Indexed by a number below the size; every index is present.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PercpuArray)
    }

    /// One value per CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PercpuHash | MapKind::PercpuArray | MapKind::LruPercpuHash)
    }

    /// Indexed by a pointer to the kernel's object that owns the value.
    pub fn is_storage(self) -> bool {
        matches!(
            self,
            MapKind::TaskStorage | MapKind::InodeStorage | MapKind::SkStorage | MapKind::CgroupStorage
        )
    }

    /// The struct of the object that owns a value of local storage.
    pub fn owner(self) -> Option<&'static str> {
        match self {
            MapKind::TaskStorage => Some("task_struct"),
            MapKind::InodeStorage => Some("inode"),
            MapKind::SkStorage => Some("sock"),
            MapKind::CgroupStorage => Some("cgroup"),
            _ => None,
        }
    }

    /// Has keys and values, written `kind<K, V>(N)`.
    pub fn is_keyed(self) -> bool {
        matches!(
            self,
            MapKind::Hash
                | MapKind::Array
                | MapKind::PercpuHash
                | MapKind::PercpuArray
                | MapKind::LruHash
                | MapKind::LruPercpuHash
                | MapKind::LpmTrie
        )
    }
}

/// A map.
#[derive(Debug, Clone)]
pub struct Map {
    /// Its name; with its module's before a `.` if it belongs to one.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// Its kind.
    pub kind: MapKind,
    /// The key as the script declares it; void if the kind has none; a pointer to the owner for local storage; `i64` for
    /// stacks. An array kind's BPF map has a 4-byte key whatever this is.
    pub key: TypeId,
    /// The value. A pointer, until [`super::objects`] has made it the object: that lies in the map, and an element is
    /// its address.
    pub value: TypeId,
    /// The script has pointers to the values.
    pub objects: bool,
    /// Most entries; 0 for local storage.
    pub max_entries: u32,
    /// BPF_F_... bits.
    pub flags: u32,
    /// The NUMA node, if `flags` has BPF_F_NUMA_NODE (4).
    pub numa_node: u32,
    /// `pin`: it outlives the plugin.
    pub pinned: bool,
}

/// A ring buffer.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Its name; with its module's before a `.` if it belongs to one.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// What its records are: a struct.
    pub record: TypeId,
    /// Its size, a power of two from 4096.
    pub bytes: u32,
    /// `pin`: it outlives the plugin.
    pub pinned: bool,
    /// The userspace function `NAME_callback`, which takes the records unless `on_event` names another.
    pub default_handler: Option<FuncId>,
}

/// A config block: an array map of one entry, written by userspace only.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// A struct of its fields, of the same name.
    pub ty: TypeId,
    /// The defaults: as many bytes as the type has.
    pub init: Vec<u8>,
}

/// A function of the kernel.
#[derive(Debug, Clone)]
pub struct Extern {
    /// Its name.
    pub name: String,
    /// The name in the source; none for helpers that need no `extern`.
    pub span: Option<Span>,
    /// Its parameters.
    pub params: Vec<TypeId>,
    /// Its result.
    pub ret: TypeId,
    /// The number of a helper; a kfunc has none and is found by name.
    pub helper: Option<u32>,
    /// The kernel may not have it; then no call of it can be reached. Made by [`super::module`].
    pub optional: bool,
}

/// An impl block: a struct_ops table of the kernel.
#[derive(Debug, Clone)]
pub struct Impl {
    /// Its name.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// The kernel's struct.
    pub ops: String,
    /// The methods, in source order: those that are members of the struct, and helpers of the block.
    pub methods: Vec<FuncId>,
    /// Those of the methods that are members of the struct, by the members' names: the kernel enters them.
    pub entries: BTreeMap<FuncId, String>,
    /// Members that are data, with their constant values. `name` is among them if the struct has one.
    pub fields: Vec<StaticField>,
}

/// A static field of an impl block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticField {
    /// The member's name.
    pub name: String,
    /// Its value.
    pub value: StaticValue,
    /// What the member is made of.
    pub layout: StaticLayout,
}

/// What a member of a struct of the kernel is made of, as far as a value needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticLayout {
    /// A number.
    Number(IntType),
    /// A number that the kernel's type information calls an enum.
    Enum(IntType),
    /// An array of numbers or characters.
    Array {
        /// What it holds.
        element: IntType,
        /// How many.
        len: u32,
    },
    /// An address, which is null.
    Pointer,
}

impl StaticLayout {
    /// Bytes in memory, which are also the alignment of all but arrays.
    pub fn bytes(self) -> u64 {
        match self {
            StaticLayout::Number(int) | StaticLayout::Enum(int) => int.bytes(),
            StaticLayout::Array { element, len } => element.bytes() * u64::from(len),
            StaticLayout::Pointer => 8,
        }
    }
}

/// The value of a static field of an impl block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticValue {
    /// A number, bool or character.
    Number(i128),
    /// A string.
    Text(Vec<u8>),
    /// `null`.
    Null,
    /// `[a, b]`.
    Numbers(Vec<i128>),
}

/// `counter NAME : EVENT group LEADER`: a perf event on every CPU that programs can read.
#[derive(Debug, Clone)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// How its event is opened, of type `perf_options`; without its group.
    pub options: Expr,
    /// The leader of its group.
    pub leader: Option<super::CounterId>,
}

/// What a `for (a, b in ..)` walks.
#[derive(Debug, Clone)]
pub enum MapIteration {
    /// Keys and values of a map.
    Map(MapId),
    /// CPUs and their slots of one entry: `per_cpu(m, k)`.
    PerCpu {
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// Indices and elements of an array.
    Array(super::Lvalue),
}
