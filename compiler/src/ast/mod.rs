//! The syntax tree: what was written, with places, before any name has a meaning.

#[cfg(feature = "command")]
pub mod print;
pub mod without_spans;

use crate::source::Span;

/// A name and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub name: String,
    /// Where.
    pub span: Span,
}

/// The bytes of a string literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrLit {
    /// With escapes resolved.
    pub bytes: Vec<u8>,
    /// Where, with quotes.
    pub span: Span,
}

/// The value of an integer literal, with its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntLit {
    /// The digits' value.
    pub value: u64,
    /// `-` stands before it.
    pub negative: bool,
    /// Where, with the sign.
    pub span: Span,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its declarations.
    pub items: Vec<Item>,
    /// Where it ends; empty.
    pub end: Span,
}

/// `@name` or `@name("argument")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The word.
    pub name: Ident,
    /// The argument.
    pub argument: Option<StrLit>,
    /// Where, with `@` and the argument.
    pub span: Span,
}

/// A declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The `///` lines above it; those of a function are in [`AstFunction::docs`].
    pub docs: Option<String>,
    /// Which.
    pub kind: ItemKind,
    /// From its first to its last token.
    pub span: Span,
}

/// Which declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// `include "path"`.
    Include(StrLit),
    /// `import name from "path"`.
    Import {
        /// The name.
        name: Ident,
        /// The path.
        path: StrLit,
    },
    /// `config name { field: type = literal, }`.
    Config {
        /// The name.
        name: Ident,
        /// The fields.
        fields: Vec<FieldDecl>,
    },
    /// `type name = type`.
    Alias {
        /// The name.
        name: Ident,
        /// What it stands for.
        ty: TypeExpr,
    },
    /// `enum name { a, b = 3 }`.
    Enum {
        /// The name.
        name: Ident,
        /// The enumerators.
        enumerators: Vec<(Ident, Option<IntLit>)>,
    },
    /// `struct name { field: type }`.
    Struct {
        /// `@struct_ops("name")`.
        attributes: Vec<Attribute>,
        /// The name.
        name: Ident,
        /// The fields.
        fields: Vec<FieldDecl>,
    },
    /// `var name : hash<key, value>(size)`, and any other `var` at top level.
    Global(Global),
    /// `const name: type = value`.
    Const {
        /// The name.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The value.
        value: Expr,
    },
    /// `counter name : event group leader`.
    Counter {
        /// The name.
        name: Ident,
        /// What is counted.
        event: Expr,
        /// The counter that leads its group.
        leader: Option<Ident>,
    },
    /// `extern name(params) -> type`.
    Extern {
        /// The name.
        name: Ident,
        /// The parameters.
        params: Vec<Param>,
        /// The result.
        ret: Option<TypeExpr>,
    },
    /// A function.
    Function(AstFunction),
    /// An impl block.
    Impl {
        /// `@struct_ops("name")`.
        attributes: Vec<Attribute>,
        /// The name.
        name: Ident,
        /// The methods.
        methods: Vec<AstFunction>,
        /// The static fields.
        fields: Vec<(Ident, Expr)>,
    },
}

/// A field of a struct or config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDecl {
    /// The `///` lines above it.
    pub docs: Option<String>,
    /// The name.
    pub name: Ident,
    /// The type.
    pub ty: TypeExpr,
    /// The default, where one may stand.
    pub default: Option<Expr>,
}

/// A variable, map or ring buffer at top level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// `@flags(...)`.
    pub flags: Option<MapFlags>,
    /// `pin`.
    pub pin: Option<Span>,
    /// `local`.
    pub local: Option<Span>,
    /// The name.
    pub name: Ident,
    /// The type, if written.
    pub ty: Option<TypeExpr>,
    /// The initial value, if written.
    pub init: Option<Expr>,
}

/// `@flags(a | b(n))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFlags {
    /// Each flag with its number, if it has one.
    pub flags: Vec<(Ident, Option<IntLit>)>,
    /// Where.
    pub span: Span,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AstFunction {
    /// The `///` lines above it.
    pub docs: Option<String>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its name.
    pub name: Ident,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Its result.
    pub ret: Option<Returns>,
    /// Its body.
    pub body: Block,
}

