//! What goes into a loop's body and out of it, and whether all of it can be handed over.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::super::bounds;
use super::super::decide::deciding;
use super::super::rematerialize::{Rematerializer, is_test};
use super::Place;
use super::loops::Loop;
use super::packets::Tested;
use super::reach::Reach;
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::{
    Block, Callee, Helper, Inst, MAX_ARGS, MapSymbol, MirFunction, Op, Origin, Program, Slot, Target,
    Terminator, Type, Value,
};
use crate::kernel::scratch::MAX_BYTES;

/// How a loop's body becomes a function.
pub struct Plan {
    /// The address of the scratch slot.
    pub base: Value,
    /// The context, if the body reads it.
    pub context: Option<Value>,
    /// Pointers to memory that come from outside, with how many bytes behind them are used.
    pub pointers: BTreeMap<Value, u32>,
    /// Numbers that come from outside.
    pub incoming: BTreeMap<Value, Place>,
    /// Numbers that the body makes and others read.
    pub outgoing: BTreeMap<Value, Place>,
    /// Addresses, and tests of pointers, that the body makes and others read, who make them again in this
    /// order.
    pub remade: Vec<Inst>,
    /// What numbers that are handed over are below, where that shows only from how they are made.
    pub bounds: BTreeMap<Value, u64>,
    /// For each parameter of the header, how it comes from one turn to the next.
    pub carried: Vec<Carried>,
    /// Addresses, and tests of pointers, that are made again, in order.
    pub addresses: Vec<Inst>,
    /// For pointers into packets, how many bytes the body tests at its start, and what it compares with.
    pub tests: BTreeMap<Value, (u32, Value)>,
    /// What finds out what a turn is about, for the caller.
    pub before: Vec<Inst>,
    /// Slots of which only the body knows.
    pub slots: BTreeSet<Slot>,
    /// The ways out of the loop: from where, and which of the targets.
    pub exits: Vec<(Block, usize)>,
    /// Bytes of the scratch slot that are in use.
    pub end: u32,
}

/// How a parameter of the header comes from one turn to the next.
#[derive(Clone, Copy)]
pub enum Carried {
    /// A number, which is there from before the first turn on.
    At(Place),
    /// A pointer, the same one after each turn.
    Always(Value),
}

/// What a body may be given besides the scratch slot.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    /// The context.
    pub context: bool,
    /// Pointers to memory; and what the bodies that there are have behind theirs.
    pub pointee_bytes: &'a BTreeMap<FuncId, Vec<u32>>,
}

impl Allowed<'_> {
    /// What bodies of a function may be given.
    pub fn of<'a>(program: &'a Program, function: &MirFunction) -> Allowed<'a> {
        Allowed { context: function.context.is_some(), pointee_bytes: &program.loops.pointee_bytes }
    }
}

/// What there is before a loop.
struct Outside<'a> {
    function: &'a MirFunction,
    ops: &'a IndexVec<Value, Option<&'a Op>>,
    header: Block,
    tested: OnceCell<Tested>,
}

impl Outside<'_> {
    fn tested(&self) -> &Tested {
        self.tested.get_or_init(|| Tested::new(self.function))
    }
}

