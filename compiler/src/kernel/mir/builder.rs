//! Building a function: blocks, instructions, and SSA form for variables on the fly.
//!
//! The method is that of Braun et al., "Simple and Efficient Construction of Static Single Assignment Form" (2013): a
//! variable read in a block that does not set it becomes a parameter of the block, filled in from each predecessor once
//! all of them are known (the block is sealed). Parameters that turn out to be superfluous are removed by
//! `pass::redundant_params`.

use super::{
    Block, BlockData, Callee, Condition, Inst, MirFunction, Op, Slot, SlotData, Target, Terminator, Type,
    Value,
};
use crate::hir::FuncId;
use crate::id_type;
use crate::index::{FastMap, Id, IndexVec};
use crate::source::Span;

id_type! {
    /// A variable that becomes SSA values.
    Variable,
}

/// Builds one function.
pub struct Builder {
    function: MirFunction,
    current: Block,
    span: Span,
    state: IndexVec<Block, BlockState>,
    variables: IndexVec<Variable, Type>,
    stack_top: u32,
    /// Slots that overlap no others, whose positions are not known before all others are.
    dedicated: Vec<Slot>,
    constants: FastMap<Value, u64>,
    /// Values that are another one and a constant.
    sums: FastMap<Value, (Value, u64)>,
    /// Values that are the address of a byte of a slot.
    frame: FastMap<Value, (Slot, u32)>,
    divides_signed: bool,
}

#[derive(Default)]
struct BlockState {
    /// No further predecessor will come.
    sealed: bool,
    /// The terminator is set.
    filled: bool,
    predecessors: Vec<Block>,
    /// The value of a variable at the end of the block.
    values: FastMap<Variable, Value>,
    /// Parameters made for variables before the block was sealed, in order.
    incomplete: Vec<(Variable, Value)>,
}

/// How much of the frame was in use; see [`Builder::release_stack`].
#[derive(Debug, Clone, Copy)]
pub struct StackMark(u32);

impl Builder {
    /// Starts a function, in its entry block.
    pub fn new(function: MirFunction) -> Builder {
        let span = function.span;
        let mut builder = Builder {
            function,
            current: Block::new(0),
            span,
            state: IndexVec::new(),
            variables: IndexVec::new(),
            stack_top: 0,
            dedicated: Vec::new(),
            constants: FastMap::default(),
            sums: FastMap::default(),
            frame: FastMap::default(),
            divides_signed: false,
        };
        let entry = builder.block();
        builder.seal(entry);
        builder
    }

    /// Says that signed numbers can be divided by constants.
    pub fn set_divides_signed(&mut self, divides: bool) {
        self.divides_signed = divides;
    }

    /// Whether signed numbers can be divided by constants.
    pub fn divides_signed(&self) -> bool {
        self.divides_signed
    }

    /// The finished function.
    pub fn finish(mut self) -> MirFunction {
        for slot in self.dedicated {
            let data = &mut self.function.slots[slot];
            data.position = self.function.slot_bytes;
            self.function.slot_bytes = self.function.slot_bytes.saturating_add(whole_words(data.size));
        }
        self.function
    }

    /// Which function it is in the typed tree.
    pub fn id(&self) -> FuncId {
        self.function.id
    }

    /// The entry block.
    pub fn entry(&self) -> Block {
        self.function.entry()
    }

    /// Which program it is, if it is one.
    pub fn program(&self) -> Option<FuncId> {
        self.function.is_program.then_some(self.function.id)
    }

    /// Adds a parameter to the function.
    pub fn function_param(&mut self, name: &str, ty: Type) -> Value {
        self.function.params.push(name.to_owned());
        self.param(self.entry(), ty)
    }

    /// The type of the function's result.
    pub fn result_type(&self) -> Type {
        self.function.ret
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.function.values[value]
    }

    /// The part of the script that the next instructions come from. Gives the previous one.
    pub fn set_span(&mut self, span: Span) -> Span {
        std::mem::replace(&mut self.span, span)
    }

    /// A new block without predecessors.
    pub fn block(&mut self) -> Block {
        let span = self.span;
        let unfinished = Terminator::Jump(Target::to(Block::new(0)));
        self.state.push(BlockState::default());
        self.function.blocks.push(BlockData {
            params: Vec::new(),
            insts: Vec::with_capacity(8),
            term: unfinished,
            span,
        })
    }

    /// Adds a parameter to a block, to be filled by [`Builder::jump_with`].
    pub fn param(&mut self, block: Block, ty: Type) -> Value {
        let value = self.function.values.push(ty);
        self.function.blocks[block].params.push(value);
        value
    }

