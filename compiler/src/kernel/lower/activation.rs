//! The function whose body is being lowered, and how control leaves it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::mir::builder::Variable;
use super::super::mir::{Block, Slot, Type, Value};
use super::defer::Deferred;
use super::errors::{Handler, Thrown};
use super::memory::{Addr, Base};
use super::sink::Sink;
use super::storage::KernelObject;
use super::{LocalHome, Lower, Lowerer, defer, inline, int_type};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Expr, ExprKind, FuncId, Hir, HirFunction, Local, LocalId, Lvalue, LvalueKind, Stmt, StmtKind,
};
use crate::index::IndexVec;
use crate::types::TypeKind;

/// The target of a `return` statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Exit {
    /// Returns from the MIR function.
    Return,
    /// Jumps to this block, which runs deferred calls.
    Block(Block),
}

/// The context in which an inlined function's body stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outside {
    /// The number of loops around the function.
    pub loops: usize,
    /// The scope of the function's body.
    pub scope: usize,
}

/// A function whose body is being lowered: the MIR function itself, or one inlined into it.
pub(super) struct Activation<'a> {
    pub source: &'a HirFunction,
    pub locals: IndexVec<LocalId, Option<LocalHome>>,
    /// Locals that may be referred to after their block has ended.
    pub escaping: BTreeSet<LocalId>,
    /// Locals whose address is taken, and with `Moves::Locals` all numbers: they live in memory for the whole function.
    pub exposed: BTreeSet<LocalId>,
    /// Locals of which the script asks whether they are there.
    pub asked: BTreeSet<LocalId>,
    /// Locals that are set once.
    pub fixed: BTreeSet<LocalId>,
    /// The kernel objects that locals point to, as far as local storage may need them.
    pub objects: BTreeMap<LocalId, KernelObject>,
    /// Parameters of a program that point to kernel objects, whose members are read by plain loads. Each is
    /// an object or null.
    pub given: BTreeMap<LocalId, Value>,
    /// The number of loops around the function.
    pub outer_loops: usize,
    /// The scope of the function's body.
    pub scope: usize,
    /// The `try` statements around the current one, innermost last.
    pub handlers: Vec<Handler>,
    /// Calls that may have been deferred, in source order.
    pub defers: Vec<Deferred>,
    /// For each deferred call, the flag that says whether it has been deferred.
    pub flags: Vec<Variable>,
    /// The sink for the result.
    pub result: Sink,
    pub exit: Exit,
    /// The exit for a throw that leaves the function, once there is one.
    pub thrown: Option<Thrown>,
    /// The lock that is held here.
    pub lock: Option<Value>,
}

impl<'a> Activation<'a> {
    pub(super) fn new(
        hir: &Hir,
        source: &'a HirFunction,
        id: FuncId,
        exit: Exit,
        outside: Outside,
        keeps_locals: bool,
    ) -> Activation<'a> {
        let temporaries = defer::temporaries(hir, id, source);
        let mut exposed = inline::exposed(source);
        if keeps_locals {
            exposed.extend(numbers(hir, source));
        }
        Activation {
            source,
            locals: source.locals.iter().map(|_| None).collect(),
            fixed: inline::set_once(source).difference(&temporaries).copied().collect(),
            escaping: exposed.union(&temporaries).copied().collect(),
            exposed,
            asked: asked(source),
            objects: BTreeMap::new(),
            given: BTreeMap::new(),
            outer_loops: outside.loops,
            scope: outside.scope,
            handlers: Vec::new(),
            defers: Vec::new(),
            flags: Vec::new(),
            result: Sink::Nothing,
            exit,
            thrown: None,
            lock: None,
        }
    }
}

/// The locals that are numbers. Parameters of programs come before there is memory for them.
fn numbers(hir: &Hir, function: &HirFunction) -> impl Iterator<Item = LocalId> {
    let is_number = |local: &Local| {
        let is_address = matches!(hir.types.kind(local.ty), TypeKind::Ptr(_) | TypeKind::Fn(..));
        !is_address && hir.types.scalar(local.ty).is_some()
    };
    let numbers = function.locals.iter_enumerated().filter(move |(_, local)| is_number(local));
    numbers.map(|(id, _)| id).filter(|id| !function.params.contains(id))
}

