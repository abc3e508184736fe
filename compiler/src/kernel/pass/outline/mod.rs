//! Makes functions of the bodies of large loops, which the verifier then looks at on their own.
//!
//! Inside a loop under an iterator the verifier takes two ways for the same only if they leave the same behind, down to
//! bytes of the stack and numbers that nobody reads any more: each branch may double its work, and a loop within a loop
//! multiplies it. A global function is verified once, for whatever it is given.
//!
//! ```text
//! header: p = next(it); if p then body        header: p = next(it); if p then turn
//! body..: uses a, sets b                  ->  turn:   store a; code = body(scratch); b = load
//!         goes to header, or out                      goes to header or out, as the code says
//! ```
//!
//! The function's frame must be in scratch memory (`kernel::scratch`): the body finds it there, and whatever else goes in
//! and out. Pointers to something else are parameters: of each it must be known how many bytes the body uses behind it. A
//! loop stays as it is where that is not known, or where pointers change in it.

pub mod loops;
mod maker;
mod plan;
mod reach;
mod shown;

use std::collections::{BTreeMap, BTreeSet};

use super::callbacks::Iterator;
use crate::hir::FuncId;
use crate::index::Id;
use crate::kernel::mir::{
    Block, Callee, Condition, Function, Op, Origin, Program, Size, Target, Terminator, Type, Value,
};
use crate::kernel::scratch::NUMBER_OFFSET;
pub(super) use loops::{Loop, Turn, headers, loops, split, turn_entries};
pub(super) use maker::{Caller, Maker, keep_only, load};
use plan::{Allowed, Carried, Plan};
pub(super) use shown::Shown;

/// Branches of a loop up to which the verifier is trusted to follow all ways.
const MAX_BRANCHES: usize = 8;

/// Whether a function has a loop that should be a function of its own, or is a turn of one.
pub fn has_large_loop(program: &Program, function: &Function) -> bool {
    let is_turn = program.loops.are_called_in(function.id) && program.loops.callbacks.contains(&function.id);
    is_turn && is_large(program, function, &function.reverse_postorder())
        || loops(function).iter().any(|one| !one.is_walk() && is_large(program, function, &one.blocks))
}

/// Whether there are too many branches in blocks of a function and in what they call.
fn is_large<'b>(program: &Program, function: &Function, blocks: impl IntoIterator<Item = &'b Block>) -> bool {
    branches(program, function, blocks, &mut BTreeMap::new()) > MAX_BRANCHES
}