/// `name: type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// The name.
    pub name: Ident,
    /// The type.
    pub ty: TypeExpr,
}

/// `-> type` or `-> name: type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returns {
    /// The name of the result, if it has one.
    pub name: Option<Ident>,
    /// The type.
    pub ty: TypeExpr,
}

/// A type as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeExpr {
    /// Which.
    pub kind: TypeExprKind,
    /// Where.
    pub span: Span,
}

/// A type as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeExprKind {
    /// A scalar, struct, enum or alias.
    Name(String),
    /// `module.T`.
    Qualified {
        /// The module.
        module: Ident,
        /// The type.
        name: Ident,
    },
    /// `str(N)`.
    Str(IntLit),
    /// `T[N]`.
    Array(Box<TypeExpr>, Size),
    /// `*T`.
    Ptr(Box<TypeExpr>),
    /// `fn(A, B) -> R`.
    Fn(Vec<TypeExpr>, Box<TypeExpr>),
    /// `kind<K, V>(N)`.
    Map {
        /// The kind.
        kind: Ident,
        /// The key.
        key: Box<TypeExpr>,
        /// The value.
        value: Box<TypeExpr>,
        /// The size.
        size: Size,
    },
    /// A map without a key: `kind<V>(N)`, `kind(N)`, or local storage, `kind<V>`.
    Keyless {
        /// The kind.
        kind: Ident,
        /// The value.
        value: Option<Box<TypeExpr>>,
        /// The size.
        size: Option<Size>,
    },
    /// `ringbuf<T>(N)`.
    Ring(Box<TypeExpr>, Size),
}

/// The length of an array, the size of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// A literal.
    Int(IntLit),
    /// A constant of the top level.
    Const(Ident),
}

impl Size {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            Size::Int(literal) => literal.span,
            Size::Const(name) => name.span,
        }
    }
}

/// `{ ... }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its statements.
    pub stmts: Vec<Stmt>,
    /// With braces.
    pub span: Span,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stmt {
    /// Which.
    pub kind: StmtKind,
    /// Where.
    pub span: Span,
}

/// Which statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StmtKind {
    /// `var name: type = value`.
    Var {
        /// The name.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The value, if written.
        init: Option<Expr>,
    },
    /// `const name: type = value`.
    Const {
        /// The name.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The value.
        value: Expr,
    },
    /// `place = value`, `place op= value`.
    Assign {
        /// What stands on the left.
        lvalue: Expr,
        /// The operator of `op=`.
        op: Option<BinaryOp>,
        /// The value.
        value: Expr,
    },
    /// An expression.
    Expr(Expr),
    /// `return value`.
    Return(Option<Expr>),
    /// `if`.
    If(If),
    /// `while (cond) { }`.
    While {
        /// The condition.
        cond: Expr,
        /// The body.
        body: Block,
    },
    /// `for (name in start..end) { }`.
    For {
        /// The loop variable.
        name: Ident,
        /// The first value.
        start: Expr,
        /// One past the last.
        end: Expr,
        /// The body.
        body: Block,
    },
    /// `for (key, value in map) { }`.
    ForEach {
        /// The key or index.
        key: Ident,
        /// The value.
        value: Ident,
        /// What is walked.
        over: Expr,
        /// The body.
        body: Block,
    },
    /// `delete x`.
    Delete(Expr),
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `try { } catch 1 { }`.
    Try {
        /// The body.
        body: Block,
        /// The clauses.
        catches: Vec<Catch>,
    },
    /// `throw code`.
    Throw(Expr),
    /// `defer call()`.
    Defer(Expr),
}

/// `if (cond) { } else ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct If {
    /// The condition.
    pub cond: Cond,
    /// Runs if it holds.
    pub then: Block,
    /// Runs if not.
    pub otherwise: Option<Else>,
}

