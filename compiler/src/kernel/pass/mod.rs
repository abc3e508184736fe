//! Optimisation passes on MIR, which keep the meaning of a program; one file each.

mod address_folding;
pub mod alias_analysis;
pub(super) mod bounds;
mod changes;
mod const_fold;
mod copy_elision;
mod dce;
mod dead_stores;
mod gvn;
mod inline;
mod iterations;
mod jump_threading;
mod kernel_pointers;
mod known_bits;
mod load_forwarding;
pub(super) mod loop_callbacks;
mod mem2reg;
pub(super) mod new_insts;
pub(super) mod origins;
mod outline_loops;
pub(super) mod pack;
mod packet_generations;
mod phi_cycles;
mod reassociate;
mod record_stores;
mod redundant_params;
pub(super) mod region;
pub(super) mod rewrite;
pub(super) mod scalar_ids;
mod simplify_cfg;
mod sink;
mod sleep;
mod tail_merge;
mod task_ids;
#[cfg(test)]
mod tests;
mod unroll;
mod unused_slots;

pub use loop_callbacks::{refusals as map_iteration_refusals, writes_shared_stack};

use std::collections::{BTreeMap, BTreeSet};

use super::Checks;
use super::frames::{self, Frames};
use super::mir::compact::compact;
use super::mir::flow::Flow;
use super::mir::verify::{VerifyError, verify, verify_packed};
use super::mir::{MirFunction, Program};
use super::scratch::{self, reached};
use super::verifier::code::{may_follow_all_paths, on_all_paths};
use super::verifier::rules::{
    backtracked_addresses, checked_sums, dead_slots, linked_scalars, loop_carried, missing_first,
    precise_constants, return_ranges,
};
use crate::hir::FuncId;
use changes::Changes;
use packet_generations::PacketChanges;

/// A pass that runs again when others have changed something.
struct Pass {
    name: &'static str,
    /// Runs the pass and returns what it changed.
    run: fn(&mut MirFunction, &Flow) -> Changes,
    /// The changes after which the pass may find something new.
    after: Changes,
}

const fn pass(name: &'static str, run: fn(&mut MirFunction, &Flow) -> Changes, after: Changes) -> Pass {
    Pass { name, run, after }
}

/// The changes after which passes on values may find more.
const OF_VALUES: Changes = Changes::VALUES.and(Changes::CONTROL_FLOW);
/// The same for passes on memory and on escaping addresses.
const OF_MEMORY: Changes = OF_VALUES.and(Changes::MEMORY).and(Changes::GONE);
/// The same for passes on the form of blocks.
const OF_BLOCKS: Changes = OF_MEMORY.and(Changes::MOVED).and(Changes::JOINED);

const PASSES: &[Pass] = &[
    pass("redundant_params", redundant_params::run, OF_VALUES),
    pass("phi_cycles", phi_cycles::run, OF_VALUES),
    pass("const_fold", const_fold::run, OF_VALUES),
    pass("reassociate", reassociate::run, Changes::VALUES),
    pass("address_folding", address_folding::run, Changes::VALUES),
    pass("gvn", gvn::run, OF_VALUES),
    pass("load_forwarding", load_forwarding::run, OF_MEMORY),
    pass("dead_stores", dead_stores::run, OF_MEMORY),
    pass("mem2reg", mem2reg::run, OF_MEMORY),
    pass("copy_elision", copy_elision::run, OF_MEMORY),
    pass("record_stores", record_stores::run, OF_MEMORY),
    pass("jump_threading", jump_threading::run, OF_BLOCKS),
    pass("simplify_cfg", simplify_cfg::run, OF_BLOCKS),
    pass("tail_merge", tail_merge::run, OF_BLOCKS),
    pass("dce", dce::run, OF_VALUES.and(Changes::MEMORY)),
];

/// A pass that runs once and returns whether it changed anything.
type LastPass = fn(&mut MirFunction) -> bool;

/// The passes that run once, after all others.
const LAST: &[(&str, LastPass)] = &[
    ("sink", sink::run),
    ("backtracked_addresses", backtracked_addresses::run),
    ("known_bits", known_bits::run),
    ("loop_carried", loop_carried::run),
    ("missing_first", missing_first::run),
    ("precise_constants", precise_constants::run),
    ("return_ranges", return_ranges::run),
    ("checked_sums", checked_sums::run),
    ("linked_scalars", linked_scalars::run),
    ("dead_slots", dead_slots::run),
    ("unused_slots", unused_slots::run),
];

/// The limit of iterations over all passes for one function; most need two or three.
const MAX_PASS_ITERATIONS: usize = 16;

