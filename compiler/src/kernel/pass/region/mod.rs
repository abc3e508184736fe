//! Region extraction: moves a loop body to a function of its own, and puts a call in its place.
//!
//! ```text
//!                                                    store a, c
//! header(c): p = next(it); if p then body        header: p = next(it); if p then call
//! body..: reads a, c; defines b              ->  call: code = body(..)
//!         jumps to header(c'), or exits                if code is an exit: load b, c; jump there, else to header
//!
//!                                                body(..): load a, c; ..
//!                                                    to header: store c'; return 0
//!                                                    to an exit: store b; return its number
//! ```
//!
//! [`Region`] says what a body reads, defines and leaves by. [`Captures`] says how each of these values crosses
//! the call: through memory, rematerialised, or in a way that only the [`Form`] knows, such as a parameter.
//! The verifier knows nothing of a number in memory, and nothing of tests on the other side of the call: bounds
//! are proven again where a number is read ([`Captures::read`]), tests of pointers where they are relied on.
//!
//! There are two forms. `outline_loops` makes global functions, which share scratch memory with their callers and
//! get pointers as parameters; the loop around the call stays. `loop_callbacks` makes functions that the kernel
//! calls for each iteration, which share part of the caller's stack frame; the call replaces the loop.
//!
//! Not here: which loops become functions.

mod body;
mod exit_facts;
mod packet_tests;

use std::collections::{BTreeMap, BTreeSet};

use super::bounds;
use super::origins::Origins;
use crate::index::IndexVec;
use crate::kernel::mir::iterator_loops::{Exit, IteratorLoop};
use crate::kernel::mir::{Block, Inst, KeptReason, MirFunction, Op, Slot, Target, Terminator, Type, Value};

pub use body::{BodyMaker, Entrance, HiddenZeros, dispatch, keep_only};
pub use exit_facts::ExitFacts;
pub use packet_tests::PacketTests;

/// An offset in bytes in the memory that a body and its caller share.
pub type Offset = u32;

/// A loop body, seen from the function that it becomes.
pub struct Region<'a> {
    /// The function that has the loop.
    pub function: &'a MirFunction,
    /// The loop.
    pub one: &'a IteratorLoop,
    /// The operation that defines each value.
    pub ops: IndexVec<Value, Option<&'a Op>>,
    /// The values that the new function defines itself.
    pub defined: BTreeSet<Value>,
    /// The edges that leave the body, other than to the header.
    pub exits: Vec<Exit>,
    /// The values that the body reads and does not define.
    pub live_in: BTreeSet<Value>,
    /// Whether the caller reads the item of an iteration, and passes it like other values.
    is_item_passed: bool,
    /// For each parameter of the header, the value that all iterations pass for it; `None` if that changes.
    kept: Vec<Option<Value>>,
}

