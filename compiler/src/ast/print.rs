//! Prints the syntax tree as text, for `--emit ast` and for tests.
//!
//! In: a tree. Out: one S-expression for each declaration, as in the text form of WebAssembly: `(var x (int
//! 5))`. Every node of the tree is a list, so the nesting shows precedence; spans are left out. No program
//! reads the text back.

use super::{
    Arm, ArmResult, AstFunction, Attribute, Block, Catch, CatchPattern, ColumnAttribute, Cond, Else, Expr,
    ExprKind, FieldDecl, File, Global, Ident, If, IntLit, Item, ItemKind, MapFlags, Param, Returns, Stmt,
    StmtKind, StrLit, TypeExpr, UnaryOp,
};
use crate::facts::Ty;

/// Columns of a line; a longer list puts each of its parts on a line of its own.
const WIDTH: usize = 100;

/// Prints all declarations of a file.
pub fn file(file: &File) -> String {
    file.items.iter().map(|one| item(one).text(0) + "\n").collect()
}

/// A part of the output: a word, or a parenthesised list of words and lists.
enum Node {
    Atom(String),
    List(Vec<Node>),
}

impl Node {
    /// Prints the node on one line if it fits after `indent` columns; else its first words on one line, and
    /// the lists below them.
    fn text(&self, indent: usize) -> String {
        let line = self.line();
        let Node::List(parts) = self else { return line };
        if indent + line.len() <= WIDTH {
            return line;
        }
        let atoms = parts.iter().take_while(|part| matches!(part, Node::Atom(_))).count();
        let mut out = "(".to_owned() + &parts[..atoms].iter().map(Node::line).collect::<Vec<_>>().join(" ");
        for part in &parts[atoms..] {
            out += &format!("\n{:width$}{}", "", part.text(indent + 2), width = indent + 2);
        }
        out + ")"
    }

    fn line(&self) -> String {
        match self {
            Node::Atom(text) => text.clone(),
            Node::List(parts) => format!("({})", parts.iter().map(Node::line).collect::<Vec<_>>().join(" ")),
        }
    }

    fn with(mut self, part: impl Into<Node>) -> Node {
        if let Node::List(parts) = &mut self {
            parts.push(part.into());
        }
        self
    }

    fn with_all(self, parts: impl IntoIterator<Item = Node>) -> Node {
        parts.into_iter().fold(self, Node::with)
    }
}

impl From<&str> for Node {
    fn from(text: &str) -> Node {
        Node::Atom(text.to_owned())
    }
}

impl From<String> for Node {
    fn from(text: String) -> Node {
        Node::Atom(text)
    }
}

impl From<&Ident> for Node {
    fn from(name: &Ident) -> Node {
        Node::Atom(name.name.clone())
    }
}

impl From<&StrLit> for Node {
    fn from(literal: &StrLit) -> Node {
        Node::Atom(quoted(&literal.bytes))
    }
}