/// The name of the stage before all passes.
pub const LOWERING: &str = "lowering";

/// The inlining pass: runs once for each function, after that function and its callees are optimised.
const INLINE: &str = "inline";

/// The loop unrolling pass: runs once for each program, after the program is optimised.
const UNROLL: &str = "unroll";

/// The pass that moves stack slots to scratch memory: runs before the first passes where frames are certain, and when the
/// program is optimised.
const SCRATCH: &str = "scratch";

/// The pass that replaces reads of task ids: runs once, before loop bodies are outlined.
const SLEEP: &str = "sleep";
const TASK_IDS: &str = "task_ids";

/// The pass that outlines loop bodies as functions: runs once, before the last passes.
const OUTLINE: &str = "outline_loops";

/// The pass that replaces loops by calls with callbacks: runs once, before the last passes.
const CALLBACKS: &str = "loop_callbacks";

/// The pass that passes arguments beyond the argument registers through memory: runs once on all functions,
/// before the last passes.
const PACK: &str = "pack";

/// The pass that converts kernel pointers to numbers: runs on all functions, before the last passes and after
/// them.
const KERNEL_POINTERS: &str = "kernel_pointers";

/// An observer of a program after lowering and after each pass that changed it; it gets the name of the pass.
pub type Watch<'a> = &'a mut dyn FnMut(&'static str, &Program);

/// A selection of the passes that run repeatedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    All,
    /// Passes that extend no live range.
    SmallFrames,
    /// All passes except those that share code between loops, for use before loops become functions.
    Unmixed,
}

/// The passes of [`Passes::SmallFrames`].
const SMALL_FRAMES: &[&str] =
    &["redundant_params", "const_fold", "address_folding", "dead_stores", "simplify_cfg", "dce"];

impl Passes {
    /// The passes for a function whose frame is there.
    fn of(frames: Frames) -> Passes {
        match frames {
            Frames::OnStack | Frames::LargeMoved => Passes::All,
            Frames::Shared => Passes::Unmixed,
            Frames::Small => Passes::SmallFrames,
        }
    }
}

/// The passes that [`Passes::Unmixed`] leaves out.
const MIXES_LOOPS: &[&str] = &["tail_merge"];

/// The names of all passes, ordered by their first run.
pub fn names() -> impl Iterator<Item = &'static str> {
    let each = PASSES.iter().map(|pass| pass.name).chain(LAST.iter().map(|(name, _)| *name));
    std::iter::once(LOWERING).chain(each).chain([
        INLINE,
        UNROLL,
        SCRATCH,
        TASK_IDS,
        OUTLINE,
        CALLBACKS,
        PACK,
        KERNEL_POINTERS,
    ])
}

/// Runs all passes on all functions until nothing changes. The functions of `small` get small frames.
///
/// # Errors
/// Reports the pass after which a rule of MIR was violated, which is a bug of this compiler.
pub fn run(
    program: &mut Program,
    small: &BTreeSet<FuncId>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    watch(LOWERING, program);
    program.functions.iter().try_for_each(|function| check(function, LOWERING, checks))?;
    let certain = frames::certain(program, small);
    move_slots(program, &certain, checks, watch)?;
    let mut settled = optimise(program, &certain, checks, watch)?;
    program.loops.with_map_iteration = loop_callbacks::with_map_iteration(program);
    let frames = frames::chosen(program, &certain);
    let mut chosen = frames.clone();
    chosen.retain(|function, _| !certain.contains_key(function));
    for moved in move_slots(program, &chosen, checks, watch)? {
        settled.remove(&moved);
    }
    for at in 0..program.functions.len() {
        let function = &program.functions[at];
        let known = settled.entry(function.id).or_default();
        improve(program, at, Passes::of(frames_of(&frames, function)), known, checks, watch)?;
    }
    finish(program, &frames, checks, watch)
}

