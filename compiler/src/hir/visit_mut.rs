//! Mutable visitor: may change the nodes that it visits.

use super::{
    ArmBody, Block, BreakpointAddress, EventSpec, Expr, ExprKind, Lvalue, LvalueKind, MapIteration, Stmt,
    StmtKind,
};

/// Callbacks of the traversal, before a node's parts. Every method does nothing by default.
pub trait VisitorMut {
    /// A block; its replacement is visited afterwards.
    fn block(&mut self, _block: &mut Block) {}
    /// A statement, before its parts.
    fn stmt(&mut self, _stmt: &mut Stmt) {}
    /// An lvalue, before its parts.
    fn lvalue(&mut self, _lvalue: &mut Lvalue) {}
    /// An expression, before its parts.
    fn expr(&mut self, _expr: &mut Expr) {}
}

/// Visits the statements of a block.
pub fn block(visitor: &mut dyn VisitorMut, block: &mut Block) {
    visitor.block(block);
    for one in block {
        stmt(visitor, one);
    }
}

fn stmt(visitor: &mut dyn VisitorMut, stmt: &mut Stmt) {
    visitor.stmt(stmt);
    match &mut stmt.kind {
        StmtKind::Let { init, .. } => init.iter_mut().for_each(|init| expr(visitor, init)),
        StmtKind::Bind { key, .. } | StmtKind::Remove { key, .. } | StmtKind::Give { key, .. } => {
            expr(visitor, key);
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
        | StmtKind::Return(Some(one)) => expr(visitor, one),
        StmtKind::If { cond, then, otherwise } => {
            expr(visitor, cond);
            block(visitor, then);
            block(visitor, otherwise);
        }
        StmtKind::While { cond, body } => {
            expr(visitor, cond);
            block(visitor, body);
        }
        StmtKind::For { start, end, body, .. } => {
            expr(visitor, start);
            expr(visitor, end);
            block(visitor, body);
        }
        StmtKind::ForEach { iteration, body, .. } => {
            match iteration {
                MapIteration::Map(_) => {}
                MapIteration::PerCpu { key, .. } => expr(visitor, key),
                MapIteration::Array(array) => lvalue(visitor, array),
            }
            block(visitor, body);
        }
        StmtKind::Lock { body, .. } => block(visitor, body),
        StmtKind::Try { body, catches } => {
            block(visitor, body);
            catches.iter_mut().for_each(|catch| block(visitor, &mut catch.body));
        }
        StmtKind::Take { .. } | StmtKind::Break | StmtKind::Continue | StmtKind::Return(None) => {}
    }
}

fn lvalue(visitor: &mut dyn VisitorMut, one: &mut Lvalue) {
    visitor.lvalue(one);
    match &mut one.kind {
        LvalueKind::Local(_) | LvalueKind::Global(_) | LvalueKind::Config(..) => {}
        LvalueKind::Element { key, .. } => expr(visitor, key),
        LvalueKind::Field { base, .. } => lvalue(visitor, base),
        LvalueKind::Index { base, index } => {
            lvalue(visitor, base);
            expr(visitor, index);
        }
        LvalueKind::Deref(value) | LvalueKind::Value(value) => expr(visitor, value),
    }
}

fn expr(visitor: &mut dyn VisitorMut, one: &mut Expr) {
    visitor.expr(one);
    match &mut one.kind {
        ExprKind::Const(_)
        | ExprKind::Bytes(_)
        | ExprKind::New
        | ExprKind::Take { .. }
        | ExprKind::Taken { .. }
        | ExprKind::Bound(_)
        | ExprKind::TailCall(_)
        | ExprKind::Function(_) => {}
        ExprKind::Load(from) | ExprKind::AddrOf(from) => lvalue(visitor, from),
        ExprKind::Unary(_, operand)
        | ExprKind::Convert(operand)
        | ExprKind::Truth(operand)
        | ExprKind::IsNull(operand)
        | ExprKind::Repeat(operand)
        | ExprKind::Present { key: operand, .. }
        | ExprKind::Context { ctx: operand, .. } => expr(visitor, operand),
        ExprKind::Binary(_, left, right)
        | ExprKind::Logic(_, left, right)
        | ExprKind::Concat(left, right)
        | ExprKind::Offset(left, right)
        | ExprKind::Distance(left, right) => {
            expr(visitor, left);
            expr(visitor, right);
        }
        ExprKind::CallValue { callee, args } => {
            expr(visitor, callee);
            all(visitor, args);
        }
        ExprKind::Call { args, .. }
        | ExprKind::CallExtern { args, .. }
        | ExprKind::Struct(args)
        | ExprKind::Array(args) => all(visitor, args),
        ExprKind::Match(one) => {
            expr(visitor, &mut one.value);
            one.arms.iter_mut().for_each(|arm| arm_body(visitor, &mut arm.body));
            one.otherwise.iter_mut().for_each(|body| arm_body(visitor, body));
        }
        ExprKind::Event(event) => match &mut **event {
            EventSpec::Raw { ty, config } => {
                expr(visitor, ty);
                all(visitor, config);
            }
            EventSpec::Breakpoint { at: BreakpointAddress::Address(operand), .. }
            | EventSpec::Named(operand) => expr(visitor, operand),
            _ => {}
        },
        ExprKind::Shared(builtin) => operands(visitor, builtin.operands_mut()),
        ExprKind::Kernel(builtin) => operands(visitor, builtin.operands_mut()),
        ExprKind::User(builtin) => operands(visitor, builtin.operands_mut()),
    }
}

fn all(visitor: &mut dyn VisitorMut, exprs: &mut [Expr]) {
    exprs.iter_mut().for_each(|one| expr(visitor, one));
}

fn operands(visitor: &mut dyn VisitorMut, operands: Vec<&mut Expr>) {
    operands.into_iter().for_each(|one| expr(visitor, one));
}

fn arm_body(visitor: &mut dyn VisitorMut, body: &mut ArmBody) {
    block(visitor, &mut body.block);
    body.value.iter_mut().for_each(|value| expr(visitor, value));
}
