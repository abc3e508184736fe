//! Decides where the frames of a program's functions are: on the stack, or in scratch memory (`scratch`).
//!
//! The decision is made once, before the passes where it is certain, else when they have run, and from what the program
//! needs then. What registers spill is known only after register allocation: a program that exceeds the kernel's limits
//! nevertheless is compiled once more, with small frames. That happens to less than one in 100 random scripts.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::{SPILLS, STACK_BYTES, deepest_chains};
use super::mir::{MirFunction, Program};
use super::pass::writes_shared_stack;
use super::scratch::reached;
use super::verifier::code::{has_huge_loop, has_large_loop};
use crate::hir::FuncId;

/// From so many bytes on a slot is large.
const LARGE: u32 = 128;

/// Where the frame of a function is. Each costs more instructions than the one before, and leaves more of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frames {
    /// On the stack.
    OnStack,
    /// The same, without large slots.
    LargeMoved,
    /// In scratch memory, which the bodies of large loops share: they, and large helpers, become functions that the
    /// verifier checks on their own.
    Shared,
    /// In scratch memory, with all locals that are numbers, and with the passes that make no frame larger only.
    Small,
}

impl Frames {
    /// The size in bytes from which on slots are in scratch memory.
    pub fn moved_from(self) -> Option<u32> {
        match self {
            Frames::OnStack => None,
            Frames::LargeMoved => Some(LARGE),
            Frames::Shared | Frames::Small => Some(1),
        }
    }
}

/// The frames that are certain before all passes: those of functions that must have small ones (`small`), and of programs
/// with loops that no pass makes small. What is in scratch memory from the start is in no register. Programs that share a
/// function with such a one have a scratch slot, too.
pub fn certain(program: &Program, small: &BTreeSet<FuncId>) -> BTreeMap<FuncId, Frames> {
    let functions = &program.functions;
    let huge = functions.iter().filter(|one| has_huge_loop(program, one)).map(|one| one.id).collect();
    let mut frames = of_all(functions, |entry, parts| match small.contains(&entry.id) {
        true => Some(Frames::Small),
        false => (!parts.is_disjoint(&huge)).then_some(Frames::Shared),
    });
    loop {
        let own = |entry: &MirFunction, parts: &BTreeSet<FuncId>| {
            let shares = parts.iter().any(|part| frames.contains_key(part));
            frames.get(&entry.id).copied().or_else(|| shares.then_some(Frames::Shared))
        };
        let more = of_all(functions, own);
        if more.len() == frames.len() {
            return frames;
        }
        frames = more;
    }
}

/// The frames of all functions that a program reaches, when the program is optimised.
pub fn chosen(program: &Program, certain: &BTreeMap<FuncId, Frames>) -> BTreeMap<FuncId, Frames> {
    let functions = &program.functions;
    let slots = functions.iter().map(|one| (one.id, one.slot_bytes)).collect();
    let chains = deepest_chains(functions, &slots);
    let sharing = sharing(program);
    let own = |entry: &MirFunction, parts: &BTreeSet<FuncId>| {
        let found = if let Some(certain) = certain.get(&entry.id) {
            *certain
        } else if !parts.is_disjoint(&sharing) {
            Frames::Shared
        } else if chains[&entry.id] + SPILLS > STACK_BYTES {
            Frames::LargeMoved
        } else {
            Frames::OnStack
        };
        Some(found)
    };
    let mut frames = of_all(functions, own);
    frames.extend(certain);
    frames
}

/// The frames that programs have by `own`, which gets the functions that one reaches; a function that several programs
/// reach has what the most demanding one needs.
fn of_all(
    functions: &[MirFunction],
    own: impl Fn(&MirFunction, &BTreeSet<FuncId>) -> Option<Frames>,
) -> BTreeMap<FuncId, Frames> {
    let mut frames = BTreeMap::new();
    for entry in functions.iter().filter(|one| one.is_program) {
        let parts = reached(functions, [&entry.id]);
        let Some(own) = own(entry, &parts) else { continue };
        for part in parts {
            let part = frames.entry(part).or_insert(own);
            *part = own.max(*part);
        }
    }
    frames
}

/// The functions with a large loop, or with a loop that is to be called and writes to memory of its caller's frame.
fn sharing(program: &Program) -> BTreeSet<FuncId> {
    let shares = |one: &&MirFunction| has_large_loop(program, one) || writes_shared_stack(program, one);
    program.functions.iter().filter(shares).map(|one| one.id).collect()
}
