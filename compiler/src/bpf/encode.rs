//! Encoding of instructions to bytes.

use super::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Imm64, Insn, InsnIndex, JmpOp, Narrow, Operand, Reg, SLOT_BYTES,
    Size, SwapBits, Width,
};

/// Bits of the opcode byte. Source: include/uapi/linux/bpf.h and bpf_common.h (v6.12).
pub(super) mod op {
    pub const CLASS_LD: u8 = 0x00;
    pub const CLASS_LDX: u8 = 0x01;
    pub const CLASS_ST: u8 = 0x02;
    pub const CLASS_STX: u8 = 0x03;
    pub const CLASS_ALU: u8 = 0x04;
    pub const CLASS_JMP: u8 = 0x05;
    pub const CLASS_JMP32: u8 = 0x06;
    pub const CLASS_ALU64: u8 = 0x07;

    pub const MODE_MEM: u8 = 0x60;
    pub const MODE_MEMSX: u8 = 0x80;
    pub const MODE_ATOMIC: u8 = 0xc0;

    pub const SIZE_W: u8 = 0x00;
    pub const SIZE_H: u8 = 0x08;
    pub const SIZE_B: u8 = 0x10;
    pub const SIZE_DW: u8 = 0x18;

    /// The second operand is a register.
    pub const SOURCE_X: u8 = 0x08;

    pub const NEG: u8 = 0x80;
    pub const MOV: u8 = 0xb0;
    pub const END: u8 = 0xd0;

    pub const JA: u8 = 0x00;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const JCOND: u8 = 0xe0;

    pub const LD_IMM64: u8 = CLASS_LD | SIZE_DW;

    pub const PSEUDO_MAP_FD: u8 = 1;
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    pub const PSEUDO_FUNC: u8 = 4;
    pub const PSEUDO_CALL: u8 = 1;
    pub const PSEUDO_KFUNC_CALL: u8 = 2;
}

/// Reasons why a sequence of instructions has no encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A branch whose distance does not fit its field.
    #[error("instruction {} branches {distance} slots, beyond the reach of its distance field", at.0)]
    BranchOutOfRange {
        /// Index of the branch.
        at: InsnIndex,
        /// Slots from the instruction after the branch to the target.
        distance: i64,
    },
    /// A branch, call or function address that refers to an instruction that does not exist.
    #[error("instruction {} refers to instruction {}, which does not exist", at.0, target.0)]
    NoSuchTarget {
        /// Index of the referring instruction.
        at: InsnIndex,
        /// The missing instruction.
        target: InsnIndex,
    },
    /// A map, global, function or kernel function has no address yet; only an object can represent it.
    #[error("instruction {} refers to a symbol, which only an object can carry", at.0)]
    Symbolic {
        /// Index of the instruction.
        at: InsnIndex,
    },
    /// A combination that the instruction set does not have (a sign extension from 32 to 32 bits).
    #[error("instruction {} has no encoding", at.0)]
    NoEncoding {
        /// Index of the instruction.
        at: InsnIndex,
    },
    /// The sequence has more slots than 32 bits count.
    #[error("the code is too long")]
    TooLong,
}

/// Encodes a sequence into little-endian slots, the format of the kernel on little-endian machines.
///
/// # Errors
/// See [`EncodeError`]; references that only an object can represent are rejected.
pub fn encode(insns: &[Insn]) -> Result<Vec<u8>, EncodeError> {
    let slots = slot_offsets(insns)?;
    let mut bytes = Vec::with_capacity(insns.len() * SLOT_BYTES);
    for (index, insn) in (0u32..).zip(insns) {
        let encoder = InsnEncoder { index: InsnIndex(index), slots: &slots };
        encoder.encode(insn, &mut bytes)?;
    }
    Ok(bytes)
}

/// Returns the first slot of each instruction, followed by the total number of slots.
///
/// # Errors
/// [`EncodeError::TooLong`] if a slot number does not fit 32 bits.
pub fn slot_offsets(insns: &[Insn]) -> Result<Vec<u32>, EncodeError> {
    let mut slots = Vec::with_capacity(insns.len() + 1);
    let mut next = 0u32;
    slots.push(next);
    for insn in insns {
        next = next.checked_add(insn.slots()).ok_or(EncodeError::TooLong)?;
        slots.push(next);
    }
    Ok(slots)
}

/// One slot's fields. Source: include/uapi/linux/bpf.h, `struct bpf_insn`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct InsnSlot {
    pub opcode: u8,
    pub dst: u8,
    pub src: u8,
    pub offset: i16,
    pub imm: i32,
}

