//! Typed expressions of function bodies and initial values.

use super::{
    Block, ExternId, FuncId, KernelBuiltin, LocalId, Lvalue, MapId, SharedBuiltin, TakeOp, UserBuiltin,
};
use crate::source::Span;
use crate::types::TypeId;

/// A typed expression with its source range.
#[derive(Debug, Clone)]
pub struct Expr {
    /// The operation and its operands.
    pub kind: ExprKind,
    /// The type of the value; void if there is none.
    pub ty: TypeId,
    /// The source range of the expression.
    pub span: Span,
}

/// The operations of expressions.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A scalar: the low bits of the type's width, the others zero. 0 of a pointer or function type is null.
    Const(u64),
    /// A string, of type `str(N)`: at most N-1 bytes without terminator. With type `u8[N]` or `char[N]`: at
    /// most N bytes. With a pointer type: the address of the bytes with a terminator, as an argument of a
    /// helper or kfunc.
    Bytes(Vec<u8>),
    /// The value of an lvalue.
    Load(Lvalue),
    /// The address of an lvalue: of a local, parameter, global, field, element or map entry (null if absent).
    AddrOf(Lvalue),
    /// An operator on one operand of the same type. The operand of `Not` is a bool, of the others an integer.
    Unary(UnaryOp, Box<Expr>),
    /// Arithmetic: both operands and the result have one integer type. Comparisons: the operands have one
    /// scalar type, or are pointers, or for `Eq` and `Ne` are strings of any two sizes; the result is bool.
    /// Shifts: the amount is taken modulo the width. Division by zero results in 0, remainder by zero in the
    /// left operand; signed division truncates and wraps.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `&&` and `||`, on bools; the right side is evaluated only if needed.
    Logic(LogicOp, Box<Expr>, Box<Expr>),
    /// `a + b` on strings, of type `str(A+B)`.
    Concat(Box<Expr>, Box<Expr>),
    /// A pointer advanced by a number of elements of its pointee type (bytes for `*u8` and `*void`), an i64
    /// or u64.
    Offset(Box<Expr>, Box<Expr>),
    /// The distance of two pointers in bytes: u64.
    Distance(Box<Expr>, Box<Expr>),
    /// A conversion to this expression's type. Between scalars: truncated, or extended by the sign of the
    /// operand's type. Between pointers: the same address. Between strings: copied, cut to N-1 bytes, the
    /// rest zero. From `u8[M]` to a string: copied up to the first zero byte.
    Convert(Box<Expr>),
    /// Whether a scalar is not zero, a string not empty, a pointer not null: bool.
    Truth(Box<Expr>),
    /// Whether an entry exists, as a bool: one lookup.
    Present {
        /// The map that is searched.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
    },
    /// The presence bit of a local that is a `binding`: bool.
    Bound(LocalId),
    /// Whether a program handle is null (0), a pointer is null, or an attachment is invalid (`perf_fd` below
    /// 0): bool.
    IsNull(Box<Expr>),
    /// A call of a function of the same half.
    Call {
        /// The function that is called.
        func: FuncId,
        /// Arguments, of the parameters' types.
        args: Vec<Expr>,
    },
    /// A call through a function value.
    CallValue {
        /// The value, of a function type.
        callee: Box<Expr>,
        /// Arguments, of the parameters' types.
        args: Vec<Expr>,
    },
    /// A call of a helper or kfunc, in the kernel half.
    CallExtern {
        /// The helper or kfunc.
        function: ExternId,
        /// Arguments, of the parameters' types.
        args: Vec<Expr>,
    },
    /// Replaces the running program by another of its kind with the same context; directly in `Return`, or
    /// the value of an arm of a `Match` there. If the kernel refuses, the value is that of a program that
    /// lets things pass.
    TailCall(FuncId),
    /// A function of the same half as a value.
    Function(FuncId),
    /// A struct: one value per field, in field order (evaluated in this order). Padding is zero.
    Struct(Vec<Expr>),
    /// An array: the first elements; the rest is zero.
    Array(Vec<Expr>),
    /// An array with this value in every element.
    Repeat(Box<Expr>),
    /// The value of the first arm that matches; zero if none does.
    Match(Box<Match>),
    /// A new zeroed object of the pointer's pointee type; null if there is no memory (kernel half).
    New,
    /// `q.pop()` or `q.peek()`; zero if the map is empty.
    Take {
        /// A queue or stack.
        map: MapId,
        /// Whether the value is removed.
        op: TakeOp,
    },
    /// Whether `q.pop()` or `q.peek()` has a value: bool. Pop removes it.
    Taken {
        /// A queue or stack.
        map: MapId,
        /// Whether the value is removed.
        op: TakeOp,
    },
    /// An event that the packed form cannot hold, of type `perf_event`.
    Event(Box<EventSpec>),
    /// A member of a perf program's context; `ctx` is a pointer to it.
    Context {
        /// The pointer to the program's context.
        ctx: Box<Expr>,
        /// The member that is read.
        member: ContextMember,
    },
    /// A builtin of both halves.
    Shared(SharedBuiltin),
    /// A builtin of the kernel half.
    Kernel(KernelBuiltin),
    /// A builtin of the userspace half.
    User(UserBuiltin),
}

