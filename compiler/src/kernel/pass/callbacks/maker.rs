//! The function of a turn, and the call in the place of the loop.

use std::collections::{BTreeMap, BTreeSet};

use super::super::outline::{Caller, Loop, Maker, Shown, Turn, load};
use super::capture::Captured;
use super::iterator::Over;
use crate::hir::FuncId;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{
    BinaryOp, Block, Callee, Condition, FunctionOrigin, Helper, MirFunction, Op, Origin, Slot, SlotData,
    Target, Terminator, Type, Value,
};

/// Numbers that are 0, which the verifier does not know.
struct Zeros {
    narrow: Value,
    wide: Value,
}

impl Zeros {
    /// Made of a number below 2^32, of which the verifier does not know that.
    fn new(low: Value, mut make: impl FnMut(Type, Op) -> Value) -> Zeros {
        let half = make(Type::I64, Op::Const(32));
        let high = make(Type::I64, Op::Binary(BinaryOp::LShr, low, half));
        let up = make(Type::I64, Op::Binary(BinaryOp::Shl, high, half));
        let wide = make(Type::I64, Op::Binary(BinaryOp::Or, up, high));
        let narrow = make(Type::I32, Op::Truncate(wide));
        Zeros { narrow, wide }
    }

    fn of(&self, ty: Type) -> Value {
        if ty == Type::I32 { self.narrow } else { self.wide }
    }
}

impl Captured {
    /// The function of a turn.
    pub fn callback(&self, function: &MirFunction, one: &Loop, id: FuncId) -> MirFunction {
        let params: &[&str] = match one.turn() {
            Turn::Number(_) => &["__index", "__captured"],
            Turn::Entry { .. } => &["__map", "__key", "__entry", "__captured"],
        };
        let mut maker = Maker::new(function, (id, FunctionOrigin::Callback), "turn", &self.slots);
        maker.body.params = params.iter().map(|name| (*name).to_owned()).collect();
        let start = maker.block();
        let (base, low) = self.receive_turn(function, one, start, &mut maker);
        let zeros = Zeros::new(low, |ty, op| maker.make(start, ty, op));
        for value in &self.zeros {
            maker.values.insert(*value, zeros.of(function.values[*value]));
        }
        for (value, place) in &self.incoming {
            let bound = self.bounds.get(value).copied();
            let own = maker.receive(start, function.values[*value], base, *place, bound);
            maker.values.insert(*value, own);
        }
        for (param, place) in function.blocks[one.header].params.iter().zip(&self.carried) {
            let Some(place) = place else { continue };
            let ty = function.values[*param];
            let value = maker.make(start, ty, load(ty, base, *place));
            let mut own = maker.make(start, ty, Op::Opaque { value, zero: zeros.of(ty) });
            if let Some(bound) = self.bounds.get(param) {
                own = maker.make(start, ty, Op::Below { value: own, bound: *bound });
            }
            maker.values.insert(*param, own);
        }
        for inst in &self.again {
            let inst = maker.copy(function, inst);
            maker.body.blocks[start].insts.push(inst);
        }
        for block in &one.blocks {
            let own = maker.block();
            maker.blocks.insert(*block, own);
        }
        let dominators = Dominators::new(function, &function.reverse_postorder());
        for block in &one.blocks {
            self.copy_block(function, one, *block, base, &dominators, &mut maker);
        }
        let into = function.blocks[one.header].term.targets();
        let args = into.into_iter().find(|to| to.block == one.entry).map(|to| to.args.clone());
        let args = args.unwrap_or_default().iter().map(|arg| maker.own(function, *arg)).collect();
        maker.body.blocks[start].term = Terminator::Jump(Target { block: maker.blocks[&one.entry], args });
        maker.body
    }

