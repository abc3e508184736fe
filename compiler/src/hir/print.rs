//! Prints the typed tree, for `--emit hir` and for tests.
//!
//! In: a tree. Out: text in the form of the language, with the additions of the tree: the type of each
//! constant and conversion, locals by their numbers, lookups and presence. No program reads the text back.

use std::fmt::Write as _;

use ks_wit::object::DisplayForm;

use super::{
    ArmBody, BinaryOp, Block, BreakpointAddress, BuiltinPart, CatchPattern, ContextMember, CounterId,
    EventSpec, Expr, ExprKind, FuncId, FunctionKind, Hir, HirFunction, KernelBuiltin, LocalId, LogicOp,
    Lvalue, LvalueKind, MapId, MapIteration, Match, Pattern, ReadForm, RingId, SharedBuiltin, StackOwner,
    Stmt, StmtKind, TakeOp, UnaryOp, UserBuiltin,
};
use crate::builtins::context;
use crate::index::Id as _;
use crate::types::{TypeId, TypeKind};

/// Prints a whole tree: the declarations at top level, then the functions.
pub fn hir(hir: &Hir) -> String {
    let mut out = String::new();
    declarations(hir, &mut out);
    for (id, function) in hir.functions.iter_enumerated() {
        let printer = Printer { hir, function: Some(function) };
        let _ = write!(out, "\n{}", printer.function(id, function));
    }
    out
}

fn declarations(hir: &Hir, out: &mut String) {
    let ty = |id: TypeId| hir.types.name(id);
    let keyword = |holds: bool, keyword: &'static str| if holds { keyword } else { "" };
    for map in &hir.maps {
        let (pin, objects) = (keyword(map.pinned, "pin "), keyword(map.objects, " // values are objects"));
        let (name, kind, entries) = (&map.name, map.kind.name(), map.max_entries);
        let scope = keyword(map.kernel_only, "local ");
        let option = keyword(map.size_option.is_some(), " by option");
        let (key, around) = match (map.outer, map.nested_keys(&hir.types)) {
            (Some(outer), Some((first, key))) => {
                let (kind, entries) = (outer.kind.name(), outer.max_entries);
                (key, (format!("{kind}<{}, ", ty(first)), format!(">({entries})")))
            }
            _ => (map.key, Default::default()),
        };
        let _ = writeln!(
            out,
            "{pin}{scope}map {name}: {}{kind}<{}, {}>({entries}{option}){}{objects}",
            around.0,
            ty(key),
            ty(map.value),
            around.1
        );
    }
    for ring in &hir.rings {
        let pin = keyword(ring.pinned, "pin ");
        let _ = writeln!(out, "{pin}ring {}: {}, {} bytes", ring.name, ty(ring.record), ring.bytes);
    }
    for config in &hir.configs {
        let _ = writeln!(out, "config {} = {}", config.name, hex(&config.init));
    }
    for global in &hir.globals {
        let pin = keyword(global.pinned, "pin ");
        let scope = keyword(global.kernel_only, "local ");
        let constant = keyword(global.constant, "constant ");
        let init = hex(&global.init);
        let _ = writeln!(out, "{pin}{scope}{constant}global {}: {} = {init}", global.name, ty(global.ty));
    }
    for function in &hir.externs {
        let params: Vec<_> = function.params.iter().map(|param| ty(*param)).collect();
        let number = function.helper.map_or("kfunc".to_owned(), |number| format!("helper {number}"));
        let (name, params, ret) = (&function.name, params.join(", "), ty(function.ret));
        let _ = writeln!(out, "extern {name}({params}) -> {ret} // {number}");
    }
    for one in &hir.impls {
        let methods: Vec<_> = one.methods.iter().map(|id| hir.functions[*id].name.as_str()).collect();
        let _ = writeln!(out, "impl {}: {} {{ {} }}", one.name, one.ops, methods.join(", "));
    }
    // The options belong to no function, so they mention no locals.
    let printer = Printer { hir, function: None };
    for counter in &hir.counters {
        let group = counter.leader.map(|id| format!(" group {}", hir.counters[id].name)).unwrap_or_default();
        let _ = writeln!(out, "counter {}: {}{group}", counter.name, printer.expr(0, &counter.options));
    }
}

/// Printer of functions; `depth` is the number of blocks around a line.
struct Printer<'a> {
    hir: &'a Hir,
    function: Option<&'a HirFunction>,
}

/// Indents and ends a line.
fn line(depth: usize, text: &str) -> String {
    format!("{:indent$}{text}\n", "", indent = 4 * depth)
}

