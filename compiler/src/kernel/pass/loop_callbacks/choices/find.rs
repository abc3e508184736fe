//! Finds the pointers that change in a loop, and what each may be.

use std::collections::{BTreeMap, BTreeSet};

use super::{Changing, Choice, Choices, Entries, EntryWords, Number, is_nullable};
use crate::hir::MapId;
use crate::index::IndexVec;
use crate::kernel::mir::iterator_loops::{Iteration, IteratorLoop};
use crate::kernel::mir::loop_iterators::Over;
use crate::kernel::mir::{Block, Callee, Helper, MapSymbol, MirFunction, Op, Origin, Type, Value};

/// Where a pointer of the loop comes from.
enum Source {
    Changing(Value),
    Choice(Choice),
}

/// What is known of a loop.
struct Finder<'a> {
    function: &'a MirFunction,
    one: &'a IteratorLoop,
    /// The entries of the map that the loop iterates over.
    over: Option<Entries>,
    ops: IndexVec<Value, Option<&'a Op>>,
    /// The parameters of the loop's blocks: the block of each, and its position there.
    params: BTreeMap<Value, (Block, usize)>,
    /// The values that instructions of the body define.
    defined: BTreeSet<Value>,
    words: &'a EntryWords,
}

impl<'a> Finder<'a> {
    fn new(
        function: &'a MirFunction,
        one: &'a IteratorLoop,
        over: Over,
        words: &'a EntryWords,
    ) -> Finder<'a> {
        let ops = function.definitions();
        let mut params = BTreeMap::new();
        for block in one.blocks.iter().chain([&one.header]) {
            let of_block = function.blocks[*block].params.iter().enumerate();
            params.extend(of_block.map(|(index, param)| (*param, (*block, index))));
        }
        let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let defined = insts.filter_map(|inst| inst.result).collect();
        let mut finder = Finder { function, one, over: None, ops, params, defined, words };
        if let Over::Map(map) = over {
            finder.over = finder.map(map).map(|map| Entries { map, is_inner: false, like: None });
        }
        finder
    }

    fn map(&self, value: Value) -> Option<MapId> {
        match self.ops[value] {
            Some(Op::MapAddr(MapSymbol::Map(map))) => Some(*map),
            _ => None,
        }
    }

    /// The entries of which a value is one, if it is found before the loop as well.
    fn entries(&self, value: Value) -> Option<Entries> {
        let like = Some(value);
        match self.ops[value]? {
            Op::Call { callee: Callee::Helper(Helper::MapLookup), args } => match self.ops[args[0]] {
                Some(Op::NonNull(outer)) => {
                    let outer = self.entries(*outer).filter(|outer| !outer.is_inner)?;
                    Some(Entries { is_inner: true, like, ..outer })
                }
                _ => self.map(args[0]).map(|map| Entries { map, is_inner: false, like }),
            },
            Op::Call { callee: Callee::Helper(Helper::StorageGet(_)), args } => {
                let map = self.map(args[0]).filter(|_| self.is_known_object(args[1]))?;
                Some(Entries { map, is_inner: false, like })
            }
            Op::Load { base, .. } => match self.ops[*base] {
                Some(Op::StackAddr { slot, .. }) => self.words.get(slot).copied(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a kernel object is the same before the loop: the current task, or a member of the context.
    fn is_known_object(&self, object: Value) -> bool {
        !self.defined.contains(&object)
            || match self.ops[object] {
                Some(Op::NonNull(of)) => self.is_known_object(*of),
                Some(Op::Load { base, .. }) => self.function.values[*base] == Type::Ptr(Origin::Context),
                Some(Op::Call { callee: Callee::External(_), args }) => args.is_empty(),
                _ => false,
            }
    }

    /// What iterations pass for a parameter of the loop.
    fn args(&self, (block, index): (Block, usize)) -> impl Iterator<Item = Value> {
        let targets = self.one.blocks.iter().flat_map(|from| self.function.blocks[*from].term.targets());
        targets.filter(move |to| to.block == block).map(move |to| to.args[index])
    }

    /// The pointers that change from one iteration to the next.
    fn carried(&self) -> Vec<Value> {
        let params = self.function.blocks[self.one.header].params.iter().enumerate();
        let changes = |(index, param): &(usize, &Value)| {
            let is_pointer = self.function.values[**param].bits().is_none();
            is_pointer && self.args((self.one.header, *index)).any(|arg| arg != **param)
        };
        params.filter(changes).map(|(_, param)| *param).collect()
    }

    fn can_be_before(&self, value: Value) -> bool {
        let can_be = |op: &Op| op.is_leaf() || matches!(op, Op::PtrAdd(..));
        let of_such = |op: &Op| op.operands().iter().all(|operand| self.can_be_before(*operand));
        let is_inside = self.defined.contains(&value) || self.params.contains_key(&value);
        !is_inside || self.ops[value].is_some_and(|op| can_be(op) && of_such(op))
    }

    fn source(&self, value: Value, carried: &[Value]) -> Option<Source> {
        let mut from = value;
        loop {
            if let Iteration::MapEntry { entries, .. } = self.one.iteration()
                && entries.contains(&from)
            {
                return self.over.map(|entries| Source::Choice(Choice::Entry(entries)));
            }
            match self.ops[from] {
                Some(Op::NonNull(of)) if self.defined.contains(&from) => from = *of,
                _ => break,
            }
        }
        if let Some((block, _)) = self.params.get(&from) {
            let is_changing = *block != self.one.header || carried.contains(&from);
            return Some(if is_changing {
                Source::Changing(from)
            } else {
                Source::Choice(Choice::Known(from))
            });
        }
        if self.can_be_before(from) {
            return Some(Source::Choice(Choice::Known(from)));
        }
        self.entries(from).map(|entries| Source::Choice(Choice::Entry(entries)))
    }
}

impl Choices {
    /// The pointers that change, and what they may be; `None` if none does, or if one may be something else.
    pub fn find(
        function: &MirFunction,
        one: &IteratorLoop,
        over: Over,
        words: &EntryWords,
    ) -> Option<Choices> {
        let finder = Finder::new(function, one, over, words);
        let carried = finder.carried();
        // The verifier forgets how many bytes of a packet there are where pointers meet.
        let is_of_packet =
            |value: &Value| matches!(function.values[*value], Type::Ptr(to) if to.is_of_packet());
        if carried.iter().any(is_of_packet) {
            return None;
        }
        let mut open = carried.clone();
        let mut choices = Choices::default();
        while let Some(value) = open.pop() {
            if choices.changing.contains_key(&value) {
                continue;
            }
            let (block, index) = *finder.params.get(&value)?;
            let own = (block == one.header).then(|| choices.index_of(Choice::Known(value)));
            let mut reach: BTreeSet<usize> = own.into_iter().collect();
            let args: Vec<Value> = finder.args((block, index)).collect();
            for arg in &args {
                let number = match finder.source(*arg, &carried)? {
                    Source::Changing(from) => {
                        open.push(from);
                        Number::Of(from)
                    }
                    Source::Choice(choice) => {
                        let index = choices.index_of(choice);
                        reach.insert(index);
                        Number::Is(index)
                    }
                };
                choices.passed.insert(*arg, number);
            }
            let is_nullable = is_nullable(function.values[value]);
            choices.changing.insert(
                value,
                Changing { block, index, args, reach, own, is_nullable, class: value, number: value },
            );
        }
        choices.propagate();
        (!carried.is_empty()).then_some(choices)
    }

    fn index_of(&mut self, choice: Choice) -> usize {
        self.all.iter().position(|one| *one == choice).unwrap_or_else(|| {
            self.all.push(choice);
            self.all.len() - 1
        })
    }

    /// A pointer may be what those may be that are passed for it.
    fn propagate(&mut self) {
        let passed = |args: &[Value]| {
            let others = args.iter().filter_map(|arg| match self.passed.get(arg) {
                Some(Number::Of(from)) => Some(*from),
                _ => None,
            });
            others.collect::<Vec<_>>()
        };
        let passed: Vec<(Value, Vec<Value>)> =
            self.changing.iter().map(|(value, changing)| (*value, passed(&changing.args))).collect();
        let mut changes = true;
        while changes {
            changes = false;
            for (to, from) in &passed {
                let more: Vec<usize> =
                    from.iter().flat_map(|from| &self.changing[from].reach).copied().collect();
                let Some(changing) = self.changing.get_mut(to) else { continue };
                let before = changing.reach.len();
                changing.reach.extend(more);
                changes |= changing.reach.len() > before;
            }
        }
    }
}
