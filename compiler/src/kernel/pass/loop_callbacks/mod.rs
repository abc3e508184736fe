//! Replaces loops by calls of the kernel's helpers that iterate: each map iteration by `bpf_for_each_map_elem`
//! (Linux 5.13), and each loop under a number iterator by `bpf_loop` (Linux 5.17) for kernels that have no
//! iterators (before Linux 6.4) and in programs with map iterations ([`with_map_iteration`]).
//!
//! ```text
//!     new(&it, 0, iterations)
//! header(c):                                  header(c):
//!     p = next(&it); if p then body               store what the body reads, and c
//! body..: reads a, c; defines b           ->      bpf_loop(iterations, function, &captures, 0)
//!     jumps to header(c'), or exits               load b, c; jump to the exit that the code names
//! end: destroy(&it)                           function(index, captures):
//!                                                 load a, c; body; store b, c' and the exit; 0 to go on, 1 to end
//! ```
//!
//! Values cross the call in words of the caller's stack frame. The function is static, so the verifier checks it
//! with what it knows of the caller, pointers among the words included. A kernel before 6.8 checks one iteration
//! only, and then believes to know what the caller's frame holds; it removes branches that cannot be taken then.
//! So every loop-carried number is hidden from it where it is read ([`Op::Opaque`]), loop-carried pointers are such
//! numbers, too (`choices`), and the body writes to no other stack memory. A loop for which that does not hold stays, and
//! is refused later.
//! Source: kernel/bpf/verifier.c, `prepare_func_exit` and `opt_hard_wire_dead_code_branches`, v6.1.
//!
//! Where the caller has a scratch slot, numbers cross the call there, and the words are pointers: the verifier knows
//! nothing of what the slot holds, so nothing is hidden, and no two states differ by it.
//!
//! An iteration that changes the packet, and so is the last one, loads packet pointers again: the verifier checks
//! one iteration more, in which the old ones are invalid.
//!
//! The function of a map iteration gets the map, the key and the entry instead of an index. Its numbers are
//! hidden by one more word, which the caller fills with a number that the verifier does not know.

mod choices;
mod form;
mod growth;
mod map_iterations;
mod stack;

use std::collections::{BTreeMap, BTreeSet};

use self::choices::EntryWords;
use self::form::CallbackForm;
pub use self::map_iterations::{refusals, with_map_iteration};
use self::stack::{Receivers, StackPointers};
use super::packet_generations::PacketChanges;
use super::region::{BodyMaker, Captures, Region, SharedMemory, own_slots};
use crate::hir::{FuncId, MapId};
use crate::index::IndexVec;
use crate::kernel::limits::STACK_BYTES;
use crate::kernel::mir::iterator_loops::{IteratorLoop, loop_of, loops};
use crate::kernel::mir::loop_iterators::{LoopIterator, is_step};
use crate::kernel::mir::{
    Callee, FunctionOrigin, Helper, Inst, KeptReason, MirFunction, Op, Program, Slot, Terminator, Value,
};
use crate::kernel::scratch::scratch_slot;

/// The limit of bytes that a callback shares with its caller: the rest of the stack is for everything else.
const MAX_BYTES: u32 = STACK_BYTES / 2;

/// The name of a callback's parameter with the address of the words that it shares with its caller.
pub const CAPTURED: &str = "__captured";

/// What the loops of a function are in.
struct Surroundings {
    receivers: Receivers,
    /// The bytes of the function's stack frame before its first callback.
    frame: u32,
    /// Whether the program iterates over a map.
    with_map_iteration: bool,
    packet_changes: PacketChanges,
    /// The bytes of the keys of the script's maps.
    keys: BTreeMap<MapId, u32>,
    words: EntryWords,
}