/// What follows `else`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Else {
    /// `{ }`.
    Block(Block),
    /// `if ...`, with its place.
    If(Box<If>, Span),
}

/// The condition of an `if`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cond {
    /// An expression.
    Expr(Expr),
    /// `var name = value`.
    Var {
        /// The name.
        name: Ident,
        /// The value.
        value: Expr,
    },
}

/// `catch pattern { }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catch {
    /// The code.
    pub pattern: CatchPattern,
    /// The body.
    pub body: Block,
}

/// What a clause catches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatchPattern {
    /// One code.
    Int(IntLit),
    /// `_`, an enumerator, or a new name for the code.
    Name(Ident),
}

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// Which.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// Which expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExprKind {
    /// An integer literal.
    Int(u64),
    /// A string literal.
    Str(Vec<u8>),
    /// A character literal.
    Char(u8),
    /// `true`, `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// `[a, b]`.
    Array(Vec<Expr>),
    /// A name.
    Name(String),
    /// `(e)`.
    Paren(Box<Expr>),
    /// `e.name`, `e->name`.
    Field {
        /// The struct.
        base: Box<Expr>,
        /// `->`.
        arrow: bool,
        /// The field.
        name: Ident,
    },
    /// `e[i]`.
    Index(Box<Expr>, Box<Expr>),
    /// `f(a, b)`.
    Call {
        /// What is called.
        callee: Box<Expr>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `new T(flag)`.
    New(TypeExpr, Option<Box<Expr>>),
    /// `S { a: 1 }`.
    Struct {
        /// The module, in `module.S { a: 1 }`.
        module: Option<Ident>,
        /// The struct.
        name: Ident,
        /// Its fields.
        fields: Vec<(Ident, Expr)>,
    },
    /// `match (e) { p: r }`.
    Match {
        /// What is matched.
        value: Box<Expr>,
        /// The arms.
        arms: Vec<Arm>,
    },
    /// `-e`, `!e`, `*e`, `&e`, `~e`.
    Unary(UnaryOp, Box<Expr>),
    /// `a + b`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `e as T`.
    Cast(Box<Expr>, TypeExpr),
    /// A type that no expression can spell, as the argument of `sizeof`: `sizeof(u32)`, `sizeof(*u8)`.
    Type(TypeExpr),
}

/// `pattern: result`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// A literal, a name, or none for `default`.
    pub pattern: Option<Expr>,
    /// The result.
    pub result: ArmResult,
}

/// What an arm gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmResult {
    /// An expression.
    Expr(Expr),
    /// A block.
    Block(Block),
}

/// Prefix operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum UnaryOp {
    Neg,
    Not,
    Deref,
    AddrOf,
    BitNot,
}

/// Operators between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BinaryOp {
    OrOr,
    AndAnd,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Or,
    Xor,
    And,
    Shl,
    Shr,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl BinaryOp {
    /// Its spelling.
    pub fn text(self) -> &'static str {
        match self {
            BinaryOp::OrOr => "||",
            BinaryOp::AndAnd => "&&",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Or => "|",
            BinaryOp::Xor => "^",
            BinaryOp::And => "&",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
        }
    }

    /// How tightly it binds: a higher number binds tighter.
    pub fn level(self) -> u8 {
        match self {
            BinaryOp::OrOr => 1,
            BinaryOp::AndAnd => 2,
            BinaryOp::Eq | BinaryOp::Ne => 3,
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => 4,
            BinaryOp::Or => 5,
            BinaryOp::Xor => 6,
            BinaryOp::And => 7,
            BinaryOp::Shl | BinaryOp::Shr => 8,
            BinaryOp::Add | BinaryOp::Sub => 9,
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => 10,
        }
    }

    /// Whether it is one of `+ - * / %`.
    pub fn is_arithmetic(self) -> bool {
        self.level() >= BinaryOp::Add.level()
    }

    /// Whether it is one of `& | ^ << >>`.
    pub fn is_bitwise(self) -> bool {
        (BinaryOp::Or.level()..=BinaryOp::Shl.level()).contains(&self.level())
    }
}
