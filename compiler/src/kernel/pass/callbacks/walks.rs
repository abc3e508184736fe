//! Walks that could not be made calls: there is no other way to run them.

use std::collections::BTreeSet;

use crate::diag::Diagnostic;
use crate::kernel::mir::{Callee, Function, Kept, Op, Program, Walk};

/// What of a program cannot be run because it is a walk still, each once.
pub fn refusals(program: &Program) -> Vec<Diagnostic> {
    let insts = program.functions.iter().flat_map(Function::insts);
    let starts = insts.filter(|inst| matches!(inst.op, Op::Call { callee: Callee::Walk(Walk::New), .. }));
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for inst in starts.filter(|inst| reported.insert(inst.span)) {
        let kept = program.loops.kept.iter().rev().find(|(span, _)| *span == inst.span);
        let reason = kept.map_or(Kept::Shape, |(_, kept)| *kept).reason();
        found.push(
            Diagnostic::error(719, inst.span, "the kernel cannot run this loop over a map")
                .note("each turn is a call that `bpf_for_each_map_elem` makes, which this loop cannot be")
                .note(reason)
                .help("keep in the loop what it needs, and leave results in numbers, a global variable or a map"),
        );
    }
    found
}
