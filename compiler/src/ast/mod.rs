//! The syntax tree: a file as written, with source ranges, before names are resolved.

#[cfg(feature = "command")]
pub mod print;
pub mod without_spans;

use crate::source::Span;

/// An identifier and its source range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The identifier as spelled in the source.
    pub name: String,
    /// The source range of the identifier.
    pub span: Span,
}

/// The bytes of a string literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrLit {
    /// The bytes with escapes resolved; not necessarily UTF-8.
    pub bytes: Vec<u8>,
    /// The source range, quotes included.
    pub span: Span,
}

/// The value of an integer literal, with its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntLit {
    /// The magnitude; the sign is in [`IntLit::negative`].
    pub value: u64,
    /// Whether `-` stands before the digits.
    pub negative: bool,
    /// The source range, sign included.
    pub span: Span,
}

/// A parsed source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The declarations in source order.
    pub items: Vec<Item>,
    /// The empty source range at the end of the file.
    pub end: Span,
}

/// An attribute: `@name`, `@name("argument")` or `@name("argument", other, key: value)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name after `@`.
    pub name: Ident,
    /// The string that is the first argument; none if there is none.
    pub argument: Option<StrLit>,
    /// The arguments after it, or all if the first is not a string.
    pub more: Vec<AttributeArg>,
    /// Tracepoints that the program is for besides its target, as `category/event`. No script writes them here: see
    /// `implicit_main`.
    pub also: Vec<StrLit>,
    /// Whether the program is left out where the kernel lacks its target. `implicit_main` takes it from `more`.
    pub optional: bool,
    /// The source range, with `@` and the argument.
    pub span: Span,
}

/// An argument of an attribute other than a string that stands first: `value` or `name: value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeArg {
    /// The name before the colon; none if there is none.
    pub name: Option<Ident>,
    /// The value of the argument.
    pub value: Expr,
}

impl AttributeArg {
    /// Returns the source range, with the name.
    pub fn span(&self) -> Span {
        self.name.as_ref().map_or(self.value.span, |name| name.span.to(self.value.span))
    }
}

/// A declaration at top level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The `///` lines above it; those of a function are in [`AstFunction::docs`].
    pub docs: Option<String>,
    /// The form of the declaration and its parts.
    pub kind: ItemKind,
    /// The source range from the first to the last token.
    pub span: Span,
}

/// The forms of declarations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// `include "path"`: reads a header.
    Include(StrLit),
    /// `import name from "path"`.
    Import {
        /// The name under which the script refers to the module.
        name: Ident,
        /// The path as written, relative to the folder of this file.
        path: StrLit,
    },
    /// `config name { field: type = literal, }`.
    Config {
        /// The name of the config block.
        name: Ident,
        /// The fields in source order.
        fields: Vec<FieldDecl>,
    },
    /// `type name = type`.
    Alias {
        /// The name of the alias.
        name: Ident,
        /// The type that the alias stands for.
        ty: TypeExpr,
    },
    /// `enum name { a, b = 3 }`.
    Enum {
        /// The name of the enum.
        name: Ident,
        /// The enumerators in source order, each with its value if one is written.
        enumerators: Vec<(Ident, Option<IntLit>)>,
    },
    /// `struct name { field: type }`.
    Struct {
        /// `@struct_ops("name")` and any other attribute above the struct.
        attributes: Vec<Attribute>,
        /// The name of the struct.
        name: Ident,
        /// The fields in source order.
        fields: Vec<FieldDecl>,
    },
    /// `var name : hash<key, value>(size)`, and any other `var` at top level.
    Global(Global),
    /// `const name: type = value`.
    Const {
        /// The name of the constant.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The expression that the constant stands for.
        value: Expr,
    },
    /// `counter name : event group leader`.
    Counter {
        /// The name of the counter.
        name: Ident,
        /// The event that is counted.
        event: Expr,
        /// The leader of its group; none if no `group` is written.
        leader: Option<Ident>,
    },
    /// `extern name(params) -> type`.
    Extern {
        /// The name of the helper or kfunc.
        name: Ident,
        /// The parameters in source order.
        params: Vec<Param>,
        /// The result type; none for void.
        ret: Option<TypeExpr>,
    },
    /// `extern name: type`.
    ExternVariable {
        /// The source range of the word `percpu`; none if the variable is the same on all CPUs.
        per_cpu: Option<Span>,
        /// The name of the kernel's variable.
        name: Ident,
        /// Its type.
        ty: TypeExpr,
    },
    /// `fn name(params) -> type { }`.
    Function(AstFunction),
    /// `@struct_ops("name") impl name { }`.
    Impl {
        /// `@struct_ops("name")` and any other attribute above the block.
        attributes: Vec<Attribute>,
        /// The name of the impl block.
        name: Ident,
        /// The methods in source order.
        methods: Vec<AstFunction>,
        /// The static fields, each with its value.
        fields: Vec<(Ident, Expr)>,
    },
}

