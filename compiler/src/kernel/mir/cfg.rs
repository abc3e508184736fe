//! Edits and queries of the control-flow graph, and code appended to a block.

use super::{
    Block, BlockData, Inst, MirFunction, Op, Predecessors, Size, Slot, SlotData, Target, Terminator, Type,
    Value,
};
use crate::index::Id;
use crate::source::Span;

impl MirFunction {
    /// The reachable predecessors of each block, once for each edge.
    pub fn reachable_predecessors(&self) -> Predecessors {
        self.predecessors(&self.reverse_postorder())
    }

    /// The blocks, among these, that read a value.
    pub fn users(&self, order: &[Block], value: Value) -> Vec<Block> {
        let reads = |block: &Block| {
            let data = &self.blocks[*block];
            data.insts.iter().any(|inst| inst.op.reads(value)) || data.term.reads(value)
        };
        order.iter().copied().filter(reads).collect()
    }

    /// Appends an empty block, which jumps to itself until its terminator is set.
    pub fn push_block(&mut self, span: Span) -> Block {
        let term = Terminator::Jump(Target::to(Block::new(self.blocks.len())));
        self.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), term, span })
    }

    /// Appends a slot to the stack frame, at a multiple of 8. No other slot shares its bytes.
    pub fn push_slot(&mut self, size: u32) -> Slot {
        let position = self.slot_bytes.next_multiple_of(8);
        self.slot_bytes = position.saturating_add(size.next_multiple_of(8));
        self.slots.push(SlotData { size, position })
    }

    /// Moves the instructions of a block from `at` on, and its terminator, to a new block that it jumps to.
    pub fn split(&mut self, block: Block, at: usize) -> Block {
        let span = self.blocks[block].span;
        let rest = self.push_block(span);
        self.blocks[rest].insts = self.blocks[block].insts.split_off(at);
        let jump = Terminator::Jump(Target::to(rest));
        self.blocks[rest].term = std::mem::replace(&mut self.blocks[block].term, jump);
        rest
    }

    /// Empties blocks that nothing jumps to.
    pub fn clear_blocks<'b>(&mut self, blocks: impl IntoIterator<Item = &'b Block>) {
        for block in blocks {
            let data = &mut self.blocks[*block];
            data.params.clear();
            data.insts.clear();
            data.term = Terminator::Jump(Target::to(*block));
        }
    }

    /// Ends a block with a branch to blocks without parameters.
    pub fn branch(&mut self, block: Block, cond: Value, then: Block, otherwise: Block) {
        let (then, otherwise) = (Target::to(then), Target::to(otherwise));
        self.blocks[block].term = Terminator::Branch { cond, then, otherwise };
    }

    /// Ends a block with a jump.
    pub fn jump(&mut self, block: Block, to: Block, args: Vec<Value>) {
        self.blocks[block].term = Terminator::Jump(Target { block: to, args });
    }

    /// Appends an instruction that defines a new value, at the span of the block's terminator.
    pub fn append(&mut self, block: Block, ty: Type, op: Op) -> Value {
        let result = self.values.push(ty);
        let data = &mut self.blocks[block];
        data.insts.push(Inst { result: Some(result), op, span: data.span });
        result
    }

    /// Appends a load of a whole value.
    pub fn append_load(&mut self, block: Block, ty: Type, base: Value, offset: u32) -> Value {
        self.append(block, ty, Op::load_whole(ty, base, offset))
    }

    /// Appends a store of a whole value.
    pub fn append_store(&mut self, block: Block, value: Value, base: Value, offset: u32) {
        let op = Op::store_whole(self.values[value], base, offset, value);
        let data = &mut self.blocks[block];
        data.insts.push(Inst { result: None, op, span: data.span });
    }
}

impl Op {
    /// A load of a whole value of a type.
    pub fn load_whole(ty: Type, base: Value, offset: u32) -> Op {
        Op::Load { size: size_of(ty), base, offset: constant_offset(offset) }
    }

    /// A store of a whole value of a type.
    pub fn store_whole(ty: Type, base: Value, offset: u32, value: Value) -> Op {
        Op::Store { size: size_of(ty), base, offset: constant_offset(offset), value }
    }
}

fn size_of(ty: Type) -> Size {
    if ty == Type::I32 { Size::W } else { Size::DW }
}

/// Memory that passes lay out is smaller than the range of offsets (`scratch::MAX_BYTES`).
fn constant_offset(offset: u32) -> i16 {
    i16::try_from(offset).unwrap_or(i16::MAX)
}
