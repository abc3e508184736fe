//! Lowers `defer`.
//!
//! Before a function is lowered, [`rewritten`] puts the arguments of its deferred calls into variables of
//! their own, which are set where the call is deferred. A flag for each call says whether it was deferred.

use std::collections::{BTreeMap, BTreeSet};

use super::super::mir::Type;
use super::super::mir::builder::Variable;
use super::{Lower, Lowerer, inline};
use crate::hir::visit::{self, Visitor};
use crate::hir::visit_mut::{self, VisitorMut};
use crate::hir::{
    Expr, ExprKind, FuncId, Hir, HirFunction, KernelBuiltin, Local, LocalId, Lvalue, LvalueKind,
    SharedBuiltin, Stmt, StmtKind,
};
use crate::index::{Id, IndexVec};
use crate::split::Split;
use crate::types::{TypeId, TypeKind, Types};

/// A deferred call, with its flag.
#[derive(Clone)]
pub(super) struct Deferred {
    call: Expr,
    /// 1 once the call has been deferred.
    flag: Variable,
}

/// How much deeper deferred calls run than the scope that defers them: inside of all scopes that may hold records. The
/// number is the same however often the function is lowered, so that scopes found before stay right.
const DEEPER: usize = 1 << 16;

impl Lowerer<'_> {
    /// Clears all flags and stored arguments. In a function inlined into a loop they would otherwise hold
    /// values of the previous iteration.
    pub(super) fn start_deferring(&mut self) -> Lower<()> {
        for _ in 0..count(self.active.source) {
            let flag = self.builder.variable(Type::I32);
            let zero = self.builder.constant(Type::I32, 0);
            self.builder.set(flag, zero);
            self.active.flags.push(flag);
        }
        let source = self.active.source;
        let kept: Vec<LocalId> = self.active.escaping.difference(&self.active.exposed).copied().collect();
        for id in kept {
            let local = &source.locals[id];
            let is_value = self.is_scalar(local.ty) || self.is_pointer(local.ty);
            if is_value && !self.is_context(local.ty) {
                self.clear_local(id, local.span)?;
            }
        }
        Ok(())
    }

    /// Lowers `defer call`, whose arguments are in variables.
    pub(super) fn defer(&mut self, call: &Expr) {
        let flag = self.active.flags[self.active.defers.len()];
        let one = self.builder.constant(Type::I32, 1);
        self.builder.set(flag, one);
        self.active.defers.push(Deferred { call: call.clone(), flag });
    }

    /// Runs the calls that were deferred on the path to here, the last one first. They may release records
    /// that are still held, and run inside the scopes that hold them.
    pub(super) fn run_deferred(&mut self) -> Lower<()> {
        let depth = self.records.depth + DEEPER;
        let outer = std::mem::replace(&mut self.records.depth, depth);
        for deferred in self.active.defers.clone().into_iter().rev() {
            let flag = self.builder.get(deferred.flag);
            let (run, join) = (self.builder.block(), self.builder.block());
            self.builder.branch(flag, run, join);
            self.builder.switch_to_sealed(run);
            self.effects(&deferred.call)?;
            self.builder.jump(join);
            self.builder.switch_to_sealed(join);
        }
        self.records.depth = outer;
        Ok(())
    }
}

/// The number of `defer` statements in a function.
pub(super) fn count(function: &HirFunction) -> usize {
    let mut deferrals = Deferrals(0);
    visit::block(&mut deferrals, &function.body);
    deferrals.0
}

struct Deferrals(usize);

impl Visitor for Deferrals {
    fn stmt(&mut self, stmt: &Stmt) {
        self.0 += usize::from(matches!(stmt.kind, StmtKind::Defer(_)));
    }
}

/// The variables that [`rewritten`] added to a function. They outlive the blocks that set them.
pub(super) fn temporaries(hir: &Hir, id: FuncId, function: &HirFunction) -> BTreeSet<LocalId> {
    function.locals.ids().skip(hir.functions[id].locals.len()).collect()
}

