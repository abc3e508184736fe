//! Makes functions of the bodies of large loops, walks through maps among them, and of large helpers
//! ([`helpers`]): the verifier then looks at them on their own.
//!
//! Inside a loop under an iterator the verifier takes two ways for the same only if they leave the same
//! behind, down to bytes of the stack and numbers that nobody reads any more: each branch may double its
//! work, and a loop within a loop multiplies it. A global function is verified once, for whatever it is
//! given.
//!
//! ```text
//!                                                     store a
//! header: p = next(it); if p then body        header: p = next(it); if p then turn
//! body..: uses a, sets b                  ->  turn:   code = body(scratch)
//!         goes to header, or out                      goes to header, or out where b = load, as the code says
//! ```
//!
//! The function's frame must be in scratch memory (`kernel::scratch`): the body finds it there, and whatever
//! else goes in and out. What turns change is there from before the first turn on; numbers of the iterator,
//! and keys of a walk, are stored in each turn. Pointers to something else are parameters: of each it must be
//! known how many bytes the body uses behind it. Pointers into packets are made again, and what was tested of
//! them before the loop is tested again. A loop stays as it is where all that cannot be, or where pointers
//! change in it.

mod helpers;
pub mod loops;
mod maker;
mod packets;
mod plan;
mod reach;
mod shown;

use std::collections::{BTreeMap, BTreeSet};

use super::Bodies;
use super::callbacks::Iterator;
use crate::hir::FuncId;
use crate::kernel::mir::{
    Block, Callee, Condition, FunctionOrigin, Inst, MirFunction, Op, Program, Target, Terminator, Type, Value,
};
pub(super) use helpers::run as make_apart;
pub(super) use loops::{Loop, Turn, headers, loops, natural_blocks, split, turn_entries};
pub(super) use maker::{Caller, Maker, keep_only, load};
pub(super) use packets::Tested;
use plan::{Allowed, Carried, Plan};
pub(super) use shown::Shown;

/// Branches of a loop up to which the verifier is trusted to follow all ways.
const MAX_BRANCHES: usize = 8;

/// Whether a function has a loop that should be a function of its own, or is a turn of one.
pub fn has_large_loop(program: &Program, function: &MirFunction) -> bool {
    let is_turn = program.loops.are_called_in(function.id) && function.origin == FunctionOrigin::Callback;
    is_turn && is_large(program, function, &function.reverse_postorder())
        || loops(function).iter().any(|one| is_large(program, function, &one.blocks))
}

/// Whether a function has a loop with so many branches, before all passes, that it stays large.
pub fn has_huge_loop(program: &Program, function: &MirFunction) -> bool {
    let branches = |one: &Loop| branches(program, function, &one.blocks, &mut BTreeMap::new());
    loops(function).iter().any(|one| branches(one) > 8 * MAX_BRANCHES)
}

/// Whether there are too many branches in blocks of a function and in what they call.
fn is_large<'b>(
    program: &Program,
    function: &MirFunction,
    blocks: impl IntoIterator<Item = &'b Block>,
) -> bool {
    branches(program, function, blocks, &mut BTreeMap::new()) > MAX_BRANCHES
}

/// How many of the blocks branch, and how many of the functions' that they call: the verifier follows calls,
/// but for those of bodies of loops. One that leaves this constant on the stack or that one counts for three:
/// a constant that nobody reads any more makes each later turn another one.
fn branches<'b>(
    program: &Program,
    function: &MirFunction,
    blocks: impl IntoIterator<Item = &'b Block>,
    known: &mut BTreeMap<FuncId, usize>,
) -> usize {
    let mut found: usize = 0;
    let definitions = function.definitions();
    let is_left = |inst: &Inst| match inst.op {
        Op::Store { base, value, .. } => {
            matches!(definitions[base], Some(Op::StackAddr { .. }))
                && matches!(definitions[value], Some(Op::Const(_)))
        }
        _ => false,
    };
    let leaves = |to: &&Target| function.blocks[to.block].insts.iter().any(is_left);
    for data in blocks.into_iter().map(|block| &function.blocks[*block]) {
        if matches!(data.term, Terminator::Branch { .. }) {
            let differs = data.term.targets().iter().all(leaves);
            found = found.saturating_add(if differs { 3 } else { 1 });
        }
        for inst in &data.insts {
            if let Op::Call { callee: Callee::Function(id), .. } = inst.op
                && !program.is_body(id)
            {
                found = found.saturating_add(branches_of(program, id, known));
            }
        }
    }
    found
}

