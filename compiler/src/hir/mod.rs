//! The typed tree: every name resolved, every expression typed, every conversion explicit.
//!
//! In: the result of `check` on the AST. Out: the input of both back ends. Because conversions, defaults,
//! presence and returns are spelled out here, an expression has one meaning in both halves. Each node states
//! what it leaves to a back end. A tree is only passed on if no error was reported, so no node stands for an
//! error.

mod builtin;
pub mod counters;
mod expr;
pub mod flow;
pub mod format;
pub mod hooks;
mod items;
pub mod kept;
pub mod literals;
pub mod map_iteration;
pub mod module;
pub mod names;
pub mod objects;
#[cfg(feature = "command")]
pub mod print;
pub mod stacks;
pub mod statistics;
mod stmt;
pub mod taken;
pub mod visit;
pub mod visit_mut;
pub mod zeros;

pub use builtin::*;
pub use expr::*;
pub use items::*;
pub use ks_wit::caller::Caller;
pub use ks_wit::program_kind::ProgramKind;
pub use stmt::*;

use std::collections::{BTreeMap, BTreeSet};

use crate::id_type;
use crate::index::IndexVec;
use crate::types::{IntType, StructId, TypeId, Types};

id_type! {
    /// The id of a function.
    FuncId,
    /// The id of a local variable or parameter of one function.
    LocalId,
    /// The id of a global variable.
    GlobalId,
    /// The id of a map.
    MapId,
    /// The id of a ring buffer.
    RingId,
    /// The id of a config block.
    ConfigId,
    /// The id of a function of the kernel: a helper or a kfunc.
    ExternId,
    /// The id of a variable of the kernel.
    KernelVariableId,
    /// The id of an impl block of a struct_ops type.
    ImplId,
    /// The id of a counter at top level.
    CounterId,
}

/// A whole program: the main file and all modules and headers it names.
#[derive(Debug, Clone)]
pub struct Hir {
    /// The base name of the main source file.
    pub project: String,
    /// All types of the program.
    pub types: Types,
    /// All functions, in source order, those of modules first.
    pub functions: IndexVec<FuncId, HirFunction>,
    /// All global variables, in source order.
    pub globals: IndexVec<GlobalId, Global>,
    /// All maps, in source order.
    pub maps: IndexVec<MapId, Map>,
    /// All ring buffers, in source order.
    pub rings: IndexVec<RingId, Ring>,
    /// All config blocks, in source order.
    pub configs: IndexVec<ConfigId, Config>,
    /// All functions of the kernel that the script may call.
    pub externs: IndexVec<ExternId, Extern>,
    /// All variables of the kernel that the script declares, in source order.
    pub kernel_variables: IndexVec<KernelVariableId, KernelVariable>,
    /// All impl blocks, in source order.
    pub impls: IndexVec<ImplId, Impl>,
    /// All counters, in source order.
    pub counters: IndexVec<CounterId, Counter>,
    /// Opens the counters, before `main` or a test. Set by [`counters`].
    pub open_counters: Option<FuncId>,
    /// The zeros that new entries are copied from. Set by [`zeros`].
    pub zeros: Option<GlobalId>,
    /// The entry of the userspace half. None if the script has programs only (the plugin then does nothing),
    /// or if its tests are compiled.
    pub main: Option<FuncId>,
    /// `@test` functions, in source order; none unless they are compiled.
    pub tests: Vec<FuncId>,
    /// Facts about members of the kernel's structs.
    pub kernel_structs: KernelStructs,
    /// The maps that no declaration names.
    pub implied: BTreeSet<MapId>,
    /// The structs that are histograms: counts of slots, of values below zero, and the sum of all values.
    pub histograms: BTreeMap<StructId, HistogramScale>,
    /// Types that the back ends need to know by name.
    pub known: KnownTypes,
}

impl Hir {
    /// Whether the kernel calls a function: a program, or a method that is a member of its struct.
    pub fn is_entry(&self, id: FuncId) -> bool {
        match self.functions[id].kind {
            FunctionKind::Program(_) => true,
            FunctionKind::Method(block) => self.impls[block].entries.contains_key(&id),
            _ => false,
        }
    }
}

/// Facts about the kernel's structs that their types do not contain.
#[derive(Debug, Clone, Default)]
pub struct KernelStructs {
    /// Unions: their members overlap.
    pub unions: BTreeSet<StructId>,
    /// Structs that have no name but that of a typedef.
    pub typedefs: BTreeSet<StructId>,
    /// Whether a struct is in the kernel's memory only, so that no pointer to it is an address of a user program.
    pub internal: BTreeMap<StructId, bool>,
    /// The actual members, by struct and position, as far as the kernel's types are known.
    pub members: BTreeMap<(StructId, usize), KernelMember>,
}

impl KernelStructs {
    /// Whether a struct is in the kernel's memory only, as far as the kernel's types tell.
    #[must_use]
    pub fn is_internal(&self, id: StructId) -> bool {
        self.internal.get(&id).is_some_and(|internal| *internal)
    }
}

/// The actual type of a member of a kernel struct, whatever the script declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelMember {
    /// The actual integer type, where the script may have declared another one.
    pub int: Option<IntType>,
    /// Whether it is an enum, or an array of them.
    pub is_enum: bool,
    /// Whether it is a pointer, or an array of them.
    pub is_pointer: bool,
    /// Whether it is a bit-field.
    pub is_bitfield: bool,
    /// Whether other members overlap it.
    pub in_union: bool,
}

/// Predeclared types that the back ends use.
#[derive(Debug, Clone, Copy)]
pub struct KnownTypes {
    /// `enum perf_event`, 8 bytes: `type << 32 | config`.
    pub perf_event: TypeId,
    /// `perf_options`, a struct; see `builtins::perf`.
    pub perf_options: TypeId,
    /// `perf_attachment`, a struct; see `builtins::perf`.
    pub perf_attachment: TypeId,
    /// `perf_read`, a struct; see `builtins::perf`.
    pub perf_read: TypeId,
    /// `bpf_perf_event_data`, the context of a perf program; only ever as a pointee.
    pub perf_context: TypeId,
    /// `xdp_md`, the context of an xdp program; only ever as a pointee.
    pub xdp_context: TypeId,
    /// `__sk_buff`, the context of tc, cgroup and socket filter programs; only ever as a pointee.
    pub skb_context: TypeId,
    /// `enum xdp_action`, the results of xdp programs.
    pub xdp_action: TypeId,
    /// `enum gfp_flag`, the flags of `new`.
    pub gfp_flag: TypeId,
    /// `bpf_program_info`, a struct; see `builtins::programs`.
    pub bpf_program_info: TypeId,
    /// `log2_hist`, the histogram of powers of two.
    pub log2_hist: StructId,
}
