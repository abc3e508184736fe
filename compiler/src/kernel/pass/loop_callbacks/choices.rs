//! Pointers that change between iterations, as numbers: which of the loop's pointers each one is.
//!
//! ```text
//! header(p):                           header(p, n):          n is 0 before the first iteration
//!     .. uses p ..                         q = p if n is 0, a if n is 1, *word if n is 2; .. uses q ..
//!     jump header(a)                   ->  jump header(p, 1)
//!     jump header(entry of a map)          *word = the entry; jump header(p, 2)
//! ```
//!
//! A kernel before 6.8 checks one iteration only, and would know the pointer of the first one. It does not know the number,
//! and so checks the body with each pointer. A pointer to an entry is in a word of the stack frame, which holds an entry of
//! the same map, or null, before the first iteration: the verifier knows the same of it in all iterations.
//!
//! The pointers themselves are found where they are used, and no earlier: each would be another state of all code before.
//! Pointers that are never live at the same time share their words (`classes`).
//!
//! Not here: pointers of other origins, which stay as they are.

mod before;
mod classes;
mod find;

use std::collections::{BTreeMap, BTreeSet};

use self::before::Before;
use super::Surroundings;
use crate::hir::MapId;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::{Exit, IteratorLoop};
use crate::kernel::mir::loop_iterators::Over;
use crate::kernel::mir::{Block, Condition, MirFunction, Op, Origin, Slot, Target, Type, Value, ssa_repair};
use crate::kernel::verifier::code::may_change_pointers;

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
    /// What is passed for it.
    args: Vec<Value>,
    /// The choices that it may be.
    reach: BTreeSet<usize>,
    /// Of a parameter of the header, the choice that it is before the first iteration.
    own: Option<usize>,
    is_nullable: bool,
    /// Pointers of one class share their words.
    class: Value,
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
    /// The addresses of the words that hold entries, by class and choice.
    words: BTreeMap<(Value, usize), Value>,
}

/// An edge that leaves a loop: its target now, and what the pointers are there.
struct Leaving {
    block: Block,
    values: BTreeMap<Value, Value>,
}

/// Replaces the pointers that change in a loop by numbers, if that is possible. `zeros` are the numbers that are 0, of which
/// the verifier must not know that.
pub fn run(
    function: &mut MirFunction,
    one: &mut IteratorLoop,
    (over, zeros): (Over, &mut BTreeSet<Value>),
    surroundings: &mut Surroundings,
) {
    let Some(mut choices) = Choices::find(function, one, over, &surroundings.words) else { return };
    let used = choices.used_after(function, one);
    let is_tested = |changing: &Changing| choices.untested(function, changing).is_none();
    if choices.changing.values().any(is_tested) || !choices.has_keys(&surroundings.keys) {
        return;
    }
    choices.find_classes(function, one, &used);
    if !may_change_pointers(inner_words(function, one, &surroundings.words) + choices.words_needed()) {
        return;
    }
    let mut before = Before::new(function, one);
    before.compute_known(&mut choices);
    surroundings.words.extend(before.make_words(&mut choices, &surroundings.keys));
    let before = before.end();
    surroundings.frame = surroundings.frame.max(function.slot_bytes);
    let zero = function.append(before, Type::I32, Op::Const(0));
    zeros.insert(zero);
    choices.make_numbers(function);
    let leaving = choices.leave(function, one, &used);
    choices.find_at_uses(function, one);
    choices.pass_numbers(function, one, (before, zero));
    repair(function, &choices, &used, &leaving);
}

/// How many words the loops inside of a loop have.
fn inner_words(function: &MirFunction, one: &IteratorLoop, words: &EntryWords) -> usize {
    let ops = function.definitions();
    let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let slots = insts.flat_map(|inst| inst.op.operands()).filter_map(|value| match ops[value] {
        Some(Op::StackAddr { slot, .. }) if words.contains_key(slot) => Some(*slot),
        _ => None,
    });
    slots.collect::<BTreeSet<Slot>>().len()
}

