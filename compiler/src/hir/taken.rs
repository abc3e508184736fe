//! Lowers `take(m)`: userspace receives all entries of a map, and programs continue with an empty one, so that nothing is
//! counted twice or lost. There are two maps: programs use one of them, userspace the other. A run of a program that has looked up an
//! entry may still add to it, so the exchange waits for the runs that have begun before it.
//!
//! ```text
//! take(m)
//!     -> a call of a function:
//!        clear(m)
//!        active = active ^ 1
//!        settle()
//! ```
//!
//! Which of the two maps is `m` follows from the variable `active`: the one of programs in the kernel half, the other one in
//! userspace.

use std::collections::BTreeMap;

use super::visit::{self, Visitor};
use super::visit_mut::{self, VisitorMut};
use super::{
    BinaryOp, DoubleBuffer, Expr, ExprKind, FuncId, Global, GlobalId, Half, Hir, HirFunction, Lvalue,
    LvalueKind, MapId, Stmt, StmtKind, UserBuiltin,
};
use crate::index::IndexVec;
use crate::source::Span;

/// The functions that exchange maps; no name in a script can contain a colon.
const NAME: &str = "ks:take";

/// Adds a second map to each one that a call of `take` names, and replaces the calls by those of functions.
pub fn rewrite(hir: &mut Hir) {
    let mut calls = Calls::default();
    for function in hir.functions.iter().filter(|one| one.kind.half() == Half::User) {
        visit::block(&mut calls, &function.body);
    }
    let functions = calls.maps.into_iter().map(|(map, span)| {
        let active = add_second(hir, map, span);
        (map, add_function(hir, map, active, span))
    });
    let mut functions = Functions(functions.collect());
    if functions.0.is_empty() {
        return;
    }
    for function in hir.functions.iter_mut().filter(|one| one.kind.half() == Half::User) {
        visit_mut::block(&mut functions, &mut function.body);
    }
}

/// Maps in calls of `take`, with the source range of the first call.
#[derive(Default)]
struct Calls {
    maps: BTreeMap<MapId, Span>,
}

impl Visitor for Calls {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::User(UserBuiltin::TakeMap(map)) = expr.kind {
            self.maps.entry(map).or_insert(expr.span);
        }
    }
}

/// The functions by which calls are replaced.
struct Functions(BTreeMap<MapId, FuncId>);

impl VisitorMut for Functions {
    fn expr(&mut self, expr: &mut Expr) {
        if let ExprKind::User(UserBuiltin::TakeMap(map)) = expr.kind
            && let Some(func) = self.0.get(&map)
        {
            expr.kind = ExprKind::Call { func: *func, args: Vec::new() };
        }
    }
}

/// Declares the second map and the variable.
fn add_second(hir: &mut Hir, map: MapId, span: Span) -> GlobalId {
    let name = &hir.maps[map].name;
    let (second, active) =
        (free_name(hir, &format!("{name}_taken")), free_name(hir, &format!("{name}_active")));
    let ty = hir.types.common().u32;
    let active = hir.globals.push(Global::new(active, ty, span));
    let second = super::Map { name: second, ..hir.maps[map].clone() };
    let second = hir.maps.push(second);
    hir.maps[map].double_buffer = Some(DoubleBuffer { second, active });
    active
}

fn free_name(hir: &Hir, name: &str) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let is_free = |name: &String| {
        hir.maps.iter().all(|one| one.name != *name)
            && hir.globals.iter().all(|one| one.name != *name)
            && hir.rings.iter().all(|one| one.name != *name)
            && hir.functions.iter().all(|one| one.name != *name)
    };
    let free = std::iter::once(name.to_owned()).chain(numbered).find(is_free);
    free.expect("some number is free")
}

/// Adds the function that exchanges the two maps.
fn add_function(hir: &mut Hir, map: MapId, active: GlobalId, span: Span) -> FuncId {
    let common = hir.types.common();
    let lvalue = || Lvalue { kind: LvalueKind::Global(active), ty: common.u32, span };
    let expr = |kind| Expr { kind, ty: common.u32, span };
    let effect = |builtin| {
        let kind = ExprKind::User(builtin);
        Stmt { kind: StmtKind::Expr(Expr { kind, ty: common.void, span }), span }
    };
    let other = ExprKind::Binary(
        BinaryOp::Xor,
        Box::new(expr(ExprKind::Load(lvalue()))),
        Box::new(expr(ExprKind::Const(1))),
    );
    let exchanged = Stmt { kind: StmtKind::Assign { lvalue: lvalue(), value: expr(other) }, span };
    let body = vec![effect(UserBuiltin::Clear(map)), exchanged, effect(UserBuiltin::Settle(map))];
    let name = format!("{NAME}:{}", hir.maps[map].name);
    hir.functions.push(HirFunction::synthetic((name, span), common.void, IndexVec::new(), body))
}