/// A field of a struct or config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDecl {
    /// The `///` lines above it.
    pub docs: Option<String>,
    /// How tables show it: `@column(...)`; none if not written.
    pub column: Option<ColumnAttribute>,
    /// The name of the field.
    pub name: Ident,
    /// The type as written in the declaration.
    pub ty: TypeExpr,
    /// The default value, a literal; none if not written.
    pub default: Option<Expr>,
}

/// A variable, map or ring buffer at top level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The map flags `@flags(...)`; none if not written.
    pub flags: Option<MapFlags>,
    /// How tables show its value: `@column(...)`; none if not written.
    pub column: Option<ColumnAttribute>,
    /// The source range of the word `pin`; none if the variable is not pinned.
    pub pin: Option<Span>,
    /// The source range of the word `local`; none if it is not written.
    pub local: Option<Span>,
    /// The source range of the word `percpu`; none if the variable is the same on all CPUs.
    pub per_cpu: Option<Span>,
    /// The name of the variable, map or ring buffer.
    pub name: Ident,
    /// The type, if written.
    pub ty: Option<TypeExpr>,
    /// The initial value, if written.
    pub init: Option<Expr>,
}

/// Map flags: `@flags(a | b(n))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFlags {
    /// Each flag with its number, if it has one.
    pub flags: Vec<(Ident, Option<IntLit>)>,
    /// The source range, with `@` and the parentheses.
    pub span: Span,
}

/// The heading and the unit of a column: `@column("total", "ns")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnAttribute {
    /// The heading.
    pub heading: StrLit,
    /// The unit of its numbers; none if not written.
    pub unit: Option<StrLit>,
    /// The source range, with `@` and the parentheses.
    pub span: Span,
}

/// A function with its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AstFunction {
    /// The `///` lines above it.
    pub docs: Option<String>,
    /// The attributes in source order.
    pub attributes: Vec<Attribute>,
    /// Whether `fn name(..)` is written. Without it the attribute says all, and `name` is the attribute's.
    pub has_head: bool,
    /// The name of the function.
    pub name: Ident,
    /// The parameters in source order.
    pub params: Vec<Param>,
    /// The result; none for void.
    pub ret: Option<Returns>,
    /// The statements of the function.
    pub body: Block,
}

/// A parameter: `name: type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// The name of the parameter.
    pub name: Ident,
    /// The type as written in the declaration.
    pub ty: TypeExpr,
}

/// A function's result: `-> type` or `-> name: type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returns {
    /// The name of the result variable, if it has one.
    pub name: Option<Ident>,
    /// The result type as written.
    pub ty: TypeExpr,
}

/// A type as written, with its source range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeExpr {
    /// The form of the type and its parts.
    pub kind: TypeExprKind,
    /// The source range of the type.
    pub span: Span,
}

/// The forms of types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeExprKind {
    /// A scalar, struct, enum or alias.
    Name(String),
    /// `module.T`: a type of an imported module.
    Qualified {
        /// The name of the imported module.
        module: Ident,
        /// The name of the type in the module.
        name: Ident,
    },
    /// `str(N)`: a string of at most N-1 bytes.
    Str(IntLit),
    /// An array: `T[N]` with N elements.
    Array(Box<TypeExpr>, Size),
    /// A pointer: `*T` points to a `T`.
    Ptr(Box<TypeExpr>),
    /// `fn(A, B) -> R`: a function type.
    Fn(Vec<TypeExpr>, Box<TypeExpr>),
    /// A map with keys: `kind<K, V>(N)`; of a `local` map also `kind<K, V>`.
    Map {
        /// The map kind as written.
        kind: Ident,
        /// The type of the keys.
        key: Box<TypeExpr>,
        /// The type of the values.
        value: Box<TypeExpr>,
        /// The maximum number of entries; none if it is not written.
        size: Option<Size>,
    },
    /// A map without a key: `kind<V>(N)`, `kind(N)`, or local storage, `kind<V>`.
    Keyless {
        /// The map kind as written.
        kind: Ident,
        /// The value type; none for `kind(N)`.
        value: Option<Box<TypeExpr>>,
        /// The maximum number of entries; none for local storage.
        size: Option<Size>,
    },
    /// `ringbuf<T>(N)`: a ring buffer of records `T`, N bytes large.
    Ring(Box<TypeExpr>, Size),
    /// `linear_hist(low, step, n)`: a histogram of `n` slots of equal width.
    LinearHist {
        /// The lowest value of the first slot.
        low: IntLit,
        /// The width of a slot.
        step: IntLit,
        /// The number of slots.
        slots: IntLit,
    },
}