impl Plan {
    /// `None` if the body needs what cannot be handed over. So many bytes of the scratch slot are in use.
    pub fn new(function: &MirFunction, one: &Loop, used: u32, allowed: Allowed<'_>) -> Option<Plan> {
        let base = scratch_slot(function)?;
        let mut plan = Plan {
            base,
            context: None,
            pointers: BTreeMap::new(),
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            remade: Vec::new(),
            bounds: BTreeMap::new(),
            carried: Vec::new(),
            addresses: Vec::new(),
            tests: BTreeMap::new(),
            before: Vec::new(),
            slots: BTreeSet::new(),
            exits: Vec::new(),
            end: used.next_multiple_of(8),
        };
        let defined = one.made_inside(function);
        let mut needed = BTreeSet::new();
        for block in &one.blocks {
            let data = &function.blocks[*block];
            for inst in &data.insts {
                if one.runs_before(inst) {
                    plan.before.push(inst.clone());
                } else {
                    needed.extend(inst.op.operands());
                }
            }
            if let Terminator::Return(_) = data.term {
                return None;
            }
            needed.extend(data.term.operands());
            let outside = data.term.targets().into_iter().enumerate();
            let outside = outside.filter(|(_, to)| to.block != one.header && !one.blocks.contains(&to.block));
            plan.exits.extend(outside.map(|(number, _)| (*block, number)));
        }
        let header = function.blocks[one.header].term.targets();
        needed.extend(header.iter().filter(|to| to.block == one.entry).flat_map(|to| &to.args));
        let ops = function.definitions();
        let known: BTreeSet<Value> = plan.before.iter().filter_map(|inst| inst.result).collect();
        plan.order_before(function, &ops, &defined);
        let (owned, blocks) = (OnceCell::new(), OnceCell::new());
        let tests_needed = |value: &Value| match ops[*value] {
            Some(Op::IsNull(pointer) | Op::Within { pointer, .. }) => needed.contains(pointer),
            _ => false,
        };
        let outside = needed.iter().filter(|value| !defined.contains(value) || known.contains(value));
        let (tests, others): (Vec<Value>, Vec<Value>) = outside.copied().partition(tests_needed);
        let outside = Outside { function, ops: &ops, header: one.header, tested: OnceCell::new() };
        for value in others {
            if plan.bring(&outside, value).is_none() {
                // The verifier takes no pointer to a key for one to memory, which may be written to.
                // Source: kernel/bpf/verifier.c, `check_helper_mem_access`, v6.12.
                if one.is_key(value) {
                    return None;
                }
                let ops = owned.get_or_init(|| ops.iter().map(|op| op.cloned()).collect());
                let blocks = blocks.get_or_init(|| one.blocks.iter().copied().chain([one.header]).collect());
                let bytes =
                    Reach { function, blocks, ops, pointee_bytes: allowed.pointee_bytes }.pointer(value)?;
                plan.pointers.insert(value, bytes);
            }
        }
        plan.test_again(&outside, &tests)?;
        plan.test_packets(&outside, one, &defined)?;
        plan.carry(function, one, &defined)?;
        plan.hand_out(function, one, &defined, &known)?;
        plan.keep_slots(function, one)?;
        plan.find_bounds(function);
        let args = 1 + usize::from(plan.context.is_some()) + plan.pointers.len();
        let fits = plan.end <= MAX_BYTES && args <= MAX_ARGS;
        (fits && (allowed.context || plan.context.is_none())).then_some(plan)
    }

    /// Puts what runs before the body in an order in which it can run, behind the addresses that it needs.
    fn order_before(
        &mut self,
        function: &MirFunction,
        ops: &IndexVec<Value, Option<&Op>>,
        defined: &BTreeSet<Value>,
    ) {
        let found = std::mem::take(&mut self.before);
        let needed: BTreeSet<Value> = found.iter().flat_map(|inst| inst.op.operands()).collect();
        let addresses = needed.intersection(defined).filter_map(|value| {
            let op = ops[*value].filter(|op| op.is_leaf())?;
            Some(Inst { result: Some(*value), op: op.clone(), span: function.span })
        });
        self.before.extend(addresses);
        let (loads, turn): (Vec<Inst>, Vec<Inst>) =
            found.into_iter().partition(|inst| matches!(inst.op, Op::Load { .. }));
        self.before.extend(turn.into_iter().chain(loads));
    }

    fn place(&mut self) -> Place {
        self.end += 8;
        self.end - 8
    }