    /// Gives the function its parameters, and what a turn reads of them. Gives where the words are, and a
    /// number below 2^32 of which the verifier does not know that.
    fn receive_turn(
        &self,
        function: &MirFunction,
        one: &Loop,
        start: Block,
        maker: &mut Maker,
    ) -> (Value, Value) {
        let base = maker.new_value(Type::Ptr(Origin::Stack));
        let low = match one.turn() {
            Turn::Number(_) => {
                let index = maker.new_value(Type::I64);
                maker.body.blocks[start].params.extend([index, base]);
                let number = maker.make(start, Type::I32, Op::Truncate(index));
                let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
                let reads = insts.filter(|inst| one.reads_turn(inst) && matches!(inst.op, Op::Load { .. }));
                maker.values.extend(reads.filter_map(|inst| Some((inst.result?, number))));
                index
            }
            Turn::Entry { entries, keys } => {
                let map = maker.new_value(Type::I64);
                let [key, entry] = std::array::from_fn(|_| maker.new_value(Type::Ptr(Origin::Entry)));
                maker.body.blocks[start].params.extend([map, key, entry, base]);
                maker.values.extend(keys.iter().map(|own| (*own, key)));
                maker.values.extend(entries.iter().map(|own| (*own, entry)));
                maker.make(start, Type::I64, load(Type::I64, base, self.unknown.unwrap_or_default()))
            }
        };
        (base, low)
    }

    fn copy_block(
        &self,
        function: &MirFunction,
        one: &Loop,
        block: Block,
        base: Value,
        dominators: &Dominators,
        maker: &mut Maker,
    ) {
        let (data, own) = (&function.blocks[block], maker.blocks[&block]);
        for param in &data.params {
            let value = maker.own(function, *param);
            maker.body.blocks[own].params.push(value);
        }
        for inst in data.insts.iter().filter(|inst| !one.reads_turn(inst)) {
            let copy = maker.copy(function, inst);
            maker.body.blocks[own].insts.push(copy);
        }
        let mut term = data.term.clone();
        for (number, target) in term.targets_mut().into_iter().enumerate() {
            *target = if let Some(inside) = maker.blocks.get(&target.block).copied() {
                let args = target.args.iter().map(|arg| maker.own(function, *arg)).collect();
                Target { block: inside, args }
            } else if target.block == one.header {
                Target::to(self.next_turn(function, &target.args, base, maker))
            } else {
                Target::to(self.last_turn(function, one, (block, number), base, dominators, maker))
            };
        }
        if let Terminator::Branch { cond, .. } = &mut term {
            *cond = maker.own(function, *cond);
        }
        maker.body.blocks[own].term = term;
        maker.body.blocks[own].span = data.span;
    }

    /// Leaves what the next turn reads.
    fn next_turn(&self, function: &MirFunction, args: &[Value], base: Value, maker: &mut Maker) -> Block {
        let way = maker.block();
        for (arg, place) in args.iter().zip(&self.carried) {
            if let Some(place) = place {
                let own = maker.own(function, *arg);
                maker.store(way, own, base, *place);
            }
        }
        maker.leave(way, 0);
        way
    }

    /// Leaves what others read behind the loop, and which way is taken.
    fn last_turn(
        &self,
        function: &MirFunction,
        one: &Loop,
        exit: (Block, usize),
        base: Value,
        dominators: &Dominators,
        maker: &mut Maker,
    ) -> Block {
        let way = maker.block();
        let made_in = |value: Value| {
            one.blocks.iter().copied().find(|block| {
                let data = &function.blocks[*block];
                data.params.contains(&value) || data.insts.iter().any(|inst| inst.result == Some(value))
            })
        };
        for (value, place) in &self.outgoing {
            if made_in(*value).is_some_and(|made| dominators.dominates(made, exit.0)) {
                let own = maker.own(function, *value);
                maker.store(way, own, base, *place);
            }
        }
        if let (Some(place), Some(at)) = (self.code, self.exits.iter().position(|one| *one == exit)) {
            let code = maker.make(way, Type::I32, Op::Const(at as u64 + 1));
            maker.store(way, code, base, place);
        }
        maker.leave(way, 1);
        way
    }