fn branches_of(program: &Program, id: FuncId, known: &mut BTreeMap<FuncId, usize>) -> usize {
    if let Some(found) = known.get(&id) {
        return *found;
    }
    let callee = program.functions.iter().find(|one| one.id == id);
    let found = callee.map_or(0, |callee| branches(program, callee, &callee.reverse_postorder(), known));
    known.insert(id, found);
    found
}

/// Makes functions of the bodies of a function's large loops, which come before it. Gives how many.
pub fn run(program: &mut Program, at: usize, bodies: Bodies) -> usize {
    let mut made = 0;
    let mut tried = BTreeSet::new();
    let by_number = program.loops.called;
    Iterator::give_entries(&mut program.functions[at]);
    let heights = heights(&loops(&program.functions[at]));
    while let Some(mut one) = next_loop(program, at + made, bodies, &heights, &mut tried) {
        let id = program.next_id;
        if !one.take_ends(&mut program.functions[at + made]) {
            continue;
        }
        let function = &program.functions[at + made];
        let plan = Plan::new(function, &one, program.scratch_bytes, Allowed::of(program, function));
        let Some(plan) = plan else { continue };
        program.use_id();
        program.loops.pointee_bytes.insert(id, plan.pointers.values().copied().collect());
        program.scratch_bytes = plan.end;
        let function = &mut program.functions[at + made];
        let body = plan.body(function, &one, id, by_number);
        plan.call(function, &one, id, by_number);
        program.functions.insert(at + made, body);
        made += 1;
    }
    made
}

/// How many loops are within each other in a loop, itself counted; by header.
fn heights(loops: &[Loop]) -> BTreeMap<Block, u32> {
    let mut heights = BTreeMap::new();
    // Inner ones come before those around them.
    for one in loops {
        let inner = heights.iter().filter(|(header, _)| one.blocks.contains(header));
        let height = inner.map(|(_, height)| *height).max().unwrap_or(0) + 1;
        heights.insert(one.header, height);
    }
    heights
}

fn next_loop(
    program: &Program,
    at: usize,
    bodies: Bodies,
    heights: &BTreeMap<Block, u32>,
    tried: &mut BTreeSet<Block>,
) -> Option<Loop> {
    let function = &program.functions[at];
    let wanted = |one: &Loop| {
        let height = heights.get(&one.header).copied().unwrap_or(1);
        match bodies {
            Bodies::All => true,
            Bodies::NoMapIteration => !one.is_walk(),
            Bodies::EveryOther => height % 2 == 0,
            Bodies::Innermost => height == 1,
            Bodies::None => false,
        }
    };
    let mut large =
        loops(function).into_iter().filter(|one| wanted(one) && is_large(program, function, &one.blocks));
    large.find(|one| tried.insert(one.header))
}

/// Where a value is handed over: bytes of the scratch slot.
pub(super) type Place = u32;

impl Plan {
    /// The function of the body, which is given the scratch slot's address, or its number.
    fn body(&self, function: &MirFunction, one: &Loop, id: FuncId, by_number: bool) -> MirFunction {
        let mut maker = Maker::new(function, (id, FunctionOrigin::Body), "loop", &self.slots);
        let tested = |pointer: &Value| (*pointer, self.is_tested_before(function, one, *pointer));
        let memory: Vec<(Value, bool)> = self.pointers.keys().map(tested).collect();
        let (base, found, null) = maker.start(function, self.base, self.context, &memory, by_number);
        for (value, place) in &self.incoming {
            let bound = self.bounds.get(value).copied();
            let own = maker.receive(found, function.values[*value], base, *place, bound);
            maker.values.insert(*value, own);
        }
        let found = self.make_addresses(function, found, null, &mut maker);
        for block in &one.blocks {
            let own = maker.block();
            maker.blocks.insert(*block, own);
        }
        for block in &one.blocks {
            self.copy_block(function, one, *block, base, &mut maker);
        }
        let args = function.blocks[one.header].term.targets();
        let args = args.into_iter().find(|to| to.block == one.entry).map(|to| to.args.clone());
        let args = args.unwrap_or_default().iter().map(|arg| maker.own(function, *arg)).collect();
        maker.body.blocks[found].term = Terminator::Jump(Target { block: maker.blocks[&one.entry], args });
        maker.body
    }

