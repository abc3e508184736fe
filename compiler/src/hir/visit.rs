//! Visitor of statements and expressions, for collecting what they mention.

use super::{
    ArmBody, Block, BreakpointAddress, BuiltinPart, CatchPattern, ConfigId, CounterId, EventSpec, Expr,
    ExprKind, ExternId, FuncId, GlobalId, LocalId, Lvalue, LvalueKind, MapId, MapIteration, Match, RingId,
    Stmt, StmtKind,
};

/// Callbacks of the traversal, in source order. Every method does nothing by default.
pub trait Visitor {
    /// A function that is called, tail-called, or used as a value or handler. Not called for a program named
    /// by `load`.
    fn function(&mut self, _id: FuncId) {}
    /// A program named by `load` or `test`.
    fn program(&mut self, _id: FuncId) {}
    /// A helper or kfunc.
    fn external(&mut self, _id: ExternId) {}
    /// A global, read or written.
    fn global(&mut self, _id: GlobalId) {}
    /// A map, in any use.
    fn map(&mut self, _id: MapId) {}
    /// A ring buffer, in any use.
    fn ring(&mut self, _id: RingId) {}
    /// A config block, read or written.
    fn config(&mut self, _id: ConfigId) {}
    /// A counter that is read.
    fn counter(&mut self, _id: CounterId) {}
    /// A local, read or written.
    fn local(&mut self, _id: LocalId) {}
    /// A member of a perf program's context.
    fn context(&mut self) {}
    /// An lvalue, before its parts.
    fn lvalue(&mut self, _lvalue: &Lvalue) {}
    /// An expression, before its parts.
    fn expr(&mut self, _expr: &Expr) {}
    /// A statement, before its parts.
    fn stmt(&mut self, _stmt: &Stmt) {}
    /// A match, before its parts; returns whether to visit them. A visitor that follows control flow visits
    /// them itself.
    fn matched(&mut self, _one: &Match) -> bool {
        true
    }
}

/// Visits the statements of a block.
pub fn block(visitor: &mut dyn Visitor, block: &Block) {
    for one in block {
        stmt(visitor, one);
    }
}

/// Visits a statement and its blocks.
pub fn stmt(visitor: &mut dyn Visitor, stmt: &Stmt) {
    visitor.stmt(stmt);
    own(visitor, stmt);
    stmt.blocks().for_each(|nested| block(visitor, nested));
}

