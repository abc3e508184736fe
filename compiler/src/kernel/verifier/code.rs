//! The verifier's work for MIR.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{
    MAX_BRANCHES_KNOWN, MAX_CHECKS_LINKED, MAX_DECISIONS_ITERATED, MAX_GROWN_KNOWN, MAX_INLINED_OFTEN,
    MAX_INLINED_ONCE, MAX_ON_ALL_PATHS, MAX_PASSED_FIRST, MAX_POINTERS_CHANGED, MAX_STEPS_KNOWN,
    MAX_UNROLLED,
};
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::iterator_loops::loops;
use crate::kernel::mir::{
    Block, BlockData, Callee, FunctionOrigin, Inst, MirFunction, Op, Origin, Program, Terminator, Type, Value,
};

/// Whether a function is small enough to be inlined; `is_only_call` if nothing else calls it.
pub fn may_inline(callee: &MirFunction, is_only_call: bool) -> bool {
    let limit = if is_only_call { MAX_INLINED_ONCE } else { MAX_INLINED_OFTEN };
    instructions(callee) <= limit
}

/// The instructions of a function, without rematerialised ones, which become part of others.
fn instructions(function: &MirFunction) -> usize {
    let count = |block: &BlockData| {
        let costs = |inst: &&Inst| !matches!(inst.op, Op::Const(_) | Op::StackAddr { .. });
        block.insts.iter().filter(costs).count() + block.term.targets().len().max(1)
    };
    function.reverse_postorder().iter().map(|block| count(&function.blocks[*block])).sum()
}

/// Whether the iterations of a loop are few enough to be unrolled.
pub fn may_unroll(iterations: u64, instructions: usize) -> bool {
    let (most, most_iterations) = MAX_UNROLLED;
    let all = usize::try_from(iterations).map(|iterations| iterations.saturating_mul(instructions));
    iterations <= most_iterations && all.is_ok_and(|all| all <= most)
}

/// Whether the verifier may follow each path of a function separately; not if it has loops. Functions that it
/// calls do not count.
pub fn may_follow_all_paths(function: &MirFunction) -> bool {
    on_all_paths(function).is_some_and(|instructions| instructions <= MAX_ON_ALL_PATHS)
}

/// The instructions on all paths of a function; `None` if it has loops.
pub fn on_all_paths(function: &MirFunction) -> Option<u64> {
    let order = function.reverse_postorder();
    let mut position: IndexVec<Block, usize> = function.blocks.iter().map(|_| usize::MAX).collect();
    order.iter().enumerate().for_each(|(at, block)| position[*block] = at);
    let mut paths: IndexVec<Block, u64> = function.blocks.iter().map(|_| 0).collect();
    paths[function.entry()] = 1;
    let mut instructions: u64 = 0;
    for block in order {
        let data = &function.blocks[block];
        let own = paths[block].saturating_mul(data.insts.len() as u64 + 2);
        instructions = instructions.saturating_add(own);
        for target in data.term.targets() {
            if position[target.block] <= position[block] {
                return None;
            }
            paths[target.block] = paths[target.block].saturating_add(paths[block]);
        }
    }
    Some(instructions)
}

/// Whether a function has so many branches that its constants should be hidden from the verifier.
pub fn has_many_branches(function: &MirFunction) -> bool {
    let order = function.reverse_postorder();
    let branches =
        order.iter().filter(|block| matches!(function.blocks[**block].term, Terminator::Branch { .. }));
    branches.count() > MAX_BRANCHES_KNOWN
}

/// Whether the ranges of so many numbers that grow from merge to merge may be known.
pub fn may_know_grown(numbers: usize) -> bool {
    numbers <= MAX_GROWN_KNOWN
}

/// Whether each of the numbers may be known of which the last is computed from so many others, at one merge after another.
pub fn may_know_steps(steps: usize) -> bool {
    steps <= MAX_STEPS_KNOWN
}

/// Whether so many checks of a number and its sums with constants may be linked.
pub fn may_link_checks(checks: usize) -> bool {
    checks <= MAX_CHECKS_LINKED
}