    /// Makes addresses again, and tests those in packets; the body ends where a test fails, which none does.
    /// Gives where it goes on.
    fn make_addresses(&self, function: &MirFunction, from: Block, failed: Block, maker: &mut Maker) -> Block {
        let mut at = from;
        let mut tests = self.tests.clone();
        let mut test = |pointer: Value, at: Block, maker: &mut Maker| {
            let Some((bytes, end)) = tests.remove(&pointer) else { return at };
            let (pointer, end) = (maker.own(function, pointer), maker.own(function, end));
            let there = maker.block();
            let cond = maker.make(at, Type::I32, Op::Within { pointer, bytes, end });
            let (then, otherwise) = (Target::to(there), Target::to(failed));
            maker.body.blocks[at].term = Terminator::Branch { cond, then, otherwise };
            there
        };
        for inst in &self.addresses {
            if let Op::InPacket { pointer, .. } = inst.op {
                at = test(pointer, at, maker);
            }
            let inst = maker.copy(function, inst);
            maker.body.blocks[at].insts.push(inst);
        }
        self.tests.keys().fold(at, |at, pointer| test(*pointer, at, maker))
    }

    fn copy_block(&self, function: &MirFunction, one: &Loop, block: Block, base: Value, maker: &mut Maker) {
        let (data, own) = (&function.blocks[block], maker.blocks[&block]);
        for param in &data.params {
            let value = maker.own(function, *param);
            maker.body.blocks[own].params.push(value);
        }
        for param in &data.params {
            self.publish(function, *param, own, base, maker);
        }
        for inst in data.insts.iter().filter(|inst| !one.runs_before(inst)) {
            let copy = maker.copy(function, inst);
            maker.body.blocks[own].insts.push(copy);
            if let Some(result) = inst.result {
                self.publish(function, result, own, base, maker);
            }
        }
        let mut term = data.term.clone();
        for (number, target) in term.targets_mut().into_iter().enumerate() {
            let args: Vec<Value> = target.args.iter().map(|arg| maker.own(function, *arg)).collect();
            *target = if let Some(inside) = maker.blocks.get(&target.block) {
                Target { block: *inside, args }
            } else {
                let way = maker.block();
                let back = target.block == one.header;
                if back {
                    for (carried, arg) in self.carried.iter().zip(&args) {
                        if let Carried::At(place) = carried {
                            maker.store(way, *arg, base, *place);
                        }
                    }
                }
                let code = self.exits.iter().position(|exit| *exit == (block, number)).map_or(0, |at| at + 1);
                maker.leave(way, code as u64);
                Target::to(way)
            };
        }
        if let Terminator::Branch { cond, .. } = &mut term {
            *cond = maker.own(function, *cond);
        }
        maker.body.blocks[own].term = term;
        maker.body.blocks[own].span = data.span;
    }

    /// Leaves a value where others read it.
    fn publish(&self, function: &MirFunction, value: Value, block: Block, base: Value, maker: &mut Maker) {
        if let Some(place) = self.outgoing.get(&value) {
            let own = maker.own(function, value);
            maker.store(block, own, base, *place);
        }
    }

    /// Puts the call in the place of the loop's body.
    fn call(&self, function: &mut MirFunction, one: &Loop, id: FuncId, by_number: bool) {
        let span = function.blocks[one.header].span;
        let exits: Vec<Target> = self
            .exits
            .iter()
            .map(|(block, number)| function.blocks[*block].term.targets()[*number].clone())
            .collect();
        let shown = Shown::new(function, one, &self.exits);
        let mut caller = Caller { function, span };
        self.read_outside(&mut caller, one);
        let asked = caller.function.blocks[one.header].insts.iter();
        let found_out = asked.chain(&self.before).filter_map(|inst| inst.result).collect();
        self.enter(&mut caller, one, &found_out);
        let turn = caller.block();
        caller.function.blocks[turn].insts = self.before.clone();
        for (value, place) in self.incoming.iter().filter(|(value, _)| found_out.contains(value)) {
            caller.store(turn, *value, self.base, *place);
        }
        let passed = self.context.into_iter().chain(self.pointers.keys().copied());
        let code = caller.call(turn, id, self.base, passed, by_number);
        let mut at = turn;
        // What only the body knew is read behind ways out alone.
        if exits.len() > 1 {
            caller.function.blocks[turn].insts.extend_from_slice(&self.remade);
        }
        for (index, exit) in exits.iter().enumerate() {
            let number = caller.make(at, Type::I32, Op::Const(index as u64 + 1));
            let cond = caller.make(at, Type::I32, Op::Compare(Condition::Eq, code, number));
            let (way, next) = (caller.block(), caller.block());
            if exits.len() == 1 {
                caller.function.blocks[way].insts.extend_from_slice(&self.remade);
            }
            let tested = shown.test_again(self.exits[index], way, next, &mut caller);
            let args = exit.args.iter().map(|arg| self.reread(&mut caller, tested, *arg)).collect();
            caller.function.blocks[tested].term = Terminator::Jump(Target { block: exit.block, args });
            let (then, otherwise) = (Target::to(way), Target::to(next));
            caller.function.blocks[at].term = Terminator::Branch { cond, then, otherwise };
            at = next;
        }
        let args = self.carried.iter().filter_map(|carried| match carried {
            Carried::Always(pointer) => Some(*pointer),
            Carried::At(_) => None,
        });
        let args = args.collect();
        caller.function.blocks[at].term = Terminator::Jump(Target { block: one.header, args });
        for target in caller.function.blocks[one.header].term.targets_mut() {
            if target.block == one.entry {
                *target = Target::to(turn);
            }
        }
        for block in &one.blocks {
            let data = &mut caller.function.blocks[*block];
            data.insts.clear();
            data.term = Terminator::Jump(Target::to(*block));
        }
    }

