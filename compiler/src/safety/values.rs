//! KS0718: calls through function values in the kernel half, which are compiled to a chain of comparisons.

use std::collections::BTreeSet;

use super::dataflow::loaded;
use super::{Program, locals};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, FunctionKind, Half, HirFunction, LocalId};

/// Maximum number of functions that a value may refer to (language reference, 11.11).
const MAX_TARGETS: usize = 16;
/// The same limit in 0.1.1.
const MAX_TARGETS_011: usize = 1;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    // A helper that is never called is not compiled.
    for id in entered(program) {
        let function = &program.hir.functions[id];
        let mut values = ValueCalls { program, fixed: fixed(function), diagnostics };
        visit::block(&mut values, &function.body);
    }
}

/// Returns the functions of the kernel half that can run.
fn entered(program: &Program<'_>) -> BTreeSet<FuncId> {
    let functions = program.hir.functions.iter_enumerated();
    let entries = functions.filter(|(_, function)| {
        function.kind.half() == Half::Kernel
            && !matches!(function.kind, FunctionKind::Helper | FunctionKind::Private)
    });
    program.calls.reached(program.hir, entries.map(|(id, _)| id))
}

/// Returns the parameters that always have the caller's value: a call through one is specialised for each
/// caller.
fn fixed(function: &HirFunction) -> BTreeSet<LocalId> {
    let times = locals::times_set(function);
    function.params.iter().copied().filter(|param| times.get(param) == Some(&1)).collect()
}

struct ValueCalls<'a> {
    program: &'a Program<'a>,
    fixed: BTreeSet<LocalId>,
    diagnostics: &'a mut Diagnostics,
}

impl Visitor for ValueCalls<'_> {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::CallValue { callee, .. } = &expr.kind else { return };
        let targets = self.program.calls.values(Half::Kernel, callee.ty).count();
        let most = if self.program.strict_011 { MAX_TARGETS_011 } else { MAX_TARGETS };
        let of_type = format!("of type `{}`", self.program.hir.types.name(callee.ty));
        if targets == 0 {
            let text = "call target is not known: no function of this type is used as a value";
            self.diagnostics.report(Diagnostic::error(718, callee.span, text).label(of_type));
        } else if targets > most && !loaded(callee).is_some_and(|local| self.fixed.contains(&local)) {
            let text = format!("call target is not known: one of {targets} functions");
            let note = if self.program.strict_011 {
                "--strict-011 asks for the language of 0.1.1, where such a call goes astray".to_owned()
            } else {
                format!("a value in the kernel half may stand for at most {most} functions")
            };
            self.diagnostics.report(
                Diagnostic::error(718, callee.span, text)
                    .label(of_type)
                    .note(note)
                    .help("call the functions by name, in the arms of a `match`"),
            );
        }
    }
}
