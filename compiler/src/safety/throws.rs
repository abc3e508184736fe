//! Computes the codes that may leave each function: KS0710, KS0711, KS0713, and clauses that catch nothing
//! (KS0706).
//!
//! A function's codes depend on those of the functions it calls, so they are computed to a fixed point,
//! callees first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Program;
use super::calls::Callee;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::flow;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    Block, Catch, CatchPattern, Expr, ExprKind, FuncId, FunctionKind, Half, Match, Stmt, StmtKind,
};
use crate::index::IndexVec;
use crate::source::Span;

/// Codes that may be thrown, each with a source range where that happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Codes {
    known: BTreeMap<i32, Span>,
    /// A source range with a code that is only known at run time.
    computed: Option<Span>,
}

impl Codes {
    fn is_empty(&self) -> bool {
        self.known.is_empty() && self.computed.is_none()
    }

    /// Adds codes; the first source range of each stays.
    fn add(&mut self, other: &Codes) {
        for (code, span) in &other.known {
            self.known.entry(*code).or_insert(*span);
        }
        self.computed = self.computed.or(other.computed);
    }

    /// Removes the codes that a clause catches; returns whether there were any.
    fn take(&mut self, pattern: CatchPattern) -> bool {
        match pattern {
            CatchPattern::Code(code) => self.known.remove(&code).is_some() || self.computed.is_some(),
            CatchPattern::Any | CatchPattern::Bind(_) => !std::mem::take(self).is_empty(),
        }
    }
}

/// Returns which functions a throw may leave.
pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) -> IndexVec<FuncId, bool> {
    let leaving = all_codes(program);
    for (id, function) in program.hir.functions.iter_enumerated() {
        let mut clauses = Reports { program, leaving: &leaving, half: function.kind.half(), diagnostics };
        visit::block(&mut clauses, &function.body);
        entry(program, id, &leaving[id], diagnostics);
    }
    leaving.iter().map(|codes| !codes.is_empty()).collect()
}

fn all_codes(program: &Program<'_>) -> IndexVec<FuncId, Codes> {
    let functions = &program.hir.functions;
    let mut callers: IndexVec<FuncId, BTreeSet<FuncId>> = functions.iter().map(|_| BTreeSet::new()).collect();
    for caller in functions.ids() {
        for (callee, _) in program.calls.callees(program.hir, caller) {
            callers[callee].insert(caller);
        }
    }
    let mut leaving: IndexVec<FuncId, Codes> = functions.iter().map(|_| Codes::default()).collect();
    let mut open: VecDeque<FuncId> = program.calls.callees_first(program.hir).into();
    let mut waiting: IndexVec<FuncId, bool> = functions.iter().map(|_| true).collect();
    while let Some(id) = open.pop_front() {
        waiting[id] = false;
        let half = functions[id].kind.half();
        let mut collector = Throwing { program, leaving: &leaving, half, codes: Codes::default() };
        collector.block(&functions[id].body);
        let codes = collector.codes;
        if codes == leaving[id] {
            continue;
        }
        leaving[id] = codes;
        for caller in &callers[id] {
            if !std::mem::replace(&mut waiting[*caller], true) {
                open.push_back(*caller);
            }
        }
    }
    leaving
}

/// Collects the codes that reachable statements throw.
struct Throwing<'a> {
    program: &'a Program<'a>,
    leaving: &'a IndexVec<FuncId, Codes>,
    half: Half,
    codes: Codes,
}

impl Throwing<'_> {
    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.statement(stmt);
            if flow::stops(stmt) {
                return;
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Throw(code) => {
                visit::expr(self, code);
                let thrown = match constant(self.program, code) {
                    Some(known) => Codes { known: [(known, code.span)].into(), computed: None },
                    None => Codes { known: BTreeMap::new(), computed: Some(code.span) },
                };
                self.codes.add(&thrown);
            }
            StmtKind::Try { body, catches } => {
                let outer = std::mem::take(&mut self.codes);
                self.block(body);
                let mut inside = std::mem::replace(&mut self.codes, outer);
                for catch in catches {
                    if inside.take(catch.pattern) {
                        self.block(&catch.body);
                    }
                }
                self.codes.add(&inside);
            }
            // The deferred call itself must not throw; its arguments, which are evaluated now, may.
            StmtKind::Defer(Expr { kind: ExprKind::Call { args, .. }, .. }) => {
                args.iter().for_each(|arg| visit::expr(self, arg));
            }
            _ => {
                visit::own(self, stmt);
                stmt.blocks().for_each(|block| self.block(block));
            }
        }
    }
}

impl Visitor for Throwing<'_> {
    fn expr(&mut self, expr: &Expr) {
        if let Some(callee) = Callee::of(expr) {
            for target in self.program.calls.targets(self.half, &callee) {
                self.codes.add(&self.leaving[target]);
            }
        }
    }

    fn matched(&mut self, one: &Match) -> bool {
        visit::expr(self, &one.value);
        for body in one.bodies() {
            self.block(&body.block);
            body.value.iter().for_each(|value| visit::expr(self, value));
        }
        false
    }
}

