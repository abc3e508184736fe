//! Loop unswitching: loops that access shared memory and call nothing check once, before the loop, whether it
//! is mapped.
//!
//! Mapped memory stays mapped until the plugin ends. A loop is therefore lowered twice, and the version for
//! fully mapped memory has no host call that would keep values out of registers. That version repeats a short
//! body several times: engines check at each back edge whether the plugin is to stop, and reload values that
//! they spilled for the check.

use std::collections::BTreeSet;

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmGlobal};
use super::cx::{Cx, GlobalHome, KeptGlobal, Lower};
use super::func::FnCx;
use super::maps::Table;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Block, ConfigId, Expr, ExprKind, GlobalId, MapId, MapIteration, Stmt, StmtKind};

/// Number of copies of a short body in a loop over mapped memory.
const COPIES: usize = 4;
/// Maximum number of expressions in a short body.
const SHORT: usize = 32;

/// Facts about shared memory at the position that is being lowered.
#[derive(Debug, Clone, Default)]
pub enum MappingState {
    /// Nothing is known.
    #[default]
    Nothing,
    /// These variables and maps are mapped; each address is in a local.
    Mapped(Vec<(WasmGlobal, Var)>),
    /// At least one object that the enclosing loops use is not mapped.
    Unmapped,
}

impl MappingState {
    /// Returns the local with the address of an object that is known to be mapped.
    pub fn start(&self, start: WasmGlobal) -> Option<Var> {
        let MappingState::Mapped(starts) = self else { return None };
        starts.iter().find_map(|(global, var)| (*global == start).then_some(*var))
    }
}

impl FnCx<'_, '_> {
    /// Lowers a loop with `lower`, twice if that is worthwhile.
    pub fn unswitched(&mut self, stmt: &Stmt, lower: impl Fn(&mut Self) -> Lower<()>) -> Lower<()> {
        if !matches!(self.shared_memory, MappingState::Nothing) {
            return lower(self);
        }
        let starts = starts(self.cx, stmt);
        if starts.is_empty() {
            return lower(self);
        }
        let mapped: Vec<_> = starts.iter().map(|start| (*start, self.temp(ValType::I32))).collect();
        self.code.i32(1);
        for (start, var) in &mapped {
            self.code.get_global(*start).tee(*var).i32(0).ops_of([I::I32Ne, I::I32And]);
        }
        self.code.if_();
        self.shared_memory = MappingState::Mapped(mapped);
        lower(self)?;
        self.code.else_();
        self.shared_memory = MappingState::Unmapped;
        lower(self)?;
        self.shared_memory = MappingState::Nothing;
        self.code.end();
        Ok(())
    }
}

impl FnCx<'_, '_> {
    /// Returns how often the body of a loop is lowered, each copy after its condition.
    pub fn copies(&self, body: &Block) -> usize {
        let mut seen = Length { expressions: 0, loops: false };
        visit::block(&mut seen, body);
        let pays =
            matches!(self.shared_memory, MappingState::Mapped(_)) && !seen.loops && seen.expressions <= SHORT;
        if pays { COPIES } else { 1 }
    }
}

/// Counts the expressions of a body.
struct Length {
    expressions: usize,
    loops: bool,
}

impl Visitor for Length {
    fn stmt(&mut self, stmt: &Stmt) {
        self.loops |=
            matches!(stmt.kind, StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. });
    }

    fn expr(&mut self, _: &Expr) {
        self.expressions += 1;
    }
}

/// Returns the address globals of the variables and maps that a loop uses; none if the loop has a call
/// anyway.
fn starts(cx: &mut Cx<'_>, stmt: &Stmt) -> Vec<WasmGlobal> {
    let mut used = LoopUses { calls: false, globals: BTreeSet::new(), maps: BTreeSet::new() };
    visit::stmt(&mut used, stmt);
    if used.calls {
        return Vec::new();
    }
    let mut starts = Vec::new();
    for id in used.globals {
        if cx.global(id) == GlobalHome::Object {
            starts.push(cx.kept(KeptGlobal::VariableStart(id), 0));
        }
    }
    for map in used.maps {
        match cx.shared_array(map) {
            Some((_, start)) => starts.push(start),
            None => return Vec::new(),
        };
    }
    starts
}

/// Variables, maps and calls of a loop.
struct LoopUses {
    calls: bool,
    globals: BTreeSet<GlobalId>,
    maps: BTreeSet<Table>,
}

impl Visitor for LoopUses {
    fn global(&mut self, id: GlobalId) {
        self.globals.insert(id);
    }

    fn map(&mut self, id: MapId) {
        self.maps.insert(id.into());
    }

    fn config(&mut self, id: ConfigId) {
        self.maps.insert(Table::Config(id));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.calls |= !match &stmt.kind {
            StmtKind::ForEach { iteration, .. } => matches!(iteration, MapIteration::Array(_)),
            StmtKind::Let { .. }
            | StmtKind::Assign { .. }
            | StmtKind::Compound { .. }
            | StmtKind::Expr(_)
            | StmtKind::If { .. }
            | StmtKind::While { .. }
            | StmtKind::For { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return(_) => true,
            _ => false,
        };
    }

    fn expr(&mut self, expr: &Expr) {
        self.calls |= !matches!(
            expr.kind,
            ExprKind::Const(_)
                | ExprKind::Bytes(_)
                | ExprKind::Load(_)
                | ExprKind::AddrOf(_)
                | ExprKind::Unary(..)
                | ExprKind::Binary(..)
                | ExprKind::Logic(..)
                | ExprKind::Offset(..)
                | ExprKind::Distance(..)
                | ExprKind::Convert(_)
                | ExprKind::Truth(_)
                | ExprKind::IsNull(_)
                | ExprKind::Match(_)
                | ExprKind::Struct(_)
                | ExprKind::Array(_)
                | ExprKind::Repeat(_)
        );
    }
}
