//! The form of a loop body that the kernel calls for each iteration, and its call.

use std::collections::{BTreeMap, BTreeSet};

use super::{CAPTURED, Surroundings, is_checked};
use crate::hir::FuncId;
use crate::kernel::mir::iterator_loops::Iteration;
use crate::kernel::mir::loop_iterators::Over;
use crate::kernel::mir::{
    Block, Callee, Condition, Helper, KeptReason, MirFunction, Op, Origin, Slot, SlotData, Target, Type,
    Value, ssa_repair,
};
use crate::kernel::pass::region::{
    Bases, BodyMaker, Captures, Entrance, ExitFacts, Form, HiddenZeros, Offset, PacketTests, Region,
    SharedMemory, Source, dispatch, is_test,
};

/// A body that shares words of its caller's stack frame. Where the caller has a scratch slot, numbers are there: the
/// words are pointers then, the first one to the scratch slot.
pub struct CallbackForm<'a> {
    /// The address of the caller's scratch slot.
    scratch: Option<Value>,
    /// The stack slots that only the body uses.
    slots: &'a BTreeSet<Slot>,
    /// Numbers that are 0, of which the verifier must not know that.
    zeros: BTreeSet<Value>,
    /// Where an iteration leaves the number of its exit, if there are exits.
    code: Option<Offset>,
    /// Where a map iteration finds a number that the verifier does not know.
    unknown: Option<Offset>,
    with_map_iteration: bool,
    /// The position of the words in the caller's frame: loops of one function do not run at the same time.
    frame: u32,
    /// Whether an iteration changes the packet.
    changes_packet: bool,
    /// Packet pointers with bytes that the body accesses without a test of its own.
    untested: BTreeSet<Value>,
}

/// A word that iterations write.
struct Word {
    offset: Offset,
    /// The value before the first iteration.
    first: Value,
}