/// How many of the blocks branch, and how many of the functions' that they call: the verifier follows calls, but for those
/// of bodies of loops.
fn branches<'b>(
    program: &Program,
    function: &Function,
    blocks: impl IntoIterator<Item = &'b Block>,
    known: &mut BTreeMap<FuncId, usize>,
) -> usize {
    let mut found: usize = 0;
    for data in blocks.into_iter().map(|block| &function.blocks[*block]) {
        found = found.saturating_add(usize::from(matches!(data.term, Terminator::Branch { .. })));
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

/// Makes functions of the large loops of a function, which come before it. Gives how many.
pub fn run(program: &mut Program, at: usize) -> usize {
    let mut made = 0;
    let mut tried = BTreeSet::new();
    // Before Linux 6.2 the verifier takes what a global function is given for no key of a map.
    // Source: kernel/bpf/verifier.c, `map_key_value_types`, v6.1.
    let by_number = program.loops.called;
    Iterator::give_entries(&mut program.functions[at]);
    while let Some(mut one) = next_loop(program, at + made, &mut tried) {
        let id = FuncId::new(program.script_functions + program.bodies);
        let function = &mut program.functions[at + made];
        if !one.take_ends(function) {
            continue;
        }
        let handed = (!by_number).then_some(&program.loops.handed);
        let allowed = Allowed { context: program.context.is_some(), handed };
        let Some(plan) = Plan::new(function, &one, program.scratch_bytes, allowed) else { continue };
        program.bodies += 1;
        program.loops.handed.insert(id, plan.pointers.values().copied().collect());
        program.scratch_bytes = plan.end;
        let body = plan.body(function, &one, id, by_number);
        plan.call(function, &one, id, by_number);
        program.functions.insert(at + made, body);
        made += 1;
    }
    made
}

fn next_loop(program: &Program, at: usize, tried: &mut BTreeSet<Block>) -> Option<Loop> {
    let function = &program.functions[at];
    let found = loops(function);
    let mut large =
        found.into_iter().filter(|one| !one.is_walk() && is_large(program, function, &one.blocks));
    large.find(|one| tried.insert(one.header))
}

/// Where a value is handed over: bytes of the scratch slot.
pub(super) type Place = u32;

impl Plan {
    /// The function of the body.
    /// It is given the scratch slot's address, or its number.
    fn body(&self, function: &Function, one: &Loop, id: FuncId, by_number: bool) -> Function {
        let params = ["__scratch"].into_iter().chain(self.context.map(|_| "__ctx")).map(str::to_owned);
        let params = params.chain((0..self.pointers.len()).map(|at| format!("__memory{at}"))).collect();
        let mut maker = Maker::new(function, id, "loop", params, &self.slots);
        let [start, none, found] = std::array::from_fn(|_| maker.block());
        let ty = if by_number { Type::I32 } else { Type::Ptr(Origin::EntryOrNull) };
        let param = maker.new_value(ty);
        maker.body.blocks[start].params.push(param);
        let given = if by_number { maker.look_up(start, param) } else { param };
        if let Some(context) = self.context {
            let own = maker.own(function, context);
            maker.body.blocks[start].params.push(own);
        }
        let memory: Vec<(Value, Value)> = self
            .pointers
            .keys()
            .map(|pointer| (*pointer, maker.pointer_param(function, start, *pointer)))
            .collect();
        let null = maker.make(start, Type::I32, Op::IsNull(given));
        let (then, otherwise) = (Target::to(none), Target::to(found));
        maker.body.blocks[start].term = Terminator::Branch { cond: null, then, otherwise };
        maker.leave(none, 0);
        let base = maker.make(found, Type::Ptr(Origin::Entry), Op::NonNull(given));
        maker.values.insert(self.base, base);
        let found = memory.into_iter().fold(found, |at, (pointer, param)| {
            let tested = self.is_tested_before(function, one, pointer);
            maker.pass_unless_null(function, (pointer, tested), param, (at, none))
        });
        for inst in &self.addresses {
            let inst = maker.copy(function, inst);
            maker.body.blocks[found].insts.push(inst);
        }
        for (value, place) in &self.incoming {
            let bound = self.bounds.get(value).copied();
            let own = maker.receive(found, function.values[*value], base, *place, bound);
            maker.values.insert(*value, own);
        }
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

    fn copy_block(&self, function: &Function, one: &Loop, block: Block, base: Value, maker: &mut Maker) {
        let (data, own) = (&function.blocks[block], maker.blocks[&block]);
        for param in &data.params {
            let value = maker.own(function, *param);
            maker.body.blocks[own].params.push(value);
        }
        for param in &data.params {
            self.publish(function, *param, own, base, maker);
        }
        for inst in data.insts.iter().filter(|inst| !one.reads_turn(inst)) {
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
    fn publish(&self, function: &Function, value: Value, block: Block, base: Value, maker: &mut Maker) {
        if let Some(place) = self.outgoing.get(&value) {
            let own = maker.own(function, value);
            maker.store(block, own, base, *place);
        }
    }

    /// Puts the call in the place of the loop's body.
    fn call(&self, function: &mut Function, one: &Loop, id: FuncId, by_number: bool) {
        let span = function.blocks[one.header].span;
        let exits: Vec<Target> = self
            .exits
            .iter()
            .map(|(block, number)| function.blocks[*block].term.targets()[*number].clone())
            .collect();
        let shown = Shown::new(function, one, &self.exits);
        self.read_outside(function, one);
        let mut caller = Caller { function, span };
        let turn = caller.block();
        caller.function.blocks[turn].insts = self.counter.clone();
        for (value, place) in &self.incoming {
            caller.store(turn, *value, self.base, *place);
        }
        let number = Op::Load { size: Size::W, base: self.base, offset: NUMBER_OFFSET };
        let slot = if by_number { caller.make(turn, Type::I32, number) } else { self.base };
        let args = [slot].into_iter().chain(self.context).chain(self.pointers.keys().copied()).collect();
        let code = caller.make(turn, Type::I32, Op::Call { callee: Callee::Function(id), args });
        let mut at = turn;
        for (index, exit) in exits.iter().enumerate() {
            let number = caller.make(at, Type::I32, Op::Const(index as u64 + 1));
            let cond = caller.make(at, Type::I32, Op::Compare(Condition::Eq, code, number));
            let (way, next) = (caller.block(), caller.block());
            let tested = shown.test_again(self.exits[index], way, next, &mut caller);
            let args = exit.args.iter().map(|arg| self.reread(&mut caller, tested, *arg)).collect();
            caller.function.blocks[tested].term = Terminator::Jump(Target { block: exit.block, args });
            let (then, otherwise) = (Target::to(way), Target::to(next));
            caller.function.blocks[at].term = Terminator::Branch { cond, then, otherwise };
            at = next;
        }
        let params = caller.function.blocks[one.header].params.clone();
        let args = params.iter().zip(&self.carried).map(|(param, carried)| match carried {
            Carried::Always(value) => *value,
            Carried::At(place) => caller.load(at, *param, self.base, *place),
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
            None => match self.remade.get(&value) {
                Some(inst) => {
                    let ty = caller.function.values[value];
                    caller.make(block, ty, inst.clone())
                }
                None => value,
            },
        }
    }

    /// Lets those behind the loop read what the body leaves.
    fn read_outside(&self, function: &mut Function, one: &Loop) {
        let span = function.span;
        let mut caller = Caller { function, span };
        for block in caller.function.reverse_postorder() {
            if one.blocks.contains(&block) {
                continue;
            }
            let insts = std::mem::take(&mut caller.function.blocks[block].insts);
            for mut inst in insts {
                inst.op.map_operands(&mut |value| self.reread(&mut caller, block, value));
                caller.function.blocks[block].insts.push(inst);
            }
            let mut term = caller.function.blocks[block].term.clone();
            term.map_operands(&mut |value| self.reread(&mut caller, block, value));
            caller.function.blocks[block].term = term;
        }
    }
}
