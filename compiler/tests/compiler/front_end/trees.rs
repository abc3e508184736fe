//! Random well-formed trees that contain every kind of node. The choices come from a sequence of bytes; when
//! it ends, everything is as small as possible, so a failing sequence shrinks to a small tree.

use ks_compiler::ast::{
    Arm, ArmResult, AstFunction, Attribute, AttributeArg, BinaryOp, Block, Catch, CatchPattern,
    ColumnAttribute, Cond, Else, Expr, ExprKind, FieldDecl, File, Global, Ident, If, IntLit, Item, ItemKind,
    MapFlags, Param, Returns, Size, Stmt, StmtKind, StrLit, TypeExpr, TypeExprKind, UnaryOp,
};
use ks_compiler::source::{SourceMap, Span};

/// Depth at which expressions, types and blocks become leaves.
const DEPTH: u32 = 5;

const NAMES: &[&str] = &[
    "a",
    "b",
    "value",
    "_",
    "counter",
    "group",
    "flags",
    "loop",
    "let",
    "hash",
    "read",
    "kernel",
    "long_name_of_a_thing",
];
const TYPES: &[&str] =
    &["u8", "u16", "u32", "u64", "i8", "i64", "bool", "char", "void", "T", "Name", "size_t"];
const KINDS: &[&str] = &["hash", "array", "queue", "bloom"];
const OPS: &[BinaryOp] = &[
    BinaryOp::OrOr,
    BinaryOp::AndAnd,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::And,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
];

/// The kind of the previous statement, as far as it restricts the start of the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// It cannot continue.
    Closed,
    /// It ends in an expression, which operators would continue.
    Open,
    /// It is a `return` without a value, which an expression would continue.
    Return,
}

pub struct Trees<'a> {
    choices: std::slice::Iter<'a, u8>,
    span: Span,
    depth: u32,
}

pub fn file(choices: &[u8]) -> File {
    let id = SourceMap::default().add("t.ks", "").expect("empty");
    let span = Span { file: id, start: 0, end: 0 };
    let mut trees = Trees { choices: choices.iter(), span, depth: 0 };
    let mut items = Vec::new();
    while trees.choices.len() > 0 && items.len() < 12 {
        items.push(trees.item());
    }
    File { items, end: span }
}

