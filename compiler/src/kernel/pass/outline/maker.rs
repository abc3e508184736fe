//! Appending blocks and instructions to the function that a body becomes, and to the one it is taken from.

use std::collections::{BTreeMap, BTreeSet};

use super::Place;
use crate::hir::FuncId;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::{
    Block, BlockData, Callee, FunctionOrigin, Helper, Inst, MapSymbol, MirFunction, Op, Origin, Size, Slot,
    SlotData, Target, Terminator, Type, Value,
};
use crate::kernel::scratch::{Compact, NUMBER_OFFSET};
use crate::source::Span;

fn size_of(ty: Type) -> Size {
    if ty == Type::I32 { Size::W } else { Size::DW }
}

/// Reads a value from the scratch slot.
pub fn load(ty: Type, base: Value, place: Place) -> Op {
    Op::Load { size: size_of(ty), base, offset: offset(place) }
}

/// A scratch slot has at most [`MAX_BYTES`].
fn offset(place: Place) -> i16 {
    i16::try_from(place).unwrap_or(i16::MAX)
}

/// The function that a body becomes, while it is made.
pub struct Maker {
    pub body: MirFunction,
    /// What stands in it for the values of the other function.
    pub values: BTreeMap<Value, Value>,
    /// What stands in it for the blocks of the other function.
    pub blocks: BTreeMap<Block, Block>,
    pub span: Span,
}

impl Maker {
    /// A function without blocks and parameters that has these slots of another's frame.
    pub fn new(
        function: &MirFunction,
        (id, origin): (FuncId, FunctionOrigin),
        suffix: &str,
        slots: &BTreeSet<Slot>,
    ) -> Maker {
        let mut body = MirFunction {
            id,
            origin,
            name: format!("{}_{suffix}", function.name),
            span: function.span,
            is_program: false,
            is_called: true,
            returns_bool: false,
            context: function.context,
            params: Vec::new(),
            ret: Type::I32,
            values: IndexVec::new(),
            blocks: IndexVec::new(),
            slots: function.slots.clone(),
            slot_bytes: function.slot_bytes,
        };
        keep_only(&mut body, slots);
        Maker { body, values: BTreeMap::new(), blocks: BTreeMap::new(), span: function.span }
    }

    /// Gives a body its parameters, which stand for what the other function has: the scratch slot at `base`
    /// or its number, the context, and pointers to memory, each with whether it is tested before the body. It
    /// ends where one of them is null, which none is. Gives the slot's address, where the body goes on, and
    /// where it ends.
    pub fn start(
        &mut self,
        function: &MirFunction,
        base: Value,
        context: Option<Value>,
        memory: &[(Value, bool)],
        by_number: bool,
    ) -> (Value, Block, Block) {
        let names = ["__scratch"].into_iter().chain(context.map(|_| "__ctx")).map(str::to_owned);
        self.body.params = names.chain((0..memory.len()).map(|at| format!("__memory{at}"))).collect();
        let [start, none, found] = std::array::from_fn(|_| self.block());
        let ty = if by_number { Type::I32 } else { Type::Ptr(Origin::EntryOrNull) };
        let slot = self.new_value(ty);
        self.body.blocks[start].params.push(slot);
        let given = if by_number { self.look_up(start, slot) } else { slot };
        if let Some(context) = context {
            let own = self.own(function, context);
            self.body.blocks[start].params.push(own);
        }
        let params: Vec<Value> =
            memory.iter().map(|(pointer, _)| self.pointer_param(function, start, *pointer)).collect();
        let null = self.make(start, Type::I32, Op::IsNull(given));
        let (then, otherwise) = (Target::to(none), Target::to(found));
        self.body.blocks[start].term = Terminator::Branch { cond: null, then, otherwise };
        self.leave(none, 0);
        let own = self.make(found, Type::Ptr(Origin::Entry), Op::NonNull(given));
        self.values.insert(base, own);
        let end = memory
            .iter()
            .zip(params)
            .fold(found, |at, (pointer, param)| self.pass_unless_null(function, *pointer, param, (at, none)));
        (own, end, none)
    }

    /// Appends a load of a value that was handed over and is below the bound.
    pub fn receive(
        &mut self,
        block: Block,
        ty: Type,
        base: Value,
        place: Place,
        bound: Option<u64>,
    ) -> Value {
        let value = self.make(block, ty, load(ty, base, place));
        bound.map_or(value, |bound| self.make(block, ty, Op::Below { value, bound }))
    }

    /// A new block, whose end is set later.
    pub fn block(&mut self) -> Block {
        push_block(&mut self.body, self.span)
    }

    /// A new value.
    pub fn new_value(&mut self, ty: Type) -> Value {
        self.body.values.push(ty)
    }

    /// What stands for a value of the other function.
    pub fn own(&mut self, function: &MirFunction, value: Value) -> Value {
        let body = &mut self.body;
        *self.values.entry(value).or_insert_with(|| body.values.push(function.values[value]))
    }

    /// Makes a parameter of a pointer of the other function.
    fn pointer_param(&mut self, function: &MirFunction, start: Block, pointer: Value) -> Value {
        let ty = match function.values[pointer] {
            Type::Ptr(Origin::Entry) => Type::Ptr(Origin::EntryOrNull),
            Type::Ptr(Origin::Memory) => Type::Ptr(Origin::MemoryOrNull),
            other => other,
        };
        let param = self.new_value(ty);
        self.body.blocks[start].params.push(param);
        param
    }

