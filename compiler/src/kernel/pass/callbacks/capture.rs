//! What goes into a turn and out of it: words of the caller's frame, and halves of words.

use std::collections::{BTreeMap, BTreeSet};

use super::super::bounds;
use super::super::decide::deciding;
use super::super::outline::{Loop, Place, Tested};
use super::super::rematerialize::{Rematerializer, is_test};
use super::Around;
use super::region::can_be_anywhere;
use super::stack::Pointers;
use crate::index::IndexVec;
use crate::kernel::limits::STACK_BYTES;
use crate::kernel::mir::{
    Block, Callee, Helper, Inst, KeptReason, MirFunction, Op, Origin, Slot, Target, Terminator, Type, Value,
};

/// Most bytes of all words: what is left of the stack is for everything else.
const MAX_BYTES: u32 = STACK_BYTES / 2;

/// What a turn and its caller hand to each other, and where.
pub struct Captured {
    /// Values from outside that a turn reads and none changes.
    pub incoming: BTreeMap<Value, Place>,
    /// What is made again inside, in order.
    pub again: Vec<Inst>,
    /// Numbers that are 0, and nobody shall know.
    pub zeros: BTreeSet<Value>,
    /// For each parameter of the header, where a turn leaves the next one; nowhere, if it never changes.
    pub carried: Vec<Option<Place>>,
    /// Numbers that a turn makes and others read.
    pub outgoing: BTreeMap<Value, Place>,
    /// What numbers that are handed over are below, where that shows only from how they are made.
    pub bounds: BTreeMap<Value, u64>,
    /// What a turn makes that others make again, in order.
    pub remade: Vec<Inst>,
    /// Slots of which only the turns know.
    pub slots: BTreeSet<Slot>,
    /// The ways out: from where, and which of the targets.
    pub exits: Vec<(Block, usize)>,
    /// Where a turn says which way it took, if there are some.
    pub code: Option<Place>,
    /// Where a turn of a walk finds a number that nobody knows.
    pub unknown: Option<Place>,
    /// Whether the program walks.
    pub beside_walk: bool,
    /// Whether a turn changes the packet.
    changes_packet: bool,
    /// Packet pointers with bytes that iterations access without a test of their own.
    tested_before: BTreeSet<Value>,
    /// Half of a word that nothing is in.
    half: Option<Place>,
    /// Bytes of all words.
    pub end: u32,
}

impl Captured {
    pub fn new(
        function: &MirFunction,
        one: &Loop,
        own: BTreeSet<Slot>,
        zeros: BTreeSet<Value>,
        around: &Around,
    ) -> Result<Captured, KeptReason> {
        check_header(function, one)?;
        let mut captured = Captured {
            incoming: BTreeMap::new(),
            again: Vec::new(),
            zeros,
            carried: Vec::new(),
            outgoing: BTreeMap::new(),
            bounds: BTreeMap::new(),
            remade: Vec::new(),
            slots: own,
            exits: exits(function, one),
            code: None,
            unknown: None,
            beside_walk: around.beside_walk,
            changes_packet: !around.changing.calls(function, &one.blocks).is_empty(),
            tested_before: tested_before(function, one),
            half: None,
            end: 0,
        };
        if Pointers::new(function, &around.receivers, &captured.slots).writes(one) {
            return Err(KeptReason::Stack);
        }
        if one.is_walk() {
            captured.unknown = Some(captured.place(Type::I64));
        }
        if !captured.exits.is_empty() {
            captured.code = Some(captured.place(Type::I32));
        }
        captured.carry(function, one)?;
        let defined = one.made_inside(function);
        let ops = function.definitions();
        check_calls(function, one, &defined, &ops)?;
        for value in captured.needed(function, one) {
            if !defined.contains(&value) {
                captured.bring(function, &ops, one, value)?;
            }
        }
        captured.check_packets()?;
        captured.hand_out(function, one, &defined, &ops)?;
        captured.find_bounds(function, one);
        if captured.end > MAX_BYTES { Err(KeptReason::Size) } else { Ok(captured) }
    }

