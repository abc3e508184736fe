//! Lowers `for (k, v in m)` over map kinds whose entries only the kernel can enumerate. `pass::loop_callbacks`
//! turns a loop of this shape into a call for each entry.
//!
//! ```text
//!     zero = MapIter::New(&iteration, m)
//! header:
//!     entry = MapIter::Next(&iteration); if entry is null goto end
//!     k = *MapIter::Key(&iteration); v = entry; body; goto header
//! end, break, return:
//!     MapIter::End(&iteration)
//! ```
//!
//! A body that adds entries could run for ever: before Linux 6.15 the kernel follows an entry that was
//! removed and added again to its new position. So such a loop ends after as many iterations as the map has
//! capacity, or [`MAX_ITERATIONS`] if an option sets that. Source: kernel/bpf/hashtab.c, `bpf_for_each_hash_elem`, v6.12.

use ks_wit::object::MAX_ITERATIONS;

use super::super::mir::{BinaryOp, Callee, Condition, MapIter, Op, Origin, Type, Value};
use super::loops::IterationSource;
use super::memory::{Addr, Base};
use super::{Home, Lower, Lowerer, arithmetic, impossible};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, LocalId, LvalueKind, MapId, Stmt, StmtKind};
use crate::types::IntType;

const U32: IntType = IntType { bits: 32, signed: false };

impl Lowerer<'_> {
    /// `for (key, value in map)`: the value is bound to the entry.
    pub(super) fn iterate_map(
        &mut self,
        key: LocalId,
        value: LocalId,
        map: MapId,
        body: &[Stmt],
    ) -> Lower<()> {
        self.declare(key)?;
        self.declare(value)?;
        let iterations = may_add(body).then(|| self.builder.variable(Type::I32));
        if let Some(iterations) = iterations {
            let none = self.builder.constant(Type::I32, 0);
            self.builder.set(iterations, none);
        }
        let iteration = self.enter_iterator(IterationSource::Map(map), body);
        if let Some(iterations) = iterations {
            let before = self.builder.get(iterations);
            let map = &self.hir.maps[map];
            // A size that an option sets is known at the load only.
            let most = if map.size_option.is_some() { MAX_ITERATIONS } else { map.max_entries.into() };
            let more = self.builder.compare_const(Condition::Lt, before, most);
            let inside = self.builder.block();
            self.builder.branch(more, inside, iteration.leave);
            self.builder.switch_to_sealed(inside);
            let count = self.builder.binary_const(BinaryOp::Add, before, 1);
            self.builder.set(iterations, count);
        }
        let mark = self.builder.mark_stack();
        let iterator = self.pointer(Addr::of(Base::Slot(iteration.slot())));
        let key_pointer =
            self.builder.call(Type::Ptr(Origin::Entry), Callee::MapIter(MapIter::Key), vec![iterator]);
        self.take_key(key, map, key_pointer)?;
        let entry = self.builder.value(Type::Ptr(Origin::Entry), Op::NonNull(iteration.item));
        let span = self.active.source.locals[value].span;
        self.bind_entry(value, entry, span)?;
        self.block(body)?;
        self.builder.release_stack(mark);
        if !self.builder.is_filled() {
            self.builder.jump(iteration.header);
        }
        self.builder.switch_to_sealed(iteration.ended);
        self.builder.jump(iteration.leave);
        self.leave_iterator(&iteration);
        Ok(())
    }

    /// Sets the loop's first variable to the key that a pointer points to. The key of an array has 4 bytes,
    /// whatever the script declares.
    fn take_key(&mut self, key: LocalId, map: MapId, key_pointer: Value) -> Lower<()> {
        let local = &self.active.source.locals[key];
        let (from, span) = (Addr::of(Base::Pointer(key_pointer)), local.span);
        let home = self.declare(key)?.home;
        if let (Home::Memory(base), false) = (home, self.hir.maps[map].kind.is_array()) {
            let bytes = self.size(local.ty, span)?;
            self.copy(Addr::of(base), from, bytes);
            return Ok(());
        }
        let int = self.int(local.ty, span)?;
        let stored = if self.hir.maps[map].kind.is_array() { U32 } else { int };
        let loaded = self.load_scalar(from, stored);
        let number = arithmetic::convert(&mut self.builder, stored, int, loaded);
        match home {
            Home::Scalar(variable) => self.builder.set(variable, number),
            Home::Memory(base) => self.store_scalar(Addr::of(base), int, number),
            _ => return impossible(span, "this loop variable"),
        }
        Ok(())
    }
}

/// Whether a body may add entries to a map, directly or through a call.
fn may_add(body: &[Stmt]) -> bool {
    let mut adds = Adds(false);
    body.iter().for_each(|stmt| visit::stmt(&mut adds, stmt));
    adds.0
}

struct Adds(bool);

impl Visitor for Adds {
    fn function(&mut self, _id: FuncId) {
        self.0 = true;
    }

    fn expr(&mut self, expr: &Expr) {
        self.0 |= matches!(expr.kind, ExprKind::CallValue { .. });
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if let StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } = &stmt.kind {
            self.0 |= matches!(lvalue.kind, LvalueKind::Element { .. });
        }
    }
}