    /// Puts the call in the place of the loop, its words from a byte of the frame on: loops of one function
    /// do not run at the same time.
    ///
    /// There is no call of no turns: the verifier would remove the function that it never comes to, but not
    /// its address. How many turns a walk has it does not know.
    pub fn call(&self, function: &mut MirFunction, one: &Loop, over: Over, id: FuncId, frame: u32) {
        let span = function.blocks[one.header].span;
        let size = self.end.max(8);
        let shown = Shown::new(function, one, &self.exits);
        let slot = function.slots.push(SlotData { size, position: frame });
        function.slot_bytes = function.slot_bytes.max(frame + size);
        let params = function.blocks[one.header].params.clone();
        let exits: Vec<Target> = self
            .exits
            .iter()
            .map(|(block, number)| function.blocks[*block].term.targets()[*number].clone())
            .collect();
        let ended = function.blocks[one.header].term.targets().into_iter().find(|to| to.block != one.entry);
        let ended = ended.cloned();
        function.blocks[one.header].insts.retain(|inst| inst.op.is_leaf());
        let mut caller = Caller { function, span };
        let [running, none, behind] = std::array::from_fn(|_| caller.block());
        let zero = caller.make(one.header, Type::I32, Op::Const(0));
        let cond = match over {
            Over::Numbers(turns) => {
                caller.make(one.header, Type::I32, Op::Compare(Condition::Eq, turns, zero))
            }
            Over::Map(_) => zero,
        };
        let (then, otherwise) = (Target::to(none), Target::to(running));
        caller.function.blocks[one.header].term = Terminator::Branch { cond, then, otherwise };
        let words = self.words(&params, zero, none, &mut caller);
        let after = self.run(&words, over, (slot, id), running, &mut caller);
        caller.function.blocks[running].term = Terminator::Jump(Target { block: behind, args: after });
        let before = words.iter().map(|word| word.first).collect();
        caller.function.blocks[none].term = Terminator::Jump(Target { block: behind, args: before });
        let mut found = BTreeMap::new();
        let mut code = zero;
        for word in &words {
            let ty = caller.function.values[word.first];
            let own = caller.function.values.push(ty);
            caller.function.blocks[behind].params.push(own);
            match word.stands_for {
                Some(value) => drop(found.insert(value, own)),
                None => code = own,
            }
        }
        for inst in &self.remade {
            if let Some(value) = inst.result {
                let ty = caller.function.values[value];
                let mut op = inst.op.clone();
                op.map_operands(&mut |operand| found.get(&operand).copied().unwrap_or(operand));
                found.insert(value, caller.make(behind, ty, op));
            }
        }
        let replaced = Replaced::new(caller.function, found, &self.zeros);
        replaced.apply(caller.function, one, &[running, none]);
        let target = |target: &Target| Target {
            block: target.block,
            args: target.args.iter().map(|arg| replaced.resolve(*arg)).collect(),
        };
        let mut at = behind;
        for (index, exit) in exits.iter().enumerate() {
            let number = caller.make(at, Type::I32, Op::Const(index as u64 + 1));
            let cond = caller.make(at, Type::I32, Op::Compare(Condition::Eq, code, number));
            let (way, next) = (caller.block(), caller.block());
            let tested = shown.test_again(self.exits[index], way, next, &mut caller);
            caller.function.blocks[tested].term = Terminator::Jump(target(exit));
            let (then, otherwise) = (Target::to(way), Target::to(next));
            caller.function.blocks[at].term = Terminator::Branch { cond, then, otherwise };
            at = next;
        }
        if let Some(ended) = &ended {
            caller.function.blocks[at].term = Terminator::Jump(target(ended));
        }
        for block in &one.blocks {
            let data = &mut caller.function.blocks[*block];
            data.insts.clear();
            data.term = Terminator::Jump(Target::to(*block));
        }
    }

    /// The words that turns write. What turns make is 0 before there is one, made in a block where there are
    /// none.
    fn words(&self, params: &[Value], zero: Value, none: Block, caller: &mut Caller<'_>) -> Vec<Word> {
        let mut words = Vec::new();
        for (param, place) in params.iter().zip(&self.carried) {
            let stands_for = Some(*param);
            words.extend(place.map(|place| Word { stands_for, place, first: *param }));
        }
        for (value, place) in &self.outgoing {
            let first = match caller.function.values[*value] {
                Type::I32 => zero,
                ty => caller.make(none, ty, Op::Const(0)),
            };
            words.push(Word { stands_for: Some(*value), place: *place, first });
        }
        words.extend(self.code.map(|place| Word { stands_for: None, place, first: zero }));
        words
    }