    /// Gives a value a word, or half of one: there is little room in the frames of a chain of calls.
    fn place(&mut self, ty: Type) -> Place {
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

    /// Finds what each turn leaves for the next.
    fn carry(&mut self, function: &MirFunction, one: &Loop) -> Result<(), KeptReason> {
        let terms = one.blocks.iter().flat_map(|block| function.blocks[*block].term.targets());
        let back: Vec<&Target> = terms.filter(|target| target.block == one.header).collect();
        for (index, param) in function.blocks[one.header].params.iter().enumerate() {
            if back.iter().all(|target| target.args[index] == *param) {
                self.carried.push(None);
            } else if function.values[*param].bits().is_none() {
                return Err(KeptReason::Pointer);
            } else {
                let place = self.place(function.values[*param]);
                self.carried.push(Some(place));
            }
        }
        Ok(())
    }

    /// What the turns read.
    fn needed(&self, function: &MirFunction, one: &Loop) -> BTreeSet<Value> {
        let mut needed = BTreeSet::new();
        let into = function.blocks[one.header].term.targets();
        needed.extend(into.iter().filter(|to| to.block == one.entry).flat_map(|to| &to.args));
        for data in one.blocks.iter().map(|block| &function.blocks[*block]) {
            let insts = data.insts.iter().filter(|inst| !one.reads_turn(inst));
            needed.extend(insts.flat_map(|inst| inst.op.operands()));
            if let Terminator::Branch { cond, .. } = data.term {
                needed.insert(cond);
            }
            for target in data.term.targets() {
                if one.blocks.contains(&target.block) {
                    needed.extend(&target.args);
                } else if target.block == one.header {
                    let changed = target.args.iter().zip(&self.carried).filter(|(_, place)| place.is_some());
                    needed.extend(changed.map(|(arg, _)| arg));
                }
            }
        }
        needed
    }

    /// Makes a value from outside known inside.
    fn bring(
        &mut self,
        function: &MirFunction,
        ops: &IndexVec<Value, Option<&Op>>,
        one: &Loop,
        value: Value,
    ) -> Result<(), KeptReason> {
        let params = function.blocks[one.header].params.iter().zip(&self.carried);
        let changes = params.filter(|(_, place)| place.is_some()).any(|(param, _)| *param == value);
        let known = changes
            || self.incoming.contains_key(&value)
            || self.zeros.contains(&value)
            || self.again.iter().any(|inst| inst.result == Some(value));
        if known {
            return Ok(());
        }
        // Packet edges are rematerialised, which keeps two words out of the stack frame.
        let is_edge =
            matches!(ops[value], Some(Op::PacketEdge { .. })) && !self.tested_before.contains(&value);
        let is_void = self.changes_packet
            && matches!(function.values[value], Type::Ptr(origin) if origin.is_of_packet());
        if let Some(op) = ops[value]
            && (is_void || is_edge || self.is_leaf_inside(op) || is_checked(ops, op) || is_test(op))
        {
            for operand in op.operands() {
                self.bring(function, ops, one, operand)?;
            }
            self.again.push(Inst { result: Some(value), op: op.clone(), span: function.span });
            return Ok(());
        }
        if let Type::Ptr(Origin::IterCounter | Origin::IterCounterOrNull) = function.values[value] {
            return Err(KeptReason::Inner);
        }
        let place = self.place(function.values[value]);
        self.incoming.insert(value, place);
        Ok(())
    }

    /// Refuses turns that change the packet and use of it what only others have tested.
    fn check_packets(&self) -> Result<(), KeptReason> {
        if !self.changes_packet {
            return Ok(());
        }
        let is_tested = |inst: &Inst| matches!(inst.op, Op::InPacket { .. });
        let is_void = self.again.iter().any(is_tested) || !self.tested_before.is_empty();
        if is_void { Err(KeptReason::Pointer) } else { Ok(()) }
    }

    /// Whether the turns make it as everybody does: not the address of a slot that is in the caller's frame.
    fn is_leaf_inside(&self, op: &Op) -> bool {
        match op {
            Op::StackAddr { slot, .. } => self.slots.contains(slot),
            op => op.is_leaf(),
        }
    }

    /// Finds what is known of the numbers that are handed over: the verifier may not know it of what is read
    /// again, while checks of them are gone.
    fn find_bounds(&mut self, function: &MirFunction, one: &Loop) {
        let decides = deciding(function);
        let ops = function.definitions().iter().map(|op| op.cloned()).collect();
        let params = &function.blocks[one.header].params;
        let handed = self.incoming.keys().chain(self.outgoing.keys()).chain(params);
        for value in handed.filter(|value| decides[**value] && function.values[**value].bits().is_some()) {
            let most = bounds::proven(&ops, &function.values, *value).most;
            if most < i32::MAX as u64 {
                self.bounds.insert(*value, most + 1);
            }
        }
    }

    /// Finds what the turns make and others read.
    fn hand_out(
        &mut self,
        function: &MirFunction,
        one: &Loop,
        defined: &BTreeSet<Value>,
        ops: &IndexVec<Value, Option<&Op>>,
    ) -> Result<(), KeptReason> {
        let mut read = BTreeSet::new();
        for block in function.reverse_postorder() {
            let data = &function.blocks[block];
            if !one.blocks.contains(&block) && block != one.header {
                read.extend(data.insts.iter().flat_map(|inst| inst.op.operands()));
                read.extend(data.term.operands());
            }
        }
        let ends = function.blocks[one.header].term.targets();
        read.extend(ends.iter().filter(|to| to.block != one.entry).flat_map(|to| &to.args));
        for (block, number) in &self.exits {
            read.extend(&function.blocks[*block].term.targets()[*number].args);
        }
        let remaking = Rematerializer { function, ops, defined };
        for value in read.intersection(defined) {
            let is_asked = ops[*value].is_some_and(|op| can_be_anywhere(op) || is_test(op));
            if is_asked && remaking.is_possible(*value) {
                remaking.append(*value, &mut self.remade);
            } else if function.values[*value].bits().is_none() {
                return Err(KeptReason::Pointer);
            } else {
                let place = self.place(function.values[*value]);
                self.outgoing.insert(*value, place);
            }
        }
        Ok(())
    }
}

/// The packet pointers with bytes that a loop accesses without a test of its own.
fn tested_before(function: &MirFunction, one: &Loop) -> BTreeSet<Value> {
    let mut insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    if !insts.any(|inst| matches!(inst.op, Op::InPacket { .. })) {
        return BTreeSet::new();
    }
    Tested::new(function).untested(function, &one.blocks).into_iter().map(|(pointer, _)| pointer).collect()
}

/// Whether what the verifier must see of a number is made of checks: they are made again.
pub fn is_checked(ops: &IndexVec<Value, Option<&Op>>, op: &Op) -> bool {
    // Operands are shared: each is looked at once, or a chain of `v + v` would take time without end.
    let (mut seen, mut open) = (BTreeSet::new(), vec![op]);
    while let Some(op) = open.pop() {
        match op {
            Op::Below { .. } => return true,
            Op::ZeroExtend(_) | Op::SignExtend(_) | Op::Truncate(_) | Op::Narrow { .. } | Op::Binary(..) => {
                let unseen = op.operands().into_iter().filter(|operand| seen.insert(*operand));
                open.extend(unseen.filter_map(|operand| ops[operand]));
            }
            _ => {}
        }
    }
    false
}

/// In a callback no record can be given back that was reserved outside, and no program goes on in another.
/// Source: kernel/bpf/verifier.c, `release_reference` and `check_helper_call`, v6.1.
fn check_calls(
    function: &MirFunction,
    one: &Loop,
    defined: &BTreeSet<Value>,
    ops: &IndexVec<Value, Option<&Op>>,
) -> Result<(), KeptReason> {
    let source = |mut value: Value| {
        while let Some(Op::NonNull(from)) = ops[value] {
            value = *from;
        }
        value
    };
    for inst in one.blocks.iter().flat_map(|block| &function.blocks[*block].insts) {
        match &inst.op {
            Op::Call { callee: Callee::Helper(Helper::TailCall), .. } => return Err(KeptReason::Shape),
            Op::Call { callee: Callee::Helper(Helper::RingSubmit | Helper::RingDiscard), args }
                if !defined.contains(&source(args[0])) =>
            {
                return Err(KeptReason::Pointer);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A header does nothing but ask, and goes to the turn if there is one.
fn check_header(function: &MirFunction, one: &Loop) -> Result<(), KeptReason> {
    let data = &function.blocks[one.header];
    let asks = |inst: &&Inst| inst.op.is_leaf() || matches!(inst.op, Op::IsNull(_) | Op::Call { .. });
    let rest = data.insts.iter().filter(|inst| !asks(inst)).count();
    let calls = data.insts.iter().filter(|inst| matches!(inst.op, Op::Call { .. })).count();
    let asked =
        data.insts.iter().find(|inst| matches!(inst.op, Op::Call { .. })).and_then(|inst| inst.result);
    let ends = match &data.term {
        Terminator::Branch { cond, otherwise, .. } if otherwise.block == one.entry => {
            let tests = |inst: &Inst| {
                inst.result == Some(*cond) && asked.is_some_and(|turn| inst.op == Op::IsNull(turn))
            };
            data.insts.iter().any(tests)
        }
        _ => false,
    };
    if rest == 0 && calls == 1 && ends { Ok(()) } else { Err(KeptReason::Shape) }
}

fn exits(function: &MirFunction, one: &Loop) -> Vec<(Block, usize)> {
    let mut exits = Vec::new();
    for block in &one.blocks {
        let targets = function.blocks[*block].term.targets().into_iter().enumerate();
        let outside = targets.filter(|(_, to)| to.block != one.header && !one.blocks.contains(&to.block));
        exits.extend(outside.map(|(number, _)| (*block, number)));
    }
    exits
}

/// The slots that nobody else uses.
fn own_slots(function: &MirFunction, one: &Loop) -> BTreeSet<Slot> {
    let ops = function.definitions();
    let (mut inside, mut others) = (BTreeSet::new(), BTreeSet::new());
    for block in function.reverse_postorder() {
        let data = &function.blocks[block];
        let operands = data.insts.iter().flat_map(|inst| inst.op.operands()).chain(data.term.operands());
        let slots = operands.filter_map(|value| match ops[value] {
            Some(Op::StackAddr { slot, .. }) => Some(*slot),
            _ => None,
        });
        if one.blocks.contains(&block) { inside.extend(slots) } else { others.extend(slots) }
    }
    inside.difference(&others).copied().collect()
}

/// Takes the addresses of slots that others use too out of a loop: a turn has no such slot. Gives those that
/// it has.
pub fn lift_addresses(function: &mut MirFunction, one: &Loop) -> BTreeSet<Slot> {
    let own = own_slots(function, one);
    let mut lifted = Vec::new();
    for block in &one.blocks {
        let is_foreign =
            |inst: &mut Inst| matches!(inst.op, Op::StackAddr { slot, .. } if !own.contains(&slot));
        lifted.extend(function.blocks[*block].insts.extract_if(.., is_foreign));
    }
    let entry = function.entry();
    function.blocks[entry].insts.splice(..0, lifted);
    own
}
