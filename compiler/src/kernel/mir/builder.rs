//! Builder for a function: blocks, instructions, and on-the-fly SSA construction for variables.
//!
//! The method is that of Braun et al., "Simple and Efficient Construction of Static Single Assignment Form"
//! (2013): a variable read in a block that does not set it becomes a block parameter. It is filled in from
//! each predecessor once all of them are known (the block is sealed). `pass::redundant_params` removes
//! superfluous parameters.

use super::{
    BinaryOp, Block, BlockData, Callee, Condition, Inst, MirFunction, Op, Size, Slot, SlotData, Target,
    Terminator, Type, Value,
};
use crate::hir::FuncId;
use crate::id_type;
use crate::index::{FastMap, Id, IndexVec};
use crate::source::Span;

id_type! {
    /// A source-level variable, for which the builder creates SSA values.
    Variable,
}

/// Builder of one function, with a current block to which instructions are appended.
pub struct Builder {
    function: MirFunction,
    current: Block,
    span: Span,
    state: IndexVec<Block, BlockState>,
    variables: IndexVec<Variable, Type>,
    stack_top: u32,
    /// Slots that overlap no others; their positions are assigned after all others.
    dedicated: Vec<Slot>,
    constants: FastMap<Value, u64>,
    /// Values that are the sum of another value and a constant.
    sums: FastMap<Value, (Value, u64)>,
    /// The greatest number that a value can be, by its definition.
    ceilings: FastMap<Value, u64>,
    /// Values that are the address of a byte of a slot.
    frame: FastMap<Value, (Slot, u32)>,
    divides_signed: bool,
}

#[derive(Default)]
struct BlockState {
    /// Whether all predecessors exist.
    sealed: bool,
    /// Whether the terminator is set.
    filled: bool,
    predecessors: Vec<Block>,
    /// The value of a variable at the end of the block.
    values: FastMap<Variable, Value>,
    /// Parameters added for variables before the block was sealed, in order.
    incomplete: Vec<(Variable, Value)>,
}

/// The number of frame bytes in use at a point; see [`Builder::release_stack`].
#[derive(Debug, Clone, Copy)]
pub struct StackMark(u32);

