//! Rules of `lock`: what can be locked, and where (KS0625); what its block may do (KS0720).
//!
//! A spin lock lies behind each value of the map. The verifier takes it through the pointer of one lookup, accepts no
//! call until it is released, and refuses programs that use the map at places where the kernel may interrupt the holder
//! of the lock. Source: kernel/bpf/verifier.c, `process_spin_lock` and `check_map_prog_compatibility`, v6.12.

use std::collections::{BTreeMap, BTreeSet};

use super::Program;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    BinaryOp, Block, Caller, Expr, ExprKind, Half, Hir, HirFunction, LocalId, Lvalue, LvalueKind, MapId,
    MapKind, ProgramKind, SharedBuiltin, Stmt, StmtKind,
};
use crate::source::Span;
use crate::types::{StructOrigin, TypeId, TypeKind, Types};

/// Maximum size in bytes of a value with a lock: larger ones are copied by a helper.
const MAX_BYTES: u64 = 4096;

/// Checks all locks, and returns the maps whose entries are locked.
pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) -> BTreeSet<MapId> {
    let mut locked = BTreeMap::new();
    for function in program.hir.functions.iter().filter(|function| function.kind.half() == Half::Kernel) {
        let mut found = FoundLocks::default();
        visit::block(&mut found, &function.body);
        for lock in &mut found.locks {
            lock.span = program.first_line(lock.span);
        }
        for lock in &found.locks {
            match found.map(program.hir, function, lock) {
                Ok(map) => {
                    locked.entry(map).or_insert(lock.span);
                }
                Err(error) => diagnostics.report(*error),
            }
        }
        let errors = found.blocks.iter().filter_map(|block| in_block(program.hir, block));
        errors.for_each(|error| diagnostics.report(error));
    }
    if !locked.is_empty() {
        used_elsewhere(program, &locked, diagnostics);
    }
    locked.into_keys().collect()
}

struct Lock {
    local: LocalId,
    span: Span,
}

/// The locks of a function, and what decides about them.
#[derive(Default)]
struct FoundLocks {
    locks: Vec<Lock>,
    blocks: Vec<Block>,
    binds: Vec<(LocalId, MapId, Span)>,
    loops: Vec<Span>,
    /// The values of loops over maps.
    iterated: BTreeSet<LocalId>,
}

impl Visitor for FoundLocks {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Lock { local, body } => {
                self.locks.push(Lock { local: *local, span: stmt.span });
                self.blocks.push(body.clone());
            }
            StmtKind::Bind { local, map, .. } => self.binds.push((*local, *map, stmt.span)),
            StmtKind::ForEach { value, .. } => {
                self.iterated.insert(*value);
                self.loops.push(stmt.span);
            }
            StmtKind::While { .. } | StmtKind::For { .. } => self.loops.push(stmt.span),
            _ => {}
        }
    }
}

impl FoundLocks {
    /// Returns the map whose entry is locked.
    fn map(&self, hir: &Hir, function: &HirFunction, lock: &Lock) -> Result<MapId, Box<Diagnostic>> {
        let local = &function.locals[lock.local];
        let error = |text: String| Diagnostic::error(625, lock.span, text).also(local.span, "declared here");
        let binds: Vec<_> = self.binds.iter().filter(|(bound, ..)| *bound == lock.local).collect();
        let Some((_, map, _)) = binds.first().copied().copied() else {
            let text = format!("`{}` is not bound to an entry of a map", local.name);
            let help = if self.iterated.contains(&lock.local) {
                "look the entry up again in the loop: `if (var v = m[key]) { lock (v) { .. } }`"
            } else {
                "write `if (var v = m[key]) { lock (v) { .. } }`"
            };
            return Err(Box::new(error(text).help(help)));
        };
        if let Some((_, other, at)) = binds.iter().find(|(_, other, _)| *other != map) {
            let text = format!("`{}` is bound to entries of two maps", local.name);
            let label = format!("`{}` here, `{}` elsewhere", hir.maps[*other].name, hir.maps[map].name);
            return Err(Box::new(error(text).also(*at, label)));
        }
        if binds.iter().any(|(.., at)| self.innermost_loop(*at) != self.innermost_loop(lock.span)) {
            let text = format!("`{}` is bound outside of the loop that locks it", local.name);
            return Err(Box::new(error(text).help("look the entry up in the loop")));
        }
        match unfit(hir, map) {
            Some((text, help)) => {
                let error = Diagnostic::error(625, lock.span, text);
                Err(Box::new(error.also(hir.maps[map].span, "declared here").help(help)))
            }
            None => Ok(map),
        }
    }

