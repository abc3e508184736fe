//! Selects machine instructions for MIR.
//!
//! Constants and addresses are rematerialised at every use: an immediate or one instruction costs less than a
//! register held across a call. A few that stand in a register already are used from there until the next call. A comparison that is only used by a branch is fused with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use regalloc2::{RegClass, VReg};

use super::legal::legalize;
use super::patterns::Patterns;
use super::uses::{Uses, takes_answer};
use super::{Base, Block, Inst, InstKind, IselFunction, Rhs, Symbol, Target};
use crate::bpf::{self, AluOp, JmpOp, SwapBits, Width};
use crate::index::IndexVec;
use crate::kernel::machine::Cpu;
use crate::kernel::mir::core::{CoreField, CoreQuestion};
use crate::kernel::mir::{
    self, BinaryOp, Callee, Condition, Op, Origin, Predecessors, Size, Terminator, Type, Value,
};
use crate::source::Span;

/// Selects instructions of the instruction set `cpu` for a function.
pub fn select(function: &mir::MirFunction, cpu: Cpu) -> IselFunction {
    let whole_order = function.reverse_postorder();
    let predecessors = function.predecessors(&whole_order);
    let is_kept = |block: &mir::Block| passed_on(function, &predecessors, *block).is_none();
    let mut order: Vec<mir::Block> = whole_order.iter().copied().filter(is_kept).collect();
    put_missing_first(function, &predecessors, &mut order);
    let mut position = IndexVec::new();
    for _ in function.blocks.ids() {
        position.push(usize::MAX);
    }
    for (at, block) in order.iter().enumerate() {
        position[*block] = at;
    }
    let mut selector = Selector {
        function,
        ops: function.definitions(),
        registers: function.values.iter().map(|_| None).collect(),
        uses: Uses::new(function, &whole_order, cpu),
        patterns: Patterns::new(function, &whole_order),
        cpu,
        leaves: Vec::new(),
        ends: vec![None; order.len()],
        next_register: 0,
        position,
        predecessors,
        block: Block::default(),
        edges: Vec::new(),
        first_edge: order.len(),
        span: function.span,
    };
    let blocks: Vec<Block> = order.iter().map(|block| selector.block(*block)).collect();
    let edges = std::mem::take(&mut selector.edges);
    let mut selected = IselFunction {
        id: function.id,
        blocks: in_order(blocks, edges),
        registers: selector.next_register,
        slot_bytes: function.slot_bytes,
    };
    legalize(&mut selected, cpu);
    selected
}

/// The block that a branch on a packet's bytes reaches without them, if it is to follow the branch.
fn missing(
    function: &mir::MirFunction,
    predecessors: &Predecessors,
    block: mir::Block,
) -> Option<mir::Block> {
    match &function.blocks[block].term {
        Terminator::Branch { cond, otherwise, .. } if function.missing_first => {
            let mut insts = function.blocks[block].insts.iter().rev();
            let test = insts.find(|inst| inst.result == Some(*cond))?;
            let is_own = predecessors[otherwise.block].len() == 1;
            (is_own && matches!(test.op, Op::Within { .. })).then_some(otherwise.block)
        }
        _ => None,
    }
}

/// Moves the blocks that are to follow branches there.
fn put_missing_first(function: &mir::MirFunction, predecessors: &Predecessors, order: &mut Vec<mir::Block>) {
    if !function.missing_first {
        return;
    }
    let only_jumps = |block: &mir::Block| matches!(function.blocks[*block].term, Terminator::Jump(_));
    let after = |block: mir::Block| missing(function, predecessors, block).filter(only_jumps);
    let moved: BTreeSet<mir::Block> = order.iter().filter_map(|block| after(*block)).collect();
    for block in std::mem::take(order).into_iter().filter(|block| !moved.contains(block)) {
        order.push(block);
        order.extend(after(block));
    }
}

