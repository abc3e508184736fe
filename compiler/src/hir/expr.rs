//! Expressions.

use super::{
    Block, ExternId, FuncId, KernelBuiltin, LocalId, Lvalue, MapId, SharedBuiltin, TakeOp, UserBuiltin,
};
use crate::source::Span;
use crate::types::TypeId;

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
    /// A scalar: the low bits of the type's width, the others zero. 0 of a pointer or function type is null.
    Const(u64),
    /// A string, of type `str(N)`: at most N-1 bytes without terminator. With type `u8[N]` or `char[N]`: at most N bytes.
    /// With a pointer type: the address of the bytes with a terminator, as an argument of a helper or kfunc.
    Bytes(Vec<u8>),
    /// The value at a place.
    Load(Lvalue),
    /// The address of a place: of a local, parameter, global, field, element or map entry (null if absent).
    AddrOf(Lvalue),
    /// An operator on one operand of the same type. The operand of `Not` is a bool, of the others an integer.
    Unary(UnaryOp, Box<Expr>),
    /// Arithmetic: both operands and the result have one integer type. Comparisons: the operands have one scalar type,
    /// or are pointers, or for `Eq` and `Ne` are strings of any two sizes; the result is bool. Shifts: the amount is taken
    /// modulo the width. Division by zero gives 0, remainder by zero the left operand; signed division truncates and wraps.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `&&` and `||`, on bools; the right side is evaluated only if needed.
    Logic(LogicOp, Box<Expr>, Box<Expr>),
    /// `a + b` on strings, of type `str(A+B)`.
    Concat(Box<Expr>, Box<Expr>),
    /// A pointer moved by so many elements of what it points to (bytes for `*u8` and `*void`), an i64 or u64.
    Offset(Box<Expr>, Box<Expr>),
    /// The distance of two pointers in bytes: u64.
    Distance(Box<Expr>, Box<Expr>),
    /// To this expression's type. Between scalars: cut, or extended by the sign of the operand's type. Between pointers:
    /// the same address. Between strings: copied, cut to N-1 bytes, the rest zero. From `u8[M]` to a string: copied up to
    /// the first zero byte.
    Convert(Box<Expr>),
    /// Whether a scalar is not zero, a string not empty, a pointer not null: bool.
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
    /// Whether a program handle is null (0), a pointer is null, or an attachment is invalid (`perf_fd` below 0): bool.
    IsNull(Box<Expr>),
    /// A call of a function of the same half.
    Call {
        /// Which.
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
    /// A call of a helper or kfunc. Kernel half.
    CallExtern {
        /// Which.
        function: ExternId,
        /// Arguments, of the parameters' types.
        args: Vec<Expr>,
    },
    /// Replaces the running program by another of its kind with the same context; directly in `Return`, or the value of
    /// an arm of a `Match` there. If the kernel refuses, the value is that of a program that lets things pass.
    TailCall(FuncId),
    /// A function of the same half as a value.
    Function(FuncId),
    /// A struct: one value per field, in field order (evaluated in this order). Padding is zero.
    Struct(Vec<Expr>),
    /// An array: the first elements; the rest is zero.
    Array(Vec<Expr>),
    /// An array with this value in every element.
    Repeat(Box<Expr>),
    /// The value of the arm that fits; zero if none does.
    Match(Box<Match>),
    /// A new zeroed object of the pointer's type; null if there is no memory (kernel half).
    New,
    /// `q.pop()` or `q.peek()`; zero if there is nothing.
    Take {
        /// A queue or stack.
        map: MapId,
        /// Which.
        op: TakeOp,
    },
    /// Whether `q.pop()` or `q.peek()` finds something: bool. Pop takes it out.
    Taken {
        /// A queue or stack.
        map: MapId,
        /// Which.
        op: TakeOp,
    },
    /// An event that the packed form cannot hold, of type `perf_event`.
    Event(Box<EventSpec>),
    /// A member of a perf program's context; `ctx` is a pointer to it.
    Context {
        /// The context pointer.
        ctx: Box<Expr>,
        /// The member.
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
    /// What is matched, evaluated once: an integer, enum, bool, char or string.
    pub value: Expr,
    /// Tried in order.
    pub arms: Vec<Arm>,
    /// `default`: taken if no arm fits.
    pub otherwise: Option<ArmBody>,
}

impl Match {
    /// What the arms do, `default` last.
    pub fn bodies(&self) -> impl Iterator<Item = &ArmBody> {
        self.arms.iter().map(|arm| &arm.body).chain(&self.otherwise)
    }
}

/// An arm of a match.
#[derive(Debug, Clone)]
pub struct Arm {
    /// What fits.
    pub pattern: Pattern,
    /// What happens.
    pub body: ArmBody,
    /// Where its pattern stands.
    pub span: Span,
}

/// What an arm does.
#[derive(Debug, Clone)]
pub struct ArmBody {
    /// Runs first.
    pub block: Block,
    /// The value, of the match's type. None if that is void, or if the block never gets here.
    pub value: Option<Expr>,
}

/// What fits an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This value, as bits of the type in which the match compares; compared with the matched value as it is.
    Const(u64),
    /// This text.
    Text(Vec<u8>),
}

/// An event that is described by more than `type << 32 | config`.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "kept in a box wherever it stands")]
pub enum EventSpec {
    /// `raw_event(type, config, config1, config2)`: a u32 and u64s.
    Raw {
        /// The PMU's number.
        ty: Expr,
        /// `config`, `config1`, `config2`.
        config: [Expr; 3],
    },
    /// `tracepoint("cat/event")`: found when it is attached.
    Tracepoint(String),
    /// `breakpoint(addr, len, access)`.
    Breakpoint {
        /// An address, or a symbol.
        at: BreakpointAddress,
        /// 1, 2, 4 or 8.
        len: u8,
        /// HW_BREAKPOINT_R 1, HW_BREAKPOINT_W 2, HW_BREAKPOINT_X 4.
        access: u8,
    },
    /// `pmu("msr/tsc/")`: found when it is attached.
    Pmu(String),
    /// `kprobe_event("fn")`.
    Kprobe(String),
    /// `uprobe_event("path:fn")`.
    Uprobe(String),
}

/// Where a breakpoint lies.
#[derive(Debug, Clone)]
pub enum BreakpointAddress {
    /// A u64.
    Address(Expr),
    /// A symbol of the kernel.
    Symbol(String),
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