impl<'a> Region<'a> {
    /// Analyses a loop body.
    pub fn new(function: &'a MirFunction, one: &'a IteratorLoop, is_item_passed: bool) -> Region<'a> {
        let mut region = Region {
            function,
            one,
            ops: function.definitions(),
            defined: BTreeSet::new(),
            exits: one.exits(function),
            live_in: BTreeSet::new(),
            is_item_passed,
            kept: Vec::new(),
        };
        region.defined = region.defined();
        region.kept = region.kept();
        region.live_in = region.live_in();
        region
    }

    fn defined(&self) -> BTreeSet<Value> {
        let defined = self.one.blocks.iter().flat_map(|block| {
            let data = &self.function.blocks[*block];
            let insts = data.insts.iter().filter(|inst| !self.is_item_passed || self.is_moved(inst));
            data.params.iter().copied().chain(insts.filter_map(|inst| inst.result))
        });
        defined.collect()
    }

    /// Whether an instruction of the body is one of the new function. The others read the item of the iteration.
    pub fn is_moved(&self, inst: &Inst) -> bool {
        if self.is_item_passed { !self.one.runs_before(inst) } else { !self.one.reads_iteration(inst) }
    }

    /// The instructions of the body that stay with the caller.
    pub fn unmoved(&self) -> impl Iterator<Item = &'a Inst> {
        let insts = self.one.blocks.iter().flat_map(|block| &self.function.blocks[*block].insts);
        insts.filter(|inst| !self.is_moved(inst))
    }

    /// The parameters of the header, which are loop-carried.
    pub fn params(&self) -> &'a [Value] {
        &self.function.blocks[self.one.header].params
    }

    /// The arguments for the first block of the body.
    pub fn entry_args(&self) -> &'a [Value] {
        let targets = self.function.blocks[self.one.header].term.targets();
        targets.into_iter().find(|to| to.block == self.one.entry).map_or(&[], |to| &to.args)
    }

    fn kept(&self) -> Vec<Option<Value>> {
        let targets = self.one.blocks.iter().flat_map(|block| self.function.blocks[*block].term.targets());
        let back: Vec<&Target> = targets.filter(|target| target.block == self.one.header).collect();
        let kept = |(index, param): (usize, &Value)| {
            let mut args = back.iter().map(|target| target.args[index]);
            let first = args.next().unwrap_or(*param);
            let is_outside = first == *param || !self.is_number(*param) && !self.defined.contains(&first);
            (is_outside && args.all(|other| other == first)).then_some(first)
        };
        self.params().iter().enumerate().map(kept).collect()
    }

    fn live_in(&self) -> BTreeSet<Value> {
        let mut read: BTreeSet<Value> = self.entry_args().iter().copied().collect();
        for data in self.one.blocks.iter().map(|block| &self.function.blocks[*block]) {
            let insts = data.insts.iter().filter(|inst| self.is_moved(inst));
            read.extend(insts.flat_map(|inst| inst.op.operands()));
            if let Terminator::Branch { cond, .. } = data.term {
                read.insert(cond);
            }
            for target in data.term.targets() {
                if self.one.blocks.contains(&target.block) {
                    read.extend(&target.args);
                } else if target.block == self.one.header {
                    let args = target.args.iter().zip(&self.kept).filter(|(_, kept)| kept.is_none());
                    read.extend(args.map(|(arg, _)| arg));
                }
            }
        }
        read.retain(|value| !self.defined.contains(value));
        read
    }

    /// The values of the loop that code after it reads, and others that its header and its exits pass on.
    fn read_after(&self) -> BTreeSet<Value> {
        let mut is_own = IndexVec::filled(self.function.values.len(), false);
        self.params().iter().chain(&self.defined).for_each(|value| is_own[*value] = true);
        let mut read = BTreeSet::new();
        for block in self.function.reverse_postorder() {
            let data = &self.function.blocks[block];
            if !self.one.blocks.contains(&block) && block != self.one.header {
                let mut reads = |value: Value| read.extend(is_own[value].then_some(value));
                data.insts.iter().for_each(|inst| inst.op.each_operand(&mut reads));
                data.term.each_operand(&mut reads);
            }
        }
        let ended = self.function.blocks[self.one.header].term.targets();
        read.extend(ended.into_iter().filter(|to| to.block != self.one.entry).flat_map(|to| &to.args));
        read.extend(self.exit_targets().iter().flat_map(|target| &target.args));
        read
    }

    /// The targets of the exits.
    pub fn exit_targets(&self) -> Vec<Target> {
        let target = |(block, index): &Exit| self.function.blocks[*block].term.targets()[*index].clone();
        self.exits.iter().map(target).collect()
    }

    /// Whether code after the loop has a value, or can compute it again.
    fn can_rematerialise(&self, value: Value) -> bool {
        let can_be = |op: &Op| {
            op.is_known_at_load() || is_test(op) || matches!(op, Op::PtrAdd(..) | Op::PacketEdge { .. })
        };
        let of_such = |op: &Op| op.operands().iter().all(|operand| self.can_rematerialise(*operand));
        !self.defined.contains(&value) || self.ops[value].is_some_and(|op| can_be(op) && of_such(op))
    }

    /// Appends the instructions that compute a value again, its operands first.
    fn rematerialise(&self, value: Value, insts: &mut Vec<Inst>) {
        let Some(op) = self.ops[value].filter(|_| self.defined.contains(&value)) else { return };
        if insts.iter().all(|inst| inst.result != Some(value)) {
            op.operands().into_iter().for_each(|operand| self.rematerialise(operand, insts));
            insts.push(Inst { result: Some(value), op: op.clone(), span: self.function.span });
        }
    }

    /// Whether a value is a number.
    pub fn is_number(&self, value: Value) -> bool {
        self.function.values[value].bits().is_some()
    }
}

