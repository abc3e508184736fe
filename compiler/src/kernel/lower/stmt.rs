//! Lowers statements, and the scopes of blocks.

use super::super::mir::{BinaryOp, Op, Origin, Type, Value};
use super::lvalue::{Access, Prepared, Root};
use super::memory::{Addr, Base, access_size};
use super::sink::Sink;
use super::{Alias, Home, LocalHome, Lower, Lowerer, U64, arithmetic, impossible, int_type};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    self, Expr, ExprKind, FuncId, GlobalId, Hir, LocalId, Lvalue, LvalueKind, MapIteration, Stmt, StmtKind,
};
use crate::types::{IntType, TypeKind};

/// The change that `lvalue op= value` makes, with the value evaluated.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub op: hir::BinaryOp,
    pub value: Value,
    /// The type in which the operation is computed.
    pub int: IntType,
    /// Whether others may change the lvalue at the same time.
    pub shared: bool,
}

impl Lowerer<'_> {
    /// Lowers statements in order. The slots of their declarations are free again afterwards.
    pub(super) fn block(&mut self, block: &[Stmt]) -> Lower<()> {
        let scope = self.open_block(block)?;
        self.close_scope(scope);
        Ok(())
    }

    /// Lowers statements in order as a new scope, which it returns. Records that belong to the scope are
    /// still held.
    pub(super) fn open_block(&mut self, block: &[Stmt]) -> Lower<usize> {
        self.open_scope(|lowerer| block.iter().try_for_each(|stmt| lowerer.stmt(stmt)))
    }

    /// Runs `content` in a new scope, which it returns; records that belong to it are still held.
    pub(super) fn open_scope(&mut self, content: impl FnOnce(&mut Self) -> Lower<()>) -> Lower<usize> {
        self.records.depth += 1;
        let mark = self.builder.mark_stack();
        content(self)?;
        self.builder.release_stack(mark);
        self.records.depth -= 1;
        Ok(self.records.depth + 1)
    }

    /// Releases the held records of a scope that has ended.
    pub(super) fn close_scope(&mut self, scope: usize) {
        self.discard_records(scope);
        self.records.end(scope);
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Lower<()> {
        let span = self.builder.set_span(stmt.span);
        // The slot of a declared variable lives on; those of temporaries do not.
        if let StmtKind::Let { local, .. } | StmtKind::Bind { local, .. } | StmtKind::Take { local, .. } =
            &stmt.kind
        {
            self.declare(*local)?;
        }
        let mark = self.builder.mark_stack();
        self.stmt_kind(stmt)?;
        self.builder.release_stack(mark);
        self.builder.set_span(span);
        Ok(())
    }

    fn stmt_kind(&mut self, stmt: &Stmt) -> Lower<()> {
        match &stmt.kind {
            StmtKind::Let { local, init } => self.declaration(*local, init.as_ref(), stmt),
            StmtKind::Bind { local, map, key } => self.bind(*local, *map, key, stmt.span),
            StmtKind::Take { local, map, op } => self.take(*local, *map, *op, stmt.span),
            StmtKind::Remove { map, key } => self.remove(*map, key),
            StmtKind::Free(pointer) | StmtKind::Release(pointer) => self.free(pointer),
            StmtKind::Assign { lvalue, value } => self.assign(lvalue, value),
            StmtKind::Compound { lvalue, op, value } => self.compound(lvalue, *op, value),
            StmtKind::Expr(expr) => self.effects(expr),
            StmtKind::If { cond, then, otherwise } => self.if_else(cond, then, otherwise),
            StmtKind::While { cond, body } => self.while_loop(cond, body, stmt.span),
            StmtKind::For { local, start, end, body } => self.for_loop(*local, (start, end), body, stmt.span),
            StmtKind::ForEach { key, value, iteration: MapIteration::Array(array), body } => {
                self.iterate_array(*key, *value, array, body)
            }
            StmtKind::ForEach { key, value, iteration: MapIteration::Map(map), body } => {
                self.iterate_map(*key, *value, *map, body)
            }
            StmtKind::Try { body, catches } => self.try_catch(body, catches),
            StmtKind::Lock { local, body } => self.lock(*local, body, stmt.span),
            StmtKind::Throw(code) => self.throw(code),
            StmtKind::Defer(call) => {
                self.defer(call);
                Ok(())
            }
            StmtKind::Break => self.break_loop(stmt.span),
            StmtKind::Continue => self.continue_loop(stmt.span),
            StmtKind::Return(value) => self.return_value(value.as_ref()),
            _ => impossible(stmt.span, "a statement of userspace"),
        }
    }

    fn declaration(&mut self, local: LocalId, init: Option<&Expr>, stmt: &Stmt) -> Lower<()> {
        let home = self.declare(local)?;
        if let (Home::Scalar(variable), Some(init)) = (home.home, init)
            && let Some(address) = self.keep_path(local, init)
        {
            self.builder.set(variable, address);
            self.set_present(home, true);
            return Ok(());
        }
        match init {
            None => self.clear_local(local, stmt.span)?,
            Some(init) => match (self.declared_object(local, init)?, home.home) {
                (Some((object, Some(address))), Home::Scalar(variable)) => {
                    self.builder.set(variable, address);
                    self.keep_object(local, object);
                }
                (found, _) => {
                    if self.set_asked(local, home, init)? {
                        return Ok(());
                    }
                    self.set_local(local, home, init)?;
                    found.into_iter().for_each(|(object, _)| self.keep_object(local, object));
                }
            },
        }
        self.set_present(home, true);
        Ok(())
    }

    /// Sets a local to text or bytes of which the script asks whether they could be read, and its presence bit to the
    /// answer; returns false for any other value.
    fn set_asked(&mut self, id: LocalId, home: LocalHome, value: &Expr) -> Lower<bool> {
        let Some(present) = home.present.filter(|_| self.active.asked.contains(&id)) else {
            return Ok(false);
        };
        let Home::Memory(to) = home.home else { return Ok(false) };
        let Some(is_read) = self.asked_read(value, Addr::of(to))? else { return Ok(false) };
        self.builder.set(present, is_read);
        Ok(true)
    }

    /// Sets a local to the value of an expression that does not read it.
    fn set_local(&mut self, id: LocalId, home: LocalHome, value: &Expr) -> Lower<()> {
        match home.home {
            Home::Scalar(variable) => {
                let value = self.scalar(value)?;
                self.builder.set(variable, value);
            }
            Home::Fixed(_) => {
                let value = self.scalar(value)?;
                self.set_home(id, Home::Fixed(value));
            }
            Home::Pointer(_) => {
                let pointer = self.pointer_value(value)?;
                self.set_pointer_local(id, home, pointer, value.span)?;
            }
            Home::Memory(base) => self.lower_into(value, Addr::of(base))?,
            Home::Alias(alias) => {
                self.lower_into(value, Addr::of(alias.own))?;
                self.unbind(alias);
            }
        }
        Ok(())
    }

    fn assign(&mut self, lvalue: &Lvalue, value: &Expr) -> Lower<()> {
        if self.is_scalar(lvalue.ty) {
            return self.assign_scalar(lvalue, value);
        }
        if let LvalueKind::Local(id) = lvalue.kind {
            return self.assign_local(id, value);
        }
        self.assign_aggregate(lvalue, value)
    }

    fn assign_scalar(&mut self, lvalue: &Lvalue, value: &Expr) -> Lower<()> {
        if let LvalueKind::Local(id) = lvalue.kind {
            let home = self.declare(id)?;
            self.set_local(id, home, value)?;
            self.set_present(home, true);
            return Ok(());
        }
        if let Some(member) = self.context_lvalue(lvalue) {
            let value = self.scalar(value)?;
            return self.write_context(member, lvalue, value);
        }
        let prepared = self.prepare(lvalue)?;
        self.check_writable(&prepared, lvalue.span)?;
        if self.is_pointer(lvalue.ty) && prepared.element().is_none() {
            let pointer = self.pointer_value(value)?;
            return self.store_pointer(&prepared, pointer);
        }
        let (int, value) = self.stored_scalar(value)?;
        if let Some((map, key)) = prepared.element() {
            return self.assign_scalar_element(map, key, value, lvalue.span);
        }
        let access = self.resolve(&prepared)?;
        self.store_scalar(access.addr, int, value);
        self.join_miss(access.miss, |_| Ok(()))
    }

    /// A scalar as it is stored in memory; a pointer is stored as a number.
    pub(super) fn stored_scalar(&mut self, value: &Expr) -> Lower<(IntType, Value)> {
        if self.is_pointer(value.ty) {
            let pointer = self.pointer_value(value)?;
            return Ok((U64, self.address_value(pointer)?));
        }
        if self.is_context(value.ty) {
            // Loads of a context pointer ignore the stored value and return the one context.
            self.scalar(value)?;
            return Ok((U64, self.builder.constant(Type::I64, 0)));
        }
        Ok((self.int(value.ty, value.span)?, self.scalar(value)?))
    }

    fn assign_local(&mut self, id: LocalId, value: &Expr) -> Lower<()> {
        let home = self.declare(id)?;
        // The operands are read before the local is written.
        if self.set_asked(id, home, value)? {
            return Ok(());
        }
        if self.active.exposed.contains(&id) || mentions(self.hir, value, Root::Local(id)) {
            let bytes = self.size(value.ty, value.span)?;
            let from = self.temporary(value)?;
            let (Home::Memory(own) | Home::Alias(Alias { own, .. })) = home.home else {
                return impossible(value.span, "this assignment");
            };
            self.copy(Addr::of(own), from, bytes);
            if let Home::Alias(alias) = home.home {
                self.unbind(alias);
            }
        } else {
            self.set_local(id, home, value)?;
        }
        self.set_present(home, true);
        Ok(())
    }

    /// The value is complete before the lvalue is written, because it may read the lvalue.
    fn assign_aggregate(&mut self, lvalue: &Lvalue, value: &Expr) -> Lower<()> {
        let bytes = self.size(lvalue.ty, lvalue.span)?;
        let prepared = self.prepare(lvalue)?;
        self.check_writable(&prepared, lvalue.span)?;
        if self.can_write_directly(lvalue, &prepared, value) {
            let access = self.resolve(&prepared)?;
            return self.lower_into(value, access.addr);
        }
        let from = self.temporary(value)?;
        if let Some((map, key)) = prepared.element() {
            return self.assign_element(map, key, from, lvalue.span);
        }
        let access = self.resolve(&prepared)?;
        self.copy(access.addr, from, bytes);
        self.join_miss(access.miss, |_| Ok(()))?;
        self.pointers_to(&prepared, from, bytes);
        Ok(())
    }

    /// Whether the lvalue surely exists and the value does not depend on it.
    fn can_write_directly(&self, lvalue: &Lvalue, prepared: &Prepared, value: &Expr) -> bool {
        let root_is_memory = match prepared.root {
            Root::Global(_) => true,
            Root::Local(id) => {
                let is_memory =
                    self.active.locals[id].is_some_and(|home| matches!(home.home, Home::Memory(_)));
                is_memory && !self.active.exposed.contains(&id)
            }
            Root::Element(..) | Root::Value(_) | Root::Pointer(..) | Root::Config(_) => false,
        };
        root_is_memory && has_fixed_offset(lvalue) && !mentions(self.hir, value, prepared.root)
    }

    fn compound(&mut self, lvalue: &Lvalue, op: hir::BinaryOp, value: &Expr) -> Lower<()> {
        let int = self.int(lvalue.ty, lvalue.span)?;
        let arithmetic = self.int(value.ty, value.span)?;
        if let Some(member) = self.context_lvalue(lvalue) {
            let value = self.scalar(value)?;
            let old = self.read_context(member, lvalue)?;
            let new = self.changed(old, int, Change { op, value, int: arithmetic, shared: false });
            return self.write_context(member, lvalue, new);
        }
        let prepared = self.prepare(lvalue)?;
        self.check_writable(&prepared, lvalue.span)?;
        let value = self.scalar(value)?;
        let mut change = Change { op, value, int: arithmetic, shared: false };
        if let Some(home) = self.scalar_local(lvalue)? {
            let Home::Scalar(variable) = home.home else {
                return impossible(lvalue.span, "this place");
            };
            let old = self.builder.get(variable);
            let new = self.changed(old, int, change);
            self.builder.set(variable, new);
            self.set_present(home, true);
            return Ok(());
        }
        if let Some((map, key)) = prepared.element() {
            return self.compound_element(map, key, change, lvalue.span);
        }
        if let Root::Element(map, key) = prepared.root {
            return self.compound_part((map, key), &prepared, int, change, lvalue.span);
        }
        if let Root::Pointer(pointer, bytes) = prepared.root {
            // At most one of the two is not null.
            for (pointer, shared) in self.shared_and_own(pointer) {
                let part = prepared.with_root(Root::Pointer(pointer, bytes));
                let Access { addr, miss } = self.resolve(&part)?;
                self.apply_change(addr, int, Change { shared, ..change });
                self.join_miss(miss, |_| Ok(()))?;
            }
            return Ok(());
        }
        if let Some(alias) = self.alias(&prepared).filter(|_| prepared.is_indexed()) {
            return self.compound_bound(alias, &prepared, int, change);
        }
        change.shared = self.is_shared(&prepared);
        let Access { addr, miss } = self.resolve(&prepared)?;
        self.apply_change(addr, int, change);
        self.join_miss(miss, |_| Ok(()))?;
        if let LvalueKind::Local(id) = lvalue.kind {
            let home = self.declare(id)?;
            self.set_present(home, true);
        }
        Ok(())
    }

    /// The home of the binding that an lvalue is a part of.
    fn alias(&self, prepared: &Prepared) -> Option<Alias> {
        let Root::Local(id) = prepared.root else { return None };
        match self.active.locals[id]?.home {
            Home::Alias(alias) => Some(alias),
            _ => None,
        }
    }

    /// Lowers `x[i] op= value` where `x` may be bound to an entry. Entry and private memory get code of their
    /// own: the verifier accepts no atomic instruction at a variable stack offset.
    fn compound_bound(&mut self, alias: Alias, part: &Prepared, int: IntType, change: Change) -> Lower<()> {
        let entry = self.builder.get(alias.entry);
        let (bound, own, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let is_own = self.builder.value(Type::I32, Op::IsNull(entry));
        self.builder.branch(is_own, own, bound);
        for (block, shared) in [(bound, true), (own, false)] {
            self.builder.switch_to_sealed(block);
            let base = if shared {
                Base::Pointer(self.builder.value(Type::Ptr(Origin::Memory), Op::NonNull(entry)))
            } else {
                alias.own
            };
            let Access { addr, miss } = self.resolve(&part.with_root(Root::Value(Addr::of(base))))?;
            self.apply_change(addr, int, Change { shared, ..change });
            self.join_miss(miss, |_| Ok(()))?;
            self.builder.jump(join);
        }
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// Whether others may change a variable or a part of it at the same time.
    fn is_shared(&self, prepared: &Prepared) -> bool {
        match prepared.root {
            Root::Global(_) => true,
            Root::Local(_) => self.alias(prepared).is_some(),
            Root::Element(..) | Root::Pointer(..) | Root::Value(_) | Root::Config(_) => false,
        }
    }

    /// `old op value` in the type of the arithmetic, converted to the lvalue's type.
    pub(super) fn changed(&mut self, old: Value, int: IntType, change: Change) -> Value {
        let old = arithmetic::convert(&mut self.builder, int, change.int, old);
        let new = arithmetic::binary(&mut self.builder, change.op, change.int, old, change.value);
        arithmetic::convert(&mut self.builder, change.int, int, new)
    }

    /// Changes memory. The change is atomic where the language requires it: `+=` and `-=` of 4 or 8 bytes
    /// that others may change, at an aligned address.
    pub(super) fn apply_change(&mut self, addr: Addr, int: IntType, change: Change) {
        if change.shared && change.op == hir::BinaryOp::Max {
            return self.raise(addr, change.value);
        }
        let additive = matches!(change.op, hir::BinaryOp::Add | hir::BinaryOp::Sub);
        // Arithmetic narrower than the lvalue wraps earlier than an addition to the whole lvalue would.
        let at_once = Self::chunks(&[addr], int.bytes() as u32).len() == 1;
        if change.shared && additive && at_once && int.bits >= 32 && change.int.bits >= int.bits {
            let amount = match change.op {
                hir::BinaryOp::Sub => {
                    let zero = self.builder.constant(int_type(change.int), 0);
                    self.builder.binary(BinaryOp::Sub, zero, change.value)
                }
                _ => change.value,
            };
            let amount = arithmetic::convert(&mut self.builder, change.int, int, amount);
            return self.atomic_add(addr, access_size(int.bytes()), amount);
        }
        let old = self.load_scalar(addr, int);
        let new = self.changed(old, int, change);
        self.store_scalar(addr, int, new);
    }

    pub(super) fn effects(&mut self, expr: &Expr) -> Lower<()> {
        match &expr.kind {
            ExprKind::Call { func, args } => self.call(*func, args, Sink::Nothing, expr.span)?,
            ExprKind::CallValue { callee, args } => {
                self.call_value(callee, args, Sink::Nothing, expr.span)?;
            }
            ExprKind::Match(one) => self.matched(one, expr.ty, Sink::Nothing, expr.span)?,
            // `null` alone has a type of its own, and does nothing.
            _ if matches!(self.hir.types.kind(expr.ty), TypeKind::Null) => {}
            _ if self.is_pointer(expr.ty) => {
                self.pointer_value(expr)?;
            }
            _ if self.is_scalar(expr.ty) => {
                self.scalar(expr)?;
            }
            _ => {
                self.temporary(expr)?;
            }
        }
        Ok(())
    }

    fn if_else(&mut self, cond: &Expr, then: &[Stmt], otherwise: &[Stmt]) -> Lower<()> {
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.condition(cond, yes, no)?;
        for (block, body) in [(yes, then), (no, otherwise)] {
            self.builder.switch_to_sealed(block);
            self.block(body)?;
            if !self.builder.is_filled() {
                self.builder.jump(join);
            }
        }
        self.builder.switch_to_sealed(join);
        Ok(())
    }
}

/// Whether the lvalue has neither lookups nor run-time indices.
fn has_fixed_offset(lvalue: &Lvalue) -> bool {
    match &lvalue.kind {
        LvalueKind::Local(_) | LvalueKind::Global(_) => true,
        LvalueKind::Field { base, .. } => has_fixed_offset(base),
        LvalueKind::Index { base, index } => {
            matches!(index.kind, ExprKind::Const(_)) && has_fixed_offset(base)
        }
        _ => false,
    }
}

/// Whether the value of an expression may depend on what is stored at `root`, or may be absent. A plain copy
/// of one lvalue to another does not: the two are equal or do not overlap.
fn mentions(hir: &Hir, expr: &Expr, root: Root) -> bool {
    if let ExprKind::Load(_) | ExprKind::Bytes(_) = expr.kind {
        return false;
    }
    let mut finder = Finder { hir, root, found: false };
    visit::expr(&mut finder, expr);
    finder.found
}

struct Finder<'a> {
    hir: &'a Hir,
    root: Root,
    found: bool,
}

impl Visitor for Finder<'_> {
    fn local(&mut self, id: LocalId) {
        self.found |= matches!(self.root, Root::Local(root) if root == id);
    }
    fn global(&mut self, id: GlobalId) {
        self.found |= matches!(self.root, Root::Global(root) if root == id);
    }
    fn lvalue(&mut self, lvalue: &Lvalue) {
        self.found |= matches!((self.root, &lvalue.kind), (Root::Global(_), LvalueKind::Deref(_)));
    }
    fn function(&mut self, id: FuncId) {
        // After a throw the destination must keep its old value.
        self.found |= matches!(self.root, Root::Global(_)) || self.hir.functions[id].throws;
    }
}
