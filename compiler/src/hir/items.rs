//! Declarations at top level.

use std::collections::{BTreeMap, BTreeSet};

use super::hooks::PACKET_HOOKS;
use super::{Block, Caller, Expr, FuncId, GlobalId, ImplId, LocalId, MapId, ProgramKind};
use crate::defect::narrow;
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{ColumnLabel, IntType, TypeId, TypeKind, Types};

/// The half that a function belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// The kernel half, compiled to BPF.
    Kernel,
    /// The userspace half, compiled to WebAssembly.
    User,
}

impl Half {
    /// Returns the other half.
    pub fn other(self) -> Half {
        match self {
            Half::Kernel => Half::User,
            Half::User => Half::Kernel,
        }
    }

    /// Returns the name of the half in messages.
    pub fn name(self) -> &'static str {
        match self {
            Half::Kernel => "kernel",
            Half::User => "userspace",
        }
    }
}

/// The callers of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Called by userspace functions.
    Plain,
    /// `@test`: called by the test runner, in userspace.
    Test,
    /// `@helper`: called by kernel functions.
    Helper,
    /// `@kfunc`: called by kernel functions, or by BPF programs if it is built as a module.
    Kfunc,
    /// `@private`: called by `@kfunc` functions.
    Private,
    /// Called by the kernel through a struct_ops table, or by other methods of the impl block.
    Method(ImplId),
    /// A BPF program, called by the kernel.
    Program(ProgramKind),
}

impl FunctionKind {
    /// Returns the half that the function belongs to.
    pub fn half(self) -> Half {
        match self {
            FunctionKind::Plain | FunctionKind::Test => Half::User,
            _ => Half::Kernel,
        }
    }

    /// Whether the kernel calls it through an attachment of its own.
    pub fn is_program(self) -> bool {
        matches!(self, FunctionKind::Program(_))
    }
}

/// The attach point of a program, as its attribute names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// No attach point in the attribute: xdp, perf events and socket filters name it when attaching. Also for
    /// functions that are not programs.
    None,
    /// `@tc("egress")` if true, else ingress.
    Egress(bool),
    /// A kernel function, and a byte offset in it.
    Function {
        /// The name of the function, as written.
        name: String,
        /// `+offset` in bytes; none if not written.
        offset: Option<u64>,
    },
    /// A tracepoint: `@tracepoint("category/event")`.
    Tracepoint {
        /// The part before the `/`.
        category: String,
        /// The part after the `/`.
        event: String,
    },
    /// An event, hook or system call by name.
    Name(String),
    /// A location in a user program.
    User {
        /// The path of the program or library.
        path: String,
        /// The name of its function; none if only an offset is written.
        symbol: Option<String>,
        /// Offset in bytes from the symbol, or from the start of the file.
        offset: u64,
        /// Whether the arguments are passed as Go does: `abi: "go"`.
        go: bool,
    },
    /// The period of a timer: `@timer("10ms")`.
    Period {
        /// The time between two runs, in nanoseconds.
        nanoseconds: u64,
    },
}

impl Target {
    /// Returns the attach point as an attribute writes it; none if the attribute names none.
    pub fn text(&self) -> Option<String> {
        let plus = |offset: u64| if offset == 0 { String::new() } else { format!("+{offset:#x}") };
        Some(match self {
            Target::None | Target::Egress(_) | Target::Period { .. } => return None,
            Target::Function { name, offset: None } | Target::Name(name) => name.clone(),
            Target::Function { name, offset: Some(offset) } => format!("{name}+{offset:#x}"),
            Target::Tracepoint { category, event } => format!("{category}/{event}"),
            Target::User { path, symbol: Some(symbol), offset, .. } => {
                format!("{path}:{symbol}{}", plus(*offset))
            }
            Target::User { path, symbol: None, offset, .. } => format!("{path}:+{offset:#x}"),
        })
    }
}