/// A list whose first item is the word `head`.
fn list(head: &str) -> Node {
    Node::List(vec![head.into()])
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn int(literal: &IntLit) -> String {
    let sign = if literal.negative { "-" } else { "" };
    format!("{sign}{}", literal.value)
}

fn item(item: &Item) -> Node {
    match &item.kind {
        ItemKind::Include(path) => list("include").with(path),
        ItemKind::Import { name, path } => list("import").with(name).with(path),
        ItemKind::Config { name, fields } => list("config").with(name).with_all(fields.iter().map(field)),
        ItemKind::Alias { name, ty } => list("type").with(name).with(type_text(ty)),
        ItemKind::Enum { name, enumerators } => {
            let one = |(name, value): &(Ident, Option<IntLit>)| match value {
                Some(value) => Node::List(vec![name.into(), int(value).into()]),
                None => name.into(),
            };
            list("enum").with(name).with_all(enumerators.iter().map(one))
        }
        ItemKind::Struct { attributes, name, fields } => list("struct")
            .with(name)
            .with_all(attributes.iter().map(attribute))
            .with_all(fields.iter().map(field)),
        ItemKind::Global(one) => global(one),
        ItemKind::Const { name, ty, value } => declared("const", name, ty.as_ref(), Some(value)),
        ItemKind::Counter { name, event, leader } => {
            let leader = leader.iter().map(|leader| list("group").with(leader));
            list("counter").with(name).with(expr(event)).with_all(leader)
        }
        ItemKind::Extern { name, params, ret } => {
            let ret = ret.iter().map(|ty| list("returns").with(type_text(ty)));
            list("extern").with(name).with(parameters(params)).with_all(ret)
        }
        ItemKind::ExternVariable { per_cpu, name, ty } => {
            let kind = if per_cpu.is_some() { "percpu-extern-variable" } else { "extern-variable" };
            list(kind).with(name).with(type_text(ty))
        }
        ItemKind::Function(one) => function(one),
        ItemKind::Impl { attributes, name, methods, fields } => {
            let fields = fields.iter().map(|(name, value)| list("field").with(name).with(expr(value)));
            list("impl")
                .with(name)
                .with_all(attributes.iter().map(attribute))
                .with_all(fields)
                .with_all(methods.iter().map(function))
        }
    }
}

fn attribute(attribute: &Attribute) -> Node {
    let name = format!("@{}", attribute.name.name);
    let more = attribute.more.iter().map(|argument| match &argument.name {
        Some(name) => Node::List(vec![name.into(), expr(&argument.value)]),
        None => expr(&argument.value),
    });
    Node::List(vec![name.into()]).with_all(attribute.argument.iter().map(Node::from)).with_all(more)
}

fn field(field: &FieldDecl) -> Node {
    declared("field", &field.name, Some(&field.ty), field.default.as_ref())
        .with_all(field.column.iter().map(column))
}

/// `(word name type value)`; type and value may be missing.
fn declared(head: &str, name: &Ident, ty: Option<&TypeExpr>, value: Option<&Expr>) -> Node {
    let ty = ty.map(|ty| list("type").with(type_text(ty)));
    list(head).with(name).with_all(ty).with_all(value.map(expr))
}

fn global(global: &Global) -> Node {
    let atoms = [(&global.pin, "pin"), (&global.local, "local"), (&global.per_cpu, "percpu")];
    let atoms = atoms.into_iter().filter(|(span, _)| span.is_some()).map(|(_, head)| list(head));
    declared("global", &global.name, global.ty.as_ref(), global.init.as_ref())
        .with_all(atoms)
        .with_all(global.flags.iter().map(flags))
        .with_all(global.column.iter().map(column))
}

fn column(column: &ColumnAttribute) -> Node {
    list("column").with(&column.heading).with_all(column.unit.iter().map(Node::from))
}

fn flags(flags: &MapFlags) -> Node {
    let one = |(name, number): &(Ident, Option<IntLit>)| match number {
        Some(number) => Node::List(vec![name.into(), int(number).into()]),
        None => name.into(),
    };
    list("flags").with_all(flags.flags.iter().map(one))
}

fn function(function: &AstFunction) -> Node {
    let ret = function.ret.iter().map(|Returns { name, ty }| {
        list("returns").with_all(name.iter().map(Node::from)).with(type_text(ty))
    });
    let head = if function.has_head { list("function").with(&function.name) } else { list("program") };
    head.with_all(function.attributes.iter().map(attribute))
        .with(parameters(&function.params))
        .with_all(ret)
        .with(block(&function.body))
}

fn parameters(params: &[Param]) -> Node {
    let one = |param: &Param| Node::List(vec![(&param.name).into(), type_text(&param.ty).into()]);
    list("params").with_all(params.iter().map(one))
}

fn block(block: &Block) -> Node {
    list("block").with_all(block.stmts.iter().map(stmt))
}

fn stmt(stmt: &Stmt) -> Node {
    match &stmt.kind {
        StmtKind::Var { name, ty, init } => declared("var", name, ty.as_ref(), init.as_ref()),
        StmtKind::Const { name, ty, value } => declared("const", name, ty.as_ref(), Some(value)),
        StmtKind::Assign { lvalue, op, value } => {
            let op = op.map_or("=".to_owned(), |op| format!("{}=", op.text()));
            Node::List(vec![op.into()]).with(expr(lvalue)).with(expr(value))
        }
        StmtKind::Expr(one) => expr(one),
        StmtKind::Return(value) => list("return").with_all(value.iter().map(expr)),
        StmtKind::If(one) => conditional(one),
        StmtKind::While { cond, body } => list("while").with(expr(cond)).with(block(body)),
        StmtKind::For { name, start, end, body } => {
            list("for").with(name).with(expr(start)).with(expr(end)).with(block(body))
        }
        StmtKind::ForEach { key, value, over, body } => {
            list("for-each").with(key).with(value).with(expr(over)).with(block(body))
        }
        StmtKind::Lock { name, body } => list("lock").with(name).with(block(body)),
        StmtKind::Delete(one) => list("delete").with(expr(one)),
        StmtKind::Break => list("break"),
        StmtKind::Continue => list("continue"),
        StmtKind::Try { body, catches } => list("try").with(block(body)).with_all(catches.iter().map(catch)),
        StmtKind::Throw(code) => list("throw").with(expr(code)),
        StmtKind::Defer(call) => list("defer").with(expr(call)),
    }
}

fn conditional(one: &If) -> Node {
    let cond = match &one.cond {
        Cond::Expr(cond) => expr(cond),
        Cond::Var { name, value } => declared("var", name, None, Some(value)),
    };
    let otherwise = one.otherwise.iter().map(|otherwise| match otherwise {
        Else::Block(body) => block(body),
        Else::If(inner, _) => conditional(inner),
    });
    list("if").with(cond).with(block(&one.then)).with_all(otherwise)
}

fn catch(catch: &Catch) -> Node {
    let pattern: Node = match &catch.pattern {
        CatchPattern::Int(code) => int(code).into(),
        CatchPattern::Name(name) => name.into(),
    };
    list("catch").with(pattern).with(block(&catch.body))
}

fn expr(one: &Expr) -> Node {
    match &one.kind {
        ExprKind::Int(value) => list("int").with(value.to_string()),
        ExprKind::Str(bytes) => list("str").with(quoted(bytes)),
        ExprKind::Char(byte) => list("char").with(format!("'{}'", byte.escape_ascii())),
        ExprKind::Bool(value) => list("bool").with(value.to_string()),
        ExprKind::Null => list("null"),
        ExprKind::Array(elements) => list("array").with_all(elements.iter().map(expr)),
        ExprKind::Name(name) => list("name").with(name.as_str()),
        ExprKind::Paren(inner) => list("paren").with(expr(inner)),
        ExprKind::Field { base, arrow, name } => {
            list(if *arrow { "->" } else { "." }).with(expr(base)).with(name)
        }
        ExprKind::Index(base, index) => list("index").with(expr(base)).with(expr(index)),
        ExprKind::Keys(parts) => list("keys").with_all(parts.iter().map(expr)),
        ExprKind::Named(name, value) => list("named").with(name.name.as_str()).with(expr(value)),
        ExprKind::Call { callee, args } => list("call").with(expr(callee)).with_all(args.iter().map(expr)),
        ExprKind::New(ty, flag) => {
            list("new").with(type_text(ty)).with_all(flag.iter().map(|flag| expr(flag)))
        }
        ExprKind::Struct { module, name, fields } => {
            let module = module.iter().map(|module| format!("{}.", module.name)).collect::<String>();
            let fields = fields.iter().map(|(name, value)| list("field").with(name).with(expr(value)));
            list("struct").with(module + &name.name).with_all(fields)
        }
        ExprKind::Match { value, arms } => list("match").with(expr(value)).with_all(arms.iter().map(arm)),
        ExprKind::Unary(op, inner) => list(unary(*op)).with(expr(inner)),
        ExprKind::Binary(op, a, b) => list(op.text()).with(expr(a)).with(expr(b)),
        ExprKind::Cast(inner, ty) => list("as").with(expr(inner)).with(type_text(ty)),
        ExprKind::Type(ty) => list("type").with(type_text(ty)),
    }
}

fn arm(arm: &Arm) -> Node {
    let pattern: Node = arm.pattern.as_ref().map_or("default".into(), expr);
    let result = match &arm.result {
        ArmResult::Expr(value) => expr(value),
        ArmResult::Block(body) => block(body),
    };
    list("arm").with(pattern).with(result)
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "neg",
        UnaryOp::Not => "!",
        UnaryOp::Deref => "deref",
        UnaryOp::AddrOf => "address",
        UnaryOp::BitNot => "~",
    }
}

/// A type in the syntax of the language.
fn type_text(ty: &TypeExpr) -> String {
    Ty::written(ty).to_string()
}