    /// Says that all jumps to the block exist.
    pub fn seal(&mut self, block: Block) {
        debug_assert!(!self.state[block].sealed, "a block is sealed once");
        self.state[block].sealed = true;
        for (variable, _) in std::mem::take(&mut self.state[block].incomplete) {
            self.fill_param(block, variable);
        }
    }

    /// Goes on in a block.
    pub fn switch_to(&mut self, block: Block) {
        debug_assert!(!self.state[block].filled, "a block is filled once");
        self.current = block;
    }

    /// Goes on in a block that gets no further predecessor.
    pub fn switch_to_sealed(&mut self, block: Block) {
        self.seal(block);
        self.switch_to(block);
    }

    /// Whether the current block has ended: what follows cannot be reached.
    pub fn is_filled(&self) -> bool {
        self.state[self.current].filled
    }

    /// Ends the block with a jump.
    pub fn jump(&mut self, block: Block) {
        self.end(Terminator::Jump(Target::to(block)));
    }

    /// Ends the block with a jump to a block whose only parameter gets `value`.
    pub fn jump_with(&mut self, block: Block, value: Value) {
        self.end(Terminator::Jump(Target { block, args: vec![value] }));
    }

    /// Ends the block with a branch.
    pub fn branch(&mut self, cond: Value, then: Block, otherwise: Block) {
        debug_assert_ne!(then, otherwise, "a branch has two targets");
        self.end(Terminator::Branch { cond, then: Target::to(then), otherwise: Target::to(otherwise) });
    }

    /// Ends the block and the function.
    pub fn ret(&mut self, value: Value) {
        self.end(Terminator::Return(value));
    }

    /// Statements behind a `return` are built into a block that nobody reaches.
    fn open(&mut self) {
        if self.is_filled() {
            let dead = self.block();
            self.switch_to_sealed(dead);
        }
    }

    fn end(&mut self, term: Terminator) {
        self.open();
        for target in term.targets() {
            self.state[target.block].predecessors.push(self.current);
        }
        let block = &mut self.function.blocks[self.current];
        block.term = term;
        block.span = self.span;
        self.state[self.current].filled = true;
    }

    /// Appends an instruction without a result.
    pub fn effect(&mut self, op: Op) {
        self.append(None, op);
    }

    /// Appends an instruction with a result.
    pub fn value(&mut self, ty: Type, op: Op) -> Value {
        let value = self.function.values.push(ty);
        if let Some(location) = self.location_of(&op) {
            self.frame.insert(value, location);
        }
        self.append(Some(value), op);
        value
    }

    fn location_of(&self, op: &Op) -> Option<(Slot, u32)> {
        match op {
            Op::StackAddr { slot, offset } => Some((*slot, *offset)),
            Op::PtrAdd(base, distance) => {
                let ((slot, offset), distance) = (self.stack_location(*base)?, self.known(*distance)?);
                Some((slot, offset.checked_add(u32::try_from(distance).ok()?)?))
            }
            _ => None,
        }
    }

    /// The slot and the byte of it that a value is the address of, if it was made as one.
    pub fn stack_location(&self, value: Value) -> Option<(Slot, u32)> {
        self.frame.get(&value).copied()
    }

    fn append(&mut self, result: Option<Value>, op: Op) {
        self.open();
        let span = self.span;
        self.function.blocks[self.current].insts.push(Inst { result, op, span });
    }

    /// A number of the type, cut to its width.
    pub fn constant(&mut self, ty: Type, bits: u64) -> Value {
        let cut = if ty == Type::I32 { bits & 0xffff_ffff } else { bits };
        let value = self.value(ty, Op::Const(cut));
        self.constants.insert(value, cut);
        value
    }

    /// The number that a value is, if it was made as a constant.
    pub fn known(&self, value: Value) -> Option<u64> {
        self.constants.get(&value).copied()
    }

    /// Arithmetic.
    pub fn binary(&mut self, op: super::BinaryOp, left: Value, right: Value) -> Value {
        self.value(self.ty(left), Op::Binary(op, left, right))
    }

    /// Arithmetic with a constant.
    pub fn binary_const(&mut self, op: super::BinaryOp, left: Value, right: u64) -> Value {
        let constant = self.constant(self.ty(left), right);
        let result = self.binary(op, left, constant);
        if op == super::BinaryOp::Add {
            self.sums.insert(result, (left, right));
        }
        result
    }