/// Whether the operation tests a pointer. If its result were passed as a number, it would prove nothing to the
/// verifier.
pub fn is_test(op: &Op) -> bool {
    matches!(op, Op::IsNull(_) | Op::Within { .. })
}

/// The stack slots whose addresses the body uses and no other code does, and whether there are others that it
/// uses.
pub fn own_slots(
    function: &MirFunction,
    one: &IteratorLoop,
    is_moved: impl Fn(&Inst) -> bool,
) -> (BTreeSet<Slot>, bool) {
    let ops = function.definitions();
    let (mut inside, mut others) = (BTreeSet::new(), BTreeSet::new());
    for block in function.reverse_postorder() {
        let data = &function.blocks[block];
        let is_inside = one.blocks.contains(&block);
        let insts = data.insts.iter().filter(|inst| !is_inside || is_moved(inst));
        let operands = insts.flat_map(|inst| inst.op.operands()).chain(data.term.operands());
        let slots = operands.filter_map(|value| match ops[value] {
            Some(Op::StackAddr { slot, .. }) => Some(*slot),
            _ => None,
        });
        if is_inside { inside.extend(slots) } else { others.extend(slots) }
    }
    let own: BTreeSet<Slot> = inside.difference(&others).copied().collect();
    let shares = own.len() < inside.len();
    (own, shares)
}

/// How a value from outside becomes available in the body.
pub enum Source {
    /// It is in shared memory.
    Memory,
    /// It is computed again, after its operands and another value.
    Rematerialised(Option<Value>),
    /// The form makes it available.
    Form,
}

/// What differs between the forms of a loop body.
pub trait Form {
    /// How a value from outside becomes available in the body.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn source(&mut self, region: &Region<'_>, value: Value) -> Result<Source, KeptReason>;

    /// Defines the parameters of the new function.
    fn enter(&self, region: &Region<'_>, maker: &mut BodyMaker<'_>) -> Entrance;

    /// Packet pointers whose bytes the body tests at its start: how many, and the end that it compares with.
    fn packet_tests(&self) -> BTreeMap<Value, (u32, Value)> {
        BTreeMap::new()
    }

    /// Whether results are stored at exits, instead of where they are defined: that is more code, but what is stored
    /// in other iterations may be another state to the verifier.
    fn stores_at_exits(&self) -> bool {
        false
    }

    /// Returns from an iteration by an exit; `code` is its number.
    fn leave(&self, maker: &mut BodyMaker<'_>, block: Block, bases: Bases, code: u64);
}

/// Shared memory that is in use up to some byte.
pub struct SharedMemory {
    /// Half of a word that is unused: there is little space in the frames of a call chain.
    half: Option<Offset>,
    /// The bytes in use.
    pub end: u32,
    /// The bytes in use of memory for pointers, if that is another one.
    pointers_end: Option<u32>,
}

/// The addresses of the memory for numbers and of that for pointers.
#[derive(Clone, Copy)]
pub struct Bases {
    /// The one for numbers.
    pub numbers: Value,
    /// The one for pointers.
    pub pointers: Value,
}

impl Bases {
    /// One memory for both.
    pub fn one(base: Value) -> Bases {
        Bases { numbers: base, pointers: base }
    }