/// A function of either half.
#[derive(Debug, Clone)]
pub struct HirFunction {
    /// The name; with its module's before a `.` if it belongs to one. Methods: unique in their impl block.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The callers of the function.
    pub kind: FunctionKind,
    /// The attach point; `Target::None` unless it is a program.
    pub target: Target,
    /// Tracepoints that it is for besides its target, as `category/event`.
    pub also: Vec<String>,
    /// Whether it is left out where the kernel lacks a target.
    pub optional: bool,
    /// The parameters in order, as locals.
    pub params: Vec<LocalId>,
    /// The result type; void if there is no result.
    pub ret: TypeId,
    /// Parameters and variables; hidden ones have an empty name.
    pub locals: IndexVec<LocalId, Local>,
    /// The body. If `ret` is not void, every path through it ends in `Return` with a value or in `Throw`.
    pub body: Block,
    /// Whether a throw may leave the function: it then has a hidden result.
    pub throws: bool,
    /// The kernel function that a probe on `sys_NAME` attaches to; none for other functions.
    pub system_call: Option<SystemCall>,
    /// The number of arguments in the record of `syscalls/sys_enter_NAME`; none for other functions, and where it is not
    /// known.
    pub record_arguments: Option<u32>,
    /// Parameters that point to kernel objects of exactly their declared types.
    pub objects: BTreeSet<LocalId>,
}

impl HirFunction {
    /// Creates a function of userspace without parameters and result, which no script has written.
    pub fn synthetic(
        (name, span): (String, Span),
        ret: TypeId,
        locals: IndexVec<LocalId, Local>,
        body: Block,
    ) -> HirFunction {
        HirFunction {
            name,
            span,
            kind: FunctionKind::Plain,
            target: Target::None,
            also: Vec::new(),
            optional: false,
            params: Vec::new(),
            ret,
            locals,
            body,
            throws: false,
            system_call: None,
            record_arguments: None,
            objects: BTreeSet::new(),
        }
    }

    /// Returns the caller of helpers that the function is to the kernel; none if the kernel does not call
    /// functions of its kind.
    pub fn caller(&self) -> Option<Caller> {
        match (self.kind, &self.target) {
            (FunctionKind::Program(ProgramKind::Cgroup), Target::Name(hook))
                if PACKET_HOOKS.contains(&hook.as_str()) =>
            {
                Some(Caller::CgroupPacket)
            }
            (FunctionKind::Program(kind), _) => Some(Caller::Program(kind)),
            (FunctionKind::Method(_), _) => Some(Caller::Method),
            _ => None,
        }
    }
}

/// The kernel function that implements `sys_NAME`, for a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemCall {
    /// The name of the kernel function, for the architecture of the kernel whose types were read.
    pub target: String,
    /// Whether it is the architecture's wrapper: its one argument points to the registers of the call.
    pub wrapped: bool,
    /// The number of arguments of the call, if that is known.
    pub arguments: Option<usize>,
}

/// A local variable or parameter.
#[derive(Debug, Clone)]
pub struct Local {
    /// The name in the source; not unique, empty for hidden locals.
    pub name: String,
    /// The type of the variable; for a binding, the map's value type.
    pub ty: TypeId,
    /// The source range of the declaration.
    pub span: Span,
    /// Whether it may be bound to a map element (`Stmt::Bind`). It then has a presence bit, true until a
    /// `Bind` finds no entry. Every other assignment sets it to true.
    pub binding: bool,
    /// Whether it is declared as text or bytes that are read from memory, which may fail, or as a copy of such a local.
    /// It then has a presence bit, too, false when that failed.
    pub read: bool,
}

impl Local {
    /// A variable that no script names.
    #[must_use]
    pub fn hidden(ty: TypeId, span: Span) -> Local {
        Local { name: String::new(), ty, span, binding: false, read: false }
    }

    /// Whether it has a presence bit.
    #[must_use]
    pub fn may_be_null(&self) -> bool {
        self.binding || self.read
    }
}

/// A global variable: one copy, visible from both halves.
#[derive(Debug, Clone)]
pub struct Global {
    /// The name, unique among globals.
    pub name: String,
    /// The declared or inferred type.
    pub ty: TypeId,
    /// The source range of the name.
    pub span: Span,
    /// `local`: not visible from the userspace half.
    pub kernel_only: bool,
    /// `pin`: stored in the pinned map of all pinned globals.
    pub pinned: bool,
    /// Only the host writes it, before the object is loaded. Set by [`super::module`].
    pub constant: bool,
    /// The initial value without trailing zero bytes.
    pub init: Vec<u8>,
    /// How tables show it; none if the script does not say.
    pub column: Option<ColumnLabel>,
}

