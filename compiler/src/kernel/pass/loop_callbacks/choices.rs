//! Pointers that change between iterations, as numbers: which of the loop's pointers each one is.
//!
//! ```text
//! header(p):                           header(p, n):          n is 0 before the first iteration
//!     body                                 q = p if n is 0, a if n is 1, *word if n is 2
//!                                          body, with q for p
//!     jump header(a)                   ->  jump header(p, 1)
//!     jump header(entry of a map)          *word = the entry; jump header(p, 2)
//! ```
//!
//! A kernel before 6.8 checks one iteration only, and would know the pointer of the first one. It does not know the number,
//! and so checks the body with each pointer. A pointer to an entry is in a word of the stack frame, which holds an entry of
//! the same map, or null, before the first iteration: the verifier knows the same of it in all iterations.
//!
//! Not here: pointers of other origins, which stay as they are.

mod before;
mod find;

use std::collections::{BTreeMap, BTreeSet};

use self::before::Before;
use super::Surroundings;
use crate::hir::MapId;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::IteratorLoop;
use crate::kernel::mir::loop_iterators::Over;
use crate::kernel::mir::{
    Block, Condition, MirFunction, Op, Origin, Slot, SlotData, Target, Type, Value, ssa_repair,
};

/// The limit of bytes of a key that is looked up before the first iteration.
const MAX_KEY: u32 = 64;

/// The stack slots that hold an entry of a map, or null.
pub type EntryWords = BTreeMap<Slot, Entries>;

/// The entries of a map, or those of the inner maps of a map of maps. The verifier knows the same of each of them.
#[derive(Debug, Clone, Copy)]
pub struct Entries {
    map: MapId,
    is_inner: bool,
    /// The call that finds one of them; `None` if the loop enumerates them.
    like: Option<Value>,
}

impl PartialEq for Entries {
    fn eq(&self, other: &Entries) -> bool {
        (self.map, self.is_inner) == (other.map, other.is_inner)
    }
}

impl Eq for Entries {}

/// What a pointer that changes may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// A value from outside, or one that can be computed before the loop.
    Known(Value),
    /// An entry of a map.
    Entry(Entries),
}

/// Which choice a pointer is that is passed for a parameter.
#[derive(Debug, Clone, Copy)]
enum Number {
    Is(usize),
    /// The same as this pointer.
    Of(Value),
}

/// A pointer that changes: a parameter of the header, or one of a block of the body.
struct Changing {
    block: Block,
    /// Its position among the parameters of the block.
    index: usize,
    /// The choices that it may be.
    reach: BTreeSet<usize>,
    /// Of a parameter of the header, the choice that it is before the first iteration.
    own: Option<usize>,
    is_nullable: bool,
    /// The value that says which choice it is.
    number: Value,
}

/// The pointers that change in a loop, and what they may be.
#[derive(Default)]
struct Choices {
    changing: BTreeMap<Value, Changing>,
    all: Vec<Choice>,
    /// What is passed for parameters.
    passed: BTreeMap<Value, Number>,
    /// The addresses of the words that hold entries, by pointer and choice.
    words: BTreeMap<(Value, usize), Value>,
}

/// An edge that leaves a loop: its target now, and what the pointers are there.
struct Leaving {
    block: Block,
    values: BTreeMap<Value, Value>,
}

/// Replaces the pointers that change in a loop by numbers, if that is possible.
pub fn run(function: &mut MirFunction, one: &mut IteratorLoop, over: Over, surroundings: &mut Surroundings) {
    let Some(mut choices) = Choices::find(function, one, over, &surroundings.words) else { return };
    let used = choices.used_after(function, one);
    let is_tested = |value: &Value| choices.untested(function, &choices.changing[value]).is_none();
    if used.iter().any(is_tested) || !choices.has_keys(&surroundings.keys) {
        return;
    }
    let mut before = Before::new(function, one);
    before.compute_known(&mut choices);
    surroundings.words.extend(before.make_words(&mut choices, &surroundings.keys, &used));
    let before = before.end();
    surroundings.frame = surroundings.frame.max(function.slot_bytes);
    choices.make_numbers(function);
    let leaving = choices.leave(function, one, &used);
    choices.number(function, one, before);
    choices.enter(function, one);
    repair(function, &choices, &used, &leaving);
}

