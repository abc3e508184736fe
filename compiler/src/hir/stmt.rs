//! Statements, blocks and lvalues of function bodies.

use super::{BinaryOp, ConfigId, Expr, GlobalId, LocalId, MapId, MapIteration, TakeOp};
use crate::source::Span;
use crate::types::TypeId;

/// Statements in source order.
pub type Block = Vec<Stmt>;

/// A statement with its source range.
#[derive(Debug, Clone)]
pub struct Stmt {
    /// The operation and its parts.
    pub kind: StmtKind,
    /// The source range of the statement.
    pub span: Span,
}

impl Stmt {
    /// Returns the statement's own blocks in source order, without those of match arms in its expressions.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (first, second, catches): (_, _, &[Catch]) = match &self.kind {
            StmtKind::If { then, otherwise, .. } => (Some(then), Some(otherwise), &[]),
            StmtKind::While { body, .. }
            | StmtKind::For { body, .. }
            | StmtKind::ForEach { body, .. }
            | StmtKind::Lock { body, .. } => (Some(body), None, &[]),
            StmtKind::Try { body, catches } => (Some(body), None, catches),
            _ => (None, None, &[]),
        };
        first.into_iter().chain(second).chain(catches.iter().map(|catch| &catch.body))
    }
}

/// The operations of statements.
#[derive(Debug, Clone)]
pub enum StmtKind {
    /// A declaration: the variable is set to `init`, or to zero, each time this runs.
    Let {
        /// The variable that is declared.
        local: LocalId,
        /// The initial value, of the variable's type; none: zero.
        init: Option<Expr>,
    },
    /// `x = m[k]`, as declaration or assignment: one lookup. Scalars and strings: `local` becomes a copy of
    /// the value (zero if absent) and its presence bit is set. Structs and arrays in the kernel half: `local`
    /// becomes an alias of the entry, or of a private zero copy if absent; in the userspace half a snapshot
    /// whose changes of parts (`x.f = e`, `x[i] = e`) are written back if the entry still exists. Pointers:
    /// the address of the object that lies in the map, or null.
    Bind {
        /// The variable, of the map's value type.
        local: LocalId,
        /// The map that is searched.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// `x = q.pop()` and `x = q.peek()`: `local` becomes a copy of the value (zero if there is none) and its
    /// presence bit is set.
    Take {
        /// The variable, of the map's value type.
        local: LocalId,
        /// A queue or stack.
        map: MapId,
        /// Whether the value is removed.
        op: TakeOp,
    },
    /// `lvalue = value`. The value has the lvalue's type. To an array element out of range: kernel half no
    /// effect, userspace half a trap. To `m[k]`: update or create. To a part of `m[k]`: no effect if there is
    /// no entry. Through a pointer that is null or out of range: kernel half no effect, userspace half a
    /// trap.
    Assign {
        /// The lvalue that is written.
        lvalue: Lvalue,
        /// The value that is stored.
        value: Expr,
    },
    /// `lvalue op= value`, the lvalue evaluated once: convert its value to the value's type, apply `op`,
    /// convert back. An absent `m[k]` starts from zero and is created; a part of an absent one has no effect.
    /// In the kernel half `+=` and `-=` on 4 or 8 bytes of a global, a map entry or a bound struct are
    /// atomic.
    Compound {
        /// The destination, an integer.
        lvalue: Lvalue,
        /// The arithmetic operator of `op=`.
        op: BinaryOp,
        /// The right operand; its type is the type of the arithmetic.
        value: Expr,
    },
    /// An expression that is evaluated for its effects.
    Expr(Expr),
    /// `if` with an optional `else`.
    If {
        /// The condition, a bool.
        cond: Expr,
        /// Runs if the condition is true.
        then: Block,
        /// Runs if the condition is false; empty without `else`.
        otherwise: Block,
    },
    /// A `while` loop with its condition.
    While {
        /// The condition, a bool, evaluated before each iteration.
        cond: Expr,
        /// The statements of the loop.
        body: Block,
    },
    /// `for (local in start..end)`: both bounds are evaluated once, before the first iteration; no iteration
    /// if start >= end. `local` is never assigned in the body.
    For {
        /// The loop variable, an integer.
        local: LocalId,
        /// The first value, of the variable's type.
        start: Expr,
        /// One past the last, of the variable's type.
        end: Expr,
        /// The statements of the loop.
        body: Block,
    },
    /// `for (key, value in map)`: the order over a map is unspecified; entries that are added or removed
    /// meanwhile may be visited or not. A struct or array in a map is bound in the kernel half as by `Bind`,
    /// and copied in userspace.
    ForEach {
        /// The key, index or CPU; never assigned in the body.
        key: LocalId,
        /// The value of the entry, CPU or element.
        value: LocalId,
        /// The map, per-CPU entry or array that is iterated.
        iteration: MapIteration,
        /// The statements of the loop.
        body: Block,
    },
    /// `lock (local) { .. }`, in the kernel half: the statements run while the entry that the local is bound to is
    /// locked, which every path out of the block ends. If there is no entry, they do not run.
    Lock {
        /// A struct or an array that is bound to an entry of one map.
        local: LocalId,
        /// The statements under the lock.
        body: Block,
    },
    /// `delete m[k]`: no effect if there is no entry.
    Remove {
        /// The map of the entry.
        map: MapId,
        /// The key, of the map's key type.
        key: Expr,
    },
    /// `delete p`: frees an object of `new`, or removes the map entry that the pointer is bound to. Null: no
    /// effect.
    Free(Expr),
    /// A map has copied the pointee: frees the object if it is one of `new`; else no effect. In the kernel
    /// half only, created by [`super::objects`].
    Release(Expr),
    /// A map has taken over the object that a local points to: from now on the local points to the entry, if
    /// there is one. In userspace only, created by [`super::objects`].
    Give {
        /// The local that points to the object; not null.
        local: LocalId,
        /// The map that now owns the object.
        map: MapId,
        /// The key of the entry, of the map's key type.
        key: Expr,
        /// Whether the pointer may have copies, which must stay valid.
        copied: bool,
    },
    /// Leaves the innermost loop.
    Break,
    /// Continues with the next iteration of the innermost loop.
    Continue,
    /// Returns from the function, with a value of its result type unless that is void. Deferred calls run
    /// after the value is computed.
    Return(Option<Expr>),
    /// `try`: a code thrown in the body, or by a function called there, goes to the first clause that matches
    /// it; else it propagates.
    Try {
        /// The block whose throws are caught.
        body: Block,
        /// The clauses, in order.
        catches: Vec<Catch>,
    },
    /// `throw`: the code, an i32.
    Throw(Expr),
    /// `defer call`: the arguments are evaluated now; the call happens when the function returns, last first.
    Defer(Expr),
}

/// A clause of a `try`.
#[derive(Debug, Clone)]
pub struct Catch {
    /// The codes that it catches.
    pub pattern: CatchPattern,
    /// Runs with the code caught; a throw in it propagates.
    pub body: Block,
    /// The source range of the clause.
    pub span: Span,
}

/// The pattern of a `catch` clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchPattern {
    /// Only this code, an i32.
    Code(i32),
    /// Every code, which is dropped.
    Any,
    /// Every code, which becomes the value of this variable, an i32.
    Bind(LocalId),
}