impl Printer<'_> {
    fn ty(&self, id: TypeId) -> String {
        self.hir.types.name(id)
    }

    fn function(&self, id: FuncId, function: &HirFunction) -> String {
        let params: Vec<_> = function.params.iter().map(|local| self.declared(*local)).collect();
        let mut remarks = vec![self.kind(function.kind)];
        if self.hir.main == Some(id) {
            remarks.push("entry of the userspace half".to_owned());
        }
        if function.throws {
            remarks.push("throws".to_owned());
        }
        let (name, params, ret) = (&function.name, params.join(", "), self.ty(function.ret));
        let first = format!("fn {name}({params}) -> {ret} {{ // {}", remarks.join(", "));
        line(0, &first) + &self.block(1, &function.body) + &line(0, "}")
    }

    fn kind(&self, kind: FunctionKind) -> String {
        match kind {
            FunctionKind::Plain => "userspace".to_owned(),
            FunctionKind::Test => "test".to_owned(),
            FunctionKind::Helper => "helper".to_owned(),
            FunctionKind::Kfunc => "kfunc".to_owned(),
            FunctionKind::Private => "private".to_owned(),
            FunctionKind::Method(block) => format!("method of {}", self.hir.impls[block].name),
            FunctionKind::Program(kind) => format!("program at {}", kind.name()),
        }
    }

    fn block(&self, depth: usize, block: &Block) -> String {
        block.iter().map(|stmt| self.stmt(depth, stmt)).collect()
    }

    fn stmt(&self, depth: usize, stmt: &Stmt) -> String {
        let expr = |one: &Expr| self.expr(depth, one);
        let around = |first: String, body: &Block| line(depth, &first) + &self.block(depth + 1, body);
        let text = match &stmt.kind {
            StmtKind::If { cond, then, otherwise } => {
                let mut out = around(format!("if {} {{", expr(cond)), then);
                if !otherwise.is_empty() {
                    out += &around("} else {".to_owned(), otherwise);
                }
                return out + &line(depth, "}");
            }
            StmtKind::While { cond, body } => {
                return around(format!("while {} {{", expr(cond)), body) + &line(depth, "}");
            }
            StmtKind::For { local, start, end, body } => {
                let first = format!("for {} in {}..{} {{", self.declared(*local), expr(start), expr(end));
                return around(first, body) + &line(depth, "}");
            }
            StmtKind::ForEach { key, value, iteration, body } => {
                let (key, value) = (self.declared(*key), self.declared(*value));
                return around(
                    format!("for {key}, {value} in {} {{", self.iteration(depth, iteration)),
                    body,
                ) + &line(depth, "}");
            }
            StmtKind::Lock { local, body } => {
                return around(format!("lock {} {{", self.local(*local)), body) + &line(depth, "}");
            }
            StmtKind::Try { body, catches } => {
                let mut out = around("try {".to_owned(), body);
                for catch in catches {
                    let pattern = match catch.pattern {
                        CatchPattern::Code(code) => code.to_string(),
                        CatchPattern::Any => "_".to_owned(),
                        CatchPattern::Bind(local) => self.declared(local),
                    };
                    out += &around(format!("}} catch {pattern} {{"), &catch.body);
                }
                return out + &line(depth, "}");
            }
            StmtKind::Let { local, init: Some(init) } => {
                format!("let {} = {}", self.declared(*local), expr(init))
            }
            StmtKind::Let { local, init: None } => format!("let {} = zero", self.declared(*local)),
            StmtKind::Bind { local, map, key } => {
                format!("bind {} = {}[{}]", self.local(*local), self.map(*map), expr(key))
            }
            StmtKind::Take { local, map, op } => {
                format!("bind {} = {}", self.local(*local), self.take(*map, *op))
            }
            StmtKind::Assign { lvalue, value } => format!("{} = {}", self.lvalue(depth, lvalue), expr(value)),
            StmtKind::Compound { lvalue, op, value } => {
                format!("{} {}= {}", self.lvalue(depth, lvalue), binary(*op), expr(value))
            }
            StmtKind::Expr(one) => expr(one),
            StmtKind::Remove { map, key } => format!("delete {}[{}]", self.map(*map), expr(key)),
            StmtKind::Free(pointer) => format!("free {}", expr(pointer)),
            StmtKind::Release(pointer) => format!("release {}", expr(pointer)),
            StmtKind::Give { local, map, key, copied } => {
                let copied = if *copied { ", copied" } else { "" };
                format!("give {} to {}[{}]{copied}", self.local(*local), self.map(*map), expr(key))
            }
            StmtKind::Break => "break".to_owned(),
            StmtKind::Continue => "continue".to_owned(),
            StmtKind::Return(None) => "return".to_owned(),
            StmtKind::Return(Some(value)) => format!("return {}", expr(value)),
            StmtKind::Throw(code) => format!("throw {}", expr(code)),
            StmtKind::Defer(call) => format!("defer {}", expr(call)),
        };
        line(depth, &text)
    }

    /// A local by its name and number, which distinguishes locals of the same name.
    fn local(&self, id: LocalId) -> String {
        let name = self.function.map_or("", |function| function.locals[id].name.as_str());
        format!("{name}%{}", id.index())
    }

    fn declared(&self, id: LocalId) -> String {
        let Some(function) = self.function else { return self.local(id) };
        let binding = if function.locals[id].binding { " (binding)" } else { "" };
        format!("{}: {}{binding}", self.local(id), self.ty(function.locals[id].ty))
    }

    fn map(&self, id: MapId) -> &str {
        &self.hir.maps[id].name
    }

    fn ring(&self, id: RingId) -> &str {
        &self.hir.rings[id].name
    }

    fn func(&self, id: FuncId) -> &str {
        &self.hir.functions[id].name
    }

    fn counter(&self, id: CounterId) -> &str {
        &self.hir.counters[id].name
    }

    fn take(&self, map: MapId, op: TakeOp) -> String {
        let op = match op {
            TakeOp::Pop => "pop",
            TakeOp::Peek => "peek",
        };
        format!("{}.{op}()", self.map(map))
    }

    fn iteration(&self, depth: usize, iteration: &MapIteration) -> String {
        match iteration {
            MapIteration::Map(map) => self.map(*map).to_owned(),
            MapIteration::PerCpu { map, key } => {
                format!("per_cpu({}, {})", self.map(*map), self.expr(depth, key))
            }
            MapIteration::Array(lvalue) => self.lvalue(depth, lvalue),
        }
    }

    fn lvalue(&self, depth: usize, lvalue: &Lvalue) -> String {
        match &lvalue.kind {
            LvalueKind::Local(local) => self.local(*local),
            LvalueKind::Global(global) => self.hir.globals[*global].name.clone(),
            LvalueKind::Config(config, field) => {
                let config = &self.hir.configs[*config];
                format!("{}.{}", config.name, self.field(config.ty, *field))
            }
            LvalueKind::Element { map, key } => format!("{}[{}]", self.map(*map), self.expr(depth, key)),
            LvalueKind::Field { base, field } => {
                format!("{}.{}", self.lvalue(depth, base), self.field(base.ty, *field))
            }
            LvalueKind::Index { base, index } => {
                format!("{}[{}]", self.lvalue(depth, base), self.expr(depth, index))
            }
            LvalueKind::Deref(pointer) => format!("(*{})", self.expr(depth, pointer)),
            LvalueKind::Value(value) => format!("({})", self.expr(depth, value)),
        }
    }

    fn field(&self, ty: TypeId, field: usize) -> String {
        match self.hir.types.kind(ty) {
            TypeKind::Struct(id) => self.hir.types.struct_def(*id).fields[field].name.clone(),
            _ => field.to_string(),
        }
    }

    fn list<'e>(&self, depth: usize, exprs: impl IntoIterator<Item = &'e Expr>) -> String {
        let exprs: Vec<_> = exprs.into_iter().map(|expr| self.expr(depth, expr)).collect();
        exprs.join(", ")
    }

    fn expr(&self, depth: usize, expr: &Expr) -> String {
        let of = |one: &Expr| self.expr(depth, one);
        let all = |args: &[Expr]| self.list(depth, args);
        match &expr.kind {
            ExprKind::Const(bits) => self.constant(expr.ty, *bits),
            ExprKind::Bytes(text) => format!("{}: {}", quoted(text), self.ty(expr.ty)),
            ExprKind::Load(lvalue) => self.lvalue(depth, lvalue),
            ExprKind::AddrOf(lvalue) => format!("&{}", self.lvalue(depth, lvalue)),
            ExprKind::Unary(op, one) => format!("{}{}", unary(*op), of(one)),
            ExprKind::Binary(op, a, b) => format!("({} {} {})", of(a), binary(*op), of(b)),
            ExprKind::Logic(LogicOp::And, a, b) => format!("({} && {})", of(a), of(b)),
            ExprKind::Logic(LogicOp::Or, a, b) => format!("({} || {})", of(a), of(b)),
            ExprKind::Concat(a, b) => format!("concat({}, {})", of(a), of(b)),
            ExprKind::Offset(pointer, elements) => format!("offset({}, {})", of(pointer), of(elements)),
            ExprKind::Distance(a, b) => format!("distance({}, {})", of(a), of(b)),
            ExprKind::Convert(one) => format!("({} as {})", of(one), self.ty(expr.ty)),
            ExprKind::Truth(one) => format!("truth({})", of(one)),
            ExprKind::Present { map, key } => format!("present({}[{}])", self.map(*map), of(key)),
            ExprKind::Bound(local) => format!("bound({})", self.local(*local)),
            ExprKind::IsNull(one) => format!("is_null({})", of(one)),
            ExprKind::Call { func, args } => format!("{}({})", self.func(*func), all(args)),
            ExprKind::CallValue { callee, args } => format!("({})({})", of(callee), all(args)),
            ExprKind::CallExtern { function, args } => {
                format!("{}({})", self.hir.externs[*function].name, all(args))
            }
            ExprKind::TailCall(func) => format!("tail_call {}", self.func(*func)),
            ExprKind::Function(func) => format!("function {}", self.func(*func)),
            ExprKind::Struct(values) => self.struct_value(depth, expr.ty, values),
            ExprKind::Array(values) => format!("[{}]: {}", all(values), self.ty(expr.ty)),
            ExprKind::Repeat(value) => format!("[{}; ..]: {}", of(value), self.ty(expr.ty)),
            ExprKind::Match(one) => self.one_match(depth, one),
            ExprKind::New => format!("new {}", self.ty(expr.ty)),
            ExprKind::Take { map, op } => self.take(*map, *op),
            ExprKind::Taken { map, op } => format!("taken({})", self.take(*map, *op)),
            ExprKind::Event(event) => self.event(depth, event),
            ExprKind::Context { ctx, member } => format!("{}->{}", of(ctx), context_member(*member)),
            ExprKind::Shared(builtin) => self.shared(depth, builtin),
            ExprKind::Kernel(builtin) => self.kernel(depth, builtin),
            ExprKind::User(builtin) => self.user(depth, builtin),
        }
    }

    /// A struct by its fields; zero fields are left out.
    fn struct_value(&self, depth: usize, ty: TypeId, values: &[Expr]) -> String {
        let is_zero = |value: &Expr| match &value.kind {
            ExprKind::Const(bits) => *bits == 0,
            ExprKind::Bytes(text) => text.is_empty(),
            _ => false,
        };
        let nonzero = values.iter().enumerate().filter(|(_, value)| !is_zero(value));
        let mut fields: Vec<_> = nonzero
            .map(|(field, value)| format!("{}: {}", self.field(ty, field), self.expr(depth, value)))
            .collect();
        if fields.len() < values.len() {
            fields.push("..".to_owned());
        }
        format!("{} {{ {} }}", self.ty(ty), fields.join(", "))
    }

    fn constant(&self, ty: TypeId, bits: u64) -> String {
        let types = &self.hir.types;
        match (types.kind(ty), types.scalar(ty)) {
            (TypeKind::Bool, _) => (bits != 0).to_string(),
            (TypeKind::Int(int), _) => format!("{}{}", int.value(bits), self.ty(ty)),
            (_, Some(int)) => format!("{}: {}", int.value(bits), self.ty(ty)),
            (_, None) => format!("{bits:#x}: {}", self.ty(ty)),
        }
    }

    fn one_match(&self, depth: usize, one: &Match) -> String {
        let mut out = format!("match {} {{\n", self.expr(depth, &one.value));
        for arm in &one.arms {
            let pattern = match &arm.pattern {
                Pattern::Const(bits) => self.constant(one.value.ty, *bits),
                Pattern::Text(text) => quoted(text),
            };
            out += &self.arm(depth + 1, &pattern, &arm.body);
        }
        if let Some(body) = &one.otherwise {
            out += &self.arm(depth + 1, "default", body);
        }
        out + line(depth, "}").trim_end_matches('\n')
    }

    fn arm(&self, depth: usize, pattern: &str, body: &ArmBody) -> String {
        let value = body.value.as_ref().map_or("void".to_owned(), |value| self.expr(depth, value));
        if body.block.is_empty() {
            return line(depth, &format!("{pattern} => {value}"));
        }
        line(depth, &format!("{pattern} => {{"))
            + &self.block(depth + 1, &body.block)
            + &line(depth, &format!("}} {value}"))
    }

    fn event(&self, depth: usize, event: &EventSpec) -> String {
        match event {
            EventSpec::Raw { ty, config } => {
                format!("raw_event({}, {})", self.expr(depth, ty), self.list(depth, config))
            }
            EventSpec::Tracepoint(name) => format!("tracepoint({name:?})"),
            EventSpec::Breakpoint { at, len, access } => {
                let at = match at {
                    BreakpointAddress::Address(address) => self.expr(depth, address),
                    BreakpointAddress::Symbol(symbol) => format!("{symbol:?}"),
                };
                format!("breakpoint({at}, {len}, access {access})")
            }
            EventSpec::Pmu(name) => format!("pmu({name:?})"),
            EventSpec::Named(name) => format!("pmu({})", self.expr(depth, name)),
            EventSpec::Kprobe(name) => format!("kprobe_event({name:?})"),
            EventSpec::Uprobe(name) => format!("uprobe_event({name:?})"),
        }
    }

    fn shared(&self, depth: usize, builtin: &SharedBuiltin) -> String {
        match builtin {
            SharedBuiltin::Print { format, args } => {
                let args: String = args.iter().map(|arg| format!(", {}", self.expr(depth, arg))).collect();
                format!("print({}{args})", quoted(format))
            }
            SharedBuiltin::Display { form, args } => {
                let format = match form {
                    DisplayForm::TimeOfDay(format) => format!("{}, ", quoted(format)),
                    DisplayForm::Enumerator(of) => format!("{of}, "),
                    _ => String::new(),
                };
                format!("{}({format}{})", form.function(), self.list(depth, args))
            }
            _ => self.builtin(depth, builtin.name(), &builtin.parts()),
        }
    }

    fn kernel(&self, depth: usize, builtin: &KernelBuiltin) -> String {
        let name = match builtin {
            KernelBuiltin::StackId { of: StackOwner::User, .. } => "user_stack_id",
            _ => builtin.name(),
        };
        self.builtin(depth, name, &builtin.parts())
    }

    fn user(&self, depth: usize, builtin: &UserBuiltin) -> String {
        let name = match builtin {
            UserBuiltin::Load { exit_on_failure: true, .. } => "load_or_exit",
            UserBuiltin::Read { form: ReadForm::Snapshot, .. } => "snapshot",
            UserBuiltin::ReadCounter(_, Some(_)) => "read_cpu",
            UserBuiltin::Histogram { linear: None, .. } => "print_log2_hist",
            UserBuiltin::Histogram { linear: Some(_), .. } => "print_linear_hist",
            UserBuiltin::Exec(file) => return format!("exec({})", quoted(file)),
            UserBuiltin::Python { module, function, args } => {
                return format!("{module}.{function}({})", self.list(depth, args));
            }
            _ => builtin.name(),
        };
        self.builtin(depth, name, &builtin.parts())
    }

    /// The call of a builtin. A name that begins with a dot is a method of the first part.
    fn builtin(&self, depth: usize, name: &str, parts: &[BuiltinPart<'_>]) -> String {
        let mut parts = parts.iter().map(|part| match part {
            BuiltinPart::Expr(operand) => self.expr(depth, operand),
            BuiltinPart::Map(map) => self.map(*map).to_owned(),
            BuiltinPart::Ring(ring) => self.ring(*ring).to_owned(),
            BuiltinPart::Counter(counter) => self.counter(*counter).to_owned(),
            BuiltinPart::Program(function) | BuiltinPart::Handler(function) => {
                self.func(*function).to_owned()
            }
            BuiltinPart::Impl(block) => self.hir.impls[*block].name.clone(),
        });
        let receiver = if name.starts_with('.') { parts.next() } else { None };
        let parts: Vec<String> = parts.collect();
        format!("{}{name}({})", receiver.unwrap_or_default(), parts.join(", "))
    }
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "-",
        UnaryOp::Not => "!",
        UnaryOp::BitNot => "~",
    }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::Max => "max",
    }
}

fn context_member(member: ContextMember) -> &'static str {
    match member {
        ContextMember::SamplePeriod => "sample_period",
        ContextMember::Addr => "addr",
        ContextMember::Register(register) => context::REGISTERS[register].name,
    }
}

/// Text in quotes; bytes other than printable ASCII as escapes.
fn quoted(text: &[u8]) -> String {
    format!("\"{}\"", text.escape_ascii())
}

/// The bytes in hexadecimal; `zero` if there are none.
fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "zero".to_owned();
    }
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
