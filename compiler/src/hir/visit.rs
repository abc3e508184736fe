//! A walk over statements and expressions for whoever collects what they mention.

use super::{
    Block, Expr, ExprKind, FuncId, GlobalId, LocalId, MapId, Place, PlaceKind, Stmt, StmtKind, UserBuiltin,
};

/// Receives what a walk meets, in source order. Every method does nothing unless it is written.
pub trait Visitor {
    /// A called function. A program named by `load` is not called.
    fn function(&mut self, _id: FuncId) {}
    /// A global, read or written.
    fn global(&mut self, _id: GlobalId) {}
    /// A map.
    fn map(&mut self, _id: MapId) {}
    /// A local, read or written.
    fn local(&mut self, _id: LocalId) {}
    /// A member of a context.
    fn context(&mut self) {}
    /// An expression, before its parts.
    fn expr(&mut self, _expr: &Expr) {}
    /// A statement, before its parts.
    fn stmt(&mut self, _stmt: &Stmt) {}
}

/// Walks a block.
pub fn block(visitor: &mut impl Visitor, block: &Block) {
    for one in block {
        stmt(visitor, one);
    }
}

/// Walks a statement.
pub fn stmt(visitor: &mut impl Visitor, stmt: &Stmt) {
    visitor.stmt(stmt);
    match &stmt.kind {
        StmtKind::Let { local, init } => {
            visitor.local(*local);
            if let Some(init) = init {
                expr(visitor, init);
            }
        }
        StmtKind::Bind { local, map, key } => {
            visitor.local(*local);
            visitor.map(*map);
            expr(visitor, key);
        }
        StmtKind::Assign { place: to, value } | StmtKind::Compound { place: to, value, .. } => {
            place(visitor, to);
            expr(visitor, value);
        }
        StmtKind::Expr(one) => expr(visitor, one),
        StmtKind::If { cond, then, otherwise } => {
            expr(visitor, cond);
            block(visitor, then);
            block(visitor, otherwise);
        }
        StmtKind::While { cond, body } => {
            expr(visitor, cond);
            block(visitor, body);
        }
        StmtKind::For { local, start, end, body } => {
            visitor.local(*local);
            expr(visitor, start);
            expr(visitor, end);
            block(visitor, body);
        }
        StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
        StmtKind::Return(Some(value)) => expr(visitor, value),
    }
}

/// Walks a place.
pub fn place(visitor: &mut impl Visitor, place: &Place) {
    match &place.kind {
        PlaceKind::Local(id) => visitor.local(*id),
        PlaceKind::Global(id) => visitor.global(*id),
        PlaceKind::Element { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        PlaceKind::Field { base, .. } => self::place(visitor, base),
        PlaceKind::Index { base, index } => {
            self::place(visitor, base);
            expr(visitor, index);
        }
        PlaceKind::Value(value) => expr(visitor, value),
    }
}

/// Walks an expression.
pub fn expr(visitor: &mut impl Visitor, one: &Expr) {
    visitor.expr(one);
    match &one.kind {
        ExprKind::Const(_) | ExprKind::Bytes(_) | ExprKind::Kernel(_) => {}
        ExprKind::Load(from) => place(visitor, from),
        ExprKind::Unary(_, operand)
        | ExprKind::Convert(operand)
        | ExprKind::Truth(operand)
        | ExprKind::IsNull(operand)
        | ExprKind::Repeat(operand) => expr(visitor, operand),
        ExprKind::Binary(_, left, right) | ExprKind::Logic(_, left, right) => {
            expr(visitor, left);
            expr(visitor, right);
        }
        ExprKind::Present { map, key } => {
            visitor.map(*map);
            expr(visitor, key);
        }
        ExprKind::Bound(local) => visitor.local(*local),
        ExprKind::Call { func, args } => {
            visitor.function(*func);
            args.iter().for_each(|arg| expr(visitor, arg));
        }
        ExprKind::Struct(values) | ExprKind::Array(values) => {
            values.iter().for_each(|value| expr(visitor, value));
        }
        ExprKind::Context { ctx, .. } => {
            visitor.context();
            expr(visitor, ctx);
        }
        ExprKind::User(builtin) => user(visitor, builtin),
    }
}

fn user(visitor: &mut impl Visitor, builtin: &UserBuiltin) {
    match builtin {
        UserBuiltin::Print { args, .. } => args.iter().for_each(|arg| expr(visitor, arg)),
        UserBuiltin::Attach { program, options, flags } => {
            program.iter().for_each(|one| expr(visitor, one));
            expr(visitor, options);
            flags.iter().for_each(|one| expr(visitor, one));
        }
        UserBuiltin::Read { attachment: one, .. }
        | UserBuiltin::Detach(one)
        | UserBuiltin::DetachProgram(one)
        | UserBuiltin::Enable(one)
        | UserBuiltin::Disable(one)
        | UserBuiltin::Reset(one)
        | UserBuiltin::Sleep(one)
        | UserBuiltin::Exit(one) => expr(visitor, one),
        UserBuiltin::Load { .. } | UserBuiltin::TimeNs | UserBuiltin::Stopping => {}
    }
}
