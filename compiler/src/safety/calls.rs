//! The call graph of a program.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Half, Hir, RingId, UserBuiltin};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::TypeId;

/// The callee of a call expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function by its id.
    Function(FuncId),
    /// A function value of this type.
    Value(TypeId),
    /// The handlers of these rings, called by `dispatch`.
    Handlers(Vec<RingId>),
}

impl Callee {
    /// Returns the callee of an expression itself, without its parts. A tail call never returns, so it does
    /// not count.
    pub(super) fn of(expr: &Expr) -> Option<Callee> {
        match &expr.kind {
            ExprKind::Call { func, .. } => Some(Callee::Function(*func)),
            ExprKind::CallValue { callee, .. } => Some(Callee::Value(callee.ty)),
            ExprKind::User(UserBuiltin::Dispatch { rings, .. }) => Some(Callee::Handlers(rings.clone())),
            _ => None,
        }
    }
}

/// The call sites of a whole program.
pub(super) struct Calls {
    /// The calls in each function, in source order.
    sites: IndexVec<FuncId, Vec<(Callee, Span)>>,
    /// Functions whose address is taken, by half (true: kernel) and type.
    values: BTreeMap<(bool, TypeId), BTreeSet<FuncId>>,
    handlers: BTreeMap<RingId, BTreeSet<FuncId>>,
}

impl Calls {
    pub(super) fn of(hir: &Hir) -> Calls {
        let mut calls = Calls { sites: IndexVec::new(), values: BTreeMap::new(), handlers: BTreeMap::new() };
        for (id, ring) in hir.rings.iter_enumerated() {
            calls.handlers.entry(id).or_default().extend(ring.default_handler);
        }
        for function in hir.functions.iter() {
            let mut found = Sites { hir, calls: &mut calls, sites: Vec::new() };
            visit::block(&mut found, &function.body);
            let sites = found.sites;
            calls.sites.push(sites);
        }
        calls
    }

    /// Returns the functions that a function value of this type may refer to.
    pub(super) fn values(&self, half: Half, ty: TypeId) -> impl Iterator<Item = FuncId> + use<'_> {
        self.values.get(&(half == Half::Kernel, ty)).into_iter().flatten().copied()
    }

    /// Returns the functions that a call in a function of this half may call.
    pub(super) fn targets(&self, half: Half, callee: &Callee) -> Vec<FuncId> {
        match callee {
            Callee::Function(id) => vec![*id],
            Callee::Value(ty) => self.values(half, *ty).collect(),
            Callee::Handlers(rings) => {
                rings.iter().filter_map(|ring| self.handlers.get(ring)).flatten().copied().collect()
            }
        }
    }

    /// Returns the functions that a function may call, with the source ranges of the calls, in source order.
    pub(super) fn callees(&self, hir: &Hir, caller: FuncId) -> Vec<(FuncId, Span)> {
        let half = hir.functions[caller].kind.half();
        let sites = self.sites[caller].iter();
        sites
            .flat_map(|(callee, span)| self.targets(half, callee).into_iter().map(|target| (target, *span)))
            .collect()
    }

    /// Returns all functions in post-order: callees before callers, unless they are in a cycle.
    pub(super) fn callees_first(&self, hir: &Hir) -> Vec<FuncId> {
        let mut order = Vec::with_capacity(hir.functions.len());
        let mut seen: IndexVec<FuncId, bool> = hir.functions.iter().map(|_| false).collect();
        for root in hir.functions.ids() {
            let mut open = vec![(root, None::<std::vec::IntoIter<(FuncId, Span)>>)];
            while let Some((id, rest)) = open.last_mut() {
                let id = *id;
                if rest.is_none() {
                    if std::mem::replace(&mut seen[id], true) {
                        open.pop();
                        continue;
                    }
                    *rest = Some(self.callees(hir, id).into_iter());
                }
                match rest.as_mut().and_then(Iterator::next) {
                    Some((callee, _)) => open.push((callee, None)),
                    None => {
                        order.push(id);
                        open.pop();
                    }
                }
            }
        }
        order
    }

    /// Returns `roots` and all functions that they may call.
    pub(super) fn reached(&self, hir: &Hir, roots: impl IntoIterator<Item = FuncId>) -> BTreeSet<FuncId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<FuncId> = roots.into_iter().collect();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(self.callees(hir, id).into_iter().map(|(callee, _)| callee));
            }
        }
        found
    }

    /// Returns the shortest cycle from a function back to itself, as calls: the callee and the source range.
    pub(super) fn cycle(&self, hir: &Hir, start: FuncId) -> Option<Vec<(FuncId, Span)>> {
        let mut entered: IndexVec<FuncId, Option<(FuncId, Span)>> =
            hir.functions.iter().map(|_| None).collect();
        let mut open = std::collections::VecDeque::from([start]);
        while let Some(caller) = open.pop_front() {
            for (callee, span) in self.callees(hir, caller) {
                if entered[callee].is_some() {
                    continue;
                }
                entered[callee] = Some((caller, span));
                if callee == start {
                    return Some(call_path(&entered, start));
                }
                open.push_back(callee);
            }
        }
        None
    }
}

/// Returns the chain of calls that ends in `start`, first to last.
fn call_path(entered: &IndexVec<FuncId, Option<(FuncId, Span)>>, start: FuncId) -> Vec<(FuncId, Span)> {
    let mut call_path = Vec::new();
    let mut at = start;
    while let Some((caller, span)) = entered[at] {
        call_path.push((at, span));
        at = caller;
        if at == start {
            break;
        }
    }
    call_path.reverse();
    call_path
}

struct Sites<'a> {
    hir: &'a Hir,
    calls: &'a mut Calls,
    sites: Vec<(Callee, Span)>,
}

impl Visitor for Sites<'_> {
    fn expr(&mut self, expr: &Expr) {
        self.sites.extend(Callee::of(expr).map(|callee| (callee, expr.span)));
        match &expr.kind {
            ExprKind::Function(id) => {
                let kernel = self.hir.functions[*id].kind.half() == Half::Kernel;
                self.calls.values.entry((kernel, expr.ty)).or_default().insert(*id);
            }
            ExprKind::User(UserBuiltin::OnEvent(ring, handler)) => {
                self.calls.handlers.entry(*ring).or_default().insert(handler.0);
            }
            _ => {}
        }
    }
}
