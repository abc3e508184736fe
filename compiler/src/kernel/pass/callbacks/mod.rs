//! Makes a call of `bpf_for_each_map_elem` of each walk through a map (Linux 5.13), and a call of `bpf_loop`
//! (Linux 5.17) of each loop under an iterator: for kernels that have no iterators (before Linux 6.4), and in
//! programs that walk ([`with_map_iteration`]).
//!
//! ```text
//!     new(&it, 0, turns)
//! header(c):                                  header(c):
//!     p = next(&it); if p then body               store what the body reads, and c
//! body..: uses a, c, sets b               ->      bpf_loop(turns, function, &captured, 0)
//!     goes to header(c'), or out                  load b, c; goes where the code says
//! end: destroy(&it)                           function(index, captured):
//!                                                 load a, c; body; store b, c'; 0 to go on, 1 to end, with a code
//! ```
//!
//! What goes in and out lies in words of the caller's frame. The function is static, so the verifier looks at
//! it with what it knows of the caller, pointers among the words included. A kernel before 6.8 looks at one
//! turn of it only, and then believes to know what the caller's frame holds; it removes branches that cannot
//! be taken then. So every number that turns change is hidden from it where it is read ([`Op::Opaque`]), no
//! pointer changes, and the body writes to no other memory of the stack. A loop that would is left as it is,
//! and refused later. Source: kernel/bpf/verifier.c, `prepare_func_exit` and
//! `opt_hard_wire_dead_code_branches`, v6.1.
//!
//! A turn that changes the packet, and so is the last one, takes pointers into it anew: the verifier looks at
//! one more, which finds none.
//!
//! What a turn has tested of a pointer, its caller tests again on the way out
//! ([`Shown`](super::outline::Shown)).
//!
//! The function of a walk is given the map, the key and the entry instead of an index. What hides its numbers
//! is a word more, which the caller fills with a number that nobody knows.

mod capture;
mod iterator;
mod maker;
mod region;
mod stack;
mod walks;

use std::collections::BTreeSet;

use self::capture::Captured;
pub(super) use self::iterator::Iterator;
use self::stack::Receivers;
pub use self::walks::{refusals, with_map_iteration};
use super::outline::{Loop, loops};
use super::packet_generations::PacketChanges;
use crate::hir::FuncId;
use crate::kernel::mir::{Block, KeptReason, MirFunction, Program, Slot};

/// What a loop is in.
struct Around {
    receivers: Receivers,
    /// Bytes of the function's frame.
    frame: u32,
    /// Whether the program walks.
    beside_walk: bool,
    /// What changes packets.
    changing: PacketChanges,
}

/// Makes calls of the loops of a function; the functions that they call come before it. Gives how many, and
/// whether anything changed.
pub fn run(program: &mut Program, at: usize) -> (usize, bool) {
    let around = Around {
        receivers: Receivers::of(program),
        frame: program.functions[at].slot_bytes,
        beside_walk: program.loops.with_map_iteration.contains(&program.functions[at].id),
        changing: PacketChanges::of(program),
    };
    Iterator::give_entries(&mut program.functions[at]);
    let mut made = 0;
    let mut tried = BTreeSet::new();
    let called = program.loops.are_called_in(program.functions[at].id);
    while let Some((iterator, one)) = next_loop(&program.functions[at + made], called, &tried) {
        tried.insert(iterator.slot);
        let mut function = program.functions[at + made].clone();
        let one = match (one, iterator.header) {
            (None, Some(header)) if iterator.is_walk() => Loop::once(&mut function, header),
            (one, _) => one,
        };
        let Some(one) = one else {
            match iterator.run_once(&mut function) {
                Ok(()) => program.functions[at + made] = function,
                Err(kept) => program.loops.kept.push((iterator.span, kept)),
            }
            continue;
        };
        let id = program.next_id;
        match attempt(&mut function, &iterator, one, id, &around) {
            Ok(callback) => {
                program.functions[at + made] = function;
                program.functions.insert(at + made, callback);
                if around.beside_walk {
                    program.loops.with_map_iteration.insert(id);
                }
                program.use_id();
                made += 1;
            }
            Err(kept) => program.loops.kept.push((iterator.span, kept)),
        }
    }
    (made, !tried.is_empty())
}

/// Whether a function has a loop under an iterator, or a walk.
pub fn has_iterator(function: &MirFunction) -> bool {
    has_iterator_in(function, &function.reverse_postorder())
}

/// Whether one of the blocks has a loop under an iterator, or a walk.
pub fn has_iterator_in(function: &MirFunction, blocks: &[Block]) -> bool {
    blocks.iter().flat_map(|block| &function.blocks[*block].insts).any(iterator::is_step)
}

/// Whether a function has a walk.
pub fn has_walk(function: &MirFunction) -> bool {
    let order = function.reverse_postorder();
    order.iter().flat_map(|block| &function.blocks[*block].insts).any(iterator::is_of_walk)
}

/// The next loop that was not tried, inner ones before those around them; without blocks if it is one over
/// numbers that never comes back. Without the helper for those, only walks.
fn next_loop(
    function: &MirFunction,
    called: bool,
    tried: &BTreeSet<Slot>,
) -> Option<(Iterator, Option<Loop>)> {
    let order = function.reverse_postorder();
    let open = Iterator::all(function).into_iter();
    let open = open.filter(|one| !tried.contains(&one.slot) && (called || one.is_walk()));
    // The header of a loop around comes first.
    let next = open.max_by_key(|one| order.iter().position(|block| Some(*block) == one.header))?;
    let natural = loops(function).into_iter().find(|natural| Some(natural.header) == next.header);
    Some((next, natural))
}

fn attempt(
    function: &mut MirFunction,
    iterator: &Iterator,
    mut one: Loop,
    id: FuncId,
    around: &Around,
) -> Result<MirFunction, KeptReason> {
    let zeros = iterator.zeros(function);
    iterator.remove(function)?;
    if iterator.is_walk() && !one.take_ends(function) {
        return Err(KeptReason::Shape);
    }
    region::take_pointers(function, &mut one)?;
    let mut insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    if insts.any(|inst| iterator::is_step(inst) && !one.reads_turn(inst)) {
        return Err(KeptReason::Inner);
    }
    let own = capture::lift_addresses(function, &one);
    let captured = Captured::new(function, &one, own, zeros, around)?;
    let callback = captured.callback(function, &one, id);
    captured.call(function, &one, iterator.over, id, around.frame);
    Ok(callback)
}