/// The functions that defer calls, with the arguments of deferred calls moved into variables.
pub(super) fn rewritten(hir: &Hir, split: &Split) -> BTreeMap<FuncId, HirFunction> {
    let deferring = split.kernel.iter().filter(|id| count(&hir.functions[**id]) > 0);
    deferring.map(|id| (*id, rewrite(hir.functions[*id].clone(), &hir.types))).collect()
}

fn rewrite(mut function: HirFunction, types: &Types) -> HirFunction {
    let first = function.locals.len();
    let unchanged = unchanged_parameters(&function, types);
    let bool = types.common().bool;
    let mut rewriter = Rewriter { locals: std::mem::take(&mut function.locals), first, unchanged, bool };
    visit_mut::block(&mut rewriter, &mut function.body);
    function.locals = rewriter.locals;
    function
}

/// The parameters that are never assigned. The verifier knows the type of such a parameter that is a context
/// or a kernel object; it would not know that of a variable which only some paths set.
fn unchanged_parameters(function: &HirFunction, types: &Types) -> BTreeSet<LocalId> {
    let (set_once, exposed) = (inline::set_once(function), inline::exposed(function));
    let is_one_value = |id: &LocalId| {
        let ty = function.locals[*id].ty;
        types.scalar(ty).is_some() || matches!(types.kind(ty), TypeKind::Ptr(_))
    };
    let params = function.params.iter().filter(|id| set_once.contains(id) && !exposed.contains(id));
    params.filter(|id| is_one_value(id)).copied().collect()
}

struct Rewriter {
    locals: IndexVec<LocalId, Local>,
    /// The first of the added variables.
    first: usize,
    /// Parameters that keep their value from the call.
    unchanged: BTreeSet<LocalId>,
    bool: TypeId,
}

impl VisitorMut for Rewriter {
    fn stmt(&mut self, stmt: &mut Stmt) {
        let span = stmt.span;
        let StmtKind::Defer(call) = &mut stmt.kind else { return };
        let mut block = Vec::new();
        for argument in arguments(call) {
            if self.keeps_its_value(argument) {
                continue;
            }
            let (ty, span) = (argument.ty, argument.span);
            let local = self.locals.push(Local::hidden(ty, span));
            let lvalue = Lvalue { kind: LvalueKind::Local(local), ty, span };
            let load = Expr { kind: ExprKind::Load(lvalue), ty, span };
            let init = Some(std::mem::replace(argument, load));
            block.push(Stmt { kind: StmtKind::Let { local, init }, span });
        }
        if block.is_empty() {
            return;
        }
        block.push(stmt.clone());
        let cond = Expr { kind: ExprKind::Const(1), ty: self.bool, span };
        stmt.kind = StmtKind::If { cond, then: block, otherwise: Vec::new() };
    }
}

impl Rewriter {
    fn keeps_its_value(&self, argument: &Expr) -> bool {
        match &argument.kind {
            ExprKind::Const(_) | ExprKind::Bytes(_) | ExprKind::Function(_) => true,
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => {
                local.index() >= self.first || self.unchanged.contains(local)
            }
            _ => false,
        }
    }
}

/// The expressions that a value of `print` evaluates: the operands of a text that the host makes.
fn printed(value: &mut Expr) -> Vec<&mut Expr> {
    match value {
        Expr { kind: ExprKind::Shared(SharedBuiltin::Display { args, .. }), .. } => args.iter_mut().collect(),
        value => vec![value],
    }
}

/// The expressions that a call evaluates before it runs.
fn arguments(call: &mut Expr) -> Vec<&mut Expr> {
    match &mut call.kind {
        ExprKind::Call { args, .. } | ExprKind::CallExtern { args, .. } => args.iter_mut().collect(),
        ExprKind::Shared(SharedBuiltin::Print { args, .. }) => args.iter_mut().flat_map(printed).collect(),
        ExprKind::CallValue { callee, args } => std::iter::once(&mut **callee).chain(args).collect(),
        ExprKind::Shared(SharedBuiltin::Push(_, one) | SharedBuiltin::Add(_, one))
        | ExprKind::Kernel(KernelBuiltin::Submit(_, one) | KernelBuiltin::Discard(_, one)) => {
            vec![&mut **one]
        }
        _ => Vec::new(),
    }
}