/// Replaces the loops of a function by calls; the functions of their bodies come before it. Returns how many
/// there are, and whether anything changed.
pub fn run(program: &mut Program, at: usize) -> (usize, bool) {
    let mut surroundings = Surroundings {
        receivers: Receivers::of(program),
        frame: program.functions[at].slot_bytes,
        with_map_iteration: program.loops.with_map_iteration.contains(&program.functions[at].id),
        packet_changes: PacketChanges::of(program),
        keys: program.keys.clone(),
        words: EntryWords::new(),
    };
    LoopIterator::give_entries(&mut program.functions[at]);
    let mut added = 0;
    let mut attempted = BTreeSet::new();
    let is_called = program.loops.are_called_in(program.functions[at].id);
    while let Some((iterator, one)) = next_loop(&program.functions[at + added], is_called, &attempted) {
        attempted.insert(iterator.slot);
        let mut function = program.functions[at + added].clone();
        let id = program.next_id;
        let scratch_bytes = &mut program.scratch_bytes;
        match replace(&mut function, &iterator, one, (id, scratch_bytes), &mut surroundings) {
            Ok(callback) => {
                program.functions[at + added] = function;
                let Some(callback) = callback else { continue };
                program.functions.insert(at + added, callback);
                if surroundings.with_map_iteration {
                    program.loops.with_map_iteration.insert(id);
                }
                program.use_id();
                added += 1;
            }
            Err(kept) => program.loops.kept.push((iterator.span, kept)),
        }
    }
    (added, !attempted.is_empty())
}

/// Whether a loop of a function that is to be called writes to stack memory that other code uses: such a loop can be
/// called only if that memory is no stack.
pub fn writes_shared_stack(program: &Program, function: &MirFunction) -> bool {
    let called = if program.loops.are_called_in(function.id) { loops(function) } else { Vec::new() };
    if called.is_empty() {
        return false;
    }
    let receivers = Receivers::of(program);
    called.iter().any(|one| {
        let (own, _) = own_slots(function, one, |inst| !one.reads_iteration(inst));
        StackPointers::new(function, &receivers, &own).writes(one)
    })
}

/// The next loop that was not attempted, inner ones before those around them; `None` for one that is never
/// repeated. Where number iterators stay, only map iterations.
fn next_loop(
    function: &MirFunction,
    is_called: bool,
    attempted: &BTreeSet<Slot>,
) -> Option<(LoopIterator, Option<IteratorLoop>)> {
    let order = function.reverse_postorder();
    let open = LoopIterator::all(function).into_iter();
    let open = open.filter(|one| !attempted.contains(&one.slot) && (is_called || one.is_over_map()));
    // The header of a loop precedes those of inner loops.
    let next = open.max_by_key(|one| order.iter().position(|block| Some(*block) == one.header))?;
    let natural = next.header.and_then(|header| loop_of(function, header));
    Some((next, natural))
}

/// Replaces a loop. Returns the function of its body, unless it is a loop over numbers that is never repeated.
fn replace(
    function: &mut MirFunction,
    iterator: &LoopIterator,
    one: Option<IteratorLoop>,
    (id, scratch_bytes): (FuncId, &mut u32),
    surroundings: &mut Surroundings,
) -> Result<Option<MirFunction>, KeptReason> {
    let one = match (one, iterator.header) {
        (None, Some(header)) if iterator.is_over_map() => IteratorLoop::once(function, header),
        (one, _) => one,
    };
    let Some(mut one) = one else {
        iterator.run_once(function)?;
        return Ok(None);
    };
    let mut zeros = iterator.zeros(function);
    iterator.header.ok_or(KeptReason::Shape)?;
    iterator.remove(function);
    if iterator.is_over_map() && !one.absorb_ends(function) {
        return Err(KeptReason::Shape);
    }
    choices::run(function, &mut one, (iterator.over, &mut zeros), surroundings);
    growth::extend(function, &mut one)?;
    let mut insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    if insts.any(|inst| is_step(inst) && !one.reads_iteration(inst)) {
        return Err(KeptReason::Inner);
    }
    check_header(function, &one)?;
    let (slots, _) = own_slots(function, &one, |inst| !one.reads_iteration(inst));
    lift_addresses(function, &one, &slots);
    let source = function.clone();
    let region = Region::new(&source, &one, false);
    let harmless = slots.iter().chain(surroundings.words.keys()).copied().collect();
    if StackPointers::new(&source, &surroundings.receivers, &harmless).writes(&one) {
        return Err(KeptReason::Stack);
    }
    check_calls(&region)?;
    let scratch = scratch_slot(&source);
    let mut memory = match scratch {
        Some(_) => SharedMemory::of_two(*scratch_bytes),
        None => SharedMemory::after(0),
    };
    let mut form = CallbackForm::new(&region, &slots, zeros, surroundings, (scratch, &mut memory));
    let captures = Captures::new(&region, &mut form, memory)?;
    form.check_packets(&captures)?;
    let is_other = |(kept, param): (&Option<Value>, &Value)| kept.is_some_and(|kept| kept != *param);
    if captures.kept.iter().zip(region.params()).any(is_other) {
        return Err(KeptReason::Pointer);
    }
    if captures.memory.pointer_bytes() > MAX_BYTES {
        return Err(KeptReason::Size);
    }
    if scratch.is_some() {
        *scratch_bytes = captures.memory.end;
    }
    let maker = BodyMaker::new(&source, (id, FunctionOrigin::Callback), "turn", &slots);
    let callback = captures.body(&region, &form, maker);
    form.call(&region, &captures, (iterator.over, id), function);
    Ok(Some(callback))
}