impl Global {
    /// Creates a variable of both halves that begins as zero.
    pub fn new(name: String, ty: TypeId, span: Span) -> Global {
        Global {
            name,
            ty,
            span,
            kernel_only: false,
            pinned: false,
            constant: false,
            init: Vec::new(),
            column: None,
        }
    }
}

/// The kinds of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// Hash table `hash`: BPF_MAP_TYPE_HASH.
    Hash,
    /// Array `array`, indexed from 0: BPF_MAP_TYPE_ARRAY.
    Array,
    /// Hash table with a value per CPU, `percpu_hash`: BPF_MAP_TYPE_PERCPU_HASH.
    PercpuHash,
    /// Array with a value per CPU, `percpu_array`: BPF_MAP_TYPE_PERCPU_ARRAY.
    PercpuArray,
    /// Hash table that evicts the least recently used entries, `lru_hash`: BPF_MAP_TYPE_LRU_HASH.
    LruHash,
    /// LRU hash with values per CPU: BPF_MAP_TYPE_LRU_PERCPU_HASH.
    LruPercpuHash,
    /// Trie with longest-prefix match: BPF_MAP_TYPE_LPM_TRIE.
    LpmTrie,
    /// First in, first out: BPF_MAP_TYPE_QUEUE.
    Queue,
    /// Last in, first out: BPF_MAP_TYPE_STACK.
    Stack,
    /// Stack traces by id, `stack_trace`: BPF_MAP_TYPE_STACK_TRACE.
    StackTrace,
    /// Bloom filter `bloom`: BPF_MAP_TYPE_BLOOM_FILTER.
    Bloom,
    /// Local storage of tasks, `task_storage`: BPF_MAP_TYPE_TASK_STORAGE.
    TaskStorage,
    /// Local storage of inodes, `inode_storage`: BPF_MAP_TYPE_INODE_STORAGE.
    InodeStorage,
    /// Local storage of sockets, `sk_storage`: BPF_MAP_TYPE_SK_STORAGE.
    SkStorage,
    /// Local storage of cgroups, `cgroup_storage`: BPF_MAP_TYPE_CGRP_STORAGE.
    CgroupStorage,
}

impl MapKind {
    /// All kinds of maps.
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

    /// Returns the kind as spelled in a script.
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

    /// Whether it is indexed by a number below the size; every index is present.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PercpuArray)
    }

    /// Whether it has one value per CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PercpuHash | MapKind::PercpuArray | MapKind::LruPercpuHash)
    }

    /// Whether it is indexed by a pointer to the kernel object that owns the value.
    pub fn is_storage(self) -> bool {
        matches!(
            self,
            MapKind::TaskStorage | MapKind::InodeStorage | MapKind::SkStorage | MapKind::CgroupStorage
        )
    }

    /// Returns the struct of the kernel object that owns a value of local storage; none for other kinds.
    pub fn owner(self) -> Option<&'static str> {
        match self {
            MapKind::TaskStorage => Some("task_struct"),
            MapKind::InodeStorage => Some("inode"),
            MapKind::SkStorage => Some("sock"),
            MapKind::CgroupStorage => Some("cgroup"),
            _ => None,
        }
    }

    /// Whether it has keys and values, written `kind<K, V>(N)`.
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