impl Trees<'_> {
    fn pick(&mut self, below: usize) -> usize {
        usize::from(self.choices.next().copied().unwrap_or(0)) % below
    }

    fn flip(&mut self) -> bool {
        self.pick(2) == 1
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flip().then(|| make(self))
    }

    fn some<T>(&mut self, from: usize, below: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = from + self.pick(below - from);
        (0..count).map(|_| make(self)).collect()
    }

    fn deeper<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let tree = make(self);
        self.depth -= 1;
        tree
    }

    /// Chooses one of several forms; the first `leaves` of them contain no further nodes.
    fn form(&mut self, forms: usize, leaves: usize) -> usize {
        self.pick(if self.depth >= DEPTH { leaves } else { forms })
    }

    fn ident(&mut self) -> Ident {
        let name = NAMES[self.pick(NAMES.len())].to_owned();
        Ident { name, span: self.span }
    }

    fn field_ident(&mut self) -> Ident {
        if self.pick(8) == 1 { self.called("type") } else { self.ident() }
    }

    fn called(&self, name: &str) -> Ident {
        Ident { name: name.to_owned(), span: self.span }
    }

    fn kind(&mut self) -> Ident {
        let kind = KINDS[self.pick(KINDS.len())];
        self.called(kind)
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.some(0, 6, |trees| trees.pick(256) as u8)
    }

    fn string(&mut self) -> StrLit {
        StrLit { bytes: self.bytes(), span: self.span }
    }

    fn int(&mut self) -> IntLit {
        IntLit { value: self.number(), negative: false, span: self.span }
    }

    fn number(&mut self) -> u64 {
        match self.pick(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.pick(256) as u64,
        }
    }

    fn docs(&mut self) -> Option<String> {
        const LINES: &[&str] = &["What it is.", "", " indented", "/ slash"];
        let lines = self.some(0, 3, |trees| LINES[trees.pick(LINES.len())]);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn item(&mut self) -> Item {
        let name = self.ident();
        let mut docs = self.docs();
        let kind = match self.pick(13) {
            0 => ItemKind::Include(self.string()),
            1 => ItemKind::Import { name, path: self.string() },
            2 => ItemKind::Config { name, fields: self.fields(false) },
            3 => ItemKind::Alias { name, ty: self.ty(false) },
            4 => {
                let enumerators = self.some(0, 4, |trees| {
                    let value = trees.maybe(|trees| IntLit { negative: trees.flip(), ..trees.int() });
                    (trees.ident(), value)
                });
                ItemKind::Enum { name, enumerators }
            }
            5 => {
                let attributes = self.some(0, 2, Self::attribute);
                ItemKind::Struct { attributes, name, fields: self.fields(true) }
            }
            6 => ItemKind::Global(self.global(name)),
            7 => ItemKind::Const { name, ty: self.maybe(|trees| trees.ty(false)), value: self.expr(1) },
            8 => ItemKind::Counter { name, event: self.expr(1), leader: self.maybe(Self::ident) },
            9 => ItemKind::Extern { name, params: self.params(), ret: self.maybe(|trees| trees.ty(false)) },
            10 => {
                let attributes = self.some(0, 3, Self::attribute_of_function);
                let docs = docs.take();
                let headless = attributes.first().filter(|_| self.flip()).map(|first| first.name.clone());
                ItemKind::Function(match headless {
                    Some(name) => {
                        let body = self.block();
                        let (params, ret) = (Vec::new(), None);
                        AstFunction { docs, attributes, has_head: false, name, params, ret, body }
                    }
                    None => AstFunction { docs, ..self.function(name, attributes) },
                })
            }
            11 => {
                let per_cpu = self.maybe(|trees| trees.span);
                ItemKind::ExternVariable { per_cpu, name, ty: self.ty(false) }
            }
            _ => ItemKind::Impl {
                attributes: self.some(1, 3, Self::attribute),
                name,
                methods: self.some(0, 3, |trees| {
                    let (docs, name) = (trees.docs(), trees.ident());
                    AstFunction { docs, ..trees.function(name, Vec::new()) }
                }),
                fields: self.some(0, 3, |trees| (trees.field_ident(), trees.literal(false))),
            },
        };
        Item { docs, kind, span: self.span }
    }

    fn attribute(&mut self) -> Attribute {
        let name_hint = ["xdp", "helper", "tc"][self.pick(3)];
        let name = self.called(name_hint);
        Attribute {
            name,
            argument: self.maybe(Self::string),
            more: Vec::new(),
            also: Vec::new(),
            optional: false,
            span: self.span,
        }
    }

    /// Returns an attribute of a function, which may have named arguments.
    fn attribute_of_function(&mut self) -> Attribute {
        let attribute = self.attribute();
        let more = self.some(0, 3, |trees| AttributeArg { name: Some(trees.ident()), value: trees.expr(1) });
        Attribute { more, ..attribute }
    }

    /// Returns fields of a struct, which may have columns, or of a config.
    fn fields(&mut self, is_struct: bool) -> Vec<FieldDecl> {
        self.some(0, 4, |trees| FieldDecl {
            docs: trees.docs(),
            column: if is_struct { trees.maybe(Self::column) } else { None },
            name: trees.field_ident(),
            ty: trees.ty(false),
            default: trees.maybe(|trees| trees.literal(false)),
        })
    }

    fn column(&mut self) -> ColumnAttribute {
        ColumnAttribute { heading: self.string(), unit: self.maybe(Self::string), span: self.span }
    }

    fn params(&mut self) -> Vec<Param> {
        self.some(0, 4, |trees| Param { name: trees.ident(), ty: trees.ty(false) })
    }

    fn function(&mut self, name: Ident, attributes: Vec<Attribute>) -> AstFunction {
        let params = self.params();
        let ret = self.maybe(|trees| Returns { name: trees.maybe(Self::ident), ty: trees.ty(false) });
        AstFunction { docs: None, attributes, has_head: true, name, params, ret, body: self.block() }
    }

    fn global(&mut self, name: Ident) -> Global {
        let flags = self.maybe(|trees| MapFlags {
            flags: trees.some(1, 4, |trees| (trees.ident(), trees.maybe(Self::int))),
            span: trees.span,
        });
        let ty = self.maybe(|trees| {
            if trees.pick(4) != 1 {
                return trees.ty(false);
            }
            let kind = trees.called("stack_trace");
            let size = Some(trees.size());
            TypeExpr { kind: TypeExprKind::Keyless { kind, value: None, size }, span: trees.span }
        });
        let init = if ty.is_none() || self.flip() { Some(self.expr(1)) } else { None };
        let [pin, local, per_cpu] = [(); 3].map(|()| self.maybe(|trees| trees.span));
        let column = self.maybe(Self::column);
        Global { flags, column, pin, local, per_cpu, name, ty, init }
    }

    fn size(&mut self) -> Size {
        if self.flip() { Size::Const(self.ident()) } else { Size::Int(self.int()) }
    }

    /// Generates a type; after `as` it may not contain `<`.
    fn ty(&mut self, cast: bool) -> TypeExpr {
        let kind = self.deeper(|trees| match trees.form(if cast { 6 } else { 9 }, 2) {
            0 => TypeExprKind::Name(TYPES[trees.pick(TYPES.len())].to_owned()),
            1 => TypeExprKind::Str(trees.int()),
            2 => TypeExprKind::Qualified { module: trees.ident(), name: trees.ident() },
            3 => TypeExprKind::Ptr(Box::new(trees.ty(cast))),
            4 => TypeExprKind::Fn(trees.some(0, 3, |trees| trees.ty(cast)), Box::new(trees.ty(cast))),
            5 => {
                let of = trees.ty(cast);
                match of.kind {
                    // The suffix would belong to the pointee or the result type.
                    TypeExprKind::Ptr(_) | TypeExprKind::Fn(..) => of.kind,
                    _ => TypeExprKind::Array(Box::new(of), trees.size()),
                }
            }
            6 => TypeExprKind::Map {
                kind: trees.kind(),
                key: Box::new(trees.ty(false)),
                value: Box::new(trees.ty(false)),
                size: Some(trees.size()),
            },
            7 => TypeExprKind::Ring(Box::new(trees.ty(false)), trees.size()),
            _ => {
                let value = Some(Box::new(trees.ty(false)));
                let sized = trees.flip();
                let kind = if sized { trees.kind() } else { trees.called("sk_storage") };
                TypeExprKind::Keyless { kind, value, size: sized.then(|| trees.size()) }
            }
        });
        TypeExpr { kind, span: self.span }
    }

    fn block(&mut self) -> Block {
        let below = if self.depth >= DEPTH { 1 } else { 5 };
        let count = self.pick(below);
        let (mut stmts, mut before): (Vec<Stmt>, _) = (Vec::new(), Before::Closed);
        for _ in 0..count {
            let stmt = self.deeper(Self::stmt);
            if may_follow(before, &stmt) {
                before = leaves(&stmt);
                stmts.push(stmt);
            }
        }
        Block { stmts, span: self.span }
    }

    fn stmt(&mut self) -> Stmt {
        let kind = match self.form(17, 9) {
            0 => StmtKind::Break,
            1 => StmtKind::Continue,
            2 => StmtKind::Expr(self.expr(1)),
            3 => {
                let ty = self.maybe(|trees| trees.ty(false));
                let init = if ty.is_none() || self.flip() { Some(self.expr(1)) } else { None };
                StmtKind::Var { name: self.ident(), ty, init }
            }
            4 => StmtKind::Const {
                name: self.ident(),
                ty: self.maybe(|trees| trees.ty(false)),
                value: self.expr(1),
            },
            5 => StmtKind::Return(self.maybe(|trees| trees.expr(1))),
            6 => StmtKind::Delete(self.expr(1)),
            7 => StmtKind::Throw(self.expr(1)),
            8 => StmtKind::Defer(self.expr(1)),
            9 | 10 => self.assign(),
            11 => StmtKind::If(self.branch()),
            12 => StmtKind::While { cond: self.expr(1), body: self.block() },
            13 => StmtKind::For {
                name: self.ident(),
                start: self.expr(BinaryOp::Or.level()),
                end: self.expr(BinaryOp::Or.level()),
                body: self.block(),
            },
            14 => StmtKind::ForEach {
                key: self.ident(),
                value: self.ident(),
                over: self.expr(1),
                body: self.block(),
            },
            15 => StmtKind::Lock { name: self.ident(), body: self.block() },
            _ => StmtKind::Try {
                body: self.block(),
                catches: self.some(0, 3, |trees| Catch {
                    pattern: if trees.flip() {
                        CatchPattern::Name(trees.ident())
                    } else {
                        CatchPattern::Int(trees.int())
                    },
                    body: trees.block(),
                }),
            },
        };
        Stmt { kind, span: self.span }
    }

    fn assign(&mut self) -> StmtKind {
        let mut lvalue = Expr { kind: ExprKind::Name("p".into()), span: self.span };
        for _ in 0..self.pick(3) {
            lvalue = self.postfix(lvalue);
        }
        if self.flip() {
            lvalue = Expr { kind: ExprKind::Unary(UnaryOp::Deref, Box::new(lvalue)), span: self.span };
        }
        let op = self.maybe(|trees| OPS[8 + trees.pick(OPS.len() - 8)]);
        StmtKind::Assign { lvalue, op, value: self.expr(1) }
    }

    fn branch(&mut self) -> If {
        let cond = match self.maybe(Self::ident) {
            Some(name) => Cond::Var { name, value: self.expr(1) },
            None => Cond::Expr(self.expr(1)),
        };
        let then = self.block();
        let otherwise = match self.form(3, 2) {
            0 => None,
            1 => Some(Else::Block(self.block())),
            _ => Some(Else::If(Box::new(self.deeper(Self::branch)), self.span)),
        };
        If { cond, then, otherwise }
    }

    /// Generates an expression that binds at least as tightly as `level`; tighter than all operators is a
    /// cast.
    fn expr(&mut self, level: u8) -> Expr {
        const CAST: u8 = 11;
        let span = self.span;
        let kind = self.deeper(|trees| match trees.form(8, 3) {
            0 => trees.atom().kind,
            1 | 2 => trees.literal(true).kind,
            3 | 4 => {
                let op = OPS[trees.pick(OPS.len())];
                let left = Box::new(trees.expr(op.level()));
                let right = Box::new(trees.expr(op.level() + 1));
                let kind = ExprKind::Binary(op, left, right);
                if op.level() >= level { kind } else { ExprKind::Paren(Box::new(Expr { kind, span })) }
            }
            5 => trees.unary().kind,
            6 if level <= CAST => ExprKind::Cast(Box::new(trees.unary()), trees.ty(true)),
            _ => {
                let atom = trees.atom();
                trees.postfix(atom).kind
            }
        });
        Expr { kind, span }
    }

    fn unary(&mut self) -> Expr {
        const UNARY: &[UnaryOp] =
            &[UnaryOp::Neg, UnaryOp::Not, UnaryOp::Deref, UnaryOp::AddrOf, UnaryOp::BitNot];
        let span = self.span;
        let op = UNARY[self.pick(UNARY.len())];
        let operand = self.deeper(|trees| if trees.form(2, 1) == 1 { trees.unary() } else { trees.atom() });
        Expr { kind: ExprKind::Unary(op, Box::new(operand)), span }
    }

    /// Generates `base` followed by one member, index or call.
    fn postfix(&mut self, base: Expr) -> Expr {
        let base = Box::new(base);
        let kind = match self.pick(3) {
            0 => ExprKind::Field { base, arrow: self.flip(), name: self.field_ident() },
            1 => ExprKind::Index(base, Box::new(self.index())),
            _ => ExprKind::Call { callee: base, args: self.some(0, 4, |trees| trees.expr(1)) },
        };
        Expr { kind, span: self.span }
    }

    /// An index, or the parts of a key.
    fn index(&mut self) -> Expr {
        match self.pick(4) {
            0 => Expr { kind: ExprKind::Keys(self.some(2, 4, |trees| trees.expr(1))), span: self.span },
            _ => self.expr(1),
        }
    }

    fn atom(&mut self) -> Expr {
        let kind = self.deeper(|trees| match trees.form(7, 2) {
            0 => ExprKind::Name(trees.ident().name),
            1 => trees.literal(false).unsigned(),
            2 => ExprKind::Paren(Box::new(trees.expr(1))),
            3 => ExprKind::New(trees.sized_type(), trees.maybe(|trees| Box::new(trees.expr(1)))),
            4 => ExprKind::Struct {
                module: trees.maybe(Self::ident),
                name: trees.called("S"),
                fields: trees.some(0, 4, |trees| (trees.field_ident(), trees.expr(1))),
            },
            5 => ExprKind::Match { value: Box::new(trees.expr(1)), arms: trees.some(1, 4, Self::arm) },
            _ => {
                let name_hint = ["u8", "i64", "void"][trees.pick(3)];
                let mut ty = TypeExpr { kind: TypeExprKind::Name(name_hint.into()), span: trees.span };
                if trees.flip() {
                    ty = TypeExpr { kind: TypeExprKind::Ptr(Box::new(ty)), span: trees.span };
                }
                let callee = Expr { kind: ExprKind::Name("sizeof".into()), span: trees.span };
                let arg = Expr { kind: ExprKind::Type(ty), span: trees.span };
                ExprKind::Call { callee: Box::new(callee), args: vec![arg] }
            }
        });
        Expr { kind, span: self.span }
    }

    /// Generates a type that may be followed by `(`: local storage would parse it as its size.
    fn sized_type(&mut self) -> TypeExpr {
        let name = TYPES[self.pick(TYPES.len())].to_owned();
        TypeExpr { kind: TypeExprKind::Name(name), span: self.span }
    }

    fn arm(&mut self) -> Arm {
        let pattern = match self.pick(3) {
            0 => None,
            1 => Some(Expr { kind: ExprKind::Name(self.ident().name), span: self.span }),
            _ => Some(self.literal(false))
                .filter(|pattern| !matches!(pattern.kind, ExprKind::Array(_) | ExprKind::Null)),
        };
        let result = if self.flip() { ArmResult::Block(self.block()) } else { ArmResult::Expr(self.expr(1)) };
        Arm { pattern, result }
    }

    /// Generates a literal, possibly with a sign; an array only of literals and, if `names`, names.
    fn literal(&mut self, names: bool) -> Expr {
        let span = self.span;
        let kind = self.deeper(|trees| match trees.form(7, 6) {
            0 => ExprKind::Int(trees.number()),
            1 => ExprKind::Bool(trees.flip()),
            2 => ExprKind::Null,
            3 => ExprKind::Str(trees.bytes()),
            4 => ExprKind::Char(trees.pick(256) as u8),
            5 => {
                let digits = Expr { kind: ExprKind::Int(trees.number()), span };
                ExprKind::Unary(UnaryOp::Neg, Box::new(digits))
            }
            _ => ExprKind::Array(trees.some(0, 5, |trees| {
                if names && trees.flip() {
                    Expr { kind: ExprKind::Name(trees.ident().name), span }
                } else {
                    trees.literal(false)
                }
            })),
        });
        Expr { kind, span }
    }
}