/// Whether the verifier may follow passed tests of packet pointers first, which test each for so many numbers of bytes.
pub fn may_pass_first(tests: impl Iterator<Item = usize>) -> bool {
    let combinations =
        tests.filter(|numbers| *numbers > 1).fold(1, |all: usize, one| all.saturating_mul(one + 1));
    combinations <= MAX_PASSED_FIRST
}

/// Whether so many pointers to entries may be changed by iterations of loops that are called.
pub fn may_change_pointers(pointers: usize) -> bool {
    pointers <= MAX_POINTERS_CHANGED
}

/// Whether a function has a loop whose body should be a function of its own, or is a callback for which that holds.
pub fn has_large_loop(program: &Program, function: &MirFunction) -> bool {
    let decisions = Decisions::new(program, function);
    let is_callback = program.loops.are_called_in(function.id) && function.origin == FunctionOrigin::Callback;
    is_callback && decisions.are_too_many(&function.reverse_postorder())
        || loops(function).iter().any(|one| decisions.are_too_many(&one.blocks))
}

/// Whether a function has, before all passes, a loop with so many decisions that it stays large.
pub fn has_huge_loop(program: &Program, function: &MirFunction) -> bool {
    let decisions = Decisions::new(program, function);
    loops(function).iter().any(|one| decisions.of(&one.blocks) > 8 * MAX_DECISIONS_ITERATED)
}

/// Whether the verifier may follow so many decisions in each iteration under an iterator.
pub fn may_iterate(decisions: usize) -> bool {
    decisions <= MAX_DECISIONS_ITERATED
}

/// The decisions of a function.
pub struct Decisions<'a> {
    program: &'a Program,
    function: &'a MirFunction,
    definitions: OnceCell<IndexVec<Value, Option<&'a Op>>>,
    /// Those of functions that are called, also by others that it calls.
    called: Rc<RefCell<BTreeMap<FuncId, usize>>>,
}

impl<'a> Decisions<'a> {
    /// Those of a function.
    pub fn new(program: &'a Program, function: &'a MirFunction) -> Decisions<'a> {
        Decisions { program, function, definitions: OnceCell::new(), called: Rc::default() }
    }

    /// Whether there are too many in blocks, and in what they call, for a loop body.
    pub fn are_too_many<'b>(&self, blocks: impl IntoIterator<Item = &'b Block>) -> bool {
        !may_iterate(self.of(blocks))
    }

    /// The branches in blocks and in the functions that they call, except outlined ones, which the verifier does not
    /// follow. A branch that stores a constant on the stack on both of its paths counts as three: constants that
    /// nobody reads any more distinguish all later iterations.
    fn of<'b>(&self, blocks: impl IntoIterator<Item = &'b Block>) -> usize {
        let mut found: usize = 0;
        for data in blocks.into_iter().map(|block| &self.function.blocks[*block]) {
            if matches!(data.term, Terminator::Branch { .. }) {
                let differs = data.term.targets().iter().all(|to| self.leaves_constant(to.block));
                found = found.saturating_add(if differs { 3 } else { 1 });
            }
            for inst in &data.insts {
                if let Op::Call { callee: Callee::Function(id), .. } = inst.op
                    && !self.program.is_body(id)
                {
                    found = found.saturating_add(self.of_called(id));
                }
            }
        }
        found
    }

    fn leaves_constant(&self, block: Block) -> bool {
        self.function.blocks[block].insts.iter().any(|inst| match inst.op {
            Op::Store { base, value, .. } if self.function.values[base] == Type::Ptr(Origin::Stack) => {
                let definitions = self.definitions.get_or_init(|| self.function.definitions());
                matches!(definitions[base], Some(Op::StackAddr { .. }))
                    && matches!(definitions[value], Some(Op::Const(_)))
            }
            _ => false,
        })
    }

    fn of_called(&self, id: FuncId) -> usize {
        let known = self.called.borrow().get(&id).copied();
        known.unwrap_or_else(|| {
            let callee = self.program.functions.iter().find(|one| one.id == id);
            let found = callee.map_or(0, |function| {
                let called = Rc::clone(&self.called);
                let callee = Decisions { called, ..Decisions::new(self.program, function) };
                callee.of(&function.reverse_postorder())
            });
            self.called.borrow_mut().insert(id, found);
            found
        })
    }
}