/// The target of a block that only passes arguments on, after a branch: the branch goes there itself.
fn passed_on<'f>(
    function: &'f mir::MirFunction,
    predecessors: &Predecessors,
    block: mir::Block,
) -> Option<&'f mir::Target> {
    let [from] = &predecessors[block] else { return None };
    if missing(function, predecessors, *from) == Some(block) {
        return None;
    }
    let data = &function.blocks[block];
    match (&data.term, &function.blocks[*from].term) {
        (Terminator::Jump(to), Terminator::Branch { .. }) => {
            (data.params.is_empty() && data.insts.is_empty() && !to.args.is_empty()).then_some(to)
        }
        _ => None,
    }
}

/// Moves each edge block from the end of the numbering to right after the block it comes from. Every block
/// then has an earlier predecessor, on which the allocator's checker relies.
fn in_order(blocks: Vec<Block>, edges: Vec<Block>) -> Vec<Block> {
    let plain = blocks.len();
    let mut order = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        order.push(index);
        order.extend(block.successors.iter().rev().copied().filter(|successor| *successor >= plain));
    }
    let mut position = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        position[*old] = new;
    }
    let mut all: Vec<Block> = blocks.into_iter().chain(edges).collect();
    for block in &mut all {
        block.successors.iter_mut().for_each(|successor| *successor = position[*successor]);
    }
    order.into_iter().map(|old| std::mem::take(&mut all[old])).collect()
}

/// A value that one instruction without operands makes.
#[derive(Clone, Copy, PartialEq)]
enum Leaf {
    Constant(u64),
    Address(Symbol),
}

/// Registers that hold leaves.
type Leaves = Vec<(Leaf, VReg)>;

/// How many leaves are kept in registers at the same time.
const MAX_LEAVES: usize = 3;

struct Selector<'a> {
    function: &'a mir::MirFunction,
    ops: IndexVec<Value, Option<&'a Op>>,
    registers: IndexVec<Value, Option<VReg>>,
    uses: Uses,
    /// Known bits of the numbers that must stay below a bound; `None` if there are none.
    patterns: Option<Patterns>,
    cpu: Cpu,
    /// Registers that hold leaves here. Calls clear the list.
    leaves: Leaves,
    /// The same at the end of each block visited so far.
    ends: Vec<Option<Leaves>>,
    next_register: usize,
    position: IndexVec<mir::Block, usize>,
    predecessors: Predecessors,
    /// The block that is being filled.
    block: Block,
    /// Blocks on edges from a branch to a target that has parameters or other predecessors.
    edges: Vec<Block>,
    first_edge: usize,
    span: Span,
}

/// The verifier rejects offsets from this one on. Source: include/linux/bpf_verifier.h, `BPF_MAX_VAR_OFF`,
/// v6.12.
const MAX_OFFSET: u64 = 1 << 29;