/// A BPF map that the script declares.
#[derive(Debug, Clone)]
pub struct Map {
    /// The name; with its module's before a `.` if it belongs to one.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The BPF map type.
    pub kind: MapKind,
    /// The key as the script declares it; void if the kind has none; a pointer to the owner for local
    /// storage; `i64` for stacks. An array kind's BPF map has a 4-byte key whatever this is.
    pub key: TypeId,
    /// The value type. A pointer until [`super::objects`] replaces it by the object type: the object then
    /// lies in the map, and the pointer is the entry's address.
    pub value: TypeId,
    /// Whether the script holds pointers to the values.
    pub objects: bool,
    /// Maximum number of entries; 0 for local storage. If an option sets it, its default.
    pub max_entries: u32,
    /// The field of `main`'s struct that sets the number of entries before the load.
    pub size_option: Option<usize>,
    /// BPF_F_... bits of the map's creation.
    pub flags: u32,
    /// The NUMA node, if `flags` has BPF_F_NUMA_NODE (4).
    pub numa_node: u32,
    /// `pin`: whether it outlives the plugin.
    pub pinned: bool,
    /// `local`: not visible from the userspace half.
    pub kernel_only: bool,
    /// Whether a program locks its entries: a spin lock that no type shows follows each value. Set by the rule
    /// of locks.
    pub locked: bool,
    /// The second map of two that `take(m)` exchanges. Set by [`super::taken`].
    pub double_buffer: Option<DoubleBuffer>,
    /// Whether it is a variable with a value for each CPU, its only entry.
    pub is_variable: bool,
    /// The outer map of a map of maps. Kind, value and number of entries are then those of the inner maps, and `key` is a
    /// struct of two fields: the key of the outer map and that of the inner one.
    pub outer: Option<OuterMap>,
    /// How tables show its values; none if the script does not say.
    pub column: Option<ColumnLabel>,
}

/// The map that holds the inner maps of a map of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OuterMap {
    /// `Array` or `Hash`.
    pub kind: MapKind,
    /// Maximum number of inner maps.
    pub max_entries: u32,
}

/// A second map of the same shape. Programs use one of the two and userspace the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoubleBuffer {
    /// The second map.
    pub second: MapId,
    /// A `u32`: 0 while programs use the first map, else 1. A run of a program uses the same map from its start to its end.
    pub active: GlobalId,
}

/// The size of a spin lock of the kernel in bytes, and its alignment. Source: include/uapi/linux/bpf.h,
/// `struct bpf_spin_lock`, v6.12.
const LOCK_BYTES: u32 = 4;

/// The layout of a map's values in the kernel, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredValue {
    /// The offset of the spin lock behind the value; none without one.
    pub lock: Option<u32>,
    /// The size of both.
    pub bytes: u32,
}

impl Map {
    /// Creates a map without any option.
    pub fn new(
        (name, span): (String, Span),
        kind: MapKind,
        key: TypeId,
        value: TypeId,
        max_entries: u32,
    ) -> Map {
        Map {
            name,
            span,
            kind,
            key,
            value,
            objects: false,
            max_entries,
            size_option: None,
            flags: 0,
            numa_node: 0,
            pinned: false,
            kernel_only: false,
            locked: false,
            double_buffer: None,
            is_variable: false,
            outer: None,
            column: None,
        }
    }

    /// Returns the types of the two keys of an entry in a map of maps; none for another map.
    pub fn nested_keys(&self, types: &Types) -> Option<(TypeId, TypeId)> {
        let (Some(_), TypeKind::Struct(id)) = (self.outer, types.kind(self.key)) else { return None };
        match types.struct_def(*id).fields.as_slice() {
            [outer, inner] => Some((outer.ty, inner.ty)),
            _ => None,
        }
    }

    /// Whether a key is that of an inner map as a whole, not that of an entry in one.
    pub fn is_of_inner_map(&self, key: &Expr) -> bool {
        self.outer.is_some() && key.ty != self.key
    }

    /// Whether keys have 4 bytes in the kernel, whatever the script's type.
    pub fn has_index(&self) -> bool {
        self.outer.is_none() && (self.kind.is_array() || self.kind == MapKind::StackTrace)
    }

    /// Returns the layout of the values in the kernel; in per-CPU kinds, of one CPU's.
    pub fn stored_value(&self, types: &Types) -> StoredValue {
        if !self.locked {
            return StoredValue { lock: None, bytes: narrow(types.size(self.value)) };
        }
        let lock = lock_offset(types, self.value);
        let align = narrow(types.align(self.value).max(LOCK_BYTES.into()));
        StoredValue { lock: Some(lock), bytes: (lock + LOCK_BYTES).next_multiple_of(align) }
    }
}

/// Returns the offset in bytes of the spin lock behind a value of this type.
pub fn lock_offset(types: &Types, value: TypeId) -> u32 {
    narrow(types.size(value).next_multiple_of(LOCK_BYTES.into()))
}