/// Visits the parts of a statement without its blocks.
pub fn own(visitor: &mut dyn Visitor, stmt: &Stmt) {
    match &stmt.kind {
        StmtKind::Let { local, init } => {
            visitor.local(*local);
            init.iter().for_each(|init| expr(visitor, init));
        }
        StmtKind::Bind { local, map, key } => {
            visitor.local(*local);
            visitor.map(*map);
            expr(visitor, key);
        }
        StmtKind::Take { local, map, .. } => {
            visitor.local(*local);
            visitor.map(*map);
        }
        StmtKind::Assign { lvalue: to, value } | StmtKind::Compound { lvalue: to, value, .. } => {
            lvalue(visitor, to);
            expr(visitor, value);
        }
        StmtKind::Expr(one)
        | StmtKind::Free(one)
        | StmtKind::Release(one)
        | StmtKind::Throw(one)
        | StmtKind::Defer(one)
        | StmtKind::If { cond: one, .. }
        | StmtKind::While { cond: one, .. }
        | StmtKind::Return(Some(one)) => expr(visitor, one),
        StmtKind::Remove { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        StmtKind::Give { local, map, key, .. } => {
            visitor.local(*local);
            visitor.map(*map);
            expr(visitor, key);
        }
        StmtKind::For { local, start, end, .. } => {
            visitor.local(*local);
            expr(visitor, start);
            expr(visitor, end);
        }
        StmtKind::ForEach { key, value, iteration: over, .. } => {
            visitor.local(*key);
            visitor.local(*value);
            iteration(visitor, over);
        }
        StmtKind::Lock { local, .. } => visitor.local(*local),
        StmtKind::Try { catches, .. } => {
            for catch in catches {
                if let CatchPattern::Bind(local) = catch.pattern {
                    visitor.local(local);
                }
            }
        }
        StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
    }
}

fn iteration(visitor: &mut dyn Visitor, over: &MapIteration) {
    match over {
        MapIteration::Map(map) => visitor.map(*map),
        MapIteration::PerCpu { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        MapIteration::Array(array) => lvalue(visitor, array),
    }
}

/// Visits an lvalue and its parts.
pub fn lvalue(visitor: &mut dyn Visitor, lvalue: &Lvalue) {
    visitor.lvalue(lvalue);
    match &lvalue.kind {
        LvalueKind::Local(id) => visitor.local(*id),
        LvalueKind::Global(id) => visitor.global(*id),
        LvalueKind::Config(id, _) => visitor.config(*id),
        LvalueKind::Element { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        LvalueKind::Field { base, .. } => self::lvalue(visitor, base),
        LvalueKind::Index { base, index } => {
            self::lvalue(visitor, base);
            expr(visitor, index);
        }
        LvalueKind::Deref(value) | LvalueKind::Value(value) => expr(visitor, value),
    }
}

/// Visits an expression and its parts.
pub fn expr(visitor: &mut dyn Visitor, one: &Expr) {
    visitor.expr(one);
    match &one.kind {
        ExprKind::Const(_) | ExprKind::Bytes(_) | ExprKind::New => {}
        ExprKind::Load(from) | ExprKind::AddrOf(from) => lvalue(visitor, from),
        ExprKind::Unary(_, operand)
        | ExprKind::Convert(operand)
        | ExprKind::Truth(operand)
        | ExprKind::IsNull(operand)
        | ExprKind::Repeat(operand) => expr(visitor, operand),
        ExprKind::Binary(_, left, right)
        | ExprKind::Logic(_, left, right)
        | ExprKind::Concat(left, right)
        | ExprKind::Offset(left, right)
        | ExprKind::Distance(left, right) => {
            expr(visitor, left);
            expr(visitor, right);
        }
        ExprKind::Present { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        ExprKind::Take { map, .. } | ExprKind::Taken { map, .. } => visitor.map(*map),
        ExprKind::Bound(local) => visitor.local(*local),
        ExprKind::Call { func, args } => {
            visitor.function(*func);
            args.iter().for_each(|arg| expr(visitor, arg));
        }
        ExprKind::CallValue { callee, args } => {
            expr(visitor, callee);
            args.iter().for_each(|arg| expr(visitor, arg));
        }
        ExprKind::CallExtern { function, args } => {
            visitor.external(*function);
            args.iter().for_each(|arg| expr(visitor, arg));
        }
        ExprKind::TailCall(func) | ExprKind::Function(func) => visitor.function(*func),
        ExprKind::Struct(values) | ExprKind::Array(values) => {
            values.iter().for_each(|value| expr(visitor, value));
        }
        ExprKind::Match(one) if !visitor.matched(one) => {}
        ExprKind::Match(one) => {
            expr(visitor, &one.value);
            one.arms.iter().for_each(|arm| arm_body(visitor, &arm.body));
            one.otherwise.iter().for_each(|body| arm_body(visitor, body));
        }
        ExprKind::Event(event) => event_spec(visitor, event),
        ExprKind::Context { ctx, .. } => {
            visitor.context();
            expr(visitor, ctx);
        }
        ExprKind::Shared(builtin) => parts(visitor, &builtin.parts()),
        ExprKind::Kernel(builtin) => parts(visitor, &builtin.parts()),
        ExprKind::User(builtin) => parts(visitor, &builtin.parts()),
    }
}

fn arm_body(visitor: &mut dyn Visitor, body: &ArmBody) {
    block(visitor, &body.block);
    body.value.iter().for_each(|value| expr(visitor, value));
}

fn event_spec(visitor: &mut dyn Visitor, event: &EventSpec) {
    match event {
        EventSpec::Raw { ty, config } => {
            expr(visitor, ty);
            config.iter().for_each(|one| expr(visitor, one));
        }
        EventSpec::Breakpoint { at: BreakpointAddress::Address(operand), .. } | EventSpec::Named(operand) => {
            expr(visitor, operand)
        }
        EventSpec::Breakpoint { .. }
        | EventSpec::Tracepoint(_)
        | EventSpec::Pmu(_)
        | EventSpec::Kprobe(_)
        | EventSpec::Uprobe(_) => {}
    }
}

fn parts(visitor: &mut dyn Visitor, parts: &[BuiltinPart<'_>]) {
    for part in parts {
        match part {
            BuiltinPart::Expr(operand) => expr(visitor, operand),
            BuiltinPart::Map(map) => visitor.map(*map),
            BuiltinPart::Ring(ring) => visitor.ring(*ring),
            BuiltinPart::Counter(counter) => visitor.counter(*counter),
            BuiltinPart::Program(program) => visitor.program(*program),
            BuiltinPart::Handler(handler) => visitor.function(*handler),
            BuiltinPart::Impl(_) => {}
        }
    }
}