impl Selector<'_> {
    fn block(&mut self, id: mir::Block) -> Block {
        let function = self.function;
        let data = &function.blocks[id];
        let params: Vec<_> = data.params.iter().map(|value| self.define(*value)).collect();
        self.block = Block { insts: Vec::with_capacity(data.insts.len() + 4), ..Block::default() };
        self.leaves = self.at_start(id);
        self.span = data.insts.first().map_or(data.span, |inst| inst.span);
        if id == function.entry() {
            self.push(InstKind::Params(params));
        } else {
            self.block.params = params;
        }
        for inst in &data.insts {
            self.span = inst.span;
            self.inst(inst);
        }
        self.span = data.span;
        self.terminator(id, &data.term);
        let position = self.position[id];
        self.ends[position] = Some(std::mem::take(&mut self.leaves));
        std::mem::take(&mut self.block)
    }

    /// The leaves that all predecessors of a block have left in registers: none at the header of a loop, where
    /// one predecessor is still to come.
    fn at_start(&self, id: mir::Block) -> Leaves {
        let mut ends = self.predecessors[id].iter().map(|from| self.ends.get(self.position[*from])?.as_ref());
        let Some(Some(first)) = ends.next() else { return Vec::new() };
        let mut leaves = first.clone();
        ends.for_each(|end| leaves.retain(|leaf| end.is_some_and(|end| end.contains(leaf))));
        leaves
    }

    fn push(&mut self, kind: InstKind) {
        let span = self.span;
        self.block.insts.push(Inst { kind, span });
    }

    fn fresh(&mut self) -> VReg {
        self.next_register += 1;
        VReg::new(self.next_register - 1, RegClass::Int)
    }

    /// The register of a value. A back edge may use it before its definition is visited.
    fn define(&mut self, value: Value) -> VReg {
        if let Some(register) = self.registers[value] {
            return register;
        }
        let register = self.fresh();
        self.registers[value] = Some(register);
        register
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.ops[value] {
            Some(Op::Const(bits)) => Some(*bits),
            _ => None,
        }
    }

    fn width(&self, value: Value) -> Width {
        if self.function.values[value] == Type::I32 { Width::W32 } else { Width::W64 }
    }

    /// A register that holds the value.
    fn register(&mut self, value: Value) -> VReg {
        match self.ops[value] {
            Some(Op::Const(bits)) => self.leaf(Leaf::Constant(*bits)),
            Some(Op::StackAddr { slot, offset }) => {
                let (dst, offset) = (self.fresh(), self.frame_offset(*slot, *offset));
                self.push(InstKind::FrameAddr { dst, offset });
                dst
            }
            Some(Op::GlobalAddr { global, offset }) => {
                self.leaf(Leaf::Address(Symbol::Global(*global, *offset)))
            }
            Some(Op::MapAddr(map)) => self.leaf(Leaf::Address(Symbol::Map(*map))),
            Some(Op::FunctionAddr(id)) => self.leaf(Leaf::Address(Symbol::Function(*id))),
            Some(Op::CountAddr(count)) => self.leaf(Leaf::Address(Symbol::Count(*count))),
            Some(Op::KernelAddr(id)) => self.leaf(Leaf::Address(Symbol::KernelVariable(*id))),
            // These need no instruction: they share the register of their operand.
            Some(Op::ZeroExtend(inner) | Op::NonNull(inner) | Op::InPacket { pointer: inner, .. }) => {
                self.register(*inner)
            }
            Some(Op::Truncate(inner)) if !self.uses.wide[value] => self.register(*inner),
            _ => self.define(value),
        }
    }

    /// A register that holds the leaf: one that has it already, or a new one.
    fn leaf(&mut self, leaf: Leaf) -> VReg {
        if let Some((_, register)) = self.leaves.iter().find(|(one, _)| *one == leaf) {
            return *register;
        }
        let dst = self.fresh();
        if self.leaves.len() == MAX_LEAVES {
            self.leaves.remove(0);
        }
        self.leaves.push((leaf, dst));
        self.push(match leaf {
            Leaf::Constant(value) => InstKind::Const { dst, value },
            Leaf::Address(symbol) => InstKind::Address { dst, symbol },
        });
        dst
    }

    /// A register for a value that is moved to a certain register: a call's argument or a block's parameter. A
    /// leaf has one of its own, because a copy would cost as much.
    fn passed(&mut self, value: Value) -> VReg {
        let leaves = std::mem::take(&mut self.leaves);
        let register = self.register(value);
        self.leaves = leaves;
        register
    }

    /// Bytes from the top of the frame, negative.
    fn frame_offset(&self, slot: mir::Slot, offset: u32) -> i32 {
        let from_bottom = self.function.slots[slot].position + offset;
        i32::try_from(i64::from(from_bottom) - i64::from(self.function.slot_bytes)).unwrap_or(i32::MIN)
    }

    /// The value as the second operand of an instruction of this width.
    fn rhs(&mut self, value: Value, width: Width) -> Rhs {
        match self.constant(value).and_then(|bits| immediate(bits, width)) {
            Some(immediate) => Rhs::Imm(immediate),
            None => Rhs::Reg(self.register(value)),
        }
    }

    fn base(&mut self, base: Value, offset: i16) -> (Base, i16) {
        if let Some(Op::StackAddr { slot, offset: start }) = self.ops[base] {
            let whole = self.frame_offset(*slot, *start) + i32::from(offset);
            if let Ok(offset) = i16::try_from(whole) {
                return (Base::Frame, offset);
            }
        }
        if let Some(start) = self.indexed_frame(base)
            && let Ok(offset) = i16::try_from(start + i32::from(offset))
        {
            return (Base::Reg(self.define(base)), offset);
        }
        (Base::Reg(self.register(base)), offset)
    }

    /// The frame pointer in a register that a number can be added to. In a called function the frame pointer
    /// must not be the second operand of an addition: the verifier would take the sum for an address in the
    /// program's frame. Source: kernel/bpf/verifier.c, `adjust_ptr_min_max_vals`, which leaves out `frameno`,
    /// v6.12.
    fn frame(&mut self) -> VReg {
        let dst = self.fresh();
        self.push(InstKind::FrameAddr { dst, offset: 0 });
        dst
    }

    /// Whether a pointer may be into the frame of a called function, or of its callers: like the frame pointer it must not be
    /// the second operand of an addition then. A copy is not read again, and so no operands are swapped (`commute`).
    fn may_be_in_frame(&self, pointer: Value) -> bool {
        let ty = self.function.values[pointer];
        self.function.is_called && matches!(ty, Type::Ptr(Origin::Stack | Origin::Memory))
    }

    fn copied(&mut self, src: VReg) -> VReg {
        let dst = self.fresh();
        self.push(InstKind::Move { dst, src });
        dst
    }

    /// The frame offset of a slot whose element `value` addresses. The value's register holds the frame
    /// pointer plus the index, and each access adds the offset of the slot.
    fn indexed_frame(&self, value: Value) -> Option<i32> {
        let Some(Op::PtrAdd(base, index)) = self.ops[value] else { return None };
        let Some(Op::StackAddr { slot, offset }) = self.ops[*base] else { return None };
        let usable = !self.uses.beyond_access[value] && self.constant(*index).is_none();
        usable.then(|| self.frame_offset(*slot, *offset))
    }

    fn inst(&mut self, inst: &mir::Inst) {
        match (&inst.op, inst.result) {
            (Op::Store { size, base, offset, value }, _) => {
                let width = if *size == Size::DW { Width::W64 } else { Width::W32 };
                let value = self.rhs(*value, width);
                let (base, offset) = self.base(*base, *offset);
                self.push(InstKind::Store { size: *size, base, offset, value });
            }
            (Op::AtomicAdd { size, base, offset, value }, _) => {
                let width = if *size == Size::DW { Width::W64 } else { Width::W32 };
                let value = self.register(*value);
                let (base, offset) = self.base(*base, *offset);
                self.push(InstKind::AtomicAdd { width, base, offset, value });
            }
            (Op::AtomicExchange { base, offset, value }, Some(result)) => {
                let value = self.register(*value);
                let (base, offset) = self.base(*base, *offset);
                let dst = self.define(result);
                self.push(InstKind::AtomicExchange { dst, base, offset, value });
            }
            (Op::Call { callee, args }, result) => self.call(*callee, args, result),
            (op, Some(result)) => self.value(op, result),
            (_, None) => {}
        }
    }

    fn value(&mut self, op: &Op, result: Value) {
        match op {
            Op::Binary(op, a, b) => self.binary(*op, *a, *b, result),
            Op::Opaque { value, zero } => {
                let (lhs, rhs) = (self.register(*value), self.register(*zero));
                let (width, dst) = (self.width(result), self.define(result));
                self.push(InstKind::Alu { op: AluOp::Add, width, dst, lhs, rhs: Rhs::Reg(rhs) });
            }
            Op::PacketEdge { context, offset, .. } => {
                let base = Base::Reg(self.register(*context));
                let dst = self.define(result);
                self.push(InstKind::Load { size: Size::W, dst, base, offset: *offset });
            }
            op if op.is_test() && self.uses.computed[result] => {
                let (op, width, lhs, rhs) = self.condition(result);
                let dst = self.define(result);
                self.push(InstKind::SetIf { op, width, dst, lhs, rhs });
            }
            Op::Narrow { value, bits, signed } => self.narrow(*value, *bits, *signed, result),
            Op::SignExtend(value) if self.cpu >= Cpu::V4 => {
                let src = self.register(*value);
                let dst = self.define(result);
                self.push(InstKind::Extend { width: Width::W64, from: bpf::Narrow::W, dst, src });
            }
            Op::SignExtend(value) => {
                let lhs = self.register(*value);
                self.shift_pair(Width::W64, AluOp::Arsh, 32, lhs, result);
            }
            Op::Truncate(_) if !self.uses.wide[result] => {}
            Op::Truncate(value) => {
                let src = self.register(*value);
                let dst = self.define(result);
                self.push(InstKind::Mov32 { dst, src });
            }
            Op::Below { value, bound } => {
                let mut src = self.register(*value);
                let (width, dst) = (self.width(result), self.define(result));
                if self.patterns.as_ref().is_some_and(|patterns| patterns.contradict(*value)) {
                    let unknown = self.fresh();
                    self.push(InstKind::Alu {
                        op: AluOp::Div,
                        width,
                        dst: unknown,
                        lhs: src,
                        rhs: Rhs::Imm(1),
                    });
                    src = unknown;
                    // After a 32-bit division the verifier does not know either that the upper half is zero.
                    // Source: kernel/bpf/verifier.c, `adjust_scalar_min_max_vals`,
                    // `is_safe_to_compute_dst_reg_range`, v6.18.
                    if width == Width::W32 && self.uses.wide[result] {
                        let cut = self.fresh();
                        self.push(InstKind::Mov32 { dst: cut, src });
                        src = cut;
                    }
                }
                let bound = i32::try_from(*bound).unwrap_or(i32::MAX);
                self.push(InstKind::Below { width, dst, src, bound });
            }
            Op::SwapBytes { value, bits } => {
                let src = self.register(*value);
                let bits = match bits {
                    16 => SwapBits::Bits16,
                    32 => SwapBits::Bits32,
                    _ => SwapBits::Bits64,
                };
                let dst = self.define(result);
                self.push(InstKind::Swap { bits, dst, src });
            }
            Op::PtrDiff(a, b) => {
                let (lhs, rhs) = (self.register(*a), self.register(*b));
                let dst = self.define(result);
                let rhs = Rhs::Reg(rhs);
                self.push(InstKind::Alu { op: AluOp::Sub, width: Width::W64, dst, lhs, rhs });
            }
            // The verifier treats a negated pointer as an unknown number, and the negation of that as well.
            // Source: kernel/bpf/verifier.c, `check_alu_op`, `BPF_NEG`, v6.12.
            Op::Address(pointer) => {
                let (width, src, negated) = (Width::W64, self.register(*pointer), self.fresh());
                let dst = self.define(result);
                self.push(InstKind::Neg { width, dst: negated, src });
                self.push(InstKind::Neg { width, dst, src: negated });
            }
            Op::PtrAdd(_, index) if self.indexed_frame(result).is_some() => {
                let index = self.register(*index);
                let (lhs, rhs) = if self.function.is_called {
                    (self.frame(), Rhs::Reg(index))
                } else {
                    (index, Rhs::Frame)
                };
                let dst = self.define(result);
                self.push(InstKind::Alu { op: AluOp::Add, width: Width::W64, dst, lhs, rhs });
            }
            Op::PtrAdd(base, offset) => {
                let mut lhs = self.register(*base);
                let rhs = self.rhs(*offset, Width::W64);
                if matches!(rhs, Rhs::Reg(_)) && self.may_be_in_frame(*base) {
                    lhs = self.copied(lhs);
                }
                let dst = self.define(result);
                self.push(InstKind::Alu { op: AluOp::Add, width: Width::W64, dst, lhs, rhs });
            }
            Op::Core(field, question) if self.uses.beyond_arithmetic[result] => {
                let dst = self.define(result);
                self.push(InstKind::Core { dst, field: field.clone(), question: *question });
            }
            Op::LoadField { size, base, field } => {
                let base = self.register(*base);
                let dst = self.define(result);
                self.push(InstKind::LoadField { size: *size, dst, base, field: field.clone() });
            }
            Op::Load { size, base, offset } => {
                let (base, offset) = self.base(*base, *offset);
                let dst = self.define(result);
                self.push(InstKind::Load { size: *size, dst, base, offset });
            }
            // Rematerialised at their uses.
            _ => {}
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value, result: Value) {
        let width = self.width(result);
        if let Some(Op::Core(field, question)) = self.ops[b]
            && takes_answer(op)
        {
            return self.with_answer(alu(op), a, field, *question, result);
        }
        if op == BinaryOp::Sub && self.constant(a) == Some(0) {
            let src = self.register(b);
            let dst = self.define(result);
            return self.push(InstKind::Neg { width, dst, src });
        }
        if let Some(constant) = self.far(op, b, width) {
            let lhs = self.fresh();
            self.push(InstKind::Const { dst: lhs, value: constant });
            let rhs = Rhs::Reg(self.register(a));
            let dst = self.define(result);
            return self.push(InstKind::Alu { op: AluOp::Add, width, dst, lhs, rhs });
        }
        let lhs = self.register(a);
        let rhs = self.operand(op, b, width);
        let dst = self.define(result);
        self.push(InstKind::Alu { op: alu(op), width, dst, lhs, rhs });
    }

    /// Arithmetic whose second operand is the loader's answer.
    fn with_answer(
        &mut self,
        op: AluOp,
        a: Value,
        field: &Arc<CoreField>,
        question: CoreQuestion,
        result: Value,
    ) {
        let lhs = self.register(a);
        let dst = self.define(result);
        self.push(InstKind::AluCore { op, dst, lhs, field: field.clone(), question });
    }

    /// A large constant addend. The verifier remembers the constant that was added to a copy, and takes it
    /// for an offset where the sum is an index. It does not if the copy is added to the constant. Source:
    /// kernel/bpf/verifier.c, `check_reg_sane_offset`, `BPF_ADD_CONST`, v6.12.
    fn far(&self, op: BinaryOp, value: Value, width: Width) -> Option<u64> {
        let bits = self.constant(value)?;
        let added = match op {
            BinaryOp::Add => bits,
            BinaryOp::Sub => bits.wrapping_neg(),
            _ => return None,
        };
        let (added, number) = match width {
            Width::W32 => (added & u64::from(u32::MAX), i64::from(added as u32 as i32)),
            Width::W64 => (added, added as i64),
        };
        (number.unsigned_abs() >= MAX_OFFSET).then_some(added)
    }

    /// The second operand of arithmetic. The verifier rejects constant shifts beyond the width and constant
    /// divisors of zero.
    fn operand(&mut self, op: BinaryOp, value: Value, width: Width) -> Rhs {
        match (op, self.constant(value)) {
            (BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr, Some(amount)) => {
                let mask = if width == Width::W32 { 31 } else { 63 };
                Rhs::Imm((amount & mask) as i32)
            }
            (BinaryOp::UDiv | BinaryOp::URem, Some(0)) => Rhs::Reg(self.register(value)),
            _ => self.rhs(value, width),
        }
    }

    fn narrow(&mut self, value: Value, bits: u8, signed: bool, result: Value) {
        let lhs = self.register(value);
        if signed && self.cpu >= Cpu::V4 {
            let dst = self.define(result);
            let from = if bits == 8 { bpf::Narrow::B } else { bpf::Narrow::H };
            return self.push(InstKind::Extend { width: Width::W32, from, dst, src: lhs });
        }
        if signed {
            return self.shift_pair(Width::W32, AluOp::Arsh, 32 - i32::from(bits), lhs, result);
        }
        let dst = self.define(result);
        let rhs = Rhs::Imm((1 << bits) - 1);
        self.push(InstKind::Alu { op: AluOp::And, width: Width::W32, dst, lhs, rhs });
    }

    /// Sign-extends by a left shift and a right shift: there is no sign-extending instruction before v4.
    fn shift_pair(&mut self, width: Width, down: AluOp, amount: i32, lhs: VReg, result: Value) {
        let shifted = self.fresh();
        let rhs = Rhs::Imm(amount);
        self.push(InstKind::Alu { op: AluOp::Lsh, width, dst: shifted, lhs, rhs });
        let dst = self.define(result);
        self.push(InstKind::Alu { op: down, width, dst, lhs: shifted, rhs });
    }

    /// The width at which two values are compared. A 32-bit comparison proves nothing about all 64 bits to
    /// the verifier, because it forgets in loops, divisions and shifts that the upper half is zero. So where
    /// all 64 bits are read, 64 bits are compared.
    fn compared(&self, condition: Condition, a: Value, b: Value) -> Width {
        let width = self.width(a);
        let limit = self.constant(b).is_some_and(|bits| i32::try_from(bits).is_ok());
        if width == Width::W32 && self.uses.wide[a] && limit && !condition.is_signed() {
            Width::W64
        } else {
            width
        }
    }

    /// The branch condition for a value that is not zero.
    fn condition(&mut self, value: Value) -> (JmpOp, Width, VReg, Rhs) {
        match self.ops[value] {
            Some(Op::Compare(condition, a, b)) => {
                let (condition, a, b) = (*condition, *a, *b);
                let width = self.compared(condition, a, b);
                let lhs = self.register(a);
                let rhs = self.rhs(b, width);
                (jump(condition), width, lhs, rhs)
            }
            Some(Op::IsNull(pointer)) => {
                let lhs = self.register(*pointer);
                (JmpOp::Eq, Width::W64, lhs, Rhs::Imm(0))
            }
            Some(Op::Within { pointer, bytes, end }) => {
                let (start, bytes) = (self.register(*pointer), *bytes);
                let lhs = self.fresh();
                let rhs = Rhs::Imm(i32::try_from(bytes).unwrap_or(i32::MAX));
                self.push(InstKind::Alu { op: AluOp::Add, width: Width::W64, dst: lhs, lhs: start, rhs });
                (JmpOp::Le, Width::W64, lhs, Rhs::Reg(self.register(*end)))
            }
            _ => {
                let width = self.width(value);
                let lhs = self.register(value);
                (JmpOp::Ne, width, lhs, Rhs::Imm(0))
            }
        }
    }

    fn call(&mut self, callee: Callee, args: &[Value], result: Option<Value>) {
        let args: Vec<_> = args.iter().map(|arg| self.passed(*arg)).collect();
        self.leaves.clear();
        let target = match callee {
            Callee::Helper(helper) => Target::Helper(helper),
            Callee::Kfunc(kfunc) => Target::Kfunc(kfunc),
            Callee::MapIter(_) | Callee::TaskId(_) => {
                unreachable!("passes replace it, or the script is refused")
            }
            Callee::External(id) => Target::External(id),
            Callee::Function(id) => Target::Function(id),
        };
        // The kernel's C functions leave the upper 32 bits undefined.
        let foreign = !matches!(callee, Callee::Function(_));
        let Some(result) = result else {
            return self.push(InstKind::Call { target, args, result: None });
        };
        if foreign && self.width(result) == Width::W32 && self.uses.wide[result] {
            let src = self.fresh();
            self.push(InstKind::Call { target, args, result: Some(src) });
            let dst = self.define(result);
            self.push(InstKind::Mov32 { dst, src });
        } else {
            let dst = self.define(result);
            self.push(InstKind::Call { target, args, result: Some(dst) });
        }
    }

    fn terminator(&mut self, from: mir::Block, term: &Terminator) {
        match term {
            Terminator::Return(value) => {
                let value = self.passed(*value);
                self.push(InstKind::Return { value });
            }
            Terminator::Jump(target) => {
                let args = target.args.iter().map(|arg| self.passed(*arg)).collect();
                self.block.successors.push(self.position[target.block]);
                self.block.args.push(args);
                self.push(InstKind::Jump);
            }
            Terminator::Branch { cond, then, otherwise } => {
                let (op, width, lhs, rhs) = self.condition(*cond);
                let function = self.function;
                let targets = [then, otherwise]
                    .map(|to| passed_on(function, &self.predecessors, to.block).unwrap_or(to));
                let early = (0..2).find(|at| {
                    // Beside a back edge they would be set in each iteration.
                    let repeats = self.position[targets[1 - at].block] <= self.position[from];
                    self.is_constant(targets[*at]) && !repeats
                });
                let mut early_args = early.map(|at| {
                    let args = targets[at].args.iter();
                    (at, args.map(|arg| self.passed(*arg)).collect())
                });
                self.push(InstKind::Branch { op, width, lhs, rhs });
                for (at, target) in targets.into_iter().enumerate() {
                    let args = early_args.take_if(|(early, _)| *early == at).map(|(_, args)| args);
                    let to = self.edge(target, args);
                    self.block.successors.push(to);
                    self.block.args.push(Vec::new());
                }
            }
        }
    }

    /// Whether all arguments of a target are small constants. They are set before the branch, which then
    /// needs no edge block for them.
    fn is_constant(&self, target: &mir::Target) -> bool {
        let small = |arg: &Value| self.constant(*arg).is_some_and(|bits| i32::try_from(bits as i64).is_ok());
        !target.args.is_empty() && target.args.iter().all(small)
    }

    /// The block that a branch jumps to: the target itself, or a block on the edge that moves arguments.
    fn edge(&mut self, target: &mir::Target, early_args: Option<Vec<VReg>>) -> usize {
        let to = self.position[target.block];
        if target.args.is_empty() && self.predecessors[target.block].len() == 1 {
            return to;
        }
        let outer = std::mem::take(&mut self.block);
        let args = early_args.unwrap_or_else(|| target.args.iter().map(|arg| self.passed(*arg)).collect());
        self.push(InstKind::Jump);
        self.block.successors.push(to);
        self.block.args.push(args);
        self.edges.push(std::mem::replace(&mut self.block, outer));
        self.first_edge + self.edges.len() - 1
    }
}

