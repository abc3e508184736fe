//! Locals that may be bound to a map element: `x = m[k]`.
//!
//! Each of these locals has a presence bit. A local of struct or array type also records the entry that it is
//! a snapshot of, so that a change of a part is written back if the entry still exists.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::Var;
use super::cx::Lower;
use super::func::{FnCx, Home};
use super::maps::{self, Table};
use super::runtime::Routine;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, LocalId, MapId, Stmt, StmtKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Run-time state of a local that may be bound.
#[derive(Debug, Clone)]
pub struct Binding {
    present: Var,
    /// The bound entry; none for a scalar.
    entry: Option<BoundEntry>,
}

#[derive(Debug, Clone)]
struct BoundEntry {
    /// Position in `maps`, from 1; 0 if the local is a private copy.
    map: Var,
    /// All maps that the function binds the local to.
    maps: Vec<Table>,
    key: Addr,
}

impl FnCx<'_, '_> {
    /// Allocates the state of a local that may be bound.
    pub fn new_binding(&mut self, local: LocalId, ty: TypeId) -> Binding {
        let present = self.code.local(ValType::I32);
        let parts = matches!(self.cx.hir.types.kind(ty), TypeKind::Struct(_) | TypeKind::Array(..));
        let entry = parts.then(|| {
            let maps = bound_maps(&self.function.body, local);
            let bytes = maps.iter().map(|map| maps::key_size(self.cx, *map)).max().unwrap_or(0);
            BoundEntry { map: self.code.local(ValType::I32), maps, key: self.slot_bytes(u64::from(bytes), 8) }
        });
        Binding { present, entry }
    }

    /// Sets the presence bits of parameters, and of locals before their first assignment.
    pub fn init_bindings(&mut self) {
        for id in self.function.locals.ids() {
            self.unbind(id);
        }
    }

    /// Lowers `local = map[key]`.
    pub fn bind(&mut self, local: LocalId, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        let key = self.key(map, key)?;
        let map = Table::from(map);
        match self.homes[local] {
            Home::Scalar(var, int) => {
                let value = self.slot(self.function.locals[local].ty);
                self.lookup(map, key, value, span);
                self.set_present(local);
                self.load(int, value);
                self.code.set(var);
            }
            Home::Memory(value) => {
                self.lookup(map, key, value, span);
                self.set_present(local);
                self.remember_entry(local, map, key);
            }
        }
        Ok(())
    }

    /// Pushes the presence bit of a local: 1 if the entry existed.
    pub fn push_present(&mut self, local: LocalId) {
        match &self.bindings[local] {
            Some(binding) => self.code.get(binding.present),
            None => self.code.i32(1),
        };
    }

    /// Marks a local as present and as a private copy, after an assignment of something else than a map
    /// element.
    pub fn unbind(&mut self, local: LocalId) {
        let Some(binding) = &self.bindings[local] else { return };
        self.code.i32(1).set(binding.present);
        if let Some(entry) = &binding.entry {
            self.code.i32(0).set(entry.map);
        }
    }

    /// Writes a local back to its entry after a change of a part, if the entry still exists.
    pub fn write_back(&mut self, local: LocalId, span: Span) {
        let Some(Binding { entry: Some(entry), .. }) = self.bindings[local].clone() else { return };
        let Home::Memory(value) = self.homes[local] else { return };
        for (position, map) in entry.maps.iter().enumerate() {
            self.code.get(entry.map).i32(position as i32 + 1).op(I::I32Eq).if_();
            self.map_store(*map, entry.key, value, "exist", span);
            self.code.end();
        }
    }

    /// Pops the presence bit from the stack and stores it.
    pub fn set_present(&mut self, local: LocalId) {
        match &self.bindings[local] {
            Some(binding) => self.code.set(binding.present),
            None => self.code.op(I::Drop),
        };
    }

    fn remember_entry(&mut self, local: LocalId, map: Table, key: Addr) {
        let Some(Binding { present, entry: Some(entry) }) = self.bindings[local].clone() else { return };
        let position = entry.maps.iter().position(|one| *one == map).map_or(0, |at| at as i32 + 1);
        let bytes = maps::key_size(self.cx, map);
        self.copy(entry.key, key, u64::from(bytes));
        self.code.i32(position).i32(0).get(present).op(I::Select).set(entry.map);
    }

    /// Looks a key up and pushes the presence bit; the value is zero if there is no entry.
    pub fn lookup(&mut self, map: Table, key: Addr, value: Addr, span: Span) {
        let lookup = self.cx.routine(Routine::MapLookup(map));
        self.push_addr(key);
        self.push_addr(value);
        self.push_line(span);
        self.code.call(lookup);
    }

    /// Writes a map entry; `mode` is the contract's update mode.
    pub fn map_store(&mut self, map: Table, key: Addr, value: Addr, mode: &str, span: Span) {
        let store = self.cx.routine(Routine::MapStore(map));
        let mode = maps::update_mode(self.cx, mode);
        self.push_addr(key);
        self.push_addr(value);
        self.code.i32(mode);
        self.push_line(span);
        self.code.call(store);
    }
}

/// Returns the maps that a function binds a local to, each once, in source order.
fn bound_maps(body: &[Stmt], local: LocalId) -> Vec<Table> {
    struct Binds {
        local: LocalId,
        maps: Vec<Table>,
    }
    impl Visitor for Binds {
        fn stmt(&mut self, stmt: &Stmt) {
            match stmt.kind {
                StmtKind::Bind { local, map, .. }
                    if local == self.local && !self.maps.contains(&map.into()) =>
                {
                    self.maps.push(map.into());
                }
                _ => {}
            }
        }
    }
    let mut binds = Binds { local, maps: Vec::new() };
    for stmt in body {
        visit::stmt(&mut binds, stmt);
    }
    binds.maps
}
