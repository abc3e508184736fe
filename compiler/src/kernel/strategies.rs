//! Compilation strategies: what becomes of a program that needs more stack or frames than the kernel has.
//!
//! A program without large loops gets all passes and keeps its stack frames. One with large loops moves its frames
//! to scratch memory (`scratch`), and the loop bodies are outlined (`pass::outline_loops`). Each next strategy costs
//! code or work of the verifier, and frees frames or bytes of the stack. Measured over all cases and examples and
//! 3,000 random scripts, one in 120 needs a second strategy, and each of these is the last one of some.

use std::collections::{BTreeMap, BTreeSet};

use super::mir::{MirFunction, Program};
use super::pass::{Bodies, Effort};
use super::scratch::{Moves, Plan, reached};
use crate::hir::FuncId;

/// A strategy for one function: the passes, and the use of scratch memory.
#[derive(Clone, Copy)]
struct Strategy {
    effort: Effort,
    /// The part of the frame that moves to scratch memory.
    moves: Moves,
}

const fn outlined(bodies: Bodies) -> Strategy {
    Strategy { effort: Effort::Outlined(bodies), moves: Moves::Whole }
}

/// The number of strategies.
pub const STRATEGIES_COUNT: usize = STRATEGIES.len();

/// The strategies after the first one of programs without large loops, which is all passes on the stack.
const STRATEGIES: [Strategy; 6] = [
    outlined(Bodies::All),
    outlined(Bodies::EveryOther),
    outlined(Bodies::None),
    Strategy { effort: Effort::Full, moves: Moves::From(128) },
    // Inlining and longer live ranges enlarge frames.
    Strategy { effort: Effort::SmallFrames, moves: Moves::From(1) },
    // Locals that do not fit the registers are in the frame, unless they are in memory from the start.
    Strategy { effort: Effort::SmallFrames, moves: Moves::Locals },
];

/// The second strategy of programs without large loops.
const LARGE_SLOTS: usize = 3;

/// The position of each program in the list of strategies. Programs without large loops that are at their
/// first strategy are left out.
pub struct Strategies {
    at: BTreeMap<FuncId, usize>,
}

impl Strategies {
    /// Starts at the first strategies; `looping` are the programs with large loops.
    pub fn new(looping: &BTreeSet<FuncId>) -> Strategies {
        Strategies { at: looping.iter().map(|program| (*program, 0)).collect() }
    }

    /// All programs at the same strategy.
    pub fn at(programs: &BTreeSet<FuncId>, strategy: usize) -> Strategies {
        Strategies { at: programs.iter().map(|program| (*program, strategy)).collect() }
    }

    /// The effort of each function, and the plan of moves to scratch memory. A function that several programs
    /// call uses the furthest of their strategies. `lowered` is the program before all passes.
    pub fn chosen(&self, lowered: &Program) -> (BTreeMap<FuncId, Effort>, Option<Plan>) {
        let mut furthest: BTreeMap<FuncId, usize> = BTreeMap::new();
        for (program, at) in &self.at {
            for part in reached(&lowered.functions, [program]) {
                let furthest = furthest.entry(part).or_default();
                *furthest = (*furthest).max(*at);
            }
        }
        let efforts = furthest.iter().map(|(function, at)| (*function, STRATEGIES[*at].effort)).collect();
        let moves = furthest.iter().map(|(function, at)| (*function, STRATEGIES[*at].moves)).collect();
        (efforts, Plan::new(lowered, moves))
    }

    /// Advances the programs that contain a refused function to their next strategy; if no function is
    /// refused, all programs that are listed. `functions` are those after all passes. Returns whether all of
    /// them had a next strategy.
    pub fn next(&mut self, functions: &[MirFunction], refused: &BTreeSet<FuncId>) -> bool {
        let programs = functions.iter().filter(|one| one.is_program).map(|one| one.id);
        let mut concerned: Vec<FuncId> =
            programs.filter(|program| !reached(functions, [program]).is_disjoint(refused)).collect();
        if concerned.is_empty() {
            concerned.extend(self.at.keys());
        }
        for program in &concerned {
            self.at.entry(*program).and_modify(|at| *at += 1).or_insert(LARGE_SLOTS);
        }
        !concerned.is_empty() && concerned.iter().all(|program| self.at[program] < STRATEGIES.len())
    }
}