impl<'a> CallbackForm<'a> {
    pub fn new(
        region: &Region<'_>,
        slots: &'a BTreeSet<Slot>,
        zeros: BTreeSet<Value>,
        surroundings: &Surroundings,
        (scratch, memory): (Option<Value>, &mut SharedMemory),
    ) -> CallbackForm<'a> {
        let (function, one) = (region.function, region.one);
        if scratch.is_some() {
            memory.allocate(Type::Ptr(Origin::Entry));
        }
        let mut insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let accesses_packet = insts.any(|inst| matches!(inst.op, Op::InPacket { .. }));
        let untested = accesses_packet.then(|| PacketTests::new(function).untested(function, &one.blocks));
        CallbackForm {
            scratch,
            slots,
            zeros,
            unknown: one.is_map_iteration().then(|| memory.allocate(Type::I64)),
            code: (!region.exits.is_empty()).then(|| memory.allocate(Type::I32)),
            with_map_iteration: surroundings.with_map_iteration,
            frame: surroundings.frame,
            changes_packet: !surroundings.packet_changes.calls(function, &one.blocks).is_empty(),
            untested: untested.into_iter().flatten().map(|(pointer, _)| pointer).collect(),
        }
    }

    /// Refuses bodies that change the packet and access bytes of it that were tested before the loop.
    pub fn check_packets(&self, captures: &Captures) -> Result<(), KeptReason> {
        let mut insts = captures.rematerialised.iter();
        let is_invalid =
            !self.untested.is_empty() || insts.any(|inst| matches!(inst.op, Op::InPacket { .. }));
        if self.changes_packet && is_invalid { Err(KeptReason::Pointer) } else { Ok(()) }
    }

    /// Puts the call in the place of the loop.
    ///
    /// A loop of no iterations makes no call: the verifier would remove the function that it never reaches, but
    /// not its address. It does not know the number of iterations over a map.
    pub fn call(
        &self,
        region: &Region<'_>,
        captures: &Captures,
        (over, id): (Over, FuncId),
        function: &mut MirFunction,
    ) {
        let header = region.one.header;
        let facts = ExitFacts::new(region.function, region.one, &region.exits);
        let ended = region.function.blocks[header].term.targets();
        let ended = ended.into_iter().find(|to| to.block != region.one.entry).cloned();
        function.blocks[header].insts.retain(|inst| inst.op.is_leaf());
        let span = function.blocks[header].span;
        let [running, skipped, after] = std::array::from_fn(|_| function.push_block(span));
        let zero = function.append(header, Type::I32, Op::Const(0));
        let is_skipped = match over {
            Over::Numbers(iterations) => {
                function.append(header, Type::I32, Op::Compare(Condition::Eq, iterations, zero))
            }
            Over::Map(_) => zero,
        };
        function.branch(header, is_skipped, skipped, running);
        let carried = region.params().iter().zip(&captures.carried);
        let mut words: Vec<Word> =
            carried.filter_map(|(param, offset)| Some(Word { offset: (*offset)?, first: *param })).collect();
        let mut wanted: Vec<(Value, Offset, Value)> = Vec::new();
        for (value, offset) in &captures.results {
            let first = match function.values[*value] {
                _ if region.params().contains(value) => *value,
                Type::I32 => zero,
                ty => function.append(skipped, ty, Op::Const(0)),
            };
            wanted.push((*value, *offset, first));
        }
        let unset = wanted.iter().filter(|(value, _, first)| value != first);
        words.extend(unset.map(|(_, offset, first)| Word { offset: *offset, first: *first }));
        words.extend(self.code.map(|offset| Word { offset, first: zero }));
        let (bases, hidden) = self.run(region, captures, &words, (over, id), running, function);
        let mut known = BTreeMap::new();
        let (mut found, mut first) = (Vec::new(), Vec::new());
        for (value, offset, before) in wanted {
            let ty = function.values[value];
            found.push(captures.read(function, running, (value, ty), (bases, offset), hidden.as_ref()));
            first.push(before);
            let param = function.values.push(ty);
            function.blocks[after].params.push(param);
            known.insert(value, param);
        }
        let code = self.code.map(|offset| {
            let mut code = function.append_load(running, Type::I32, bases.numbers, offset);
            if let Some(zeros) = &hidden {
                let hidden = Op::Opaque { value: code, zero: zeros.of(Type::I32) };
                code = function.append(running, Type::I32, hidden);
            }
            found.push(code);
            first.push(zero);
            let param = function.values.push(Type::I32);
            function.blocks[after].params.push(param);
            param
        });
        function.jump(running, after, found);
        function.jump(skipped, after, first);
        let definitions = known.clone();
        captures.rematerialise_results(function, after, &mut known, |_, value, _| value);
        let targets = region.exit_targets();
        let code = (after, code.unwrap_or(zero));
        let rest = dispatch(function, code, (&region.exits, &targets), &facts, |_, _, _| known.clone());
        if let Some(Target { block, args }) = ended {
            let args = args.iter().map(|arg| known.get(arg).copied().unwrap_or(*arg)).collect();
            function.jump(rest, block, args);
        }
        function.clear_blocks(&region.one.blocks);
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        for (value, own) in definitions {
            let mut blocks = BTreeMap::from([(after, own)]);
            if region.params().contains(&value) {
                blocks.insert(header, value);
            }
            ssa_repair::run(function, (&order, &predecessors), value, &blocks, Some(header));
        }
    }

    /// Appends the call of the iterations. Returns the addresses of what they share with the caller, and what hides
    /// numbers there: the verifier may believe to know them, if they are on the stack.
    ///
    /// In a program with map iterations it does not know either that words are 0 before the first iteration: what
    /// iterations leave in some of them on some paths would be another state for each set of words otherwise.
    /// From Linux 6.8 on it follows iterations until their states repeat, and such a kernel calls loop bodies in
    /// these programs alone. Source: kernel/bpf/verifier.c, `stacksafe` with `RANGE_WITHIN`, v6.12.
    fn run(
        &self,
        region: &Region<'_>,
        captures: &Captures,
        words: &[Word],
        (over, id): (Over, FuncId),
        at: Block,
        function: &mut MirFunction,
    ) -> (Bases, Option<HiddenZeros>) {
        let size = captures.memory.pointer_bytes().max(8);
        let slot = function.slots.push(SlotData { size, position: self.frame });
        function.slot_bytes = function.slot_bytes.max(self.frame + size);
        let pointers = function.append(at, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
        let bases = Bases { numbers: self.scratch.unwrap_or(pointers), pointers };
        if let Some(scratch) = self.scratch {
            function.append_store(at, scratch, pointers, 0);
        }
        for (value, offset) in &captures.incoming {
            let base = bases.of(function.values[*value]);
            function.append_store(at, *value, base, *offset);
        }
        let is_zero = |word: &Word| !region.params().contains(&word.first);
        let hides = self.unknown.is_some() || self.with_map_iteration && words.iter().any(is_zero);
        // Any number below 2^32 is unknown in the scratch slot.
        let unknown = match self.scratch {
            Some(_) => Op::Const(0),
            None => Op::Call { callee: Callee::Helper(Helper::GetPrandom), args: Vec::new() },
        };
        let unknown = hides.then(|| function.append(at, Type::I64, unknown));
        if let (Some(offset), Some(number)) = (self.unknown, unknown) {
            function.append_store(at, number, bases.numbers, offset);
        }
        let on_stack = unknown.filter(|_| self.scratch.is_none());
        let hidden = on_stack.map(|number| HiddenZeros::new(function, at, number));
        for word in words {
            let ty = function.values[word.first];
            let first = match &hidden {
                _ if !is_zero(word) => word.first,
                Some(zeros) => zeros.of(ty),
                None => function.append(at, ty, Op::Const(0)),
            };
            function.append_store(at, first, bases.of(ty), word.offset);
        }
        let callback = function.append(at, Type::Ptr(Origin::Function), Op::FunctionAddr(id));
        let flags = function.append(at, Type::I64, Op::Const(0));
        let (helper, over) = match over {
            Over::Numbers(iterations) => (Helper::Loop, iterations),
            Over::Map(map) => (Helper::ForEachMapElem, map),
        };
        let call = Op::Call { callee: Callee::Helper(helper), args: vec![over, callback, pointers, flags] };
        let ran = function.append(at, Type::I64, call);
        (bases, self.scratch.is_none().then(|| HiddenZeros::new(function, at, ran)))
    }
}