fn is_nullable(ty: Type) -> bool {
    matches!(ty, Type::Ptr(origin) if origin.checked().is_some())
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

    /// How many words there will be.
    fn words_needed(&self) -> usize {
        let entries = |changing: &Changing| {
            let class = changing.class;
            let is_entry = |index: &&usize| matches!(self.all[**index], Choice::Entry(_));
            changing.reach.iter().filter(is_entry).map(|index| (class, *index)).collect::<Vec<_>>()
        };
        self.changing.values().flat_map(entries).collect::<BTreeSet<_>>().len()
    }

    /// A choice that needs no test, also of another pointer.
    fn untested(&self, function: &MirFunction, changing: &Changing) -> Option<usize> {
        let is_there = |index: &usize| match self.all[*index] {
            Choice::Known(value) => matches!(function.values[value], Type::Ptr(to) if to.is_memory()),
            Choice::Entry(_) => false,
        };
        let mut reach = changing.reach.iter().copied();
        let found = reach.find(|index| changing.is_nullable || is_there(index));
        changing.own.or(found).or_else(|| (0..self.all.len()).find(is_there))
    }

    /// Makes the values that say which choice each pointer is.
    fn make_numbers(&mut self, function: &mut MirFunction) {
        for changing in self.changing.values_mut() {
            changing.number = function.values.push(Type::I32);
            function.blocks[changing.block].params.push(changing.number);
        }
    }

    /// Puts a block on each edge that leaves the loop, which finds the pointers that code after the loop reads.
    fn leave(&self, function: &mut MirFunction, one: &IteratorLoop, used: &BTreeSet<Value>) -> Vec<Leaving> {
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
            let mut at = function.push_block(span);
            *function.blocks[from].term.targets_mut()[index] = Target::to(at);
            let mut values = BTreeMap::new();
            for value in there {
                let own;
                (at, own) = self.choose(function, at, value, &mut Vec::new());
                values.insert(value, own);
            }
            let args = args.iter().map(|arg| values.get(arg).copied().unwrap_or(*arg)).collect();
            function.jump(at, to, args);
            found.push(Leaving { block: at, values });
        }
        found
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
        match (self.all[index], self.words.get(&(self.changing[&of].class, index))) {
            (Choice::Entry(_), Some(word)) => {
                function.append_load(at, Type::Ptr(Origin::EntryOrNull), *word, 0)
            }
            (Choice::Known(value), _) => value,
            (Choice::Entry(_), None) => of,
        }
    }

    /// Finds each pointer of the body before its first use, which all others come after. Where it is found, a pointer of the
    /// header is the one from before the loop.
    fn find_at_uses(&self, function: &mut MirFunction, one: &mut IteratorLoop) {
        let mut found: BTreeSet<Block> = BTreeSet::new();
        for value in self.changing.keys() {
            let order = function.reverse_postorder();
            let is_inside = |block: &Block| one.blocks.contains(block) && !found.contains(block);
            let inside = order.iter().copied().filter(is_inside);
            let using: Vec<Block> = inside.filter(|block| self.uses(function, *block, *value)).collect();
            let Some(any) = using.first().copied() else { continue };
            let dominators = Dominators::new(function, &order);
            let first = using.iter().copied().fold(any, |a, b| common(&dominators, a, b));
            let insts = &function.blocks[first].insts;
            let at = insts.iter().position(|inst| inst.op.reads(*value)).unwrap_or(insts.len());
            let rest = function.split(first, at);
            let start = function.push_block(function.blocks[first].span);
            function.jump(first, start, Vec::new());
            let mut made = vec![start];
            let (join, own) = self.choose(function, start, *value, &mut made);
            function.jump(join, rest, Vec::new());
            for block in using.into_iter().filter(|block| *block != first).chain([rest]) {
                self.replace(function, block, (*value, own));
            }
            one.blocks.extend(made.iter().copied().chain([rest]));
            found.extend(made);
        }
    }

    /// Whether a block uses a pointer other than to pass it on as one that changes.
    fn uses(&self, function: &MirFunction, block: Block, value: Value) -> bool {
        let data = &function.blocks[block];
        let passes = |target: &&Target| {
            let args = target.args.iter().enumerate();
            args.clone().any(|(index, arg)| *arg == value && !self.is_changing(function, target.block, index))
        };
        data.insts.iter().any(|inst| inst.op.reads(value)) || data.term.targets().iter().any(passes)
    }

    fn is_changing(&self, function: &MirFunction, block: Block, index: usize) -> bool {
        self.changing.contains_key(&function.blocks[block].params[index])
    }

    fn replace(&self, function: &mut MirFunction, block: Block, (value, by): (Value, Value)) {
        let mut replace = |operand: Value| if operand == value { by } else { operand };
        let data = &mut function.blocks[block];
        data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut replace));
        let mut term = data.term.clone();
        for target in term.targets_mut() {
            for index in 0..target.args.len() {
                if target.args[index] == value && !self.is_changing(function, target.block, index) {
                    target.args[index] = by;
                }
            }
        }
        function.blocks[block].term = term;
    }

    /// Passes a number in the place of each pointer, and the same pointers of the header to all iterations.
    fn pass_numbers(
        &self,
        function: &mut MirFunction,
        one: &mut IteratorLoop,
        (before, zero): (Block, Value),
    ) {
        let mut by_block: BTreeMap<Block, Vec<Value>> = BTreeMap::new();
        for (value, changing) in &self.changing {
            by_block.entry(changing.block).or_default().push(*value);
        }
        for from in one.blocks.iter().copied().collect::<Vec<_>>() {
            let targets: Vec<Target> = function.blocks[from].term.targets().into_iter().cloned().collect();
            for (index, target) in targets.into_iter().enumerate() {
                if let Some(values) = by_block.get(&target.block) {
                    self.pass(function, one, ((from, index), target), (values, zero));
                }
            }
        }
        for own in
            by_block.get(&one.header).into_iter().flatten().filter_map(|value| self.changing[value].own)
        {
            let number = function.append(before, Type::I32, Op::Const(own as u64));
            function.blocks[before].term.targets_mut()[0].args.push(number);
        }
        for (block, values) in by_block.into_iter().filter(|(block, _)| *block != one.header) {
            self.drop_params(function, block, &values);
        }
    }

    /// Passes numbers on an edge of the loop, and stores entries that are passed in their words. The verifier does not know
    /// the numbers: each would be another state of the next iteration.
    fn pass(
        &self,
        function: &mut MirFunction,
        one: &mut IteratorLoop,
        ((from, index), mut target): (Exit, Target),
        (values, zero): (&[Value], Value),
    ) {
        let mut loads: Vec<(Value, Value, Value, usize)> = Vec::new();
        let mut stores: Vec<(Value, Value)> = Vec::new();
        for value in values {
            let changing = &self.changing[value];
            let arg = std::mem::replace(&mut target.args[changing.index], *value);
            let words = self.words.range((changing.class, 0)..=(changing.class, usize::MAX));
            let number = match self.passed[&arg] {
                Number::Of(other) => {
                    let Changing { number, class, .. } = self.changing[&other];
                    let copied = words.filter(|_| class != changing.class);
                    loads.extend(copied.filter_map(|((_, choice), word)| {
                        Some((*word, *self.words.get(&(class, *choice))?, number, *choice))
                    }));
                    number
                }
                Number::Is(own) => {
                    stores.extend(
                        words.filter(|((_, choice), _)| *choice == own).map(|(_, word)| (*word, arg)),
                    );
                    let known = function.append(from, Type::I32, Op::Const(own as u64));
                    function.append(from, Type::I32, Op::Opaque { value: known, zero })
                }
            };
            target.args.push(number);
        }
        if loads.is_empty() && stores.is_empty() {
            *function.blocks[from].term.targets_mut()[index] = target;
            return;
        }
        let mut at = function.push_block(function.blocks[from].span);
        let mut made = vec![at];
        *function.blocks[from].term.targets_mut()[index] = Target::to(at);
        let ty = Type::Ptr(Origin::EntryOrNull);
        let loaded: Vec<Value> =
            loads.iter().map(|(_, from, ..)| function.append_load(at, ty, *from, 0)).collect();
        stores.into_iter().for_each(|(word, entry)| function.append_store(at, entry, word, 0));
        for ((word, _, number, choice), entry) in loads.into_iter().zip(loaded) {
            let [stored, next] = std::array::from_fn(|_| function.push_block(function.blocks[at].span));
            made.extend([stored, next]);
            let is_it = is_choice(function, at, number, choice);
            function.branch(at, is_it, stored, next);
            function.append_store(stored, entry, word, 0);
            function.jump(stored, next, Vec::new());
            at = next;
        }
        function.jump(at, target.block, target.args);
        one.blocks.extend(made);
    }

    /// Removes the pointers from the parameters of a block.
    fn drop_params(&self, function: &mut MirFunction, block: Block, values: &[Value]) {
        let dropped: BTreeSet<usize> = values.iter().map(|value| self.changing[value].index).collect();
        let keep = |list: &mut Vec<Value>| {
            let mut index = 0..;
            list.retain(|_| index.next().is_some_and(|index: usize| !dropped.contains(&index)));
        };
        keep(&mut function.blocks[block].params);
        for from in function.blocks.ids().collect::<Vec<_>>() {
            let targets = function.blocks[from].term.targets_mut().into_iter();
            targets.filter(|to| to.block == block).for_each(|to| keep(&mut to.args));
        }
    }
}

/// The last block that all ways to both blocks lead through.
fn common(dominators: &Dominators, mut one: Block, other: Block) -> Block {
    while !dominators.dominates(one, other)
        && let Some(above) = dominators.immediate(one)
    {
        one = above;
    }
    one
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
