//! Lowers counters of the userspace half to attachments that are never detached.
//!
//! The checker's nodes are rewritten into the attachments that the back end knows:
//!
//! ```text
//! counter cycles : cpu_cycles
//! counter misses : cache_misses group cycles
//!     -> variables of type perf_attachment, and a function that runs before `main`:
//!        cycles = attach(perf_options { event: cpu_cycles, cpu: all })
//!        expose cycles to programs
//!        misses = attach(perf_options { event: cache_misses, cpu: all, group: cycles })
//!        expose misses to programs
//! read(cycles)
//!     -> read(the variable)
//! read_cpu(cycles, n)
//!     -> read_cpu(the variable, n)
//! ```
//!
//! The kernel half reads a counter directly ([`super::KernelBuiltin::ReadCounter`]).

use super::visit_mut::{self, VisitorMut};
use super::{
    Counter, CounterId, Expr, ExprKind, Global, GlobalId, Half, Hir, HirFunction, Lvalue, LvalueKind,
    ReadForm, Stmt, StmtKind, UserBuiltin,
};
use crate::builtins::perf::{options, reading};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::TypeId;

/// Prefix of generated names; no name in a script can start with it.
const PREFIX: &str = "ks:counter";

/// Rewrites the functions of the userspace half, and adds the function that opens the counters.
pub fn rewrite(hir: &mut Hir) {
    let Some(first) = hir.counters.iter().next() else { return };
    let span = first.span;
    let ty = hir.known.perf_attachment;
    let globals: Vec<GlobalId> = hir
        .counters
        .iter()
        .map(|counter| hir.globals.push(Global::new(format!("{PREFIX}:{}", counter.name), ty, counter.span)))
        .collect();
    let variables = Variables { globals: &globals, ty };
    for function in hir.functions.iter_mut().filter(|one| one.kind.half() == Half::User) {
        visit_mut::block(&mut Rewriter { variables: &variables }, &mut function.body);
    }
    let counters = hir.counters.iter_enumerated();
    let body = counters.flat_map(|(id, counter)| opening(id, counter, &variables, hir)).collect();
    hir.open_counters = Some(hir.functions.push(HirFunction::synthetic(
        (format!("{PREFIX}s"), span),
        hir.types.common().void,
        IndexVec::new(),
        body,
    )));
}

/// The variable of each counter's attachment.
struct Variables<'a> {
    globals: &'a [GlobalId],
    ty: TypeId,
}

impl Variables<'_> {
    fn lvalue(&self, counter: CounterId, span: Span) -> Lvalue {
        use crate::index::Id as _;
        Lvalue { kind: LvalueKind::Global(self.globals[counter.index()]), ty: self.ty, span }
    }

    fn value(&self, counter: CounterId, span: Span) -> Expr {
        Expr { kind: ExprKind::Load(self.lvalue(counter, span)), ty: self.ty, span }
    }
}

/// Returns the statements that open a counter and make it readable by programs.
fn opening(id: CounterId, counter: &Counter, variables: &Variables<'_>, hir: &Hir) -> [Stmt; 2] {
    let span = counter.span;
    let mut options = counter.options.clone();
    if let (ExprKind::Struct(fields), Some(leader)) = (&mut options.kind, counter.leader) {
        fields[options::GROUP] = variables.value(leader, span);
    }
    let attach = UserBuiltin::Attach { program: None, options: Box::new(options), flags: None };
    let value = Expr { kind: ExprKind::User(attach), ty: variables.ty, span };
    let show = UserBuiltin::ShowCounter(id, Box::new(variables.value(id, span)));
    let show = Expr { kind: ExprKind::User(show), ty: hir.types.common().void, span };
    let assign = StmtKind::Assign { lvalue: variables.lvalue(id, span), value };
    [Stmt { kind: assign, span }, Stmt { kind: StmtKind::Expr(show), span }]
}

struct Rewriter<'a> {
    variables: &'a Variables<'a>,
}

impl VisitorMut for Rewriter<'_> {
    /// `read(NAME).raw` and similar need no group.
    fn lvalue(&mut self, lvalue: &mut Lvalue) {
        if let LvalueKind::Field { base, field } = &mut lvalue.kind
            && let LvalueKind::Value(value) = &mut base.kind
            && *field < reading::COUNT
        {
            self.replace(value, ReadForm::Scalar);
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        self.replace(expr, ReadForm::Snapshot);
    }
}

impl Rewriter<'_> {
    fn replace(&self, expr: &mut Expr, form: ReadForm) {
        let ExprKind::User(UserBuiltin::ReadCounter(counter, cpu)) = &mut expr.kind else { return };
        let attachment = self.variables.value(*counter, expr.span);
        expr.kind = ExprKind::User(match cpu.take() {
            None => UserBuiltin::Read { attachment: Box::new(attachment), form },
            Some(cpu) => UserBuiltin::ReadCpu(Box::new([attachment, *cpu])),
        });
    }
}