/// A literal without its sign.
trait Unsigned {
    fn unsigned(self) -> ExprKind;
}

impl Unsigned for Expr {
    fn unsigned(self) -> ExprKind {
        match self.kind {
            ExprKind::Unary(_, digits) => digits.kind,
            kind => kind,
        }
    }
}

/// Whether a statement stays separate from the previous one.
fn may_follow(before: Before, stmt: &Stmt) -> bool {
    let expr = match &stmt.kind {
        StmtKind::Assign { lvalue: Expr { kind: ExprKind::Unary(..), .. }, .. } => return true,
        StmtKind::Assign { lvalue, .. } => lvalue,
        StmtKind::Expr(expr) => expr,
        _ => return true,
    };
    match before {
        Before::Closed => true,
        Before::Open => !continues(expr),
        Before::Return => false,
    }
}

fn leaves(stmt: &Stmt) -> Before {
    match &stmt.kind {
        StmtKind::Return(None) => Before::Return,
        StmtKind::Var { init: None, .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::If(_)
        | StmtKind::While { .. }
        | StmtKind::For { .. }
        | StmtKind::ForEach { .. }
        | StmtKind::Lock { .. }
        | StmtKind::Try { .. } => Before::Closed,
        _ => Before::Open,
    }
}

/// Whether the first token of this expression would continue another one.
fn continues(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Unary(op, _) => matches!(op, UnaryOp::Neg | UnaryOp::Deref | UnaryOp::AddrOf),
        ExprKind::Paren(_) | ExprKind::Array(_) => true,
        ExprKind::Binary(_, first, _)
        | ExprKind::Cast(first, _)
        | ExprKind::Index(first, _)
        | ExprKind::Field { base: first, .. }
        | ExprKind::Call { callee: first, .. } => continues(first),
        _ => false,
    }
}
