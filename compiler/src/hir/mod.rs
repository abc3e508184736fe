//! The typed tree: every name resolved, every expression typed, every conversion explicit.
//!
//! In: what `check` makes of the AST. Out: what both back ends read. Because conversions, defaults, presence and
//! returns are spelled out here, one expression means the same in both halves. What is left to a back end is stated
//! at each node. A tree is only handed on if no error was reported, so no node stands for an error.

pub mod visit;

use crate::id_type;
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{TypeId, Types};

id_type! {
    /// A function.
    FuncId,
    /// A local variable or parameter of one function.
    LocalId,
    /// A global variable.
    GlobalId,
    /// A map.
    MapId,
}

/// A whole program.
#[derive(Debug, Clone)]
pub struct Hir {
    /// Base name of the main source file.
    pub project: String,
    /// All types.
    pub types: Types,
    /// All functions, in source order.
    pub functions: IndexVec<FuncId, Function>,
    /// All global variables, in source order.
    pub globals: IndexVec<GlobalId, Global>,
    /// All maps, in source order.
    pub maps: IndexVec<MapId, Map>,
    /// The entry of the userspace half. None if the script has programs only: the plugin then does nothing.
    pub main: Option<FuncId>,
    /// Types that the back ends need to know by name.
    pub known: KnownTypes,
}

/// Predeclared types.
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
    /// `bpf_perf_event_data`, the context of a perf program; only ever behind a pointer.
    pub perf_context: TypeId,
}

/// Which half a function belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// BPF.
    Kernel,
    /// Wasm.
    User,
}

/// What calls a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Userspace functions.
    Plain,
    /// Kernel functions.
    Helper,
    /// The kernel, on an overflow of a perf event: `@perf_event`.
    PerfEvent,
}

impl FunctionKind {
    /// The half it belongs to.
    pub fn half(self) -> Half {
        match self {
            FunctionKind::Plain => Half::User,
            FunctionKind::Helper | FunctionKind::PerfEvent => Half::Kernel,
        }
    }

    /// Whether the kernel enters it.
    pub fn is_program(self) -> bool {
        self == FunctionKind::PerfEvent
    }
}

/// A function.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its name; unique among functions.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// What calls it.
    pub kind: FunctionKind,
    /// Parameters, in order; they are locals.
    pub params: Vec<LocalId>,
    /// The result; void if there is none.
    pub ret: TypeId,
    /// Parameters and variables.
    pub locals: IndexVec<LocalId, Local>,
    /// The body. If `ret` is not void, every path through it ends in `Return` with a value.
    pub body: Block,
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
    /// The initial value: as many bytes as the type has.
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
}

impl MapKind {
    /// The language's spelling.
    pub fn name(self) -> &'static str {
        match self {
            MapKind::Hash => "hash",
            MapKind::Array => "array",
            MapKind::PercpuHash => "percpu_hash",
            MapKind::PercpuArray => "percpu_array",
            MapKind::LruHash => "lru_hash",
        }
    }

    /// Indexed by a number below the size; every index is present.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PercpuArray)
    }

    /// One value per CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PercpuHash | MapKind::PercpuArray)
    }
}

/// A map.
#[derive(Debug, Clone)]
pub struct Map {
    /// Its name.
    pub name: String,
    /// The name in the source.
    pub span: Span,
    /// Its kind.
    pub kind: MapKind,
    /// The key as the script declares it. An array kind's BPF map has a 4-byte key whatever this is.
    pub key: TypeId,
    /// The value.
    pub value: TypeId,
    /// Most entries.
    pub max_entries: u32,
    /// BPF_F_... bits.
    pub flags: u32,
    /// The NUMA node, if `flags` has BPF_F_NUMA_NODE (4).
    pub numa_node: u32,
}

/// Statements in order.
pub type Block = Vec<Stmt>;

/// A statement.
#[derive(Debug, Clone)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it stands.
    pub span: Span,
}