impl Form for CallbackForm<'_> {
    fn source(&mut self, region: &Region<'_>, value: Value) -> Result<Source, KeptReason> {
        if self.zeros.contains(&value) || self.scratch == Some(value) {
            return Ok(Source::Form);
        }
        let ty = region.function.values[value];
        if let Some(op) = region.ops[value] {
            // Edges are loaded again, which keeps two words out of the stack frame.
            let is_edge = matches!(op, Op::PacketEdge { .. }) && !self.untested.contains(&value);
            let is_invalidated =
                self.changes_packet && matches!(ty, Type::Ptr(origin) if origin.is_of_packet());
            // Other stack slots are in the caller's frame.
            let is_known = match op {
                Op::StackAddr { slot, .. } => self.slots.contains(slot),
                Op::PtrAdd(pointer, distance) if self.scratch == Some(*pointer) => {
                    region.ops[*distance].is_some_and(Op::is_known_at_load)
                }
                op => op.is_known_at_load(),
            };
            if is_edge || is_invalidated || is_known || is_checked(&region.ops, op) || is_test(op) {
                return Ok(Source::Rematerialised(None));
            }
        }
        match ty {
            Type::Ptr(Origin::IterCounter | Origin::IterCounterOrNull) => Err(KeptReason::Inner),
            _ => Ok(Source::Memory),
        }
    }

    fn enter(&self, region: &Region<'_>, maker: &mut BodyMaker<'_>) -> Entrance {
        let names: &[&str] = match region.one.iteration() {
            Iteration::Number(_) => &["__index", CAPTURED],
            Iteration::MapEntry { .. } => &["__map", "__key", "__entry", CAPTURED],
        };
        maker.body.params = names.iter().map(|name| (*name).to_owned()).collect();
        let block = maker.block();
        let (base, low) = match region.one.iteration() {
            Iteration::Number(_) => {
                let index = maker.param(block, Type::I64);
                let base = maker.param(block, Type::Ptr(Origin::Stack));
                let number = maker.body.append(block, Type::I32, Op::Truncate(index));
                let reads = region.unmoved().filter(|inst| matches!(inst.op, Op::Load { .. }));
                maker.values.extend(reads.filter_map(|inst| Some((inst.result?, number))));
                (base, Some(index))
            }
            Iteration::MapEntry { entries, keys } => {
                maker.param(block, Type::I64);
                let [key, entry] = std::array::from_fn(|_| maker.param(block, Type::Ptr(Origin::Entry)));
                let base = maker.param(block, Type::Ptr(Origin::Stack));
                maker.values.extend(keys.iter().map(|own| (*own, key)));
                maker.values.extend(entries.iter().map(|own| (*own, entry)));
                (base, None)
            }
        };
        let mut bases = Bases::one(base);
        if let Some(scratch) = self.scratch {
            bases.numbers = maker.body.append_load(block, Type::Ptr(Origin::Entry), base, 0);
            maker.values.insert(scratch, bases.numbers);
        }
        let offset = self.unknown.unwrap_or_default();
        let low = low.unwrap_or_else(|| maker.body.append_load(block, Type::I64, bases.numbers, offset));
        let zeros = HiddenZeros::new(&mut maker.body, block, low);
        let own = self.zeros.iter().map(|value| (*value, zeros.of(region.function.values[*value])));
        maker.values.extend(own);
        Entrance { bases, block, zeros: self.scratch.is_none().then_some(zeros) }
    }

    fn stores_at_exits(&self) -> bool {
        true
    }

    fn leave(&self, maker: &mut BodyMaker<'_>, block: Block, bases: Bases, code: u64) {
        if let Some(offset) = self.code {
            let code = maker.body.append(block, Type::I32, Op::Const(code));
            maker.body.append_store(block, code, bases.numbers, offset);
        }
        maker.leave(block, 1);
    }
}