fn is_nullable(ty: Type) -> bool {
    matches!(ty, Type::Ptr(origin) if origin.checked().is_some())
}

fn push_slot(function: &mut MirFunction, bytes: u32) -> Slot {
    let (position, size) = (function.slot_bytes.next_multiple_of(8), bytes.next_multiple_of(8));
    function.slot_bytes = position + size;
    function.slots.push(SlotData { size, position })
}

fn address(function: &mut MirFunction, at: Block, slot: Slot) -> Value {
    function.append(at, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 })
}

impl Choices {
    /// The pointers that code after the loop reads.
    fn used_after(&self, function: &MirFunction, one: &IteratorLoop) -> BTreeSet<Value> {
        let mut used = BTreeSet::new();
        let is_of_loop = |block: Block| block == one.header || one.blocks.contains(&block);
        for block in function.reverse_postorder() {
            let data = &function.blocks[block];
            if is_of_loop(block) {
                let leaving = data.term.targets().into_iter().filter(|to| !is_of_loop(to.block));
                used.extend(leaving.flat_map(|to| to.args.iter().copied()));
            } else {
                used.extend(data.insts.iter().flat_map(|inst| inst.op.operands()));
                used.extend(data.term.operands());
            }
        }
        used.retain(|value| self.changing.contains_key(value));
        used
    }

    /// Whether all maps whose entries are choices have keys that can be looked up before the loop.
    fn has_keys(&self, keys: &BTreeMap<MapId, u32>) -> bool {
        let mut maps = self.all.iter().filter_map(|choice| match choice {
            Choice::Entry(entries) => Some(entries.map),
            Choice::Known(_) => None,
        });
        maps.all(|map| keys.get(&map).is_some_and(|bytes| *bytes <= MAX_KEY))
    }

    /// A choice that needs no test.
    fn untested(&self, function: &MirFunction, changing: &Changing) -> Option<usize> {
        let is_there = |index: &usize| match self.all[*index] {
            Choice::Known(value) => !is_nullable(function.values[value]),
            Choice::Entry(_) => false,
        };
        let mut reach = changing.reach.iter().copied();
        changing.own.or_else(|| reach.find(|index| changing.is_nullable || is_there(index)))
    }

    /// Makes the values that say which choice each pointer is.
    fn make_numbers(&mut self, function: &mut MirFunction) {
        for changing in self.changing.values_mut() {
            changing.number = function.values.push(Type::I32);
            function.blocks[changing.block].params.push(changing.number);
        }
    }

    /// Gives each edge that leaves the loop a block, which finds the pointers that code after the loop reads.
    fn leave(
        &self,
        function: &mut MirFunction,
        one: &mut IteratorLoop,
        used: &BTreeSet<Value>,
    ) -> Vec<Leaving> {
        let dominators = Dominators::new(function, &function.reverse_postorder());
        let to_end =
            function.blocks[one.header].term.targets().into_iter().position(|to| to.block != one.entry);
        let ended = to_end.map(|index| (one.header, index));
        let mut found = Vec::new();
        for (from, index) in one.exits(function).into_iter().chain(ended) {
            let is_there = |value: &&Value| dominators.dominates(self.changing[*value].block, from);
            let there: Vec<Value> = used.iter().filter(is_there).copied().collect();
            let Target { block: to, args } = function.blocks[from].term.targets()[index].clone();
            let span = function.blocks[to].span;
            let [storing, mut at] = std::array::from_fn(|_| function.push_block(span));
            *function.blocks[from].term.targets_mut()[index] = Target::to(storing);
            let mut made = vec![storing];
            let mut stored = storing;
            for value in there.iter().filter(|value| self.changing[*value].own.is_none()) {
                stored = self.store(function, stored, (*value, *value), &mut made);
            }
            function.jump(stored, at, Vec::new());
            let mut values = BTreeMap::new();
            for value in there {
                let own;
                (at, own) = self.choose(function, at, value, &mut Vec::new());
                values.insert(value, own);
            }
            let args = args.iter().map(|arg| values.get(arg).copied().unwrap_or(*arg)).collect();
            function.jump(at, to, args);
            if from != one.header {
                one.blocks.extend(made);
            }
            found.push(Leaving { block: at, values });
        }
        found
    }