impl InsnSlot {
    fn write(self, out: &mut Vec<u8>) {
        out.push(self.opcode);
        out.push(self.src << 4 | self.dst);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.imm.to_le_bytes());
    }

    /// Creates a slot whose second operand is a register or a constant.
    fn with_operand(opcode: u8, dst: Reg, operand: Operand) -> InsnSlot {
        match operand {
            Operand::Reg(src) => InsnSlot {
                opcode: opcode | op::SOURCE_X,
                dst: dst.number(),
                src: src.number(),
                ..InsnSlot::default()
            },
            Operand::Imm(imm) => InsnSlot { opcode, dst: dst.number(), imm, ..InsnSlot::default() },
        }
    }
}

/// Encoder of one instruction; its position is the base of distances.
struct InsnEncoder<'a> {
    index: InsnIndex,
    slots: &'a [u32],
}

impl InsnEncoder<'_> {
    fn encode(&self, insn: &Insn, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Insn::LoadImm64 { dst, value } = *insn {
            return self.encode_load_imm64(dst, value, out);
        }
        self.slot(insn)?.write(out);
        Ok(())
    }

    fn slot(&self, insn: &Insn) -> Result<InsnSlot, EncodeError> {
        Ok(match *insn {
            Insn::Alu { op, width, dst, src } => {
                let (code, offset) = alu_code(op);
                InsnSlot { offset, ..InsnSlot::with_operand(alu_class(width) | code, dst, src) }
            }
            Insn::Mov { width, dst, src } => InsnSlot::with_operand(alu_class(width) | op::MOV, dst, src),
            Insn::MovSx { width: Width::W32, from: Narrow::W, .. } => {
                return Err(EncodeError::NoEncoding { at: self.index });
            }
            Insn::MovSx { width, from, dst, src } => InsnSlot {
                offset: narrow_bits(from),
                ..InsnSlot::with_operand(alu_class(width) | op::MOV, dst, src.into())
            },
            Insn::Neg { width, dst } => {
                InsnSlot { opcode: alu_class(width) | op::NEG, dst: dst.number(), ..InsnSlot::default() }
            }
            Insn::Endian { order, bits, dst } => endian_slot(order, bits, dst),
            Insn::LoadImm64 { .. } => return Err(EncodeError::NoEncoding { at: self.index }),
            Insn::Load { size, dst, base, offset } => {
                memory_slot(op::CLASS_LDX | op::MODE_MEM | size_code(size), dst, base, offset)
            }
            Insn::LoadSx { size, dst, base, offset } => {
                memory_slot(op::CLASS_LDX | op::MODE_MEMSX | narrow_code(size), dst, base, offset)
            }
            Insn::Store { size, base, offset, src } => store_slot(size, base, offset, src),
            Insn::Atomic { op, width, base, offset, src } => {
                let size = if width == Width::W64 { op::SIZE_DW } else { op::SIZE_W };
                let opcode = op::CLASS_STX | op::MODE_ATOMIC | size;
                InsnSlot { imm: atomic_code(op), ..memory_slot(opcode, base, src, offset) }
            }
            Insn::Jump { .. } | Insn::JumpLong { .. } | Insn::MayGoto { .. } | Insn::JumpIf { .. } => {
                self.branch_slot(insn)?
            }
            Insn::Call { target } => self.call_slot(target)?,
            Insn::Exit => InsnSlot { opcode: op::CLASS_JMP | op::EXIT, ..InsnSlot::default() },
        })
    }

    fn branch_slot(&self, insn: &Insn) -> Result<InsnSlot, EncodeError> {
        Ok(match *insn {
            Insn::JumpLong { target } => InsnSlot {
                opcode: op::CLASS_JMP32 | op::JA,
                imm: self.distance_imm(target)?,
                ..InsnSlot::default()
            },
            Insn::MayGoto { target } => InsnSlot {
                opcode: op::CLASS_JMP | op::JCOND,
                offset: self.distance16(target)?,
                ..InsnSlot::default()
            },
            Insn::JumpIf { op, width, dst, src, target } => {
                let class = if width == Width::W64 { op::CLASS_JMP } else { op::CLASS_JMP32 };
                let slot = InsnSlot::with_operand(class | jump_code(op), dst, src);
                InsnSlot { offset: self.distance16(target)?, ..slot }
            }
            Insn::Jump { target } => InsnSlot {
                opcode: op::CLASS_JMP | op::JA,
                offset: self.distance16(target)?,
                ..InsnSlot::default()
            },
            _ => return Err(EncodeError::NoEncoding { at: self.index }),
        })
    }

    fn call_slot(&self, target: CallTarget) -> Result<InsnSlot, EncodeError> {
        let call = InsnSlot { opcode: op::CLASS_JMP | op::CALL, ..InsnSlot::default() };
        Ok(match target {
            CallTarget::Helper(number) => InsnSlot { imm: number.cast_signed(), ..call },
            CallTarget::FunctionAt(target) => {
                InsnSlot { src: op::PSEUDO_CALL, imm: self.distance_imm(target)?, ..call }
            }
            CallTarget::KfuncId { btf_id, module } => {
                InsnSlot { src: op::PSEUDO_KFUNC_CALL, offset: module, imm: btf_id, ..call }
            }
            CallTarget::Function(_) | CallTarget::Kfunc(_) => {
                return Err(EncodeError::Symbolic { at: self.index });
            }
        })
    }

    fn encode_load_imm64(&self, dst: Reg, value: Imm64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (src, low, high) = match value {
            Imm64::Value(value) => {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                (0, i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]))
            }
            Imm64::MapFd(fd) => (op::PSEUDO_MAP_FD, fd, 0),
            Imm64::MapValueFd { fd, offset } => (op::PSEUDO_MAP_VALUE, fd, offset.cast_signed()),
            // The distance counts from the slot after the first half, like that of a call.
            Imm64::FunctionAt(target) => (op::PSEUDO_FUNC, self.distance_imm(target)?, 0),
            Imm64::Map(_) | Imm64::Global { .. } | Imm64::Function(_) | Imm64::KernelVariable(_) => {
                return Err(EncodeError::Symbolic { at: self.index });
            }
        };
        InsnSlot { opcode: op::LD_IMM64, dst: dst.number(), src, offset: 0, imm: low }.write(out);
        InsnSlot { imm: high, ..InsnSlot::default() }.write(out);
        Ok(())
    }

    /// Returns the slots from the one after this instruction's first slot to the target.
    fn distance(&self, target: InsnIndex) -> Result<i64, EncodeError> {
        let missing = EncodeError::NoSuchTarget { at: self.index, target };
        // The last entry is the end of the code, which is not a valid target.
        let starts = self.slots.split_last().map_or(&[][..], |(_, starts)| starts);
        let from = starts.get(self.index.0 as usize).ok_or(missing)?;
        let to = starts.get(target.0 as usize).ok_or(missing)?;
        Ok(i64::from(*to) - i64::from(*from) - 1)
    }

    fn distance16(&self, target: InsnIndex) -> Result<i16, EncodeError> {
        let distance = self.distance(target)?;
        i16::try_from(distance).map_err(|_| EncodeError::BranchOutOfRange { at: self.index, distance })
    }

    fn distance_imm(&self, target: InsnIndex) -> Result<i32, EncodeError> {
        let distance = self.distance(target)?;
        i32::try_from(distance).map_err(|_| EncodeError::BranchOutOfRange { at: self.index, distance })
    }
}