    fn innermost_loop(&self, span: Span) -> Option<Span> {
        let around = self
            .loops
            .iter()
            .filter(|one| one.file == span.file && (one.start..one.end).contains(&span.start));
        around.copied().max_by_key(|one| one.start)
    }
}

/// Returns why values of a map cannot have a lock, and what to do; none if they can.
fn unfit(hir: &Hir, map: MapId) -> Option<(String, &'static str)> {
    let map = &hir.maps[map];
    if !matches!(map.kind, MapKind::Hash | MapKind::Array) {
        let text = format!("values of a map of the kind `{}` have no lock", map.kind.name());
        return Some((text, "values of `hash` and `array` can be locked"));
    }
    if map.outer.is_some() {
        let text = format!("values of `{}`, a map of maps, have no lock", map.name);
        return Some((
            text,
            "values of `hash` and `array` can be locked; in a map of maps `+=` of a number is atomic",
        ));
    }
    if !matches!(hir.types.kind(map.value), TypeKind::Struct(_) | TypeKind::Array(..)) {
        let text = format!("values of type `{}` have no lock", hir.types.name(map.value));
        return Some((text, "a value that is a struct or an array can be locked; a number needs no lock"));
    }
    let bytes = hir.types.size(map.value);
    (bytes > MAX_BYTES).then(|| {
        let text = format!("values of {bytes} bytes have no lock; the limit is {MAX_BYTES}");
        (text, "keep what changes together in a map of its own")
    })
}

/// Returns the error of the first construct in a block that would be a call.
fn in_block(hir: &Hir, block: &Block) -> Option<Diagnostic> {
    let mut calls = Calls { types: &hir.types, found: None };
    visit::block(&mut calls, block);
    let (span, what) = calls.found?;
    let error = Diagnostic::error(720, span, format!("{what} cannot stand in a `lock` block"));
    Some(
        error
            .note("the kernel accepts no call of a function while a lock is held")
            .help("compute what the block needs before it"),
    )
}

/// The first construct that may need a call.
struct Calls<'a> {
    types: &'a Types,
    found: Option<(Span, &'static str)>,
}

impl Calls<'_> {
    fn find(&mut self, span: Span, what: Option<&'static str>) {
        if let (None, Some(what)) = (self.found, what) {
            self.found = Some((span, what));
        }
    }

    fn is_scalar(&self, ty: TypeId) -> bool {
        !matches!(self.types.kind(ty), TypeKind::Ptr(_) | TypeKind::Fn(..)) && self.types.scalar(ty).is_some()
    }

    fn is_context(&self, pointer: &Expr) -> bool {
        let TypeKind::Ptr(to) = self.types.kind(pointer.ty) else { return false };
        let TypeKind::Struct(id) = self.types.kind(*to) else { return false };
        self.types.struct_def(*id).origin == StructOrigin::Context
    }
}