/// The length of an array or the size of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// An integer literal, without sign.
    Int(IntLit),
    /// The name of a constant at top level.
    Const(Ident),
    /// `args.field`: an option of the script, for maps only.
    Option {
        /// The name of `main`'s parameter.
        options: Ident,
        /// The option.
        field: Ident,
    },
}

impl Size {
    /// The source range of the literal or name.
    pub fn span(&self) -> Span {
        match self {
            Size::Int(literal) => literal.span,
            Size::Const(name) => name.span,
            Size::Option { options, field } => options.span.to(field.span),
        }
    }
}

/// A block: `{ ... }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The statements in source order.
    pub stmts: Vec<Stmt>,
    /// The source range, braces included.
    pub span: Span,
}

/// A statement with its source range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stmt {
    /// The form of the statement and its parts.
    pub kind: StmtKind,
    /// The source range of the whole statement.
    pub span: Span,
}

/// The forms of statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StmtKind {
    /// `var name: type = value`.
    Var {
        /// The name of the variable.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The initial value, if written.
        init: Option<Expr>,
    },
    /// `const name: type = value`.
    Const {
        /// The name of the constant.
        name: Ident,
        /// The type, if written.
        ty: Option<TypeExpr>,
        /// The expression that the constant stands for.
        value: Expr,
    },
    /// An assignment: `lvalue = value`, `lvalue op= value`.
    Assign {
        /// The left side, any expression the grammar allows there.
        lvalue: Expr,
        /// The operator of `op=`; none for `=`.
        op: Option<BinaryOp>,
        /// The right side of the assignment.
        value: Expr,
    },
    /// An expression as a statement, a call for example.
    Expr(Expr),
    /// `return value` or `return`.
    Return(Option<Expr>),
    /// `if` with its `else` branches.
    If(If),
    /// `while (cond) { }`.
    While {
        /// The condition, evaluated before each iteration.
        cond: Expr,
        /// The statements of the loop.
        body: Block,
    },
    /// `for (name in start..end) { }`.
    For {
        /// The loop variable, assigned by the loop only.
        name: Ident,
        /// The first value of the loop variable.
        start: Expr,
        /// One past the last value.
        end: Expr,
        /// The statements of the loop.
        body: Block,
    },
    /// `for (key, value in map) { }`.
    ForEach {
        /// The key or index variable.
        key: Ident,
        /// The variable that has the value.
        value: Ident,
        /// The map or array that is iterated.
        over: Expr,
        /// The statements of the loop.
        body: Block,
    },
    /// `lock (name) { }`.
    Lock {
        /// The variable that is bound to the entry.
        name: Ident,
        /// The statements that run under the lock.
        body: Block,
    },
    /// `delete x`: a map entry or an object.
    Delete(Expr),
    /// `break`: leaves the innermost loop.
    Break,
    /// `continue`: starts the next iteration.
    Continue,
    /// `try { } catch 1 { }`.
    Try {
        /// The block whose throws are caught.
        body: Block,
        /// The `catch` clauses in source order.
        catches: Vec<Catch>,
    },
    /// `throw code`: the code is an integer.
    Throw(Expr),
    /// `defer call()`: runs when the function returns.
    Defer(Expr),
}

/// `if (cond) { } else ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct If {
    /// The condition, possibly a declaration.
    pub cond: Cond,
    /// Runs if the condition holds.
    pub then: Block,
    /// The `else` branch, if written.
    pub otherwise: Option<Else>,
}

/// The branch after `else`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Else {
    /// A final `else { }`.
    Block(Block),
    /// `else if ...`, with the source range of that `if`.
    If(Box<If>, Span),
}

/// The condition of an `if`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cond {
    /// An expression that is tested for truth.
    Expr(Expr),
    /// `var name = value`: declares a variable and tests it.
    Var {
        /// The name of the variable.
        name: Ident,
        /// The value that is assigned and tested.
        value: Expr,
    },
}

/// A clause of a `try`: `catch pattern { }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catch {
    /// The codes that the clause catches.
    pub pattern: CatchPattern,
    /// Runs with the code caught.
    pub body: Block,
}

/// The pattern of a `catch` clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatchPattern {
    /// One code as a literal.
    Int(IntLit),
    /// `_`, an enumerator, or a new name for the code.
    Name(Ident),
}