/// Moves stack slots to scratch memory. Returns the functions that changed.
fn move_slots(
    program: &mut Program,
    frames: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<BTreeSet<FuncId>, VerifyError> {
    let moved = scratch::move_slots(program, frames);
    if !moved.is_empty() {
        watch(SCRATCH, program);
        program.functions.iter().try_for_each(|function| check(function, SCRATCH, checks))?;
    }
    Ok(moved)
}

/// Runs the passes for which it does not matter where frames are. Returns for each function the passes that would find
/// nothing.
fn optimise(
    program: &mut Program,
    certain: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<BTreeMap<FuncId, Settled>, VerifyError> {
    let calls = inline::calls(program);
    let mut all_settled = BTreeMap::new();
    for at in 0..program.functions.len() {
        let id = program.functions[at].id;
        let frames = certain.get(&id).copied();
        let mut settled = 0;
        improve(program, at, first_passes(&program.functions[at], frames), &mut settled, checks, watch)?;
        if frames != Some(Frames::Small) && inline::run(program, at, &calls) {
            watch(INLINE, program);
            check(&program.functions[at], INLINE, checks)?;
            settled = 0;
            improve(program, at, first_passes(&program.functions[at], frames), &mut settled, checks, watch)?;
        }
        let function = &program.functions[at];
        if frames.is_none() && function.is_program && unroll::has_loop(function) {
            unroll_small(program, at, &mut settled, checks, watch)?;
        }
        all_settled.insert(id, settled);
    }
    if inline::drop_unreached(program) {
        watch(INLINE, program);
    }
    Ok(all_settled)
}

/// The passes that run while it may not be certain where a function's frame is.
fn first_passes(function: &MirFunction, certain: Option<Frames>) -> Passes {
    match certain {
        Some(frames) => Passes::of(frames),
        None if unroll::has_loop(function) => Passes::Unmixed,
        None => Passes::All,
    }
}

/// Outlines loop bodies where the verifier or the kernel needs that, and runs the last passes.
fn finish(
    program: &mut Program,
    frames: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    if sleep::run(program) {
        watch(SLEEP, program);
        program.functions.iter().try_for_each(|function| check(function, SLEEP, checks))?;
    }
    if task_ids::run(program) {
        watch(TASK_IDS, program);
        program.functions.iter().try_for_each(|function| check(function, TASK_IDS, checks))?;
        improve(program, 0, Passes::All, &mut 0, checks, watch)?;
    }
    outline_all(program, frames, checks, watch)?;
    program.loops.with_map_iteration = loop_callbacks::with_map_iteration(program);
    if program.loops.called || !program.loops.with_map_iteration.is_empty() {
        call_all(program, frames, checks, watch)?;
    }
    if pack::run(program) {
        watch(PACK, program);
        program.functions.iter().try_for_each(|function| check(function, PACK, checks))?;
    }
    program.functions.iter().try_for_each(|function| blame_pass(PACK, verify_packed(function)))?;
    relieve(program, frames, checks, watch)?;
    make_numbers(program, checks, watch)?;
    for (name, pass) in LAST {
        for at in 0..program.functions.len() {
            if pass(&mut program.functions[at]) {
                watch(name, program);
            }
            check(&program.functions[at], name, checks)?;
        }
    }
    make_numbers(program, checks, watch)?;
    if checks == Checks::LastStage {
        program.functions.iter().try_for_each(|function| verified(function, "all passes"))?;
    }
    Ok(())
}

/// Relieves the registers of all functions that those with [`Frames::Small`] reach.
fn relieve(
    program: &mut Program,
    frames: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    let small = frames.iter().filter(|(_, frames)| **frames == Frames::Small).map(|(id, _)| id);
    let small = reached(&program.functions, small);
    for function in program.functions.iter_mut().filter(|function| small.contains(&function.id)) {
        program.scratch_bytes = scratch::relieve(function, program.scratch_bytes);
        check(function, SCRATCH, checks)?;
    }
    if !small.is_empty() {
        watch(SCRATCH, program);
    }
    Ok(())
}

fn make_numbers(program: &mut Program, checks: Checks, watch: Watch<'_>) -> Result<(), VerifyError> {
    if kernel_pointers::run(program) {
        watch(KERNEL_POINTERS, program);
        program.functions.iter().try_for_each(|function| check(function, KERNEL_POINTERS, checks))?;
    }
    Ok(())
}

fn frames_of(frames: &BTreeMap<FuncId, Frames>, function: &MirFunction) -> Frames {
    frames.get(&function.id).copied().unwrap_or(Frames::OnStack)
}

/// Unrolls the small loops of a function, if it has no other loops and the verifier can follow all paths
/// through it.
fn unroll_small(
    program: &mut Program,
    at: usize,
    settled: &mut Settled,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    let function = &mut program.functions[at];
    if unroll::calls_others(function) {
        return Ok(());
    }
    let before = (function.clone(), *settled);
    if !unroll::run(function) {
        return Ok(());
    }
    if on_all_paths(function).is_none() {
        // The function has loops left, and other passes would not remove them.
        *function = before.0;
        return Ok(());
    }
    watch(UNROLL, program);
    check(&program.functions[at], UNROLL, checks)?;
    *settled = 0;
    improve(program, at, Passes::All, settled, checks, watch)?;
    if !may_follow_all_paths(&program.functions[at]) {
        (program.functions[at], *settled) = before;
        watch(UNROLL, program);
    }
    Ok(())
}

/// Outlines loop bodies and large helpers, in the functions with [`Frames::Shared`].
fn outline_all(
    program: &mut Program,
    frames: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    let mut at = 0;
    while at < program.functions.len() {
        if frames_of(frames, &program.functions[at]) != Frames::Shared {
            at += 1;
            continue;
        }
        let added = outline_loops::run(program, at);
        if outline_loops::outline_helper(program, at + added) || added > 0 {
            watch(OUTLINE, program);
            for changed in at..=at + added {
                check(&program.functions[changed], OUTLINE, checks)?;
                improve(program, changed, Passes::All, &mut 0, checks, watch)?;
            }
        }
        at += added + 1;
    }
    Ok(())
}

/// Replaces the loops in all functions by calls.
fn call_all(
    program: &mut Program,
    frames: &BTreeMap<FuncId, Frames>,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    let mut at = 0;
    while at < program.functions.len() {
        let function = &program.functions[at];
        let own = Passes::of(frames_of(frames, function));
        let passes = if program.is_body(function.id) { Passes::Unmixed } else { own };
        let (added, changed) = loop_callbacks::run(program, at);
        if changed {
            watch(CALLBACKS, program);
            for changed in at..=at + added {
                check(&program.functions[changed], CALLBACKS, checks)?;
                improve(program, changed, passes, &mut 0, checks, watch)?;
            }
        }
        at += added + 1;
    }
    Ok(())
}

/// The set of [`PASSES`] that find nothing in a function as it is: bit 0 is the first.
type Settled = u32;

/// Runs passes in order until none changes anything. `settled` is the set of passes known to find nothing,
/// before and after.
fn improve(
    program: &mut Program,
    at: usize,
    passes: Passes,
    settled: &mut Settled,
    checks: Checks,
    watch: Watch<'_>,
) -> Result<(), VerifyError> {
    let wanted = |name: &str| match passes {
        Passes::All => true,
        Passes::SmallFrames => SMALL_FRAMES.contains(&name),
        Passes::Unmixed => !MIXES_LOOPS.contains(&name),
    };
    let passes: Vec<_> = PASSES.iter().enumerate().filter(|(_, pass)| wanted(pass.name)).collect();
    let all = passes.iter().fold(0, |all, (bit, _)| all | 1 << bit);
    if *settled == 0 {
        compact(&mut program.functions[at]);
    }
    let packet_changes = PacketChanges::of(program);
    let mut flow = None;
    for (bit, pass) in passes.iter().cycle().take(MAX_PASS_ITERATIONS * passes.len()) {
        if *settled & all == all {
            break;
        }
        // A pass that found nothing finds nothing until something that it depends on has changed.
        if *settled & 1 << bit != 0 {
            continue;
        }
        let current = flow.get_or_insert_with(|| {
            let flow = Flow::new(&program.functions[at]);
            packet_changes.number(program, at, &flow);
            flow
        });
        let changes = (pass.run)(&mut program.functions[at], current);
        *settled |= 1 << bit;
        if changes.any() {
            let again = PASSES.iter().enumerate().filter(|(_, other)| other.after.meet(changes));
            *settled &= again.fold(!0, |kept, (bit, _)| kept & !(1 << bit));
            if changes.meet(Changes::JOINED | Changes::CONTROL_FLOW) {
                flow = None;
            }
            watch(pass.name, program);
        }
        check(&program.functions[at], pass.name, checks)?;
        if let (Checks::EveryStage, Some(flow)) = (checks, &flow) {
            unchanged(&program.functions[at], flow, pass.name)?;
        }
    }
    Ok(())
}

/// Checks that a pass left the control flow unchanged.
fn unchanged(function: &MirFunction, flow: &Flow, after: &str) -> Result<(), VerifyError> {
    if flow.is_of(function) {
        return Ok(());
    }
    let what = format!("after {after}: control goes other ways than before");
    Err(VerifyError { function: function.name.clone(), block: 0, what })
}

/// Runs the checks that are due after every pass.
fn check(function: &MirFunction, after: &str, checks: Checks) -> Result<(), VerifyError> {
    match checks {
        Checks::EveryStage => verified(function, after),
        Checks::LastStage => Ok(()),
    }
}

fn verified(function: &MirFunction, after: &str) -> Result<(), VerifyError> {
    blame_pass(after, verify(function))
}

/// Adds the name of the pass to a verification error.
fn blame_pass(after: &str, outcome: Result<(), VerifyError>) -> Result<(), VerifyError> {
    outcome.map_err(|error| VerifyError { what: format!("after {after}: {}", error.what), ..error })
}