    /// Stores what the body reads on the ways into the loop, but for what is found out in each turn. Only
    /// pointers are parameters of the header then.
    fn enter(&self, caller: &mut Caller<'_>, one: &Loop, found_out: &BTreeSet<Value>) {
        let params = std::mem::take(&mut caller.function.blocks[one.header].params);
        let stays = |(_, carried): &(Value, &Carried)| matches!(carried, Carried::Always(_));
        let kept = params.iter().copied().zip(&self.carried).filter(stays).map(|(param, _)| param);
        caller.function.blocks[one.header].params = kept.collect();
        let known = |value: &Value| !found_out.contains(value) && !params.contains(value);
        for from in caller.function.reverse_postorder() {
            if one.blocks.contains(&from) {
                continue;
            }
            let mut term = caller.function.blocks[from].term.clone();
            for target in term.targets_mut().into_iter().filter(|to| to.block == one.header) {
                let way = caller.block();
                for (value, place) in self.incoming.iter().filter(|(value, _)| known(value)) {
                    caller.store(way, *value, self.base, *place);
                }
                let mut args = Vec::new();
                for (arg, carried) in target.args.iter().zip(&self.carried) {
                    match carried {
                        Carried::At(place) => caller.store(way, *arg, self.base, *place),
                        Carried::Always(_) => args.push(*arg),
                    }
                }
                caller.function.blocks[way].term = Terminator::Jump(Target { block: one.header, args });
                *target = Target::to(way);
            }
            caller.function.blocks[from].term = term;
        }
    }

    fn reread(&self, caller: &mut Caller<'_>, block: Block, value: Value) -> Value {
        match self.outgoing.get(&value) {
            Some(place) => {
                let again = caller.load(block, value, self.base, *place);
                match self.bounds.get(&value) {
                    Some(bound) => {
                        let ty = caller.function.values[value];
                        caller.make(block, ty, Op::Below { value: again, bound: *bound })
                    }
                    None => again,
                }
            }
            None => value,
        }
    }

    /// Lets those behind the loop read what the body leaves.
    fn read_outside(&self, caller: &mut Caller<'_>, one: &Loop) {
        for block in caller.function.reverse_postorder() {
            if one.blocks.contains(&block) {
                continue;
            }
            let insts = std::mem::take(&mut caller.function.blocks[block].insts);
            for mut inst in insts {
                inst.op.map_operands(&mut |value| self.reread(caller, block, value));
                caller.function.blocks[block].insts.push(inst);
            }
            let mut term = caller.function.blocks[block].term.clone();
            if block == one.header {
                self.read_behind(caller, one, &mut term);
            } else {
                term.map_operands(&mut |value| self.reread(caller, block, value));
            }
            caller.function.blocks[block].term = term;
        }
    }

    /// Reads what the header hands on behind the loop on the way there: a header only asks for the next turn.
    fn read_behind(&self, caller: &mut Caller<'_>, one: &Loop, term: &mut Terminator) {
        for target in term.targets_mut().into_iter().filter(|to| to.block != one.entry) {
            let way = caller.block();
            let args = target.args.iter().map(|arg| self.reread(caller, way, *arg)).collect();
            let behind = std::mem::replace(target, Target::to(way)).block;
            caller.function.blocks[way].term = Terminator::Jump(Target { block: behind, args });
        }
    }
}
