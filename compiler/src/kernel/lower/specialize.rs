//! Specialises large helpers that take pointers: lowers them once for each combination of pointees.
//!
//! A pointer is analysed together with its pointee, so a helper that takes pointers is inlined at every call
//! (`inline`). Where that would multiply much code, it becomes a function instead, a *specialization*, which
//! all calls with pointers to the same kinds of memory share:
//!
//! ```text
//! named(p, at)       p points into the packet       -> named(ctx, offset, at)
//! named(r, at)       r points to a record, 64 bytes -> named_2(address, at)
//! ```
//!
//! What is equal in all these calls is a constant of the function: the size of the pointee, and an offset of 0.
//! The rest is passed. A call with a pointer that has several possible pointees is inlined.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::super::machine::Inlining;
use super::super::mir::{Origin, Type, Value};
use super::super::verifier::tree::may_inline_copies;
use super::call::Argument;
use super::pointer::{Passed, Pointer};
use super::sink::Sink;
use super::{Lower, Lowerer, impossible};
use crate::builtins::context_members::ContextStruct;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, FunctionKind, Hir, KernelBuiltin, Stmt, StmtKind};
use crate::index::Id;
use crate::source::Span;
use crate::split::Split;

/// A helper that takes pointers, and becomes a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared {
    /// Whether it may release a record or an object through a pointer.
    releases: bool,
}

/// Which calls share a specialization. The pointees of a pointer that changes are known only after the whole
/// function was lowered, and lowering repeats until it finds no new ones: a call may share one at first, and has
/// to be inlined later.
#[derive(Debug, Default)]
pub(super) struct CallDecisions {
    /// The calls that are being inlined, outermost first.
    path: Vec<Span>,
    /// The calls that shared a specialization, each with the calls around it.
    specialized: BTreeSet<Vec<Span>>,
    /// Those that did and could not later: they are inlined from the start.
    inlined: BTreeSet<Vec<Span>>,
}

impl CallDecisions {
    /// The number of calls that are inlined from the start.
    pub(super) fn inlined(&self) -> usize {
        self.inlined.len()
    }

    /// Forgets what earlier lowerings found, except which calls are inlined from the start.
    pub(super) fn start_again(&mut self) {
        self.path.clear();
        self.specialized.clear();
    }

    /// Enters an inlined call.
    pub(super) fn enter(&mut self, call: Span) {
        self.path.push(call);
    }

    /// Leaves the innermost inlined call.
    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    fn key(&self, call: Span) -> Vec<Span> {
        self.path.iter().copied().chain([call]).collect()
    }

    /// Records whether a call can share a specialization now.
    fn note(&mut self, call: Span, is_specialized: bool) {
        let key = self.key(call);
        if is_specialized {
            self.specialized.insert(key);
        } else if self.specialized.contains(&key) {
            self.inlined.insert(key);
        }
    }
}

/// A helper with pointers to these kinds of memory.
#[derive(Debug)]
pub(super) struct Specialization {
    pub id: FuncId,
    /// The name in the object.
    pub name: String,
    pub helper: FuncId,
    /// The function of the script that calls it, directly or through others. Its programs decide which
    /// accesses the kernel permits.
    pub within: FuncId,
    /// For each parameter, how its pointer is passed; `None` for one that is no pointer.
    pub passed: Vec<Option<Passed>>,
    /// The struct of the context, if it is an additional parameter: packet pointers are offsets from its data.
    pub context: Option<&'static ContextStruct>,
}

impl Specialization {
    /// Whether another one can be called in its place.
    fn is_like(&self, other: &Specialization) -> bool {
        self.helper == other.helper
            && self.within == other.within
            && self.passed == other.passed
            && self.context.map(|context| context.name) == other.context.map(|context| context.name)
    }
}

/// Chooses the helpers that become functions, among those that would be inlined.
pub(super) fn shared(
    hir: &Hir,
    split: &Split,
    inlining: Inlining,
    is_inlined: impl Fn(FuncId) -> bool,
) -> BTreeMap<FuncId, Shared> {
    let mut bodies: BTreeMap<FuncId, Body> = BTreeMap::new();
    // Helpers precede their callers.
    for id in split.kernel.iter().copied() {
        let mut body = Body::default();
        visit::block(&mut body, &hir.functions[id].body);
        for callee in &body.calls {
            let Some(callee) = bodies.get(callee) else { continue };
            body.parts = body.parts.saturating_add(callee.parts);
            body.releases |= callee.releases;
        }
        bodies.insert(id, body);
    }
    let mut copies: BTreeMap<FuncId, u64> = BTreeMap::new();
    let mut chosen = BTreeMap::new();
    for id in split.kernel.iter().copied().rev() {
        let Some(body) = bodies.get(&id) else { continue };
        let own = copies.get(&id).copied().unwrap_or(1);
        let is_shared =
            is_inlined(id) && !may_inline_copies(body.parts, own, inlining) && can_be_called(hir, id);
        if is_shared {
            chosen.insert(id, Shared { releases: body.releases });
        }
        let own = if is_inlined(id) && !is_shared { own } else { 1 };
        for callee in &body.calls {
            let copies = copies.entry(*callee).or_default();
            *copies = copies.saturating_add(own);
        }
    }
    chosen
}

/// Whether nothing but pointers in its parameters keeps a helper from being a function.
fn can_be_called(hir: &Hir, id: FuncId) -> bool {
    let function = &hir.functions[id];
    let is_helper =
        matches!(function.kind, FunctionKind::Helper | FunctionKind::Kfunc | FunctionKind::Private);
    let types = function.params.iter().map(|param| function.locals[*param].ty);
    is_helper
        && types.chain([function.ret]).all(|ty| super::inline::can_be_passed(&hir.types, ty))
        && !super::inline::is_pointer(&hir.types, function.ret)
}

