//! Inlines helpers that take or return pointers into memory, return contexts, or take functions. Each pointer
//! is then analysed together with its pointee, and memory whose address a helper returns lives as long as the
//! caller. Methods that the kernel enters are inlined too where other methods call them, and are programs of
//! their own besides.

use std::collections::BTreeSet;

use super::activation::{Activation, Exit, Outside};
use super::call::Argument;
use super::memory::{Addr, Base};
use super::pointer::{Pointer, PointerHome};
use super::sink::Sink;
use super::{Home, Lower, Lowerer};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    CatchPattern, Expr, ExprKind, FuncId, FunctionKind, Hir, HirFunction, LocalId, Lvalue, LvalueKind, Stmt,
    StmtKind,
};
use crate::source::Span;
use crate::split::Split;
use crate::types::{TypeId, TypeKind, Types};

/// Whether a value of the type is a pointer, other than a context.
pub(super) fn is_pointer(types: &Types, ty: TypeId) -> bool {
    matches!(types.kind(ty), TypeKind::Ptr(_)) && !types.is_context_pointer(ty)
}

/// Whether a value of the type can be an argument of a function: it is no function, and holds no pointers.
pub(super) fn can_be_passed(types: &Types, ty: TypeId) -> bool {
    match types.kind(ty) {
        TypeKind::Fn(..) => false,
        TypeKind::Struct(_) | TypeKind::Array(..) => !holds_pointer(types, ty),
        _ => true,
    }
}

/// The functions that have no code of their own: they are inlined, or specialized (`specialize`).
pub(super) fn inlined(hir: &Hir, split: &Split) -> BTreeSet<FuncId> {
    let needs_inlining = |ty: TypeId| is_pointer(&hir.types, ty) || !can_be_passed(&hir.types, ty);
    let is_inlined = |id: &FuncId| {
        let function = &hir.functions[*id];
        let params = function.params.iter().map(|param| function.locals[*param].ty);
        match function.kind {
            FunctionKind::Helper | FunctionKind::Kfunc | FunctionKind::Private => {
                params.chain([function.ret]).any(needs_inlining) || hir.types.is_context_pointer(function.ret)
            }
            // A program cannot be called.
            FunctionKind::Method(_) => hir.is_entry(*id) || params.chain([function.ret]).any(needs_inlining),
            _ => false,
        }
    };
    split.kernel.iter().copied().filter(is_inlined).collect()
}

/// Whether a value of the type in memory contains a pointer.
fn holds_pointer(types: &Types, ty: TypeId) -> bool {
    match types.kind(ty) {
        TypeKind::Ptr(_) => true,
        TypeKind::Array(element, _) => holds_pointer(types, *element),
        TypeKind::Struct(id) => {
            types.struct_def(*id).fields.iter().any(|field| holds_pointer(types, field.ty))
        }
        _ => false,
    }
}

/// The locals whose address a function takes.
pub(super) fn exposed(function: &HirFunction) -> BTreeSet<LocalId> {
    let mut found = Exposed(BTreeSet::new());
    visit::block(&mut found, &function.body);
    found.0
}

struct Exposed(BTreeSet<LocalId>);

impl Visitor for Exposed {
    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::AddrOf(lvalue) = &expr.kind {
            self.0.extend(root(lvalue));
        }
    }
}

/// The local that an lvalue is a part of.
fn root(lvalue: &Lvalue) -> Option<LocalId> {
    match &lvalue.kind {
        LvalueKind::Local(id) => Some(*id),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => root(base),
        _ => None,
    }
}

/// The locals that are set once: by one statement, or by the call and no statement.
pub(super) fn set_once(function: &HirFunction) -> BTreeSet<LocalId> {
    let mut sets = Sets { once: function.params.iter().copied().collect(), more: BTreeSet::new() };
    visit::block(&mut sets, &function.body);
    sets.once.difference(&sets.more).copied().collect()
}

struct Sets {
    once: BTreeSet<LocalId>,
    more: BTreeSet<LocalId>,
}