    /// The value and the constant that a value was made of by one addition.
    pub fn sum(&self, value: Value) -> Option<(Value, u64)> {
        self.sums.get(&value).copied()
    }

    /// A comparison.
    pub fn compare(&mut self, condition: Condition, left: Value, right: Value) -> Value {
        self.value(Type::I32, Op::Compare(condition, left, right))
    }

    /// A comparison with a constant.
    pub fn compare_const(&mut self, condition: Condition, left: Value, right: u64) -> Value {
        let right = self.constant(self.ty(left), right);
        self.compare(condition, left, right)
    }

    /// A call with a result.
    pub fn call(&mut self, ty: Type, callee: Callee, args: Vec<Value>) -> Value {
        self.value(ty, Op::Call { callee, args })
    }

    /// A new variable.
    pub fn variable(&mut self, ty: Type) -> Variable {
        self.variables.push(ty)
    }

    /// Sets a variable.
    pub fn set(&mut self, variable: Variable, value: Value) {
        self.open();
        let current = self.current;
        self.state[current].values.insert(variable, value);
    }

    /// Whether the variable has been set on every path to here that can be seen now. Blocks that nothing leads to are on none.
    pub fn is_set(&self, variable: Variable) -> bool {
        let mut seen = vec![false; self.state.len()];
        let mut open = vec![self.current];
        while let Some(block) = open.pop() {
            if std::mem::replace(&mut seen[block.index()], true)
                || self.state[block].values.contains_key(&variable)
            {
                continue;
            }
            let state = &self.state[block];
            if block == self.function.entry() || (state.predecessors.is_empty() && !state.sealed) {
                return false;
            }
            open.extend(&state.predecessors);
        }
        true
    }

    /// The value of a variable here. Where no path set it, it is 0.
    pub fn get(&mut self, variable: Variable) -> Value {
        self.read(self.current, variable)
    }

    fn read(&mut self, block: Block, variable: Variable) -> Value {
        if let Some(value) = self.state[block].values.get(&variable) {
            return *value;
        }
        let value = match (self.state[block].sealed, self.state[block].predecessors.as_slice()) {
            (false, _) => {
                let value = self.param(block, self.variables[variable]);
                self.state[block].incomplete.push((variable, value));
                value
            }
            (true, []) => self.undefined(block, variable),
            (true, [only]) => {
                let only = *only;
                self.read(only, variable)
            }
            (true, _) => {
                let value = self.param(block, self.variables[variable]);
                // Set before the predecessors are asked: a loop leads back here.
                self.state[block].values.insert(variable, value);
                self.fill_param(block, variable);
                value
            }
        };
        self.state[block].values.insert(variable, value);
        value
    }

    /// Only code that cannot be reached reads a variable that was never set.
    fn undefined(&mut self, block: Block, variable: Variable) -> Value {
        let value = self.function.values.push(self.variables[variable]);
        let span = self.span;
        self.function.blocks[block].insts.insert(0, Inst { result: Some(value), op: Op::Const(0), span });
        value
    }

    /// Appends the variable's value to the arguments of every jump to the block. No branch has one block as both targets:
    /// a predecessor has one jump to it.
    fn fill_param(&mut self, block: Block, variable: Variable) {
        for predecessor in self.state[block].predecessors.clone() {
            let value = self.read(predecessor, variable);
            let targets = self.function.blocks[predecessor].term.targets_mut();
            if let Some(target) = targets.into_iter().find(|target| target.block == block) {
                target.args.push(value);
            }
        }
    }

    /// Reserves bytes of the frame, at a multiple of 8.
    pub fn slot(&mut self, size: u32) -> Slot {
        let position = self.stack_top;
        self.stack_top = position.saturating_add(whole_words(size));
        self.function.slot_bytes = self.function.slot_bytes.max(self.stack_top);
        self.function.slots.push(SlotData { size, position })
    }

    /// Reserves bytes of the frame, at a multiple of 8, that nothing else ever uses.
    pub fn dedicated_slot(&mut self, size: u32) -> Slot {
        let slot = self.function.slots.push(SlotData { size, position: 0 });
        self.dedicated.push(slot);
        slot
    }

    /// How much of the frame is in use.
    pub fn mark_stack(&self) -> StackMark {
        StackMark(self.stack_top)
    }

    /// Lets later slots overlap those reserved since the mark.
    pub fn release_stack(&mut self, mark: StackMark) {
        self.stack_top = mark.0;
    }
}

fn whole_words(bytes: u32) -> u32 {
    bytes.saturating_add(7) & !7
}