    /// Stores `value` in the words of `of`, if it is an entry. Returns where the code goes on.
    fn store(
        &self,
        function: &mut MirFunction,
        mut at: Block,
        (value, of): (Value, Value),
        made: &mut Vec<Block>,
    ) -> Block {
        let number = self.passed.get(&value).copied().unwrap_or(Number::Of(value));
        for ((_, index), word) in self.words.range((of, 0)..=(of, usize::MAX)) {
            match number {
                Number::Of(from) if from != of || self.changing[&of].own.is_none() => {
                    if !self.changing[&from].reach.contains(index) {
                        continue;
                    }
                    let [stored, next] =
                        std::array::from_fn(|_| function.push_block(function.blocks[at].span));
                    made.extend([stored, next]);
                    let is_it = is_choice(function, at, self.changing[&from].number, *index);
                    function.branch(at, is_it, stored, next);
                    function.append_store(stored, value, *word, 0);
                    function.jump(stored, next, Vec::new());
                    at = next;
                }
                Number::Is(own) if own == *index => {
                    function.append_store(at, value, *word, 0);
                }
                _ => {}
            }
        }
        at
    }

    /// Finds a pointer by its number. Returns where the code goes on, and the pointer.
    fn choose(
        &self,
        function: &mut MirFunction,
        mut at: Block,
        value: Value,
        made: &mut Vec<Block>,
    ) -> (Block, Value) {
        let changing = &self.changing[&value];
        let span = function.blocks[at].span;
        let join = function.push_block(span);
        made.push(join);
        let result = function.values.push(function.values[value]);
        function.blocks[join].params.push(result);
        let Some(default) = self.untested(function, changing) else { return (join, result) };
        for index in changing.reach.iter().copied().filter(|index| *index != default) {
            let [mut taken, next] = std::array::from_fn(|_| function.push_block(span));
            made.extend([taken, next]);
            let is_it = is_choice(function, at, changing.number, index);
            function.branch(at, is_it, taken, next);
            let mut pointer = self.pointer(function, taken, (value, index));
            if !changing.is_nullable
                && let Type::Ptr(origin) = function.values[pointer]
                && let Some(checked) = origin.checked()
            {
                let [missing, there] = std::array::from_fn(|_| function.push_block(span));
                made.extend([missing, there]);
                let is_null = function.append(taken, Type::I32, Op::IsNull(pointer));
                function.branch(taken, is_null, missing, there);
                let other = self.pointer(function, missing, (value, default));
                function.jump(missing, join, vec![other]);
                pointer = function.append(there, Type::Ptr(checked), Op::NonNull(pointer));
                taken = there;
            }
            function.jump(taken, join, vec![pointer]);
            at = next;
        }
        let pointer = self.pointer(function, at, (value, default));
        function.jump(at, join, vec![pointer]);
        (join, result)
    }

    /// The pointer that a choice is.
    fn pointer(&self, function: &mut MirFunction, at: Block, (of, index): (Value, usize)) -> Value {
        match (self.all[index], self.words.get(&(of, index))) {
            (Choice::Entry(_), Some(word)) => {
                function.append_load(at, Type::Ptr(Origin::EntryOrNull), *word, 0)
            }
            (Choice::Known(value), _) => value,
            (Choice::Entry(_), None) => of,
        }
    }

