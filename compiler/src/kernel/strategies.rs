//! What is tried for each program until the kernel has room for it: first all passes, and where there are large loops, as
//! much of them apart (`pass::outline`) as the frames have room for; then frames in scratch memory (`scratch`).

use std::collections::{BTreeMap, BTreeSet};

use super::mir::{MirFunction, Program};
use super::pass::{Apart, Bodies, Effort};
use super::scratch::{Moves, Plan, reached};
use crate::hir::FuncId;

/// One way to compile a function.
#[derive(Clone, Copy)]
struct Strategy {
    effort: Effort,
    /// What of the frame goes to scratch memory.
    moves: Option<Moves>,
}

/// How programs with large loops start; each first with functions within others.
const BODIES: [Bodies; 5] =
    [Bodies::All, Bodies::NoMapIteration, Bodies::EveryOther, Bodies::Innermost, Bodies::None];

/// How others start, and what comes behind that: slots from so many bytes on go to scratch memory, first those that are
/// worth it; in the end also functions within others and values kept for later, which take more of a frame, are given up.
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

/// Where each program is in the row of what is tried, but for those that are as they start without large loops.
pub struct Strategies {
    at: BTreeMap<FuncId, usize>,
}

impl Strategies {
    /// Starts, with these as the programs that have large loops.
    pub fn new(looping: &BTreeSet<FuncId>) -> Strategies {
        Strategies { at: looping.iter().map(|program| (*program, 0)).collect() }
    }

    /// What is done with each function, and what goes to scratch memory. What several programs call goes by the one that is
    /// furthest. The program is as it was lowered.
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

    /// Takes the next try for the programs that a refused function is a part of, or for all that are behind their start if
    /// no function is refused; `functions` are as they are after all passes. Gives whether all had one.
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