    /// Makes a value from outside known inside; `None` if it is a pointer to something else than the scratch
    /// slot or a packet.
    fn bring(&mut self, outside: &Outside<'_>, value: Value) -> Option<()> {
        let known = self.incoming.contains_key(&value)
            || self.addresses.iter().any(|inst| inst.result == Some(value))
            || value == self.base
            || self.context == Some(value);
        if known {
            return Some(());
        }
        match (outside.function.values[value], outside.ops[value]) {
            (Type::Ptr(origin), Some(op)) if origin.is_of_packet() => {
                for operand in op.operands() {
                    self.bring(outside, operand)?;
                }
                if let Op::InPacket { pointer, bytes } = op {
                    self.test_packet(outside, *pointer, *bytes)?;
                }
                self.make_again(outside, value, op);
            }
            (ty, Some(op)) if op.is_leaf() || (ty.bits().is_none() && matches!(op, Op::PtrAdd(..))) => {
                for operand in op.operands() {
                    // What was added was checked outside, but for constants.
                    if operand != self.base && !outside.ops[operand].is_some_and(Op::is_leaf) {
                        return None;
                    }
                    self.bring(outside, operand)?;
                }
                self.make_again(outside, value, op);
            }
            (Type::Ptr(Origin::Context), _) => self.context = Some(value),
            (Type::Ptr(_), _) => return None,
            _ => {
                let place = self.place();
                self.incoming.insert(value, place);
            }
        }
        Some(())
    }

    fn make_again(&mut self, outside: &Outside<'_>, value: Value, op: &Op) {
        self.addresses.push(Inst { result: Some(value), op: op.clone(), span: outside.function.span });
    }

    /// Lets the body test pointers that it is given: a number that was handed over says nothing about them to
    /// the verifier.
    fn test_again(&mut self, outside: &Outside<'_>, tests: &[Value]) -> Option<()> {
        for value in tests {
            let op = outside.ops[*value]?;
            if let Op::Within { end, .. } = op {
                self.bring(outside, *end)?;
            }
            self.make_again(outside, *value, op);
        }
        Some(())
    }

    /// Lets the body test the bytes of packets that it takes for tested and does not test itself.
    fn test_packets(&mut self, outside: &Outside<'_>, one: &Loop, defined: &BTreeSet<Value>) -> Option<()> {
        let insts = |block: &Block| outside.function.blocks[*block].insts.iter();
        if !one.blocks.iter().flat_map(insts).any(|inst| matches!(inst.op, Op::InPacket { .. })) {
            return Some(());
        }
        for (pointer, bytes) in outside.tested().untested(outside.function, &one.blocks) {
            if !defined.contains(&pointer) {
                self.test_packet(outside, pointer, bytes)?;
            }
        }
        Some(())
    }

    /// Lets the body test bytes of a packet that were tested before the loop.
    fn test_packet(&mut self, outside: &Outside<'_>, pointer: Value, bytes: u32) -> Option<()> {
        let end = outside.tested().end(pointer, bytes, outside.header, |_| true)?;
        self.bring(outside, end)?;
        let (most, _) = self.tests.entry(pointer).or_insert((bytes, end));
        *most = bytes.max(*most);
        Some(())
    }

    /// Finds what each turn leaves for the next.
    fn carry(&mut self, function: &MirFunction, one: &Loop, defined: &BTreeSet<Value>) -> Option<()> {
        let terms = one.blocks.iter().flat_map(|block| function.blocks[*block].term.targets());
        let back: Vec<&Target> = terms.filter(|target| target.block == one.header).collect();
        for (index, param) in function.blocks[one.header].params.iter().enumerate() {
            let mut args = back.iter().map(|target| target.args[index]);
            let first = args.next()?;
            let carried = if function.values[*param].bits().is_some() {
                let known = self.incoming.get(param).copied();
                Carried::At(known.unwrap_or_else(|| self.place()))
            } else if !defined.contains(&first) && args.all(|other| other == first) {
                Carried::Always(first)
            } else {
                return None;
            };
            self.carried.push(carried);
        }
        Some(())
    }

    /// Where a number is that turns hand on.
    fn carried_at(&self, function: &MirFunction, one: &Loop, value: Value) -> Option<Place> {
        let mut params = function.blocks[one.header].params.iter().zip(&self.carried);
        params.find_map(|(param, carried)| match carried {
            Carried::At(place) if *param == value => Some(*place),
            _ => None,
        })
    }

