//! KS0717: no function of the kernel half may reach itself, because the kernel's stack is limited. Tail calls
//! are jumps and may form cycles.

use std::collections::BTreeSet;

use super::Program;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::{FuncId, Half};
use crate::index::IndexVec;
use crate::source::Span;

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    let functions = &program.hir.functions;
    let mut reported = BTreeSet::new();
    for id in candidates(program) {
        if functions[id].kind.half() != Half::Kernel || reported.contains(&id) {
            continue;
        }
        let Some(cycle) = program.calls.cycle(program.hir, id) else { continue };
        reported.extend(cycle.iter().map(|(callee, _)| *callee));
        diagnostics.report(cyclic(program, id, &cycle));
    }
}

/// Returns the functions in cycles of calls, and those on paths between two cycles.
pub(super) fn candidates(program: &Program<'_>) -> BTreeSet<FuncId> {
    let hir = program.hir;
    let callees: IndexVec<FuncId, Vec<(FuncId, Span)>> =
        hir.functions.ids().map(|id| program.calls.callees(hir, id)).collect();
    let order = program.calls.callees_first(hir);
    // A function that only calls functions without cycles has none itself. The same holds for a function that
    // is only called by such functions.
    let mut open: BTreeSet<FuncId> = hir.functions.ids().collect();
    for id in &order {
        if callees[*id].iter().all(|(callee, _)| !open.contains(callee)) {
            open.remove(id);
        }
    }
    let mut callers: IndexVec<FuncId, usize> = hir.functions.iter().map(|_| 0).collect();
    for (callee, _) in open.iter().flat_map(|id| &callees[*id]) {
        callers[*callee] += 1;
    }
    for id in order.iter().rev() {
        if callers[*id] == 0 && open.remove(id) {
            for (callee, _) in &callees[*id] {
                callers[*callee] -= 1;
            }
        }
    }
    open
}

fn cyclic(program: &Program<'_>, id: FuncId, cycle: &[(FuncId, Span)]) -> Diagnostic {
    let functions = &program.hir.functions;
    let name = &functions[id].name;
    let text = format!("recursion in the kernel half: `{name}` reaches itself");
    let mut diagnostic = Diagnostic::error(717, functions[id].span, text);
    let mut caller = name;
    for (callee, span) in cycle {
        let callee = &functions[*callee].name;
        diagnostic = diagnostic.also(*span, format!("`{caller}` calls `{callee}`"));
        caller = callee;
    }
    diagnostic.help("write a loop; the kernel's stack has an end")
}