/// What a statement does.
#[derive(Debug, Clone)]
pub enum StmtKind {
    /// A declaration: the variable is set to `init`, or to zero, each time this runs.
    Let {
        /// The variable.
        local: LocalId,
        /// Its value, of the variable's type.
        init: Option<Expr>,
    },
    /// `x = m[k]`, as declaration or assignment: one lookup. Scalars and strings: `local` becomes a copy of the value
    /// (zero if absent) and its presence bit is set. Structs and arrays in the kernel half: `local` becomes an alias of
    /// the entry, or of a private zero copy if absent; in the userspace half a snapshot whose changes of parts
    /// (`x.f = e`, `x[i] = e`) are written back if the entry still exists.
    Bind {
        /// The variable, of the map's value type.
        local: LocalId,
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// `place = value`. The value has the place's type. To an array element out of range: kernel half no effect,
    /// userspace half a trap. To `m[k]`: update or create. To a part of `m[k]`: no effect if there is no entry.
    Assign {
        /// Where to.
        place: Place,
        /// What.
        value: Expr,
    },
    /// `place op= value`, the place evaluated once: convert the place's value to the value's type, apply `op`, convert
    /// back. An absent `m[k]` starts from zero and is created; a part of an absent one has no effect. In the kernel
    /// half `+=` and `-=` on 4 or 8 bytes of a global, a map entry or a bound struct are atomic.
    Compound {
        /// Where; an integer.
        place: Place,
        /// The arithmetic operator.
        op: BinaryOp,
        /// The right operand; its type is the type of the arithmetic.
        value: Expr,
    },
    /// Evaluated for its effects.
    Expr(Expr),
    /// `if`.
    If {
        /// A bool.
        cond: Expr,
        /// Runs if true.
        then: Block,
        /// Runs if false.
        otherwise: Block,
    },
    /// `while`.
    While {
        /// A bool, evaluated before each turn.
        cond: Expr,
        /// The body.
        body: Block,
    },
    /// `for (local in start..end)`: both evaluated once, before the first turn; no turn if start >= end. `local` is
    /// never assigned in the body.
    For {
        /// The loop variable, an integer.
        local: LocalId,
        /// The first value, of the variable's type.
        start: Expr,
        /// One past the last, of the variable's type.
        end: Expr,
        /// The body.
        body: Block,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes to the next turn of the innermost loop.
    Continue,
    /// Leaves the function, with a value of its result type unless that is void.
    Return(Option<Expr>),
}

/// Something that can be read and, mostly, written.
#[derive(Debug, Clone)]
pub struct Place {
    /// Which.
    pub kind: PlaceKind,
    /// The type of what is there.
    pub ty: TypeId,
    /// Where it stands.
    pub span: Span,
}

/// Which place.
#[derive(Debug, Clone)]
pub enum PlaceKind {
    /// A local.
    Local(LocalId),
    /// A global.
    Global(GlobalId),
    /// `m[k]`. Read: one lookup; absent reads as zero.
    Element {
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
    },
    /// A field of a struct.
    Field {
        /// The struct.
        base: Box<Place>,
        /// The position of the field.
        field: usize,
    },
    /// An element of an array, or a byte of a string (type char; never assigned).
    /// Out of range: in the kernel half reads as zero; in the userspace half an array traps, a string reads as zero.
    Index {
        /// The array or string.
        base: Box<Place>,
        /// An integer of any type; a negative one is out of range. Constant indices are in range.
        index: Box<Expr>,
    },
    /// The value of an expression, to take a part of it: `read(a).raw`. Never assigned.
    Value(Box<Expr>),
}

/// An expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Its type.
    pub ty: TypeId,
    /// Where it stands.
    pub span: Span,
}

/// What an expression computes.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A scalar: the low bits of the type's width, the others zero.
    Const(u64),
    /// A string, of type `str(N)`: at most N-1 bytes without terminator. With type `u8[N]` or `char[N]`: at most N bytes.
    Bytes(Vec<u8>),
    /// The value at a place.
    Load(Place),
    /// An operator on one operand of the same type. The operand of `Not` is a bool, of the others an integer.
    Unary(UnaryOp, Box<Expr>),
    /// Arithmetic: both operands and the result have one integer type. Comparisons: the operands have one scalar type,
    /// or for `Eq` and `Ne` are strings of any two sizes; the result is bool. Shifts: the amount is taken modulo the width.
    /// Division by zero gives 0, remainder by zero the left operand; signed division truncates and wraps.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `&&` and `||`, on bools; the right side is evaluated only if needed.
    Logic(LogicOp, Box<Expr>, Box<Expr>),
    /// To this expression's type. Between scalars: cut, or extended by the sign of the operand's type. Between strings:
    /// copied, cut to N-1 bytes, the rest zero.
    Convert(Box<Expr>),
    /// Whether a scalar is not zero, or a string not empty: bool.
    Truth(Box<Expr>),
    /// Whether there is an entry: one lookup: bool.
    Present {
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
    },
    /// The presence bit of a local that is a `binding`: bool.
    Bound(LocalId),
    /// Whether a program handle is null (0) or an attachment is invalid (`perf_fd` below 0): bool.
    IsNull(Box<Expr>),
    /// A call of a function of the same half.
    Call {
        /// Which.
        func: FuncId,
        /// Arguments, of the parameters' types.
        args: Vec<Expr>,
    },
    /// A struct: one value per field, in field order (evaluated in this order). Padding is zero.
    Struct(Vec<Expr>),
    /// An array: the first elements; the rest is zero.
    Array(Vec<Expr>),
    /// An array with this value in every element.
    Repeat(Box<Expr>),
    /// A member of a program's context; `ctx` is a pointer to it.
    Context {
        /// The context pointer.
        ctx: Box<Expr>,
        /// The member.
        member: ContextMember,
    },
    /// A builtin of the kernel half.
    Kernel(KernelBuiltin),
    /// A builtin of the userspace half.
    User(UserBuiltin),
}