impl Visitor for Sets {
    fn stmt(&mut self, stmt: &Stmt) {
        let mut set = |local: LocalId| {
            if !self.once.insert(local) {
                self.more.insert(local);
            }
        };
        match &stmt.kind {
            StmtKind::Let { local, .. }
            | StmtKind::Bind { local, .. }
            | StmtKind::Take { local, .. }
            | StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. }
            | StmtKind::Compound { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. }
            | StmtKind::For { local, .. } => set(*local),
            StmtKind::ForEach { key, value, .. } => [*key, *value].into_iter().for_each(set),
            StmtKind::Try { catches, .. } => {
                for catch in catches {
                    if let CatchPattern::Bind(local) = catch.pattern {
                        set(local);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Lowerer<'_> {
    /// Lowers the body of a function instead of a call.
    pub(super) fn inline(&mut self, func: FuncId, args: &[Argument], sink: Sink, span: Span) -> Lower<()> {
        let source = self.program.function(func);
        let (exit, join) = (self.builder.block(), self.builder.block());
        let scope = self.records.depth + 1;
        let outside = Outside { loops: self.loops.len(), scope };
        let mut activation =
            Activation::new(self.hir, source, func, Exit::Block(exit), outside, self.keeps_locals);
        activation.result = sink;
        let outer = std::mem::replace(&mut self.active, activation);
        self.decisions.borrow_mut().enter(span);
        let outer_span = self.builder.set_span(source.span);
        for (local, argument) in source.params.iter().zip(args) {
            self.bind_argument(*local, *argument, span)?;
        }
        self.statements()?;
        self.builder.switch_to_sealed(exit);
        self.run_deferred()?;
        self.discard_records(scope);
        self.builder.jump(join);
        let code = self.thrown_code()?;
        self.records.end(scope);
        self.decisions.borrow_mut().leave();
        self.active = outer;
        self.builder.set_span(outer_span);
        if let Some(code) = code {
            self.throw_code(code);
        }
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    fn bind_argument(&mut self, id: LocalId, argument: Argument, span: Span) -> Lower<()> {
        let bytes = self.size(self.active.source.locals[id].ty, span)?;
        match argument {
            Argument::Pointer(pointer) => self.bind_pointer(id, pointer, span),
            Argument::Value(value) => self.bind_parameter(id, value),
            Argument::Object(value, object) => {
                self.keep_object(id, object);
                self.bind_parameter(id, value)
            }
            // Pointers to the parameter may outlive the caller's copy.
            Argument::Memory(from) if self.active.escaping.contains(&id) => {
                let slot = self.builder.dedicated_slot(bytes);
                self.hold(slot, self.active.source.locals[id].ty, self.active.scope, span)?;
                self.copy(Addr::of(Base::Slot(slot)), from, bytes);
                let pointer = self.pointer(Addr::of(Base::Slot(slot)));
                self.bind_parameter(id, pointer)
            }
            Argument::Memory(from) => {
                let pointer = self.pointer(from);
                self.bind_parameter(id, pointer)
            }
        }
    }

    /// Sets a parameter of a pointer type.
    pub(super) fn bind_pointer(&mut self, id: LocalId, pointer: Pointer, span: Span) -> Lower<()> {
        let home = self.declare(id)?;
        self.set_pointer_local(id, home, pointer, span)?;
        self.set_present(home, true);
        Ok(())
    }

    /// The home of a pointer local before its first assignment.
    pub(super) fn pointer_home(&mut self, id: LocalId) -> Lower<Home> {
        let local = &self.active.source.locals[id];
        let (ty, span) = (local.ty, local.span);
        if self.active.exposed.contains(&id) {
            let slot = self.builder.dedicated_slot(8);
            self.hold(slot, ty, self.records.depth, span)?;
            return Ok(Home::Memory(Base::Slot(slot)));
        }
        if self.active.fixed.contains(&id) {
            let null = self.null();
            return Ok(Home::Pointer(PointerHome::Fixed(null)));
        }
        let mut variables = self.pointer_variables(ty, span)?;
        if self.active.escaping.contains(&id) {
            variables.scope = self.active.scope;
        }
        Ok(Home::Pointer(PointerHome::Variables(variables)))
    }
}