/// `match (value) { .. }`.
#[derive(Debug, Clone)]
pub struct Match {
    /// The matched value, evaluated once: an integer, enum, bool, char or string.
    pub value: Expr,
    /// The arms; the first that matches runs.
    pub arms: Vec<Arm>,
    /// `default`: runs if no arm matches.
    pub otherwise: Option<ArmBody>,
}

impl Match {
    /// Returns the bodies of the arms, `default` last.
    pub fn bodies(&self) -> impl Iterator<Item = &ArmBody> {
        self.arms.iter().map(|arm| &arm.body).chain(&self.otherwise)
    }
}

/// An arm of a `match`.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The values that match.
    pub pattern: Pattern,
    /// The code of the arm.
    pub body: ArmBody,
    /// The source range of the pattern.
    pub span: Span,
}

/// The code of an arm: a block, then a value.
#[derive(Debug, Clone)]
pub struct ArmBody {
    /// Statements that run before the value.
    pub block: Block,
    /// The value, of the match's type. None if that is void, or if the block never reaches its end.
    pub value: Option<Expr>,
}

/// The pattern of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This value, as bits of the type in which the match compares; compared with the matched value as it is.
    Const(u64),
    /// A string that is compared with the matched value.
    Text(Vec<u8>),
}

/// An event that `type << 32 | config` cannot describe.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "kept in a box wherever it stands")]
pub enum EventSpec {
    /// `raw_event(type, config, config1, config2)`: a u32 and u64s.
    Raw {
        /// The PMU's type number.
        ty: Expr,
        /// The values `config`, `config1` and `config2`, u64 each.
        config: [Expr; 3],
    },
    /// `tracepoint("cat/event")`: resolved when it is attached.
    Tracepoint(String),
    /// `breakpoint(addr, len, access)`: an access to memory.
    Breakpoint {
        /// An address or a symbol.
        at: BreakpointAddress,
        /// Length in bytes: 1, 2, 4 or 8.
        len: u8,
        /// HW_BREAKPOINT_R 1, HW_BREAKPOINT_W 2, HW_BREAKPOINT_X 4.
        access: u8,
    },
    /// `pmu("msr/tsc/")`: resolved when it is attached.
    Pmu(String),
    /// `pmu(text)` of a text known at run time: a string of `OPTION_TEXT` bytes.
    Named(Expr),
    /// `kprobe_event("fn")`: entry of a kernel function.
    Kprobe(String),
    /// `uprobe_event("path:fn")`: entry of a function of a user program.
    Uprobe(String),
}

/// The location of a breakpoint.
#[derive(Debug, Clone)]
pub enum BreakpointAddress {
    /// An address, a u64.
    Address(Expr),
    /// A symbol of the kernel.
    Symbol(String),
}

/// Unary operators; the operand and the result have one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-`: negation of an integer, wrapping.
    Neg,
    /// `!`: negation of a bool.
    Not,
    /// `~`: complement of an integer's bits.
    BitNot,
}

/// Binary operators, all but `&&` and `||`.
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
    /// The greater of two unsigned numbers, only as `lvalue = max(lvalue, value)`: [`StmtKind::Compound`].
    ///
    /// [`StmtKind::Compound`]: super::StmtKind::Compound
    Max,
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

/// Short-circuit operators: `&&` and `||`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogicOp {
    And,
    Or,
}

/// A member of `bpf_perf_event_data`. Its offset depends on the architecture: see `builtins::context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContextMember {
    /// `sample_period`: the event's period, a u64.
    SamplePeriod,
    /// `addr`: the sampled address, a u64.
    Addr,
    /// A register of `regs`, by its position in `builtins::context::REGISTERS`: u64.
    Register(usize),
}