/// Operators on one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-`, wrapping.
    Neg,
    /// `!`.
    Not,
    /// `~`.
    BitNot,
}

/// Operators on two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl BinaryOp {
    /// Whether the result is a bool.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
        )
    }
}

/// `&&` and `||`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogicOp {
    And,
    Or,
}

/// A member of `bpf_perf_event_data`. Where it lies depends on the architecture: see `builtins::context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContextMember {
    /// `sample_period`: u64.
    SamplePeriod,
    /// `addr`: u64.
    Addr,
    /// A register of `regs`, by its position in `builtins::context::REGISTERS`: u64.
    Register(usize),
}

/// Builtins of the kernel half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelBuiltin {
    /// `time_ns() -> u64`: bpf_ktime_get_ns.
    TimeNs,
    /// `pid() -> u32`: the process (thread group) id, upper half of bpf_get_current_pid_tgid.
    Pid,
    /// `tid() -> u32`: the thread id, lower half of the same.
    Tid,
    /// `uid() -> u32`: lower half of bpf_get_current_uid_gid.
    Uid,
    /// `cpu() -> u32`: bpf_get_smp_processor_id.
    Cpu,
    /// `comm() -> str(16)`: bpf_get_current_comm.
    Comm,
    /// `cgroup_id() -> u64`: bpf_get_current_cgroup_id.
    CgroupId,
}

/// Builtins of the userspace half. Failures go to standard error; the script sees the value stated.
#[derive(Debug, Clone)]
pub enum UserBuiltin {
    /// `print(..) -> u32`: 0. Arguments are scalars, strings, or `u8[N]`/`char[N]`; the format is what
    /// `console.print` takes, with a conversion for each argument.
    Print {
        /// The format.
        format: Vec<u8>,
        /// The values.
        args: Vec<Expr>,
    },
    /// `load(f)`: a program handle, or null on failure.
    Load {
        /// The program.
        program: FuncId,
        /// The script never asks whether the handle is null: a failed load ends the plugin with exit code 1.
        exit_on_failure: bool,
    },
    /// `attach(h, options, flags)` and `attach(options)`: a `perf_attachment`, invalid on failure.
    Attach {
        /// The program handle; none: the event is only counted.
        program: Option<Box<Expr>>,
        /// A `perf_options`.
        options: Box<Expr>,
        /// A u64; not 0 is refused. Evaluated last.
        flags: Option<Box<Expr>>,
    },
    /// `read(att)`: a `perf_read`; on failure -1 in `raw` and `scaled` and 0 elsewhere.
    Read {
        /// A `perf_attachment`.
        attachment: Box<Expr>,
        /// What of the result is used.
        form: ReadForm,
    },
    /// `detach(att)`: void.
    Detach(Box<Expr>),
    /// `detach(h)` of a program handle: all its attachments: void.
    DetachProgram(Box<Expr>),
    /// `enable(att) -> u32`: 0 or errno.
    Enable(Box<Expr>),
    /// `disable(att) -> u32`: 0 or errno.
    Disable(Box<Expr>),
    /// `reset(att) -> u32`: 0 or errno.
    Reset(Box<Expr>),
    /// `sleep(ms) -> u32`: the argument is a u64 of milliseconds; 0, or EINTR (4) when the host asks to stop.
    Sleep(Box<Expr>),
    /// `time_ns() -> u64`.
    TimeNs,
    /// `stopping() -> bool`.
    Stopping,
    /// `exit(code)`: an i32; its low 8 bits. Void; does not return.
    Exit(Box<Expr>),
}

/// What a script uses of a `perf_read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadForm {
    /// `raw`, `scaled` and the times only: the other members are never looked at.
    Scalar,
    /// Everything.
    Snapshot,
}