/// The constant as an immediate that the instruction sign-extends to the same bits.
fn immediate(bits: u64, width: Width) -> Option<i32> {
    match width {
        Width::W32 => Some(bits as u32 as i32),
        Width::W64 => i32::try_from(bits as i64).ok(),
    }
}

fn alu(op: BinaryOp) -> AluOp {
    match op {
        BinaryOp::Add => AluOp::Add,
        BinaryOp::Sub => AluOp::Sub,
        BinaryOp::Mul => AluOp::Mul,
        BinaryOp::UDiv => AluOp::Div,
        BinaryOp::URem => AluOp::Mod,
        BinaryOp::SDiv => AluOp::Sdiv,
        BinaryOp::SRem => AluOp::Smod,
        BinaryOp::And => AluOp::And,
        BinaryOp::Or => AluOp::Or,
        BinaryOp::Xor => AluOp::Xor,
        BinaryOp::Shl => AluOp::Lsh,
        BinaryOp::LShr => AluOp::Rsh,
        BinaryOp::AShr => AluOp::Arsh,
    }
}

fn jump(condition: Condition) -> JmpOp {
    match condition {
        Condition::Eq => JmpOp::Eq,
        Condition::Ne => JmpOp::Ne,
        Condition::Lt => JmpOp::Lt,
        Condition::Le => JmpOp::Le,
        Condition::Gt => JmpOp::Gt,
        Condition::Ge => JmpOp::Ge,
        Condition::SLt => JmpOp::Slt,
        Condition::SLe => JmpOp::Sle,
        Condition::SGt => JmpOp::Sgt,
        Condition::SGe => JmpOp::Sge,
    }
}