    /// Makes a parameter stand for a pointer of the other function. Where that one is not null, or is
    /// `tested` to be so before the body, the body ends if the parameter is, which it never is. Gives where
    /// it goes on.
    fn pass_unless_null(
        &mut self,
        function: &MirFunction,
        (pointer, tested): (Value, bool),
        param: Value,
        (at, null): (Block, Block),
    ) -> Block {
        let ty = function.values[pointer];
        let is_same = self.body.values[param] == ty;
        if is_same && !tested {
            self.values.insert(pointer, param);
            return at;
        }
        let next = self.block();
        let cond = self.make(at, Type::I32, Op::IsNull(param));
        let (then, otherwise) = (Target::to(null), Target::to(next));
        self.body.blocks[at].term = Terminator::Branch { cond, then, otherwise };
        let own = if is_same { param } else { self.make(next, ty, Op::NonNull(param)) };
        self.values.insert(pointer, own);
        next
    }

    /// An instruction of the other function.
    pub fn copy(&mut self, function: &MirFunction, inst: &Inst) -> Inst {
        let mut copy = inst.clone();
        copy.op.map_operands(&mut |value| self.own(function, value));
        copy.result = inst.result.map(|result| self.own(function, result));
        copy
    }

    /// Appends an instruction with a result.
    pub fn make(&mut self, block: Block, ty: Type, op: Op) -> Value {
        let result = self.new_value(ty);
        self.body.blocks[block].insts.push(Inst { result: Some(result), op, span: self.span });
        result
    }

    /// Looks a scratch slot up by its number.
    fn look_up(&mut self, block: Block, number: Value) -> Value {
        let slot = self.body.slots.push(SlotData { size: 4, position: self.body.slot_bytes });
        self.body.slot_bytes += 8;
        let key = self.make(block, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
        self.store(block, number, key, 0);
        let map = self.make(block, Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Scratch));
        let callee = Callee::Helper(Helper::MapLookup);
        self.make(block, Type::Ptr(Origin::EntryOrNull), Op::Call { callee, args: vec![map, key] })
    }

    /// Appends a store to the scratch slot.
    pub fn store(&mut self, block: Block, value: Value, base: Value, place: Place) {
        let op = store(&self.body, value, base, place);
        self.body.blocks[block].insts.push(Inst { result: None, op, span: self.span });
    }

    /// Ends a block and the function.
    pub fn leave(&mut self, block: Block, code: u64) {
        let code = self.make(block, Type::I32, Op::Const(code));
        self.body.blocks[block].term = Terminator::Return(code);
    }
}

/// Takes the bytes of other slots out of a function's frame.
pub fn keep_only(function: &mut MirFunction, slots: &BTreeSet<Slot>) {
    let positions = Compact::new(function, |slot| slots.contains(&slot));
    for slot in function.slots.ids() {
        let data = function.slots[slot];
        function.slots[slot] = if slots.contains(&slot) {
            SlotData { position: positions.position(data), ..data }
        } else {
            SlotData { size: 0, position: 0 }
        };
    }
    function.slot_bytes = positions.bytes;
}

/// The function that a body is taken from.
pub struct Caller<'a> {
    pub function: &'a mut MirFunction,
    pub span: Span,
}

impl Caller<'_> {
    /// A new block, whose end is set later.
    pub fn block(&mut self) -> Block {
        push_block(self.function, self.span)
    }

    /// Appends an instruction with a result.
    pub fn make(&mut self, block: Block, ty: Type, op: Op) -> Value {
        let result = self.function.values.push(ty);
        self.function.blocks[block].insts.push(Inst { result: Some(result), op, span: self.span });
        result
    }

    /// Appends a call of a body, which is given the scratch slot's address or its number, and more. Gives its
    /// result.
    pub fn call(
        &mut self,
        block: Block,
        body: FuncId,
        base: Value,
        more: impl Iterator<Item = Value>,
        by_number: bool,
    ) -> Value {
        let number = Op::Load { size: Size::W, base, offset: NUMBER_OFFSET };
        let slot = if by_number { self.make(block, Type::I32, number) } else { base };
        let args = [slot].into_iter().chain(more).collect();
        self.make(block, Type::I32, Op::Call { callee: Callee::Function(body), args })
    }

    /// Appends a load from the scratch slot.
    pub fn load(&mut self, block: Block, like: Value, base: Value, place: Place) -> Value {
        let ty = self.function.values[like];
        self.make(block, ty, load(ty, base, place))
    }

    /// Appends a store to the scratch slot.
    pub fn store(&mut self, block: Block, value: Value, base: Value, place: Place) {
        let op = store(self.function, value, base, place);
        self.function.blocks[block].insts.push(Inst { result: None, op, span: self.span });
    }
}

fn store(function: &MirFunction, value: Value, base: Value, place: Place) -> Op {
    Op::Store { size: size_of(function.values[value]), base, offset: offset(place), value }
}

/// A block whose end is set later.
fn push_block(function: &mut MirFunction, span: Span) -> Block {
    let term = Terminator::Jump(Target::to(Block::new(0)));
    function.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), term, span })
}