    /// The one for values of a type.
    pub fn of(self, ty: Type) -> Value {
        if ty.bits().is_some() { self.numbers } else { self.pointers }
    }
}

impl SharedMemory {
    /// Memory after so many bytes.
    pub fn after(bytes: u32) -> SharedMemory {
        SharedMemory { half: None, end: bytes.next_multiple_of(8), pointers_end: None }
    }

    /// Memory for numbers after so many bytes, and other memory for pointers.
    pub fn of_two(bytes: u32) -> SharedMemory {
        SharedMemory { pointers_end: Some(0), ..SharedMemory::after(bytes) }
    }

    /// The bytes in use of the memory for pointers.
    pub fn pointer_bytes(&self) -> u32 {
        self.pointers_end.unwrap_or(self.end)
    }

    /// Allocates the bytes of a value.
    pub fn allocate(&mut self, ty: Type) -> Offset {
        if let (Type::Ptr(_), Some(end)) = (ty, &mut self.pointers_end) {
            *end += 8;
            return *end - 8;
        }
        if ty == Type::I32
            && let Some(half) = self.half.take()
        {
            return half;
        }
        self.end += 8;
        if ty == Type::I32 {
            self.half = Some(self.end - 4);
        }
        self.end - 8
    }
}

/// How the values that a body reads and defines cross the call.
pub struct Captures {
    /// The values from outside that are passed in memory.
    pub incoming: BTreeMap<Value, Offset>,
    /// The values from outside that the body computes again, in order.
    pub rematerialised: Vec<Inst>,
    /// For each parameter of the header, where it is passed from one iteration to the next; `None` if all
    /// iterations pass the same value.
    pub carried: Vec<Option<Offset>>,
    /// For each parameter of the header that is not carried, the value that iterations pass.
    pub kept: Vec<Option<Value>>,
    /// The loop-carried numbers, and those defined in the body, that code after the loop reads.
    pub results: BTreeMap<Value, Offset>,
    /// The values defined in the body that code after the loop computes again, in order.
    pub rematerialised_results: Vec<Inst>,
    /// The exclusive bounds of numbers in memory that their definitions prove: checks of them may be gone.
    pub bounds: BTreeMap<Value, u64>,
    /// The memory.
    pub memory: SharedMemory,
    /// The values that are available in the body.
    available: BTreeSet<Value>,
}

impl Captures {
    /// Decides how values cross the call.
    ///
    /// # Errors
    /// The reason why the body cannot become a function.
    pub fn new(
        region: &Region<'_>,
        form: &mut impl Form,
        memory: SharedMemory,
    ) -> Result<Captures, KeptReason> {
        let mut captures = Captures {
            incoming: BTreeMap::new(),
            rematerialised: Vec::new(),
            carried: Vec::new(),
            kept: region.kept.clone(),
            results: BTreeMap::new(),
            rematerialised_results: Vec::new(),
            bounds: BTreeMap::new(),
            memory,
            available: BTreeSet::new(),
        };
        let mut blocks = region.one.blocks.iter().map(|block| &region.function.blocks[*block]);
        if blocks.any(|data| matches!(data.term, Terminator::Return(_))) {
            return Err(KeptReason::Shape);
        }
        captures.carry(region)?;
        for value in &region.live_in {
            captures.capture(region, form, *value)?;
        }
        for (_, end) in form.packet_tests().into_values() {
            captures.capture(region, form, end)?;
        }
        captures.collect_results(region)?;
        captures.find_bounds(region);
        Ok(captures)
    }

    fn carry(&mut self, region: &Region<'_>) -> Result<(), KeptReason> {
        for (param, kept) in region.params().iter().zip(&region.kept) {
            if kept.is_none() && !region.is_number(*param) {
                return Err(KeptReason::Pointer);
            }
            let offset = kept.is_none().then(|| self.memory.allocate(region.function.values[*param]));
            self.available.extend(offset.map(|_| *param));
            self.carried.push(offset);
        }
        Ok(())
    }