    /// Passes a number with each pointer, and the same pointers of the header to all iterations.
    fn number(&self, function: &mut MirFunction, one: &mut IteratorLoop, before: Block) {
        let mut by_block: BTreeMap<Block, Vec<Value>> = BTreeMap::new();
        for (value, changing) in &self.changing {
            by_block.entry(changing.block).or_default().push(*value);
        }
        for from in one.blocks.iter().copied().collect::<Vec<_>>() {
            let targets: Vec<Target> = function.blocks[from].term.targets().into_iter().cloned().collect();
            for (index, target) in targets.into_iter().enumerate() {
                let Some(values) = by_block.get(&target.block) else { continue };
                for value in values {
                    let number = match self.passed[&target.args[self.changing[value].index]] {
                        Number::Of(other) => self.changing[&other].number,
                        Number::Is(choice) => function.append(from, Type::I32, Op::Const(choice as u64)),
                    };
                    function.blocks[from].term.targets_mut()[index].args.push(number);
                }
                if target.block == one.header {
                    self.keep(function, one, (from, index), values);
                }
            }
        }
        let carried = by_block.get(&one.header).into_iter().flatten();
        for own in carried.filter_map(|value| self.changing[value].own) {
            let number = function.append(before, Type::I32, Op::Const(own as u64));
            function.blocks[before].term.targets_mut()[0].args.push(number);
        }
    }

    /// Stores the pointers that an edge to the header passes, which passes on the header's own then.
    fn keep(
        &self,
        function: &mut MirFunction,
        one: &mut IteratorLoop,
        (from, index): (Block, usize),
        values: &[Value],
    ) {
        let storing = function.push_block(function.blocks[from].span);
        let mut made = vec![storing];
        let mut target = Target::to(storing);
        std::mem::swap(&mut target, function.blocks[from].term.targets_mut()[index]);
        let mut at = storing;
        for value in values {
            let arg = std::mem::replace(&mut target.args[self.changing[value].index], *value);
            at = self.store(function, at, (arg, *value), &mut made);
        }
        function.jump(at, target.block, target.args);
        one.blocks.extend(made);
    }

    /// Finds the pointers of the header at the start of each iteration.
    fn enter(&self, function: &mut MirFunction, one: &mut IteratorLoop) {
        let inside: Vec<Block> = one.blocks.iter().copied().filter(|block| *block != one.entry).collect();
        let rest = function.split(one.entry, 0);
        let mut made = Vec::new();
        let mut at = one.entry;
        let mut current = BTreeMap::new();
        for (value, _) in self.changing.iter().filter(|(_, changing)| changing.own.is_some()) {
            let own;
            (at, own) = self.choose(function, at, *value, &mut made);
            current.insert(*value, own);
        }
        function.jump(at, rest, Vec::new());
        let mut replace = |value: Value| current.get(&value).copied().unwrap_or(value);
        for block in inside.into_iter().chain([rest]) {
            let data = &mut function.blocks[block];
            data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut replace));
            data.term.map_operands(&mut replace);
            for target in data.term.targets_mut().into_iter().filter(|to| to.block == one.header) {
                for (value, changing) in self.changing.iter().filter(|(_, changing)| changing.own.is_some()) {
                    target.args[changing.index] = *value;
                }
            }
        }
        one.blocks.extend(made);
        one.blocks.insert(rest);
    }
}

fn is_choice(function: &mut MirFunction, at: Block, number: Value, choice: usize) -> Value {
    let choice = function.append(at, Type::I32, Op::Const(choice as u64));
    function.append(at, Type::I32, Op::Compare(Condition::Eq, number, choice))
}

/// Replaces the pointers after the loop by those that are found there.
fn repair(function: &mut MirFunction, choices: &Choices, used: &BTreeSet<Value>, leaving: &[Leaving]) {
    let order = function.reverse_postorder();
    let predecessors = function.predecessors(&order);
    for value in used {
        let own = choices.changing[value].block;
        let found = leaving.iter().filter_map(|one| Some((one.block, *one.values.get(value)?)));
        let definitions = found.chain([(own, *value)]).collect();
        ssa_repair::run(function, (&order, &predecessors), *value, &definitions, Some(own));
    }
}