impl Builder {
    /// Starts building a function, in its entry block.
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
            ceilings: FastMap::default(),
            frame: FastMap::default(),
            divides_signed: false,
        };
        let entry = builder.block();
        builder.seal(entry);
        builder
    }

    /// Sets whether the target has signed division; divisors are constants other than 0 and -1.
    pub fn set_divides_signed(&mut self, divides: bool) {
        self.divides_signed = divides;
    }

    /// Whether the target has signed division.
    pub fn divides_signed(&self) -> bool {
        self.divides_signed
    }

    /// Finishes the function: lays out dedicated slots and returns the MIR.
    pub fn finish(mut self) -> MirFunction {
        for slot in self.dedicated {
            let data = &mut self.function.slots[slot];
            data.position = self.function.slot_bytes;
            self.function.slot_bytes = self.function.slot_bytes.saturating_add(whole_words(data.size));
        }
        self.function
    }

    /// The id of the function in the typed tree.
    pub fn id(&self) -> FuncId {
        self.function.id
    }

    /// The entry block, which has no predecessors.
    pub fn entry(&self) -> Block {
        self.function.entry()
    }

    /// The id of the function if it is a program; `None` for a helper.
    pub fn program(&self) -> Option<FuncId> {
        self.function.is_program.then_some(self.function.id)
    }

    /// Adds a parameter to the function.
    pub fn function_param(&mut self, name: &str, ty: Type) -> Value {
        self.function.params.push(name.to_owned());
        self.param(self.entry(), ty)
    }

    /// The type of the function's return value.
    pub fn result_type(&self) -> Type {
        self.function.ret
    }

    /// The MIR type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.function.values[value]
    }

    /// Sets the source span of the following instructions; returns the previous one.
    pub fn set_span(&mut self, span: Span) -> Span {
        std::mem::replace(&mut self.span, span)
    }

    /// Creates a block without predecessors.
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

    /// Seals a block: all jumps to it exist.
    pub fn seal(&mut self, block: Block) {
        debug_assert!(!self.state[block].sealed, "a block is sealed once");
        self.state[block].sealed = true;
        for (variable, _) in std::mem::take(&mut self.state[block].incomplete) {
            self.fill_param(block, variable);
        }
    }

    /// Makes `block` the current block.
    pub fn switch_to(&mut self, block: Block) {
        debug_assert!(!self.state[block].filled, "a block is filled once");
        self.current = block;
    }

    /// Makes `block` the current block and seals it: it gets no further predecessor.
    pub fn switch_to_sealed(&mut self, block: Block) {
        self.seal(block);
        self.switch_to(block);
    }

    /// The block that instructions are appended to.
    pub fn current(&self) -> Block {
        self.current
    }

    /// Whether the current block has ended, so that following code is unreachable.
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

    /// Ends the block with a return from the function.
    pub fn ret(&mut self, value: Value) {
        self.end(Terminator::Return(value));
    }

    /// Statements after a `return` are built into an unreachable block.
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
        if let Some(ceiling) = self.ceiling_of(&op) {
            self.ceilings.insert(value, ceiling);
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

    fn ceiling_of(&self, op: &Op) -> Option<u64> {
        match op {
            Op::Const(bits) => Some(*bits),
            Op::Load { size: Size::B, .. } => Some(u8::MAX.into()),
            Op::Load { size: Size::H, .. } => Some(u16::MAX.into()),
            Op::Binary(BinaryOp::And, a, b) => {
                [*a, *b].into_iter().filter_map(|operand| self.ceiling(operand)).min()
            }
            Op::Binary(BinaryOp::URem, _, divisor) => self.known(*divisor)?.checked_sub(1),
            Op::ZeroExtend(inner) => self.ceiling(*inner),
            Op::Truncate(inner) => self.ceiling(*inner).filter(|ceiling| *ceiling <= u32::MAX.into()),
            _ => None,
        }
    }

    /// The greatest number that a value can be, as far as its definition tells.
    pub fn ceiling(&self, value: Value) -> Option<u64> {
        self.ceilings.get(&value).copied()
    }

    /// The slot and byte offset that a value is the address of, if it was built as such an address.
    pub fn stack_location(&self, value: Value) -> Option<(Slot, u32)> {
        self.frame.get(&value).copied()
    }

    fn append(&mut self, result: Option<Value>, op: Op) {
        self.open();
        let span = self.span;
        self.function.blocks[self.current].insts.push(Inst { result, op, span });
    }

    /// Appends a constant of the type, truncated to its width.
    pub fn constant(&mut self, ty: Type, bits: u64) -> Value {
        let cut = if ty == Type::I32 { bits & 0xffff_ffff } else { bits };
        let value = self.value(ty, Op::Const(cut));
        self.constants.insert(value, cut);
        value
    }

    /// The number of a value that was built as a constant; `None` for any other value.
    pub fn known(&self, value: Value) -> Option<u64> {
        self.constants.get(&value).copied()
    }

    /// Appends arithmetic on two values of one type.
    pub fn binary(&mut self, op: super::BinaryOp, left: Value, right: Value) -> Value {
        self.value(self.ty(left), Op::Binary(op, left, right))
    }

    /// Appends arithmetic with a constant right operand.
    pub fn binary_const(&mut self, op: super::BinaryOp, left: Value, right: u64) -> Value {
        let constant = self.constant(self.ty(left), right);
        let result = self.binary(op, left, constant);
        if op == super::BinaryOp::Add {
            self.sums.insert(result, (left, right));
        }
        result
    }

    /// The operands of a value that was built as the sum of a value and a constant.
    pub fn sum(&self, value: Value) -> Option<(Value, u64)> {
        self.sums.get(&value).copied()
    }

    /// Appends a comparison; the result has 32 bits.
    pub fn compare(&mut self, condition: Condition, left: Value, right: Value) -> Value {
        self.value(Type::I32, Op::Compare(condition, left, right))
    }

    /// Appends a comparison with a constant right operand.
    pub fn compare_const(&mut self, condition: Condition, left: Value, right: u64) -> Value {
        let right = self.constant(self.ty(left), right);
        self.compare(condition, left, right)
    }

    /// Appends a call with a result of type `ty`.
    pub fn call(&mut self, ty: Type, callee: Callee, args: Vec<Value>) -> Value {
        self.value(ty, Op::Call { callee, args })
    }

    /// Creates a variable, not yet set.
    pub fn variable(&mut self, ty: Type) -> Variable {
        self.variables.push(ty)
    }

    /// Sets a variable in the current block.
    pub fn set(&mut self, variable: Variable, value: Value) {
        self.open();
        let current = self.current;
        self.state[current].values.insert(variable, value);
    }

    /// Whether the variable has been set on every known path to here. Unreachable blocks are on no path.
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

    /// The current value of a variable; 0 on paths that have not set it.
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
                // Set before the predecessors are searched: the search may reach this block again through a
                // loop.
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

    /// Appends the variable's value to the arguments of every jump to the block. No branch has one block as
    /// both targets: a predecessor has one jump to it.
    fn fill_param(&mut self, block: Block, variable: Variable) {
        for predecessor in self.state[block].predecessors.clone() {
            let value = self.read(predecessor, variable);
            let targets = self.function.blocks[predecessor].term.targets_mut();
            if let Some(target) = targets.into_iter().find(|target| target.block == block) {
                target.args.push(value);
            }
        }
    }

    /// Reserves `size` bytes of the frame, at a multiple of 8.
    pub fn slot(&mut self, size: u32) -> Slot {
        let position = self.stack_top;
        self.stack_top = position.saturating_add(whole_words(size));
        self.function.slot_bytes = self.function.slot_bytes.max(self.stack_top);
        self.function.slots.push(SlotData { size, position })
    }

    /// Reserves `size` bytes of the frame, at a multiple of 8, that no other slot ever shares.
    pub fn dedicated_slot(&mut self, size: u32) -> Slot {
        let slot = self.function.slots.push(SlotData { size, position: 0 });
        self.dedicated.push(slot);
        slot
    }

    /// The number of frame bytes in use.
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
