//! How programs that iterate over a map differ from others, and which of their loops no kernel runs.

use std::collections::BTreeSet;

use crate::diag::Diagnostic;
use crate::hir::FuncId;
use crate::kernel::limits::Refusal;
use crate::kernel::mir::loop_iterators::has_map_iteration;
use crate::kernel::mir::{Callee, KeptReason, Kfunc, MapIter, Op, Program};
use crate::kernel::scratch::reached;

/// The functions of all programs that iterate over a map: none of them may have a number iterator.
///
/// The verifier of Linux 6.18 reads from a null pointer at some programs with an iterator in the callback of a map
/// iteration, one of 20,000 random scripts: it goes back on the paths to an iteration, for registers of a frame
/// that those did not have. That kills the process that loads the program, while it holds locks of the kernel.
/// Callbacks of `bpf_loop` were never seen to do so. An iterator around a map iteration, or next to it, is not
/// used either: functions are inlined into each other. Source: kernel/bpf/verifier.c, `__mark_chain_precision`,
/// called by `propagate_precision`, v6.18.
pub fn with_map_iteration(program: &Program) -> BTreeSet<FuncId> {
    let iterating: BTreeSet<FuncId> =
        program.functions.iter().filter(|one| has_map_iteration(one)).map(|one| one.id).collect();
    let mut found = BTreeSet::new();
    if iterating.is_empty() {
        return found;
    }
    for entry in program.functions.iter().filter(|one| one.is_program) {
        let reached = reached(&program.functions, [&entry.id]);
        if !reached.is_disjoint(&iterating) {
            found.extend(reached);
        }
    }
    found
}

/// The map iterations that are left in a program, and the number iterators left in a program with map iterations:
/// no kernel runs them. Each loop is reported once.
pub fn refusals(program: &Program) -> Vec<Refusal> {
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for function in &program.functions {
        let with_map_iteration = program.loops.with_map_iteration.contains(&function.id);
        for inst in function.insts() {
            let Op::Call { callee, .. } = inst.op else { continue };
            let is_over_map = callee == Callee::MapIter(MapIter::New);
            if !(is_over_map || with_map_iteration && callee == Callee::Kfunc(Kfunc::IterNumNew))
                || !reported.insert(inst.span)
            {
                continue;
            }
            let kept = program.loops.kept.iter().rev().find(|(span, _)| *span == inst.span);
            let reason = kept.map_or(KeptReason::Shape, |(_, kept)| *kept).reason();
            let (headline, by) = if is_over_map {
                ("the kernel cannot run this loop over a map", "`bpf_for_each_map_elem` makes")
            } else {
                (
                    "the kernel cannot run this loop in a program that loops over a map",
                    "`bpf_loop` makes in such a program",
                )
            };
            let refusal = Diagnostic::error(719, inst.span, headline)
                .note(format!("each iteration is a call that {by}, which this loop cannot be"))
                .note(reason)
                .help(
                    "keep in the loop what it needs, and leave results in numbers, a global variable \
                           or a map",
                );
            found.push((function.id, refusal));
        }
    }
    found
}
