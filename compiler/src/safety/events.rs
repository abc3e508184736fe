//! KS0906: events on which `@perf_event` programs do not run. Tracepoints and probes are perf events, too,
//! but the kernel runs programs of their own kinds on them.
//!
//! Source: kernel/events/core.c, `__perf_event_set_bpf_prog`, v6.12.

use std::collections::BTreeMap;

use super::Program;
use crate::builtins::perf::options;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    EventSpec, Expr, ExprKind, Half, HirFunction, LocalId, Lvalue, LvalueKind, Stmt, StmtKind, UserBuiltin,
};

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let user = program.hir.functions.iter().filter(|function| function.kind.half() == Half::User);
    for function in user {
        let known = events_of(function);
        visit::block(&mut Attaches { known: &known, diagnostics }, &function.body);
    }
}

/// The events on which the kernel runs another kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traced {
    Tracepoint,
    Kprobe,
    Uprobe,
}

impl Traced {
    fn of(event: &Expr) -> Option<Traced> {
        let ExprKind::Event(spec) = &event.kind else { return None };
        match &**spec {
            EventSpec::Tracepoint(_) => Some(Traced::Tracepoint),
            EventSpec::Kprobe(_) => Some(Traced::Kprobe),
            EventSpec::Uprobe(_) => Some(Traced::Uprobe),
            EventSpec::Raw { .. }
            | EventSpec::Breakpoint { .. }
            | EventSpec::Pmu(_)
            | EventSpec::Named(_) => None,
        }
    }

    fn report(self, event: &Expr, call: &Expr) -> Diagnostic {
        let (traced, attribute) = match self {
            Traced::Tracepoint => ("a tracepoint", "@tracepoint(\"category/event\")"),
            Traced::Kprobe => ("a function of the kernel", "@probe(\"function\")"),
            Traced::Uprobe => ("a function of a program", "@uprobe(\"path:function\")"),
        };
        let error = Diagnostic::error(
            906,
            event.span,
            format!("the kernel runs no `@perf_event` program at {traced}"),
        )
        .help(format!("write a program with `{attribute}`"))
        .help("to count the event alone: `attach(perf_options { .. })`");
        // The options are in a variable, which is used at another source range.
        let within = call.span.start <= event.span.start && event.span.end <= call.span.end;
        if within { error } else { error.also(call.span, "attached here") }
    }
}

/// Returns the events that are assigned to each variable with options; none for a variable that may have
/// others.
fn events_of(function: &HirFunction) -> BTreeMap<LocalId, Option<Vec<Expr>>> {
    struct Set(BTreeMap<LocalId, Option<Vec<Expr>>>);
    impl Set {
        fn set(&mut self, local: LocalId, event: Option<&Expr>) {
            let known = self.0.entry(local).or_insert_with(|| Some(Vec::new()));
            match (event, known.as_mut()) {
                (Some(event), Some(known)) => known.push(event.clone()),
                _ => *known = None,
            }
        }
    }
    impl Visitor for Set {
        fn stmt(&mut self, stmt: &Stmt) {
            match &stmt.kind {
                StmtKind::Let { local, init: Some(init) } => self.set(*local, event_of(init)),
                StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                    self.set(*local, event_of(value));
                }
                StmtKind::Assign {
                    lvalue: Lvalue { kind: LvalueKind::Field { base, field }, .. },
                    value,
                } => {
                    if let (LvalueKind::Local(local), options::EVENT) = (&base.kind, *field) {
                        self.set(*local, Some(value));
                    }
                }
                _ => {}
            }
        }

        fn expr(&mut self, expr: &Expr) {
            // Any holder of the address may set the variable.
            if let ExprKind::AddrOf(lvalue) = &expr.kind
                && let Some(local) = super::locals::root(lvalue)
            {
                self.set(local, None);
            }
        }
    }
    let mut set = Set(function.params.iter().map(|param| (*param, None)).collect());
    visit::block(&mut set, &function.body);
    set.0
}

/// Returns the event of an options literal.
fn event_of(options: &Expr) -> Option<&Expr> {
    match &options.kind {
        ExprKind::Struct(fields) => fields.get(options::EVENT),
        _ => None,
    }
}

struct Attaches<'a> {
    known: &'a BTreeMap<LocalId, Option<Vec<Expr>>>,
    diagnostics: &'a mut Diagnostics,
}

impl Visitor for Attaches<'_> {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::User(UserBuiltin::Attach { program: Some(_), options, .. }) = &expr.kind else {
            return;
        };
        let events: Vec<&Expr> = match &options.kind {
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => match self.known.get(local) {
                Some(Some(events)) => events.iter().collect(),
                _ => return,
            },
            _ => event_of(options).into_iter().collect(),
        };
        // A warning is only right if every possible event is traced.
        let traced: Option<Vec<_>> = events.iter().map(|event| Traced::of(event)).collect();
        for (event, traced) in events.iter().zip(traced.unwrap_or_default()) {
            self.diagnostics.report(traced.report(event, expr));
        }
    }
}
