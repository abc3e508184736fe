//! Rules that depend on the kinds of programs that reach a function: KS0517, KS0521 and KS0909.

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::caller::Caller;
use ks_wit::helper;

use super::Program;
use crate::bpf::helper_number;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Expr, ExprKind, FuncId, FunctionKind, Hir, HirFunction, Lvalue, LvalueKind, MapId, MapKind, ProgramKind,
    Stmt, StmtKind,
};
use crate::source::Span;
use crate::types::{StructOrigin, TypeKind, Types};

/// The map flag BPF_F_NO_PREALLOC. Source: include/uapi/linux/bpf.h, v6.12.
const NO_PREALLOC: u32 = 1;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let reached = by_kind(program);
    contexts_of_two_kinds(program, &reached, diagnostics);
    helpers_of_other_kinds(program, diagnostics);
    written_from_perf_events(program, &reached, diagnostics);
}

/// For each kind of program, the functions that it reaches, each with one such program.
type Reached = BTreeMap<ProgramKind, BTreeMap<FuncId, FuncId>>;

fn by_kind(program: &Program<'_>) -> Reached {
    let mut reached = Reached::new();
    for (id, function) in program.hir.functions.iter_enumerated() {
        if let FunctionKind::Program(kind) = function.kind {
            let of_kind = reached.entry(kind).or_default();
            for callee in program.calls.reached(program.hir, [id]) {
                of_kind.entry(callee).or_insert(id);
            }
        }
    }
    reached
}

/// KS0517: the offsets of a context's members depend on the program's kind.
fn contexts_of_two_kinds(program: &Program<'_>, reached: &Reached, diagnostics: &mut Diagnostics) {
    let functions = &program.hir.functions;
    for (id, function) in functions.iter_enumerated() {
        if function.kind.is_program() || !takes_context(&program.hir.types, function) {
            continue;
        }
        let callers: Vec<(ProgramKind, FuncId)> =
            reached.iter().filter_map(|(kind, of_kind)| Some((*kind, *of_kind.get(&id)?))).collect();
        if callers.len() < 2 {
            continue;
        }
        let text = format!("helper `{}` is called with contexts of {} kinds", function.name, callers.len());
        let mut error = Diagnostic::error(517, function.span, text);
        for (kind, caller) in callers {
            let caller = &functions[caller];
            error = error
                .also(caller.span, format!("the `@{}` program `{}` reaches it", kind.name(), caller.name));
        }
        diagnostics
            .report(error.help("write one helper for each kind, or pass what it needs of the context"));
    }
}

fn takes_context(types: &Types, function: &HirFunction) -> bool {
    function.params.iter().any(|param| {
        let TypeKind::Ptr(to) = types.kind(function.locals[*param].ty) else { return false };
        let TypeKind::Struct(id) = types.kind(*to) else { return false };
        types.struct_def(*id).origin == StructOrigin::Context
    })
}

/// KS0521: each kind of program may call other helpers.
fn helpers_of_other_kinds(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let hir = program.hir;
    let mut reported = BTreeSet::new();
    for (from, entry) in hir.functions.iter_enumerated().filter(|(id, _)| hir.is_entry(*id)) {
        let Some(caller) = entry.caller() else { continue };
        for id in program.calls.reached(hir, [from]) {
            let mut used = Used { hir, helpers: Vec::new() };
            visit::block(&mut used, &hir.functions[id].body);
            for (name, number, span) in used.helpers {
                let is_allowed = helper::numbered(number).is_none_or(|helper| helper.is_allowed_in(caller));
                if is_allowed || !reported.insert(span) {
                    continue;
                }
                let text = format!("{name} is not allowed in {}", caller.plural());
                let what = if caller == Caller::Method { "method" } else { "program" };
                let error = Diagnostic::error(521, span, text);
                diagnostics.report(error.also(entry.span, format!("this {what} gets there")));
            }
        }
    }
}

/// Helpers that a function calls itself: a description, the number, and the source range.
struct Used<'a> {
    hir: &'a Hir,
    helpers: Vec<(String, u32, Span)>,
}

impl Visitor for Used<'_> {
    fn expr(&mut self, expr: &Expr) {
        let hir = self.hir;
        let used = match &expr.kind {
            ExprKind::CallExtern { function, .. } => {
                let function = &hir.externs[*function];
                function.helper.map(|number| (format!("helper `{}`", function.name), number))
            }
            ExprKind::Kernel(builtin) => {
                let number = builtin.helper().and_then(helper_number);
                number.map(|number| (format!("`{}`", builtin.name()), number))
            }
            _ => None,
        };
        self.helpers.extend(used.map(|(name, number)| (name, number, expr.span)));
        if let ExprKind::Present { map, .. } = expr.kind {
            self.storage(map, expr.span);
        }
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Element { map, .. } = lvalue.kind {
            self.storage(map, lvalue.span);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if let StmtKind::Bind { map, .. } | StmtKind::Remove { map, .. } = stmt.kind {
            self.storage(map, stmt.span);
        }
    }
}

impl Used<'_> {
    /// Records the helper for local storage. A program that may get a value may also delete it.
    fn storage(&mut self, map: MapId, span: Span) {
        let kind = self.hir.maps[map].kind;
        let helper = match kind {
            MapKind::TaskStorage => "bpf_task_storage_get",
            MapKind::InodeStorage => "bpf_inode_storage_get",
            MapKind::SkStorage => "bpf_sk_storage_get",
            MapKind::CgroupStorage => "bpf_cgrp_storage_get",
            _ => return,
        };
        let number = helper_number(helper);
        self.helpers.extend(number.map(|number| (format!("`{}`", kind.name()), number, span)));
    }
}

/// KS0909: an overflow may interrupt the kernel anywhere, also in its allocator.
fn written_from_perf_events(program: &Program<'_>, reached: &Reached, diagnostics: &mut Diagnostics) {
    let Some(of_kind) = reached.get(&ProgramKind::PerfEvent) else { return };
    let hir = program.hir;
    let mut reported = BTreeSet::new();
    for (id, from) in of_kind {
        let mut writes = Writes::default();
        visit::block(&mut writes, &hir.functions[*id].body);
        for (map, span) in writes.0 {
            let written = &hir.maps[map];
            if written.flags & NO_PREALLOC == 0 || !reported.insert(map) {
                continue;
            }
            let text = format!("map `{}` may not be written from a perf event", written.name);
            let help = if written.kind.is_storage() {
                "let another program make the entries, or keep a `hash` by `tid()`"
            } else {
                "remove the flag `no_prealloc`"
            };
            diagnostics.report(
                Diagnostic::warning(909, span, text)
                    .label(format!("`@perf_event` program `{}` does this", hir.functions[*from].name))
                    .also(written.span, "it allocates its entries when they are written")
                    .note("an overflow may interrupt the kernel's allocator: such a write can fail")
                    .help(help),
            );
        }
    }
}

/// Maps whose entries are created or removed, with the source range.
#[derive(Default)]
struct Writes(Vec<(MapId, Span)>);

impl Visitor for Writes {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => {
                if let Lvalue { kind: LvalueKind::Element { map, .. }, span, .. } = lvalue {
                    self.0.push((*map, *span));
                }
            }
            StmtKind::Remove { map, .. } => self.0.push((*map, stmt.span)),
            _ => {}
        }
    }
}