    fn capture(&mut self, region: &Region<'_>, form: &mut impl Form, value: Value) -> Result<(), KeptReason> {
        if region.defined.contains(&value) || !self.available.insert(value) {
            return Ok(());
        }
        match (form.source(region, value)?, region.ops[value]) {
            (Source::Form, _) => {}
            (Source::Rematerialised(after), Some(op)) => {
                for operand in op.operands().into_iter().chain(after) {
                    self.capture(region, form, operand)?;
                }
                let span = region.function.span;
                self.rematerialised.push(Inst { result: Some(value), op: op.clone(), span });
            }
            _ => {
                let offset = self.memory.allocate(region.function.values[value]);
                self.incoming.insert(value, offset);
            }
        }
        Ok(())
    }

    fn collect_results(&mut self, region: &Region<'_>) -> Result<(), KeptReason> {
        let read = region.read_after();
        let params = region.params().iter().zip(&self.carried);
        let carried = params.filter(|(param, _)| read.contains(param));
        self.results = carried.filter_map(|(param, offset)| Some((*param, (*offset)?))).collect();
        for value in read.intersection(&region.defined) {
            let is_number = region.is_number(*value);
            let is_wanted =
                !is_number || region.ops[*value].is_some_and(|op| op.is_known_at_load() || is_test(op));
            if is_wanted && region.can_rematerialise(*value) {
                region.rematerialise(*value, &mut self.rematerialised_results);
            } else if is_number {
                let offset = self.memory.allocate(region.function.values[*value]);
                self.results.insert(*value, offset);
            } else {
                return Err(KeptReason::Pointer);
            }
        }
        Ok(())
    }

    /// The bounds of what is passed and decides. A number that is joined from several, such as the result of an
    /// inner loop that may have no iteration, is within the bounds of each.
    fn find_bounds(&mut self, region: &Region<'_>) {
        let function = region.function;
        let origins = Origins::new(function);
        let decides = origins.deciding(function);
        let carried = region.params().iter().zip(&self.carried).filter(|(_, offset)| offset.is_some());
        let passed = self.incoming.keys().chain(self.results.keys()).chain(carried.map(|(param, _)| param));
        for value in passed.filter(|value| decides[**value] && region.is_number(**value)) {
            let joined = origins.joined(*value);
            let most =
                joined.iter().map(|one| bounds::proven(&region.ops, &function.values, *one).most).max();
            if let Some(most) = most.filter(|most| *most < i32::MAX as u64) {
                self.bounds.insert(*value, most + 1);
            }
        }
    }

    /// Appends a load of a value that was passed in memory, hidden from the verifier if `hidden` is given, and
    /// within its bounds.
    pub fn read(
        &self,
        function: &mut MirFunction,
        block: Block,
        (value, ty): (Value, Type),
        (bases, offset): (Bases, Offset),
        hidden: Option<&HiddenZeros>,
    ) -> Value {
        let mut own = function.append_load(block, ty, bases.of(ty), offset);
        if let Some(zeros) = hidden {
            own = function.append(block, ty, Op::Opaque { value: own, zero: zeros.of(ty) });
        }
        match self.bounds.get(&value) {
            Some(bound) => function.append(block, ty, Op::Below { value: own, bound: *bound }),
            None => own,
        }
    }

    /// Appends the instructions that compute results again. `known` has what stands for other results in the
    /// block; those that are not among them are read by `read`.
    pub fn rematerialise_results(
        &self,
        function: &mut MirFunction,
        block: Block,
        known: &mut BTreeMap<Value, Value>,
        read: impl Fn(&mut MirFunction, Value, Offset) -> Value,
    ) {
        for inst in &self.rematerialised_results {
            for operand in inst.op.operands() {
                if let Some(offset) = self.results.get(&operand) {
                    known.entry(operand).or_insert_with(|| read(function, operand, *offset));
                }
            }
            let mut inst = inst.clone();
            inst.op.map_operands(&mut |value| known.get(&value).copied().unwrap_or(value));
            function.blocks[block].insts.push(inst);
        }
    }
}
