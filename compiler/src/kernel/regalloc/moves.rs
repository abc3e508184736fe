//! Removes moves that the allocator leaves where it splits the range of a value around loops: stores of what the spill
//! slot holds already, loads of what the register holds, and moves to where nobody reads.

use regalloc2::{Function as _, OperandKind};

use super::{Graph, Move, Registers, ValueLocation};

/// The registers that hold the value of each spill slot, as bits.
type Copies = Vec<u16>;

/// Registers and spill slots, as bits: [`bit`].
type Locations = u128;

/// Runs until no move is in vain.
pub(super) fn simplify(graph: &Graph<'_>, registers: &mut Registers) {
    // A frame has fewer slots than there are bits.
    if registers.spill_slots == 0 || registers.spill_slots > MAX_SLOTS {
        return;
    }
    let effects: Vec<Effects> =
        (0..graph.insts.len()).map(|inst| Effects::of(graph, registers, inst)).collect();
    while remove_repeated(graph, &effects, registers) | remove_unread(graph, &effects, registers) {}
}

const MACHINE_REGISTERS: usize = 10;
const MAX_SLOTS: usize = Locations::BITS as usize - MACHINE_REGISTERS;

fn bit(location: ValueLocation) -> Locations {
    match location {
        ValueLocation::Reg(register) => 1 << register.number(),
        ValueLocation::Spill(slot) => 1 << (MACHINE_REGISTERS + slot),
    }
}

/// The registers that an instruction reads, and those that it sets or leaves undefined.
struct Effects {
    reads: u16,
    sets: u16,
}

impl Effects {
    fn of(graph: &Graph<'_>, registers: &Registers, inst: usize) -> Effects {
        let (mut reads, mut sets) = (0, 0);
        for (operand, register) in graph.operands[inst].iter().zip(&registers.operands[inst]) {
            match operand.kind() {
                OperandKind::Use => reads |= 1 << register.number(),
                OperandKind::Def => sets |= 1 << register.number(),
            }
        }
        let clobbered = graph.inst_clobbers(regalloc2::Inst::new(inst));
        Effects { reads, sets: clobbered.into_iter().fold(sets, |sets, one| sets | 1 << one.hw_enc()) }
    }

    /// What is read later, before the instruction.
    fn before(&self, live: Locations) -> Locations {
        live & !Locations::from(self.sets) | Locations::from(self.reads)
    }
}

fn insts(graph: &Graph<'_>, block: usize) -> std::ops::Range<usize> {
    let range = graph.ranges[block];
    range.first().index()..range.last().index() + 1
}

/// Removes moves to what holds the value already.
fn remove_repeated(graph: &Graph<'_>, effects: &[Effects], registers: &mut Registers) -> bool {
    let mut starts: Vec<Option<Copies>> = vec![None; graph.ranges.len()];
    starts[0] = Some(vec![0; registers.spill_slots]);
    let mut changed = true;
    while changed {
        changed = false;
        for block in 0..starts.len() {
            let Some(mut copies) = starts[block].clone() else { continue };
            for inst in insts(graph, block) {
                registers.before[inst].iter().for_each(|one| _ = moved(&mut copies, *one));
                set(&mut copies, effects[inst].sets);
                registers.after[inst].iter().for_each(|one| _ = moved(&mut copies, *one));
            }
            for successor in &graph.successors[block] {
                changed |= meet(&mut starts[successor.index()], &copies);
            }
        }
    }
    let mut removed = false;
    for (block, start) in starts.into_iter().enumerate() {
        let Some(mut copies) = start else { continue };
        for inst in insts(graph, block) {
            removed |= retain(&mut registers.before[inst], |one| moved(&mut copies, one));
            set(&mut copies, effects[inst].sets);
            removed |= retain(&mut registers.after[inst], |one| moved(&mut copies, one));
        }
    }
    removed
}

/// Keeps what holds on both ways into a block; returns whether that is less than was known.
fn meet(start: &mut Option<Copies>, copies: &Copies) -> bool {
    let Some(known) = start else {
        *start = Some(copies.clone());
        return true;
    };
    let mut changed = false;
    for (known, other) in known.iter_mut().zip(copies) {
        changed |= *known & !other != 0;
        *known &= other;
    }
    changed
}

/// Follows a move; returns whether it changes anything.
fn moved(copies: &mut Copies, Move { to, from }: Move) -> bool {
    match (from, to) {
        (ValueLocation::Spill(slot), ValueLocation::Reg(register)) => {
            let bit = 1 << register.number();
            if copies[slot] & bit != 0 {
                return false;
            }
            set(copies, bit);
            copies[slot] |= bit;
        }
        (ValueLocation::Reg(register), ValueLocation::Spill(slot)) => {
            let bit = 1 << register.number();
            if copies[slot] & bit != 0 {
                return false;
            }
            let other = copies.iter().find(|copies| **copies & bit != 0);
            copies[slot] = other.copied().unwrap_or(bit);
        }
        (ValueLocation::Reg(from), ValueLocation::Reg(to)) => {
            let (from, to) = (1 << from.number(), 1 << to.number());
            set(copies, to);
            copies.iter_mut().filter(|copies| **copies & from != 0).for_each(|copies| *copies |= to);
        }
        (ValueLocation::Spill(from), ValueLocation::Spill(to)) => copies[to] = copies[from],
    }
    true
}

/// Forgets what registers held.
fn set(copies: &mut Copies, registers: u16) {
    copies.iter_mut().for_each(|copies| *copies &= !registers);
}

/// Removes moves to registers and spill slots that nobody reads before they are set again.
fn remove_unread(graph: &Graph<'_>, effects: &[Effects], registers: &mut Registers) -> bool {
    let mut starts: Vec<Locations> = vec![0; graph.ranges.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..starts.len()).rev() {
            let mut live = at_end(graph, &starts, block);
            for inst in insts(graph, block).rev() {
                registers.after[inst].iter().rev().for_each(|one| _ = is_read(&mut live, *one));
                live = effects[inst].before(live);
                registers.before[inst].iter().rev().for_each(|one| _ = is_read(&mut live, *one));
            }
            changed |= live != starts[block];
            starts[block] = live;
        }
    }
    let mut removed = false;
    for block in 0..starts.len() {
        let mut live = at_end(graph, &starts, block);
        for inst in insts(graph, block).rev() {
            removed |= retain_reversed(&mut registers.after[inst], |one| is_read(&mut live, one));
            live = effects[inst].before(live);
            removed |= retain_reversed(&mut registers.before[inst], |one| is_read(&mut live, one));
        }
    }
    removed
}

fn at_end(graph: &Graph<'_>, starts: &[Locations], block: usize) -> Locations {
    graph.successors[block].iter().fold(0, |live, successor| live | starts[successor.index()])
}

/// Follows a move backwards; returns whether its result is read.
fn is_read(live: &mut Locations, Move { to, from }: Move) -> bool {
    let is_read = *live & bit(to) != 0;
    if is_read {
        *live = *live & !bit(to) | bit(from);
    }
    is_read
}

fn retain(moves: &mut Vec<Move>, keeps: impl FnMut(Move) -> bool) -> bool {
    let (before, mut keeps) = (moves.len(), keeps);
    moves.retain(|one| keeps(*one));
    moves.len() != before
}

fn retain_reversed(moves: &mut Vec<Move>, keeps: impl FnMut(Move) -> bool) -> bool {
    moves.reverse();
    let removed = retain(moves, keeps);
    moves.reverse();
    removed
}
