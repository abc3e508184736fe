//! Statements and places.

use super::{BinaryOp, ConfigId, Expr, GlobalId, LocalId, MapId, MapIteration, TakeOp};
use crate::source::Span;
use crate::types::TypeId;

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

impl Stmt {
    /// The blocks in it, in source order; those of match arms in its expressions are not among them.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second, catches): (_, _, &[Catch]) = match &self.kind {
            StmtKind::If { then, otherwise, .. } => (Some(then), Some(otherwise), &[]),
            StmtKind::While { body, .. } | StmtKind::For { body, .. } | StmtKind::ForEach { body, .. } => {
                (Some(body), None, &[])
            }
            StmtKind::Try { body, catches } => (Some(body), None, catches),
            _ => (None, None, &[]),
        };
        first.into_iter().chain(second).chain(catches.iter().map(|catch| &catch.body))
    }
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
    /// (`x.f = e`, `x[i] = e`) are written back if the entry still exists. Pointers: the address of the object that lies
    /// in the map, or null.
    Bind {
        /// The variable, of the map's value type.
        local: LocalId,
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// `x = q.pop()` and `x = q.peek()`: `local` becomes a copy of the value (zero if there is none) and its presence bit
    /// is set.
    Take {
        /// The variable, of the map's value type.
        local: LocalId,
        /// A queue or stack.
        map: MapId,
        /// Which.
        op: TakeOp,
    },
    /// `place = value`. The value has the place's type. To an array element out of range: kernel half no effect,
    /// userspace half a trap. To `m[k]`: update or create. To a part of `m[k]`: no effect if there is no entry. Through a
    /// pointer that is null or out of range: kernel half no effect, userspace half a trap.
    Assign {
        /// Where to.
        lvalue: Lvalue,
        /// What.
        value: Expr,
    },
    /// `place op= value`, the place evaluated once: convert the place's value to the value's type, apply `op`, convert
    /// back. An absent `m[k]` starts from zero and is created; a part of an absent one has no effect. In the kernel
    /// half `+=` and `-=` on 4 or 8 bytes of a global, a map entry or a bound struct are atomic.
    Compound {
        /// Where; an integer.
        lvalue: Lvalue,
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
    /// `for (key, value in walk)`: over a map in no order that is promised; entries that come or go meanwhile may be
    /// met or not. The value of a map's struct or array is bound in the kernel half as by `Bind`, a copy in userspace.
    ForEach {
        /// The key, index or CPU; never assigned in the body.
        key: LocalId,
        /// The value.
        value: LocalId,
        /// What is walked.
        iteration: MapIteration,
        /// The body.
        body: Block,
    },
    /// `delete m[k]`: no effect if there is no entry.
    Remove {
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// `delete p`: gives an object of `new` back, or removes the map entry that the pointer is bound to. Null: no effect.
    Free(Expr),
    /// A map took a copy of what the pointer leads to: gives an object of `new` back; else no effect. In the kernel half,
    /// made by [`super::objects`].
    Release(Expr),
    /// A map has taken the object that a local leads to: from now on the local leads to the entry, if there is one. In
    /// userspace, made by [`super::objects`].
    Give {
        /// The local; not null.
        local: LocalId,
        /// The map.
        map: MapId,
        /// The key.
        key: Expr,
        /// Whether others may have the pointer too, for whom it has to stay one.
        copied: bool,
    },
    /// Leaves the innermost loop.
    Break,
    /// Goes to the next turn of the innermost loop.
    Continue,
    /// Leaves the function, with a value of its result type unless that is void. Deferred calls run after the value is
    /// worked out.
    Return(Option<Expr>),
    /// `try`: a code thrown in the body, or by what it calls, goes to the first clause that takes it; else outward.
    Try {
        /// The body.
        body: Block,
        /// The clauses, in order.
        catches: Vec<Catch>,
    },
    /// `throw`: an i32.
    Throw(Expr),
    /// `defer call`: arguments are worked out now, the call happens when the function is left, last first.
    Defer(Expr),
}

/// A clause of a `try`.
#[derive(Debug, Clone)]
pub struct Catch {
    /// What it takes.
    pub pattern: CatchPattern,
    /// Runs then; a throw in it goes outward.
    pub body: Block,
    /// Where it stands.
    pub span: Span,
}

/// What a clause takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchPattern {
    /// This code.
    Code(i32),
    /// Every code.
    Any,
    /// Every code, which becomes the value of this variable, an i32.
    Bind(LocalId),
}

/// Something that can be read and, mostly, written.
#[derive(Debug, Clone)]
pub struct Lvalue {
    /// Which.
    pub kind: LvalueKind,
    /// The type of what is there.
    pub ty: TypeId,
    /// Where it stands.
    pub span: Span,
}

/// Which place.
#[derive(Debug, Clone)]
pub enum LvalueKind {
    /// A local.
    Local(LocalId),
    /// A global.
    Global(GlobalId),
    /// A field of a config block, by position. Never assigned in the kernel half.
    Config(ConfigId, usize),
    /// `m[k]`. Read: one lookup; absent reads as zero.
    Element {
        /// The map.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
    },
    /// A field of a struct, by position. Behind `Deref`: where it lies depends on the struct's origin
    /// (`types::StructOrigin`): the script's own layout, a context's table, or the running kernel's.
    Field {
        /// The struct.
        base: Box<Lvalue>,
        /// The position of the field.
        field: usize,
    },
    /// An element of an array, or a byte of a string (type char; never assigned).
    /// Out of range: in the kernel half reads as zero; in the userspace half an array traps, a string reads as zero.
    Index {
        /// The array or string.
        base: Box<Lvalue>,
        /// An integer of any type; a negative one is out of range. Constant indices are in range.
        index: Box<Expr>,
    },
    /// What a pointer points to. Null or out of range: in the kernel half reads as zero and takes no write; in the
    /// userspace half a trap.
    Deref(Box<Expr>),
    /// The value of an expression, to take a part of it: `read(a).raw`. Never assigned.
    Value(Box<Expr>),
}