    /// Finds what the body makes and others read.
    fn hand_out(
        &mut self,
        function: &MirFunction,
        one: &Loop,
        defined: &BTreeSet<Value>,
        known: &BTreeSet<Value>,
    ) -> Option<()> {
        let mut read = BTreeSet::new();
        for block in function.reverse_postorder() {
            let data = &function.blocks[block];
            if !one.blocks.contains(&block) {
                read.extend(data.insts.iter().flat_map(|inst| inst.op.operands()));
                read.extend(data.term.operands());
            }
        }
        for (block, number) in &self.exits {
            read.extend(&function.blocks[*block].term.targets()[*number].args);
        }
        let carried = read.iter().filter_map(|value| Some((*value, self.carried_at(function, one, *value)?)));
        self.outgoing = carried.collect();
        let ops = function.definitions();
        let remaking = Rematerializer { function, ops: &ops, defined };
        for value in read.intersection(defined).filter(|value| !known.contains(value)) {
            let ty = function.values[*value];
            let is_asked = ty.bits().is_none() || ops[*value].is_some_and(is_test);
            if is_asked && remaking.is_possible(*value) {
                remaking.append(*value, &mut self.remade);
            } else {
                ty.bits()?;
                let place = self.place();
                self.outgoing.insert(*value, place);
            }
        }
        Some(())
    }

    /// Whether turns take a pointer for tested and do not test it themselves: no turn begins without it.
    pub fn is_tested_before(&self, function: &MirFunction, one: &Loop, pointer: Value) -> bool {
        let insts = || one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let mut tests = insts().chain(&self.addresses);
        tests.all(|inst| inst.op != Op::IsNull(pointer))
            && insts().any(|inst| inst.op == Op::NonNull(pointer))
    }

    /// Finds what is known of the numbers that are handed over: read from memory again, they may be anything
    /// to the verifier, while checks of them are gone.
    fn find_bounds(&mut self, function: &MirFunction) {
        let decides = deciding(function);
        let ops = function.definitions().iter().map(|op| op.cloned()).collect();
        for value in self.incoming.keys().chain(self.outgoing.keys()).filter(|value| decides[**value]) {
            let most = bounds::proven(&ops, &function.values, *value).most;
            if most < i32::MAX as u64 {
                self.bounds.insert(*value, most + 1);
            }
        }
    }

    /// Finds the slots of the frame that the body uses: others must not use them.
    fn keep_slots(&mut self, function: &MirFunction, one: &Loop) -> Option<()> {
        let ops = function.definitions();
        let slots_of = |block: Block| {
            let data = &function.blocks[block];
            let insts = data.insts.iter().filter(|inst| !one.runs_before(inst));
            let operands = insts.flat_map(|inst| inst.op.operands());
            let all = operands.chain(data.term.operands()).filter_map(|value| match ops[value] {
                Some(Op::StackAddr { slot, .. }) => Some(*slot),
                _ => None,
            });
            all.collect::<Vec<_>>()
        };
        let mut others = BTreeSet::new();
        for block in function.reverse_postorder() {
            if one.blocks.contains(&block) {
                self.slots.extend(slots_of(block))
            } else {
                others.extend(slots_of(block))
            }
        }
        self.slots.is_disjoint(&others).then_some(())
    }
}

/// The address of the function's scratch slot: what a program claims, or the parameter of a function.
fn scratch_slot(function: &MirFunction) -> Option<Value> {
    let ops = function.definitions();
    let is_claimed = |value: Value| match ops[value] {
        Some(Op::Call { callee: Callee::Helper(Helper::MapLookup), args }) => {
            matches!(ops[args[0]], Some(Op::MapAddr(MapSymbol::Scratch)))
        }
        _ => false,
    };
    let entry = Type::Ptr(Origin::Entry);
    let params = &function.blocks[function.entry()].params;
    let param = params.iter().copied().find(|value| function.values[*value] == entry);
    let insts = function.reverse_postorder().into_iter().flat_map(|block| &function.blocks[block].insts);
    let defined = insts.into_iter().find_map(|inst| match inst.op {
        Op::NonNull(value) if is_claimed(value) => inst.result,
        Op::Load { .. } => inst.result.filter(|result| function.values[*result] == entry),
        _ => None,
    });
    param.or(defined)
}
