//! What programs that walk through a map are apart from others, and what of them no kernel runs.

use std::collections::BTreeSet;

use super::has_walk;
use crate::diag::Diagnostic;
use crate::hir::FuncId;
use crate::kernel::limits::Refusal;
use crate::kernel::mir::{Callee, KeptReason, Kfunc, MapIter, Op, Program};
use crate::kernel::scratch::reached;

/// The functions of all programs that walk through a map: none of them may have an iterator.
///
/// The verifier of Linux 6.18 reads from a null pointer at some programs with an iterator in the turns of a
/// walk, one of 20,000 random scripts: it goes back through the ways that led to a turn, for registers of a
/// frame that those did not have. That kills the process that loads the program, while it holds locks of the
/// kernel. Turns that `bpf_loop` calls were never seen to do so. An iterator around a walk, or beside it, is
/// not used either: functions become part of each other. Source: kernel/bpf/verifier.c,
/// `__mark_chain_precision`, called by `propagate_precision`, v6.18.
pub fn with_map_iteration(program: &Program) -> BTreeSet<FuncId> {
    let walking: BTreeSet<FuncId> =
        program.functions.iter().filter(|one| has_walk(one)).map(|one| one.id).collect();
    let mut found = BTreeSet::new();
    if walking.is_empty() {
        return found;
    }
    for entry in program.functions.iter().filter(|one| one.is_program) {
        let reached = reached(&program.functions, [&entry.id]);
        if !reached.is_disjoint(&walking) {
            found.extend(reached);
        }
    }
    found
}

/// What of a program cannot be run because it is a walk still, or a loop under an iterator beside one; each
/// once.
pub fn refusals(program: &Program) -> Vec<Refusal> {
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for function in &program.functions {
        let beside_walk = program.loops.with_map_iteration.contains(&function.id);
        for inst in function.insts() {
            let Op::Call { callee, .. } = inst.op else { continue };
            let is_walk = callee == Callee::MapIter(MapIter::New);
            if !(is_walk || beside_walk && callee == Callee::Kfunc(Kfunc::IterNumNew))
                || !reported.insert(inst.span)
            {
                continue;
            }
            let kept = program.loops.kept.iter().rev().find(|(span, _)| *span == inst.span);
            let reason = kept.map_or(KeptReason::Shape, |(_, kept)| *kept).reason();
            let (headline, by) = if is_walk {
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