/// The locals whose presence bit is read, be it that of a copy.
fn asked(function: &HirFunction) -> BTreeSet<LocalId> {
    #[derive(Default)]
    struct Asked {
        locals: BTreeSet<LocalId>,
        /// Copies, with what they are copied from.
        copies: Vec<(LocalId, LocalId)>,
    }
    impl Visitor for Asked {
        fn stmt(&mut self, stmt: &Stmt) {
            let (to, value) = match &stmt.kind {
                StmtKind::Let { local, init: Some(init) } => (*local, init),
                StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                    (*local, value)
                }
                _ => return,
            };
            if let ExprKind::Load(Lvalue { kind: LvalueKind::Local(from), .. }) = value.kind {
                self.copies.push((to, from));
            }
        }

        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::Bound(local) = expr.kind {
                self.locals.insert(local);
            }
        }
    }
    let mut found = Asked::default();
    visit::block(&mut found, &function.body);
    let Asked { mut locals, copies } = found;
    while let Some((_, from)) = copies.iter().find(|(to, from)| locals.contains(to) && !locals.contains(from))
    {
        locals.insert(*from);
    }
    locals
}

impl Lowerer<'_> {
    /// Reserves memory for a local until its block ends, or for the whole function if the local escapes.
    pub(super) fn local_slot(&mut self, id: LocalId, bytes: u32) -> Slot {
        if self.active.escaping.contains(&id) {
            self.builder.dedicated_slot(bytes)
        } else {
            self.builder.slot(bytes)
        }
    }

    /// Lowers the body of the MIR function after declaring its parameters.
    pub(super) fn whole_body(&mut self) -> Lower<()> {
        let ret = self.builder.result_type();
        if defer::count(self.active.source) > 0 {
            let block = self.builder.block();
            self.active.exit = Exit::Block(block);
            if let Sink::Nothing = self.active.result {
                self.active.result = Sink::Scalar(self.builder.variable(ret));
            }
        }
        self.statements()?;
        if let Exit::Block(block) = self.active.exit {
            self.builder.switch_to_sealed(block);
            self.run_deferred()?;
            self.discard_records(self.active.scope);
            let result = match self.active.result {
                Sink::Scalar(variable) => self.builder.get(variable),
                _ => self.builder.constant(ret, 0),
            };
            self.leave(result);
        }
        self.leave_by_throw()
    }

    /// Lowers the statements of the active function; every path then ends in its exit or its throw.
    pub(super) fn statements(&mut self) -> Lower<()> {
        self.start_deferring()?;
        let source = self.active.source;
        self.open_block(&source.body)?;
        if !self.builder.is_filled() {
            self.return_value(None)?;
        }
        Ok(())
    }

    /// Leaves the function with a value of its result type, or with none where the result is unused.
    pub(super) fn return_value(&mut self, value: Option<&Expr>) -> Lower<()> {
        let void = self.types().common().void;
        match (self.active.exit, self.active.result, value) {
            (Exit::Return, Sink::Nothing, Some(value)) if value.ty != void => {
                let result = self.scalar(value)?;
                self.unlock();
                self.leave_loops(self.active.outer_loops, self.active.scope);
                self.leave(result);
                return Ok(());
            }
            (_, Sink::Scalar(variable), None) => {
                let ret = self.active.source.ret;
                let ty = self.types().scalar(ret).map_or(Type::I32, int_type);
                let zero = self.builder.constant(ty, 0);
                self.builder.set(variable, zero);
            }
            (_, Sink::Scalar(variable), Some(value)) if value.ty == void => {
                self.effects(value)?;
                let zero = self.builder.constant(Type::I32, 0);
                self.builder.set(variable, zero);
            }
            (_, sink @ Sink::Pointer(_), None) => {
                let source = self.active.source;
                self.deliver_zero(source.ret, sink, source.span)?;
            }
            (_, sink, Some(value)) => self.deliver(value, sink)?,
            (_, _, None) => {}
        }
        self.unlock();
        match self.active.exit {
            Exit::Block(block) => {
                self.leave_loops(self.active.outer_loops, self.active.scope + 1);
                self.builder.jump(block);
            }
            Exit::Return => {
                self.leave_loops(self.active.outer_loops, self.active.scope);
                let zero = self.builder.constant(self.builder.result_type(), 0);
                self.leave(zero);
            }
        }
        Ok(())
    }

    /// The address for an aggregate result.
    pub(super) fn result_in(&mut self, pointer: super::super::mir::Value) {
        self.active.result = Sink::Memory(Addr::of(Base::Pointer(pointer)));
    }

    /// Whether a call of the function may end other than by returning.
    pub(super) fn may_fail(&self, id: FuncId) -> bool {
        self.program.faulting.contains(&id) || self.hir.functions[id].throws
    }
}
