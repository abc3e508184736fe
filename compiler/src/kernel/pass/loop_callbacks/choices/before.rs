//! What is computed before a loop: the choices that its body computes, and an entry for each word.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Choice, Choices, Entries, EntryWords, address};
use crate::hir::MapId;
use crate::kernel::mir::iterator_loops::IteratorLoop;
use crate::kernel::mir::{
    Block, Callee, Helper, MapSymbol, MirFunction, Op, Origin, Target, Terminator, Type, Value,
};

/// The end of the code before a loop.
pub struct Before<'a> {
    function: &'a mut MirFunction,
    at: Block,
    /// The operations of the body.
    ops: BTreeMap<Value, Op>,
}

impl<'a> Before<'a> {
    /// Inserts a block that all ways into the loop lead through.
    pub fn new(function: &'a mut MirFunction, one: &IteratorLoop) -> Before<'a> {
        let header = one.header;
        let outside: Vec<Block> = function.blocks.ids().filter(|block| !one.blocks.contains(block)).collect();
        let at = function.push_block(function.blocks[header].span);
        for block in outside {
            let targets = function.blocks[block].term.targets_mut().into_iter();
            targets.filter(|to| to.block == header).for_each(|to| to.block = at);
        }
        let params = function.blocks[header].params.clone();
        let params: Vec<Value> =
            params.into_iter().map(|param| function.values.push(function.values[param])).collect();
        function.blocks[at].params.clone_from(&params);
        function.jump(at, header, params);
        let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let ops = insts.filter_map(|inst| Some((inst.result?, inst.op.clone()))).collect();
        Before { function, at, ops }
    }

    /// Computes the choices before the loop that its body computes.
    pub fn compute_known(&mut self, choices: &mut Choices) {
        let mut computed = BTreeMap::new();
        for choice in &mut choices.all {
            if let Choice::Known(value) = choice {
                *value = self.compute(*value, &mut computed);
            }
        }
    }

    fn compute(&mut self, value: Value, computed: &mut BTreeMap<Value, Value>) -> Value {
        if let Some(own) = computed.get(&value) {
            return *own;
        }
        let Some(mut op) = self.ops.get(&value).cloned() else { return value };
        op.map_operands(&mut |operand| self.compute(operand, computed));
        let own = self.function.append(self.at, self.function.values[value], op);
        computed.insert(value, own);
        own
    }

    /// Makes the words. Each gets an entry of its map, or null. Returns their slots.
    pub fn make_words(&mut self, choices: &mut Choices, keys: &BTreeMap<MapId, u32>) -> EntryWords {
        let mut words = EntryWords::new();
        for (index, choice) in choices.all.iter().enumerate() {
            let Choice::Entry(entries) = choice else { continue };
            let (entry, like) = self.entry(entries, keys[&entries.map]);
            for changing in choices.changing.values().filter(|changing| changing.reach.contains(&index)) {
                if let Entry::Vacant(vacant) = choices.words.entry((changing.class, index)) {
                    let slot = self.function.push_slot(8);
                    let word = address(self.function, self.at, slot);
                    self.function.append_store(self.at, entry, word, 0);
                    vacant.insert(word);
                    words.insert(slot, Entries { like: Some(like), ..*entries });
                }
            }
        }
        words
    }

    /// Finds an entry, if there is one with a key of zeros. Returns it, or null, and the result of the call.
    fn entry(&mut self, entries: &Entries, key_bytes: u32) -> (Value, Value) {
        let absent = self.function.push_block(self.function.blocks[self.at].span);
        let ty = Type::Ptr(Origin::EntryOrNull);
        let null = self.function.append(absent, ty, Op::Const(0));
        let found = match entries.like {
            Some(like) => self.find(like, key_bytes, absent),
            None => {
                let map = Op::MapAddr(MapSymbol::Map(entries.map));
                let map = self.function.append(self.at, Type::Ptr(Origin::Map), map);
                self.look_up(map, key_bytes)
            }
        };
        let join = self.split();
        let entry = self.function.values.push(ty);
        self.function.blocks[join].params.push(entry);
        self.function.jump(self.at, join, vec![found]);
        self.function.jump(absent, join, vec![null]);
        self.at = join;
        (entry, found)
    }

    /// Computes a value of the body, with keys of zeros. Control goes to `absent` where something on the way is null.
    fn find(&mut self, value: Value, key_bytes: u32, absent: Block) -> Value {
        let Some(mut op) = self.ops.get(&value).cloned() else { return value };
        match &op {
            Op::Call { callee: Callee::Helper(Helper::MapLookup), args } => {
                let map = self.find(args[0], key_bytes, absent);
                return self.look_up(map, key_bytes);
            }
            Op::NonNull(of) => {
                let of = self.find(*of, key_bytes, absent);
                let is_null = self.function.append(self.at, Type::I32, Op::IsNull(of));
                let next = self.split();
                let (then, otherwise) = (Target::to(absent), Target::to(next));
                self.function.blocks[self.at].term = Terminator::Branch { cond: is_null, then, otherwise };
                self.at = next;
                op = Op::NonNull(of);
            }
            _ => op.map_operands(&mut |operand| self.find(operand, key_bytes, absent)),
        }
        self.function.append(self.at, self.function.values[value], op)
    }

    fn look_up(&mut self, map: Value, key_bytes: u32) -> Value {
        let key = self.function.push_slot(key_bytes.next_multiple_of(8));
        let key = address(self.function, self.at, key);
        let zero = self.function.append(self.at, Type::I64, Op::Const(0));
        for offset in (0..key_bytes).step_by(8) {
            self.function.append_store(self.at, zero, key, offset);
        }
        let lookup = Op::Call { callee: Callee::Helper(Helper::MapLookup), args: vec![map, key] };
        self.function.append(self.at, Type::Ptr(Origin::EntryOrNull), lookup)
    }

    /// A new block after the last one, which gets its jump to the loop.
    fn split(&mut self) -> Block {
        self.function.split(self.at, self.function.blocks[self.at].insts.len())
    }

    /// The last block before the loop.
    pub fn end(&self) -> Block {
        self.at
    }
}