/// Whether bounds that the verifier must see come from checks: the value is rematerialised then.
fn is_checked(ops: &IndexVec<Value, Option<&Op>>, op: &Op) -> bool {
    // Operands are shared: each is visited once, or a chain of `v + v` would take exponential time.
    let (mut seen, mut open) = (BTreeSet::new(), vec![op]);
    while let Some(op) = open.pop() {
        match op {
            Op::Below { .. } => return true,
            Op::ZeroExtend(_) | Op::SignExtend(_) | Op::Truncate(_) | Op::Narrow { .. } | Op::Binary(..) => {
                let unseen = op.operands().into_iter().filter(|operand| seen.insert(*operand));
                open.extend(unseen.filter_map(|operand| ops[operand]));
            }
            _ => {}
        }
    }
    false
}

/// A callback can neither release a record that was reserved outside nor make a tail call. Source:
/// kernel/bpf/verifier.c, `release_reference` and `check_helper_call`, v6.1.
fn check_calls(region: &Region<'_>) -> Result<(), KeptReason> {
    let unchecked = |mut value: Value| {
        while let Some(Op::NonNull(from)) = region.ops[value] {
            value = *from;
        }
        value
    };
    let blocks = region.one.blocks.iter().map(|block| &region.function.blocks[*block]);
    for inst in blocks.flat_map(|data| &data.insts) {
        match &inst.op {
            Op::Call { callee: Callee::Helper(Helper::TailCall), .. } => return Err(KeptReason::Shape),
            Op::Call { callee: Callee::Helper(Helper::RingSubmit | Helper::RingDiscard), args }
                if !region.defined.contains(&unchecked(args[0])) =>
            {
                return Err(KeptReason::Pointer);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a header only asks for the next item, and branches to the body if there is one.
fn check_header(function: &MirFunction, one: &IteratorLoop) -> Result<(), KeptReason> {
    let data = &function.blocks[one.header];
    let is_call = |inst: &&Inst| matches!(inst.op, Op::Call { .. });
    let mut calls = data.insts.iter().filter(is_call);
    let item = calls.next().and_then(|inst| inst.result);
    let is_only_call = item.is_some() && calls.next().is_none();
    let asks = |inst: &Inst| inst.op.is_leaf() || matches!(inst.op, Op::IsNull(_) | Op::Call { .. });
    let branches = match &data.term {
        Terminator::Branch { cond, otherwise, .. } if otherwise.block == one.entry => {
            let tests =
                |inst: &Inst| inst.result == Some(*cond) && item.map(Op::IsNull).as_ref() == Some(&inst.op);
            data.insts.iter().any(tests)
        }
        _ => false,
    };
    if is_only_call && branches && data.insts.iter().all(asks) { Ok(()) } else { Err(KeptReason::Shape) }
}

/// Moves addresses of stack slots that are not the callback's own to the start of the function.
fn lift_addresses(function: &mut MirFunction, one: &IteratorLoop, own: &BTreeSet<Slot>) {
    let mut lifted = Vec::new();
    for block in &one.blocks {
        let is_foreign =
            |inst: &mut Inst| matches!(inst.op, Op::StackAddr { slot, .. } if !own.contains(&slot));
        lifted.extend(function.blocks[*block].insts.extract_if(.., is_foreign));
    }
    let entry = function.entry();
    function.blocks[entry].insts.splice(..0, lifted);
}
