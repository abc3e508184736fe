//! Compilation strategies, tried for each program until one fits the kernel's limits. First come all passes;
//! in programs with large loops, as many loop bodies are outlined (`pass::outline_loops`) as the frames have space
//! for. Then frames move to scratch memory (`scratch`).

use std::collections::{BTreeMap, BTreeSet};

use super::mir::{MirFunction, Program};
use super::pass::{Apart, Bodies, Effort};
use super::scratch::{Moves, Plan, reached};
use crate::hir::FuncId;

/// A strategy for one function: the passes, and the use of scratch memory.
#[derive(Clone, Copy)]
struct Strategy {
    effort: Effort,
    /// The part of the frame that moves to scratch memory; `None` for nothing.
    moves: Option<Moves>,
}

/// The first strategies of programs with large loops, each first with functions inlined into their only
/// callers.
const BODIES: [Bodies; 5] =
    [Bodies::All, Bodies::NoMapIteration, Bodies::EveryOther, Bodies::Innermost, Bodies::None];

/// The first strategies of other programs, and the next ones of all. Slots from a given size on move to
/// scratch memory, large ones first. The last strategy also gives up inlining and longer live ranges, which
/// enlarge frames.
const REST: [Strategy; 5] = [
    Strategy { effort: Effort::Full, moves: None },
    Strategy { effort: Effort::Full, moves: Some(Moves::From(128)) },
    Strategy { effort: Effort::Full, moves: Some(Moves::From(32)) },
    Strategy { effort: Effort::Full, moves: Some(Moves::From(1)) },
    Strategy { effort: Effort::SmallFrames, moves: Some(Moves::From(1)) },
];

/// The position of the first of [`REST`].
const PLAIN: usize = 2 * BODIES.len();
const LAST: usize = PLAIN + REST.len() - 1;

fn strategy_at(position: usize) -> Strategy {
    match position.checked_sub(PLAIN) {
        Some(rest) => REST[rest],
        None => {
            let apart = Apart { bodies: BODIES[position / 2], functions: position % 2 == 1 };
            Strategy { effort: Effort::Apart(apart), moves: Some(Moves::Whole) }
        }
    }
}

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
        let efforts =
            furthest.iter().map(|(function, position)| (*function, strategy_at(*position).effort)).collect();
        let moves =
            |(function, position): (&FuncId, &usize)| Some((*function, strategy_at(*position).moves?));
        (efforts, Plan::new(lowered, furthest.iter().filter_map(moves).collect()))
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
            *self.at.entry(*program).or_insert(PLAIN) += 1;
        }
        !concerned.is_empty() && concerned.iter().all(|program| self.at[program] <= LAST)
    }
}