impl Visitor for Calls<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        let what = match &stmt.kind {
            StmtKind::Bind { .. } => Some("a lookup in a map"),
            StmtKind::Take { .. } => Some("an operation on a queue or stack"),
            StmtKind::Remove { .. } => Some("`delete` of an entry"),
            StmtKind::Free(_) | StmtKind::Release(_) | StmtKind::Give { .. } => Some("`delete` of an object"),
            StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. } => Some("a loop"),
            StmtKind::Try { .. } => Some("`try`"),
            StmtKind::Defer(_) => Some("`defer`"),
            StmtKind::Lock { .. } => Some("another lock"),
            StmtKind::Compound { op: BinaryOp::Max, .. } => Some("a count of statistics"),
            StmtKind::Let { .. }
            | StmtKind::Assign { .. }
            | StmtKind::Compound { .. }
            | StmtKind::Expr(_)
            | StmtKind::If { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return(_)
            | StmtKind::Throw(_) => None,
        };
        self.find(stmt.span, what);
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        let what = match &lvalue.kind {
            LvalueKind::Element { .. } => Some("a lookup in a map"),
            LvalueKind::Config(..) => Some("a field of a config block"),
            LvalueKind::Deref(pointer) if !self.is_context(pointer) => Some("access through a pointer"),
            LvalueKind::Field { base, .. }
                if matches!(base.kind, LvalueKind::Deref(_)) && !self.is_scalar(lvalue.ty) =>
            {
                Some("access to a packet")
            }
            _ => None,
        };
        self.find(lvalue.span, what);
    }

    fn expr(&mut self, expr: &Expr) {
        let what = match &expr.kind {
            ExprKind::Const(_)
            | ExprKind::Bytes(_)
            | ExprKind::Load(_)
            | ExprKind::Unary(..)
            | ExprKind::Logic(..)
            | ExprKind::Bound(_)
            | ExprKind::Struct(_)
            | ExprKind::Array(_)
            | ExprKind::Repeat(_)
            | ExprKind::Shared(
                SharedBuiltin::SwapBytes(_) | SharedBuiltin::Log2Slot(_) | SharedBuiltin::LinearSlot(_),
            ) => (self.types.size(expr.ty) > MAX_BYTES).then_some("a copy of so many bytes"),
            ExprKind::Binary(_, left, _) if self.is_scalar(left.ty) => None,
            ExprKind::Convert(from) if self.is_scalar(from.ty) && self.is_scalar(expr.ty) => None,
            ExprKind::Truth(of) if self.is_scalar(of.ty) => None,
            ExprKind::Match(one) if self.is_scalar(one.value.ty) => None,
            ExprKind::Binary(..) | ExprKind::Convert(_) | ExprKind::Truth(_) | ExprKind::Match(_) => {
                Some("an operation on text")
            }
            ExprKind::Concat(..) => Some("an operation on text"),
            ExprKind::Present { .. } => Some("a lookup in a map"),
            ExprKind::Take { .. } | ExprKind::Taken { .. } => Some("an operation on a queue or stack"),
            ExprKind::New => Some("`new`"),
            ExprKind::AddrOf(_) | ExprKind::Offset(..) | ExprKind::Distance(..) | ExprKind::IsNull(_) => {
                Some("an operation on a pointer")
            }
            _ => Some("a call"),
        };
        self.find(expr.span, what);
    }
}

/// KS0625: programs that use a map with locks where the kernel may interrupt a holder, or where the verifier refuses
/// locks.
fn used_elsewhere(program: &Program<'_>, locked: &BTreeMap<MapId, Span>, diagnostics: &mut Diagnostics) {
    let hir = program.hir;
    let mut reported = BTreeSet::new();
    for (from, entry) in hir.functions.iter_enumerated().filter(|(id, _)| hir.is_entry(*id)) {
        let Some(caller) = entry.caller().filter(|caller| !may_lock(*caller)) else { continue };
        for id in program.calls.reached(hir, [from]) {
            let function = &hir.functions[id];
            let mut uses = Uses { at: function.span, maps: Vec::new() };
            visit::block(&mut uses, &function.body);
            for (map, span) in uses.maps {
                let Some(lock) = locked.get(&map).filter(|_| reported.insert((map, from))) else { continue };
                let name = &hir.maps[map].name;
                let text = format!("{} cannot use `{name}`, whose values have locks", caller.plural());
                diagnostics.report(
                    Diagnostic::error(625, span, text)
                        .also(*lock, "it has locks because of this")
                        .also(entry.span, "this program gets there")
                        .note("such a program may interrupt the program that holds the lock")
                        .help(
                            "keep a value for each CPU (`percpu_hash`, `percpu_array`), or lock nowhere and add by `+=`, which \
                             is atomic",
                        ),
                );
            }
        }
    }
}

/// Whether programs of this kind cannot interrupt the holder of a lock, and the verifier accepts them.
fn may_lock(caller: Caller) -> bool {
    match caller {
        Caller::CgroupPacket | Caller::Method => true,
        Caller::Program(kind) => {
            matches!(kind, ProgramKind::Xdp | ProgramKind::Tc | ProgramKind::Cgroup | ProgramKind::Lsm)
        }
    }
}

/// The maps that a function uses, with the source range.
struct Uses {
    at: Span,
    maps: Vec<(MapId, Span)>,
}

impl Visitor for Uses {
    fn stmt(&mut self, stmt: &Stmt) {
        self.at = stmt.span;
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        self.at = lvalue.span;
    }

    fn map(&mut self, map: MapId) {
        self.maps.push((map, self.at));
    }
}
