//! Coverage of pairs of language construct and program type by scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::kinds::PROGRAMS;
use super::tree::Node;
use super::{constants, exprs, forms, items, kernel_memory, stmts};

/// Number of scripts with each pair.
#[derive(Default)]
pub struct Reached {
    scripts: usize,
    pairs: BTreeMap<(&'static str, &'static str), usize>,
}

/// Items that are constructs, in addition to the types of maps.
const ITEMS: &[&str] = &[
    "task_storage",
    "sk_storage",
    "queue",
    "stack",
    "bloom",
    "map that owns objects",
    "map of maps",
    "ringbuf",
    "config",
];

/// Returns all program types, each once.
fn kinds() -> Vec<&'static str> {
    let mut kinds: Vec<&str> = Vec::new();
    for program in PROGRAMS {
        if !kinds.contains(&program.attribute) {
            kinds.push(program.attribute);
        }
    }
    kinds
}

/// Returns all constructs, each once.
fn constructs() -> Vec<&'static str> {
    let tables = [items::MAP_KINDS, ITEMS, &constants::CONSTRUCTS, &forms::HELD, kernel_memory::CONSTRUCTS];
    let all = stmts::constructs().chain(exprs::constructs());
    let mut seen = BTreeSet::new();
    all.chain(tables.into_iter().flatten().copied()).filter(|one| seen.insert(*one)).collect()
}

impl Reached {
    /// Adds a script to the counts.
    pub fn add(&mut self, script: &Node) {
        let mut found = BTreeSet::new();
        script.add_constructs(&mut found);
        self.scripts += 1;
        for kind in kinds().into_iter().filter(|kind| found.contains(kind)) {
            for construct in &found {
                *self.pairs.entry((*construct, kind)).or_default() += 1;
            }
        }
    }

    fn count(&self, construct: &'static str, kind: &'static str) -> usize {
        self.pairs.get(&(construct, kind)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kinds, constructs) = (kinds(), constructs());
        writeln!(f, "{} scripts, by construct and kind of program:", self.scripts)?;
        let letters: Vec<char> = ('A'..='Z').take(kinds.len()).collect();
        for (letter, kind) in letters.iter().zip(&kinds) {
            writeln!(f, "  {letter}  {kind}")?;
        }
        let width = constructs.iter().map(|one| one.len()).max().unwrap_or_default();
        let mut missing = 0;
        write!(f, "{:width$}", "")?;
        letters.iter().try_for_each(|letter| write!(f, " {letter:>6}"))?;
        writeln!(f)?;
        for construct in &constructs {
            write!(f, "{construct:width$}")?;
            for kind in &kinds {
                let count = self.count(construct, kind);
                missing += usize::from(count == 0);
                match count {
                    0 => write!(f, " {:>6}", "-")?,
                    count => write!(f, " {count:>6}")?,
                }
            }
            writeln!(f)?;
        }
        write!(f, "{missing} of {} pairs not reached", constructs.len() * kinds.len())
    }
}