/// An lvalue: a location that can be read and, mostly, written.
#[derive(Debug, Clone)]
pub struct Lvalue {
    /// The form of the lvalue and its parts.
    pub kind: LvalueKind,
    /// The type of the value at the location.
    pub ty: TypeId,
    /// The source range of the expression.
    pub span: Span,
}

/// The forms of lvalues.
#[derive(Debug, Clone)]
pub enum LvalueKind {
    /// A local variable or parameter.
    Local(LocalId),
    /// A global variable of the program.
    Global(GlobalId),
    /// A field of a config block, by position. Never assigned in the kernel half.
    Config(ConfigId, usize),
    /// `m[k]`. Read: one lookup; absent reads as zero.
    Element {
        /// The map that is searched.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
    },
    /// A field of a struct, by position. Under `Deref`, its offset depends on the struct's origin
    /// (`types::StructOrigin`): the script's own layout, a context's table, or the running kernel's.
    Field {
        /// The struct that contains the field.
        base: Box<Lvalue>,
        /// The position of the field, from 0.
        field: usize,
    },
    /// An element of an array, or a byte of a string (type char; never assigned). Out of range: in the kernel
    /// half reads as zero; in the userspace half an array traps, a string reads as zero.
    Index {
        /// The array or string.
        base: Box<Lvalue>,
        /// An integer of any type; a negative one is out of range. Constant indices are in range.
        index: Box<Expr>,
    },
    /// The pointee of a pointer. Null or out of range: in the kernel half it reads as zero and ignores
    /// writes; in the userspace half it traps.
    Deref(Box<Expr>),
    /// The value of an expression, of which a part is read: `read(a).raw`. Never assigned.
    Value(Box<Expr>),
}