/// Returns the value of a code that is known at compile time.
fn constant(program: &Program<'_>, code: &Expr) -> Option<i32> {
    match &code.kind {
        ExprKind::Const(bits) => program.hir.types.scalar(code.ty).map(|int| int.value(*bits) as i32),
        ExprKind::Convert(inner) => constant(program, inner),
        _ => None,
    }
}

/// Reports invalid clauses and deferred calls.
struct Reports<'a> {
    program: &'a Program<'a>,
    leaving: &'a IndexVec<FuncId, Codes>,
    half: Half,
    diagnostics: &'a mut Diagnostics,
}

impl Visitor for Reports<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Try { catches, .. } => self.clauses(catches),
            StmtKind::Defer(call) => self.deferred(call),
            _ => {}
        }
    }
}

impl Reports<'_> {
    fn clauses(&mut self, catches: &[Catch]) {
        let mut taken: Vec<&Catch> = Vec::new();
        for catch in catches {
            let before = taken.iter().find(|before| match before.pattern {
                CatchPattern::Code(_) => before.pattern == catch.pattern,
                CatchPattern::Any | CatchPattern::Bind(_) => true,
            });
            let Some(before) = before else {
                taken.push(catch);
                continue;
            };
            let label = match before.pattern {
                CatchPattern::Code(_) => "this takes the same code",
                _ => "this takes every code",
            };
            let span = self.program.first_line(catch.span);
            self.diagnostics.report(
                Diagnostic::warning(706, span, "this clause is never reached")
                    .also(self.program.first_line(before.span), label),
            );
        }
    }

    fn deferred(&mut self, call: &Expr) {
        let Some(callee) = Callee::of(call) else { return };
        let targets = self.program.calls.targets(self.half, &callee);
        let thrower = targets.into_iter().find(|target| !self.leaving[*target].is_empty());
        let Some(thrower) = thrower else { return };
        let name = &self.program.hir.functions[thrower].name;
        let codes = &self.leaving[thrower];
        let mut error =
            Diagnostic::error(713, call.span, format!("a deferred call must not throw, and `{name}` may"));
        if let Some(span) = codes.known.values().next().copied().or(codes.computed) {
            error = error.also(span, "this may leave it");
        }
        let help = "call a function that catches everything: `try { .. } catch _ { }`";
        self.diagnostics.report(error.help(help));
    }
}

/// Reports codes that may leave a function which only the kernel or the host calls.
fn entry(program: &Program<'_>, id: FuncId, codes: &Codes, diagnostics: &mut Diagnostics) {
    let hir = program.hir;
    let function = &hir.functions[id];
    let what = match function.kind {
        FunctionKind::Program(_) => "program",
        FunctionKind::Method(_) if hir.is_entry(id) || !is_called(program, id) => "method",
        FunctionKind::Plain if hir.main == Some(id) => "plugin",
        _ => return,
    };
    let entry = EntryPoint { span: function.span, name: &function.name, what };
    for (code, thrown) in &codes.known {
        let (error, clause) = match program.name_at(*thrown) {
            Some(name) => (format!("uncaught error `{name}` ({code})"), format!("`catch {name}`")),
            None => (format!("uncaught error {code}"), format!("`catch {code}`")),
        };
        diagnostics.report(entry.uncaught(program, &error, *thrown, &clause));
    }
    if let Some(thrown) = codes.computed {
        diagnostics.report(entry.uncaught(program, "an uncaught error of any code", thrown, "`catch _`"));
    }
}

/// Whether another method calls this one: then it may be a helper of its impl block, which the kernel does
/// not call.
fn is_called(program: &Program<'_>, id: FuncId) -> bool {
    let callers = program.hir.functions.ids().filter(|caller| *caller != id);
    callers.flat_map(|caller| program.calls.callees(program.hir, caller)).any(|(callee, _)| callee == id)
}

struct EntryPoint<'a> {
    span: Span,
    name: &'a str,
    what: &'a str,
}

impl EntryPoint<'_> {
    fn uncaught(&self, program: &Program<'_>, error: &str, thrown: Span, clause: &str) -> Diagnostic {
        let EntryPoint { span, name, what } = *self;
        let found = match what {
            "plugin" => Diagnostic::warning(711, span, format!("{error} ends the plugin")),
            _ => {
                let found = Diagnostic::error(710, span, format!("{error} would leave the {what}"));
                if program.strict_011 { softened(found) } else { found }
            }
        };
        found
            .label(format!("it leaves `{name}`"))
            .also(thrown, "thrown here")
            .help(format!("add a {clause} clause to a `try` around it"))
    }
}

/// In 0.1.1 this is not an error: the code is the program's result.
fn softened(error: Diagnostic) -> Diagnostic {
    Diagnostic { severity: crate::diag::Severity::Warning, ..error }
        .note("KernelScript 0.1.1 makes the code the program's result")
}