/// What inlining a function costs.
#[derive(Default)]
struct Body {
    parts: u64,
    calls: Vec<FuncId>,
    releases: bool,
}

impl Visitor for Body {
    fn function(&mut self, id: FuncId) {
        self.calls.push(id);
    }

    fn expr(&mut self, expr: &Expr) {
        self.parts += 1;
        self.releases |= matches!(
            expr.kind,
            ExprKind::Kernel(KernelBuiltin::Submit(..) | KernelBuiltin::Discard(..))
                | ExprKind::CallExtern { .. }
        );
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.parts += 1;
        self.releases |=
            matches!(stmt.kind, StmtKind::Free(_) | StmtKind::Release(_) | StmtKind::Give { .. });
    }
}

impl Lowerer<'_> {
    /// The function of the script whose programs reach what is lowered.
    pub(super) fn within(&self) -> FuncId {
        self.specialization.as_ref().map_or_else(|| self.builder.id(), |one| one.within)
    }

    /// The specialization of a helper for a call; `None` if the call is to be inlined.
    pub(super) fn specialization(
        &self,
        helper: FuncId,
        args: &[Argument],
        call: Span,
    ) -> Option<Rc<Specialization>> {
        let shared = *self.program.shared.get(&helper)?;
        let mut decisions = self.decisions.borrow_mut();
        let is_inlined = decisions.inlined.contains(&decisions.key(call));
        let found = if is_inlined { None } else { self.fitting(helper, shared, args) };
        decisions.note(call, found.is_some());
        found
    }

    /// The specialization of a helper for these arguments; `None` if they cannot be passed.
    fn fitting(&self, helper: FuncId, shared: Shared, args: &[Argument]) -> Option<Rc<Specialization>> {
        let mut passed = Vec::with_capacity(args.len());
        for arg in args {
            passed.push(match arg {
                Argument::Pointer(pointer) => Some(self.passed(*pointer, shared.releases)?),
                // The object that local storage belongs to is known only if the call is inlined.
                Argument::Object(..) => return None,
                Argument::Value(_) | Argument::Memory(_) => None,
            });
        }
        let reaches_packet = passed.iter().flatten().any(Passed::is_of_packet);
        let takes_context = {
            let function = &self.hir.functions[helper];
            function.params.iter().any(|param| self.is_context(function.locals[*param].ty))
        };
        let context = match self.context {
            Some((_, structure)) if reaches_packet && !takes_context => Some(structure),
            _ => None,
        };
        let mut known = self.program.specializations.borrow_mut();
        let wanted = Specialization {
            id: FuncId::new(self.hir.functions.len() + known.len()),
            name: self.specialized_name(helper, known.iter().filter(|one| one.helper == helper).count()),
            helper,
            within: self.within(),
            passed,
            context,
        };
        if let Some(found) = known.iter().find(|one| one.is_like(&wanted)) {
            return Some(Rc::clone(found));
        }
        let added = Rc::new(wanted);
        known.push(Rc::clone(&added));
        Some(added)
    }

    /// A name that no function of the script has.
    fn specialized_name(&self, helper: FuncId, others: usize) -> String {
        let own = &self.hir.functions[helper].name;
        if others == 0 {
            return own.clone();
        }
        let is_free = |name: &String| self.hir.functions.iter().all(|function| function.name != *name);
        let names = (others + 1..).map(|number| format!("{own}_{number}"));
        let mut free = names.filter(is_free);
        free.next().unwrap_or_else(|| own.clone())
    }

    /// Declares the parameters of a specialization behind the hidden ones.
    pub(super) fn specialized_parameters(&mut self, one: &Specialization) -> Lower<()> {
        let source = self.active.source;
        if let Some(structure) = one.context {
            let context = self.builder.function_param("__ctx", Type::Ptr(Origin::Context));
            self.given_context = Some(context);
            self.context = Some((context, structure));
        }
        let mut values = Vec::with_capacity(one.passed.len());
        for (local, passed) in source.params.iter().zip(&one.passed) {
            let local = &source.locals[*local];
            values.push(match passed {
                Some(passed) => Received::Pointer(self.receive(*passed, &local.name)),
                None => {
                    let ty = self.parameter_type(local)?;
                    Received::Value(self.builder.function_param(&local.name, ty))
                }
            });
        }
        for (id, value) in source.params.iter().zip(values) {
            match value {
                Received::Pointer(pointer) => self.bind_pointer(*id, pointer, source.locals[*id].span)?,
                Received::Value(value) => self.bind_value(*id, value)?,
            }
        }
        Ok(())
    }

    /// Calls a specialization and delivers its result to a sink.
    pub(super) fn call_specialized(
        &mut self,
        one: &Specialization,
        args: &[Argument],
        sink: Sink,
        span: Span,
    ) -> Lower<()> {
        let mut given: Vec<Value> = Vec::new();
        if one.context.is_some() {
            let Some((context, _)) = self.context else { return impossible(span, "a context here") };
            given.push(context);
        }
        for (arg, passed) in args.iter().zip(&one.passed) {
            match (arg, passed) {
                (Argument::Value(value), None) => given.push(*value),
                (Argument::Memory(addr), None) => given.push(self.pointer(*addr)),
                (Argument::Pointer(pointer), Some(passed)) => {
                    given.extend(self.pass(*pointer, *passed));
                }
                _ => return impossible(span, "an argument of this kind"),
            }
        }
        self.call_function(one.id, one.helper, given, sink, span)
    }
}

/// A parameter of a specialization.
enum Received {
    Value(Value),
    Pointer(Pointer),
}