fn memory_slot(opcode: u8, dst: Reg, src: Reg, offset: i16) -> InsnSlot {
    InsnSlot { opcode, dst: dst.number(), src: src.number(), offset, imm: 0 }
}

fn store_slot(size: Size, base: Reg, offset: i16, src: Operand) -> InsnSlot {
    let mode = op::MODE_MEM | size_code(size);
    match src {
        Operand::Reg(src) => memory_slot(op::CLASS_STX | mode, base, src, offset),
        Operand::Imm(imm) => {
            InsnSlot { opcode: op::CLASS_ST | mode, dst: base.number(), src: 0, offset, imm }
        }
    }
}

fn endian_slot(order: ByteOrder, bits: SwapBits, dst: Reg) -> InsnSlot {
    let opcode = match order {
        ByteOrder::Little => op::CLASS_ALU,
        ByteOrder::Big => op::CLASS_ALU | op::SOURCE_X,
        ByteOrder::Swap => op::CLASS_ALU64,
    };
    InsnSlot { opcode: opcode | op::END, dst: dst.number(), imm: bits.count(), ..InsnSlot::default() }
}

const fn alu_class(width: Width) -> u8 {
    match width {
        Width::W32 => op::CLASS_ALU,
        Width::W64 => op::CLASS_ALU64,
    }
}