/// An expression with its source range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// The form of the expression and its parts.
    pub kind: ExprKind,
    /// The source range of the whole expression.
    pub span: Span,
}

impl Expr {
    /// The expressions directly inside, in source order; of a match the value and the arms' results, without
    /// blocks.
    pub fn parts(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Paren(inner)
            | ExprKind::Unary(_, inner)
            | ExprKind::Cast(inner, _)
            | ExprKind::Named(_, inner) => vec![inner],
            ExprKind::Field { base, .. } => vec![base],
            ExprKind::Index(left, right) | ExprKind::Binary(_, left, right) => vec![left, right],
            ExprKind::Call { callee, args } => std::iter::once(&**callee).chain(args).collect(),
            ExprKind::Array(elements) | ExprKind::Keys(elements) => elements.iter().collect(),
            ExprKind::Struct { fields, .. } => fields.iter().map(|(_, value)| value).collect(),
            ExprKind::New(_, flag) => flag.iter().map(|flag| &**flag).collect(),
            ExprKind::Match { value, arms } => {
                let results = arms.iter().filter_map(|arm| match &arm.result {
                    ArmResult::Expr(result) => Some(result),
                    ArmResult::Block(_) => None,
                });
                std::iter::once(&**value).chain(results).collect()
            }
            ExprKind::Int(_)
            | ExprKind::Str(_)
            | ExprKind::Char(_)
            | ExprKind::Bool(_)
            | ExprKind::Null
            | ExprKind::Name(_)
            | ExprKind::Type(_) => Vec::new(),
        }
    }
}

/// The forms of expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExprKind {
    /// An integer literal without sign.
    Int(u64),
    /// A string literal, escapes resolved.
    Str(Vec<u8>),
    /// A character literal, escapes resolved.
    Char(u8),
    /// A bool literal: `true` or `false`.
    Bool(bool),
    /// The literal `null`, for pointers and handles.
    Null,
    /// An array literal: `[a, b]`.
    Array(Vec<Expr>),
    /// A variable, constant, enumerator or function, by its name.
    Name(String),
    /// `(e)` as written, parentheses kept.
    Paren(Box<Expr>),
    /// A member: `e.name` or `e->name`.
    Field {
        /// The operand on the left.
        base: Box<Expr>,
        /// Whether `->` was written rather than `.`.
        arrow: bool,
        /// The name of the member.
        name: Ident,
    },
    /// An element of an array, string or map: `e[i]`.
    Index(Box<Expr>, Box<Expr>),
    /// The key of a map whose parts are given one by one: `a, b` in `m[a, b]`. Only there, and at least two.
    Keys(Vec<Expr>),
    /// An argument with its name: `top: 10` in `f(a, top: 10)`. Only there.
    Named(Ident, Box<Expr>),
    /// A call: `f(a, b)`.
    Call {
        /// The operand before the parentheses.
        callee: Box<Expr>,
        /// The arguments in source order.
        args: Vec<Expr>,
    },
    /// An allocation: `new T(flag)`; the flag may be missing.
    New(TypeExpr, Option<Box<Expr>>),
    /// A struct literal: `S { a: 1 }`.
    Struct {
        /// The module, in `module.S { a: 1 }`.
        module: Option<Ident>,
        /// The name of the struct.
        name: Ident,
        /// The fields in source order, each with its value.
        fields: Vec<(Ident, Expr)>,
    },
    /// `match (e) { p: r }`.
    Match {
        /// The value that is compared with the patterns.
        value: Box<Expr>,
        /// The arms in source order.
        arms: Vec<Arm>,
    },
    /// `-e`, `!e`, `*e`, `&e`, `~e`.
    Unary(UnaryOp, Box<Expr>),
    /// A binary operator: `a + b`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A conversion: `e as T`.
    Cast(Box<Expr>, TypeExpr),
    /// A type that no expression can spell, as the argument of `sizeof`: `sizeof(u32)`, `sizeof(*u8)`.
    Type(TypeExpr),
}

/// An arm of a `match`: `pattern: result`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// A literal, a name, or none for `default`.
    pub pattern: Option<Expr>,
    /// The expression or block of the arm.
    pub result: ArmResult,
}

/// The result of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmResult {
    /// The value of the arm.
    Expr(Expr),
    /// A block in braces.
    Block(Block),
}

/// Prefix operators, one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum UnaryOp {
    Neg,
    Not,
    Deref,
    AddrOf,
    BitNot,
}

/// Binary operators, in assignments (`op=`) too.
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
    /// Returns the operator as spelled in the source.
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

    /// Returns the precedence: a higher number binds tighter.
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