    /// Calls the turns in a block of its own. Gives what is in the words then: the verifier may think that it
    /// knows.
    ///
    /// That words are 0 before the first turn it does not know: what turns leave in some of them on some ways
    /// would be another state for each set of words otherwise. From Linux 6.8 on it goes through turns until
    /// there is nothing new; such a kernel calls turns in programs that walk alone. Source:
    /// kernel/bpf/verifier.c, `stacksafe` with `RANGE_WITHIN`, v6.12.
    fn run(
        &self,
        words: &[Word],
        over: Over,
        (slot, id): (Slot, FuncId),
        at: Block,
        caller: &mut Caller<'_>,
    ) -> Vec<Value> {
        let base = caller.make(at, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
        for (value, place) in &self.incoming {
            caller.store(at, *value, base, *place);
        }
        let is_zero = |word: &Word| Some(word.first) != word.stands_for;
        let hides = self.unknown.is_some() || self.beside_walk && words.iter().any(is_zero);
        let hidden = hides.then(|| {
            let random = Op::Call { callee: Callee::Helper(Helper::GetPrandom), args: Vec::new() };
            let number = caller.make(at, Type::I64, random);
            if let Some(place) = self.unknown {
                caller.store(at, number, base, place);
            }
            Zeros::new(number, |ty, op| caller.make(at, ty, op))
        });
        for word in words {
            let ty = caller.function.values[word.first];
            let first = match &hidden {
                _ if !is_zero(word) => word.first,
                Some(zeros) => zeros.of(ty),
                None => caller.make(at, ty, Op::Const(0)),
            };
            caller.store(at, first, base, word.place);
        }
        let callback = caller.make(at, Type::Ptr(Origin::Function), Op::FunctionAddr(id));
        let flags = caller.make(at, Type::I64, Op::Const(0));
        let (helper, over) = match over {
            Over::Numbers(turns) => (Helper::Loop, turns),
            Over::Map(map) => (Helper::ForEachMapElem, map),
        };
        let call = Op::Call { callee: Callee::Helper(helper), args: vec![over, callback, base, flags] };
        let ran = caller.make(at, Type::I64, call);
        let zeros = Zeros::new(ran, |ty, op| caller.make(at, ty, op));
        let mut found = Vec::new();
        for word in words {
            let ty = caller.function.values[word.first];
            let value = caller.load(at, word.first, base, word.place);
            let mut own = caller.make(at, ty, Op::Opaque { value, zero: zeros.of(ty) });
            if let Some(bound) = word.stands_for.and_then(|value| self.bounds.get(&value)) {
                own = caller.make(at, ty, Op::Below { value: own, bound: *bound });
            }
            found.push(own);
        }
        found
    }
}

/// A word that turns write.
struct Word {
    /// What is replaced behind the loop; nothing for the way out.
    stands_for: Option<Value>,
    place: u32,
    /// What is there before the first turn.
    first: Value,
}

/// What those behind the loop read instead: what was found there, and not the zeros that everybody knows now.
///
/// A number that a turn hides is found behind the loop as every other that a turn makes.
struct Replaced(BTreeMap<Value, Value>);

impl Replaced {
    fn new(function: &MirFunction, found: BTreeMap<Value, Value>, zeros: &BTreeSet<Value>) -> Replaced {
        let mut by = found;
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            if let (Op::Opaque { value, zero }, Some(result)) = (&inst.op, inst.result)
                && zeros.contains(zero)
            {
                by.entry(result).or_insert(*value);
            }
        }
        Replaced(by)
    }

    fn resolve(&self, mut value: Value) -> Value {
        while let Some(next) = self.0.get(&value) {
            value = *next;
        }
        value
    }

    /// Replaces every use outside of the loop.
    fn apply(&self, function: &mut MirFunction, one: &Loop, calling: &[Block]) {
        for block in function.blocks.ids() {
            // The call stores what the others read.
            if one.blocks.contains(&block) || block == one.header || calling.contains(&block) {
                continue;
            }
            let data = &mut function.blocks[block];
            data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut |value| self.resolve(value)));
            data.term.map_operands(&mut |value| self.resolve(value));
        }
    }
}