/// Returns the operation's bits and the offset field, which distinguishes signed from unsigned division.
const fn alu_code(operation: AluOp) -> (u8, i16) {
    match operation {
        AluOp::Add => (0x00, 0),
        AluOp::Sub => (0x10, 0),
        AluOp::Mul => (0x20, 0),
        AluOp::Div => (0x30, 0),
        AluOp::Sdiv => (0x30, 1),
        AluOp::Or => (0x40, 0),
        AluOp::And => (0x50, 0),
        AluOp::Lsh => (0x60, 0),
        AluOp::Rsh => (0x70, 0),
        AluOp::Mod => (0x90, 0),
        AluOp::Smod => (0x90, 1),
        AluOp::Xor => (0xa0, 0),
        AluOp::Arsh => (0xc0, 0),
    }
}

const fn jump_code(operation: JmpOp) -> u8 {
    match operation {
        JmpOp::Eq => 0x10,
        JmpOp::Gt => 0x20,
        JmpOp::Ge => 0x30,
        JmpOp::Set => 0x40,
        JmpOp::Ne => 0x50,
        JmpOp::Sgt => 0x60,
        JmpOp::Sge => 0x70,
        JmpOp::Lt => 0xa0,
        JmpOp::Le => 0xb0,
        JmpOp::Slt => 0xc0,
        JmpOp::Sle => 0xd0,
    }
}

const fn atomic_code(operation: AtomicOp) -> i32 {
    match operation {
        AtomicOp::Add => 0x00,
        AtomicOp::Or => 0x40,
        AtomicOp::And => 0x50,
        AtomicOp::Xor => 0xa0,
        AtomicOp::FetchAdd => 0x01,
        AtomicOp::FetchOr => 0x41,
        AtomicOp::FetchAnd => 0x51,
        AtomicOp::FetchXor => 0xa1,
        AtomicOp::Xchg => 0xe1,
        AtomicOp::CmpXchg => 0xf1,
    }
}

const fn size_code(size: Size) -> u8 {
    match size {
        Size::B => op::SIZE_B,
        Size::H => op::SIZE_H,
        Size::W => op::SIZE_W,
        Size::DW => op::SIZE_DW,
    }
}

const fn narrow_code(size: Narrow) -> u8 {
    match size {
        Narrow::B => op::SIZE_B,
        Narrow::H => op::SIZE_H,
        Narrow::W => op::SIZE_W,
    }
}

const fn narrow_bits(size: Narrow) -> i16 {
    match size {
        Narrow::B => 8,
        Narrow::H => 16,
        Narrow::W => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_clang() {
        let insns = [
            Insn::load(Size::DW, Reg::R1, Reg::R1, 168),
            Insn::load_imm64(Reg::R2, Imm64::Value(0x1122_3344_5566_7788)),
            Insn::atomic(AtomicOp::Add, Width::W64, Reg::R0, 0, Reg::R1),
            Insn::call_helper(5),
            Insn::Exit,
        ];
        let expected: [[u8; 8]; 6] = [
            [0x79, 0x11, 0xa8, 0, 0, 0, 0, 0],
            [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55],
            [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0xdb, 0x10, 0, 0, 0, 0, 0, 0],
            [0x85, 0, 0, 0, 5, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(encode(&insns).unwrap(), expected.concat());
    }

    #[test]
    fn a_branch_counts_both_halves_of_ld_imm64() {
        let insns =
            [Insn::Jump { target: InsnIndex(2) }, Insn::load_imm64(Reg::R0, Imm64::Value(1)), Insn::Exit];
        let bytes = encode(&insns).unwrap();
        assert_eq!(bytes[2..4], [2, 0]);
    }

    #[test]
    fn a_branch_beyond_16_bits_is_an_error() {
        let mut insns = vec![Insn::Jump { target: InsnIndex(40_000) }];
        insns.extend(std::iter::repeat_n(Insn::Exit, 40_000));
        assert_eq!(encode(&insns), Err(EncodeError::BranchOutOfRange { at: InsnIndex(0), distance: 39_999 }));
        insns[0] = Insn::JumpLong { target: InsnIndex(40_000) };
        assert!(encode(&insns).is_ok());
    }

    #[test]
    fn invalid_instructions_are_errors() {
        let at = InsnIndex(0);
        let target = InsnIndex(1);
        assert_eq!(encode(&[Insn::Jump { target }]), Err(EncodeError::NoSuchTarget { at, target }));
        let symbolic = Insn::load_imm64(Reg::R1, Imm64::Map(super::super::MapRef(0)));
        assert_eq!(encode(&[symbolic]), Err(EncodeError::Symbolic { at }));
        let same = Insn::MovSx { width: Width::W32, from: Narrow::W, dst: Reg::R1, src: Reg::R2 };
        assert_eq!(encode(&[same]), Err(EncodeError::NoEncoding { at }));
    }
}