/// A BPF ring buffer that the script declares.
#[derive(Debug, Clone)]
pub struct Ring {
    /// The name; with its module's before a `.` if it belongs to one.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The type of its records, a struct.
    pub record: TypeId,
    /// Its size in bytes, a power of two from 4096.
    pub bytes: u32,
    /// `pin`: whether it outlives the plugin.
    pub pinned: bool,
    /// The userspace function `NAME_callback`, which receives the records unless `on_event` names another.
    pub default_handler: Option<FuncId>,
}

/// A config block: an array map of one entry, written by userspace only.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name, also of its struct type.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The struct type of its fields, of the same name.
    pub ty: TypeId,
    /// The default values; as many bytes as the type has.
    pub init: Vec<u8>,
}

/// A helper or kfunc.
#[derive(Debug, Clone)]
pub struct Extern {
    /// The name by which the script calls it.
    pub name: String,
    /// The source range of the name; none for helpers that need no `extern`.
    pub span: Option<Span>,
    /// The parameter types in order.
    pub params: Vec<TypeId>,
    /// The result type; void if there is no result.
    pub ret: TypeId,
    /// The number of a helper; none for a kfunc, which is looked up by name.
    pub helper: Option<u32>,
    /// Whether the kernel may lack it; then no call of it can be reached: an `exists` guards each call, or
    /// [`super::module`] declares it.
    pub optional: bool,
}

/// A variable of the kernel that the script declares: `extern name: type`.
#[derive(Debug, Clone)]
pub struct KernelVariable {
    /// The name in the kernel.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// A pointer to its type.
    pub pointer: TypeId,
    /// Whether it has a value for each CPU.
    pub per_cpu: bool,
}

/// An impl block: a struct_ops table of the kernel.
#[derive(Debug, Clone)]
pub struct Impl {
    /// The name of the impl block.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The name of the kernel's struct.
    pub ops: String,
    /// The methods, in source order: those that are members of the struct, and helpers of the block.
    pub methods: Vec<FuncId>,
    /// The methods that are members of the struct, by the members' names: the kernel calls them.
    pub entries: BTreeMap<FuncId, String>,
    /// Data members with their constant values; includes `name` if the struct has one.
    pub fields: Vec<StaticField>,
}

/// A static field of an impl block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticField {
    /// The name of the member.
    pub name: String,
    /// The constant value of the member.
    pub value: StaticValue,
    /// The layout of the member in memory.
    pub layout: StaticLayout,
}

/// The layout of a member of a kernel struct, as far as a value needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticLayout {
    /// An integer of this type.
    Number(IntType),
    /// An integer that the kernel's BTF declares as an enum.
    Enum(IntType),
    /// An array of integers or characters.
    Array {
        /// The type of an element.
        element: IntType,
        /// The number of elements.
        len: u32,
    },
    /// A pointer; its only value is null.
    Pointer,
}

impl StaticLayout {
    /// Returns the size in bytes, which is also the alignment of all but arrays.
    pub fn bytes(self) -> u64 {
        match self {
            StaticLayout::Number(int) | StaticLayout::Enum(int) => int.bytes(),
            StaticLayout::Array { element, len } => element.bytes() * u64::from(len),
            StaticLayout::Pointer => 8,
        }
    }
}

/// The constant value of a static field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticValue {
    /// A number, bool or character.
    Number(i128),
    /// A string without terminator.
    Text(Vec<u8>),
    /// The null pointer, for pointer members.
    Null,
    /// An array: `[a, b]`.
    Numbers(Vec<i128>),
}

/// `counter NAME : EVENT group LEADER`: a perf event on every CPU that programs can read.
#[derive(Debug, Clone)]
pub struct Counter {
    /// The name by which both halves read it.
    pub name: String,
    /// The source range of the name.
    pub span: Span,
    /// The options that open its event, of type `perf_options`; without its group.
    pub options: Expr,
    /// The leader of its group; none without `group`.
    pub leader: Option<super::CounterId>,
}

/// The object of a `for (a, b in ..)`.
#[derive(Debug, Clone)]
pub enum MapIteration {
    /// Keys and values of a map.
    Map(MapId),
    /// CPUs and their values of one entry: `per_cpu(m, k)`.
    PerCpu {
        /// A map of a per-CPU kind.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// Indices and elements of an array.
    Array(super::Lvalue),
}
