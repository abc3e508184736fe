//! Decoding of bytes to instructions. The bytes may be hostile: the result is always instructions or an
//! error.

use super::encode::{InsnSlot, op};
use super::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Imm64, Insn, InsnIndex, JmpOp, Narrow, Operand, Reg, SLOT_BYTES,
    Size, SwapBits, Width,
};

/// Reasons why bytes are not a sequence of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The length is not a multiple of eight bytes, or too large to count.
    #[error("{0} bytes of code are not a sequence of eight-byte slots")]
    Length(usize),
    /// Fields that match no supported instruction (reserved fields must be zero).
    #[error("slot {slot}: no known instruction has opcode {opcode:#04x} with these fields")]
    Unknown {
        /// Index of the slot.
        slot: u32,
        /// Value of the opcode byte.
        opcode: u8,
    },
    /// A register above r10.
    #[error("slot {slot}: r{number} is not a register")]
    Register {
        /// Index of the slot.
        slot: u32,
        /// The number in the register field.
        number: u8,
    },
    /// The code ends after the first half of an `ld_imm64`.
    #[error("slot {slot}: the second half of ld_imm64 is missing")]
    Truncated {
        /// Index of the first half's slot.
        slot: u32,
    },
    /// A branch or local call goes outside the code or into the second half of an `ld_imm64`.
    #[error("slot {slot}: slot {target} is not the start of an instruction")]
    Target {
        /// Slot of the branch.
        slot: u32,
        /// Slot of the target.
        target: i64,
    },
}

/// Decodes little-endian slots. Map references become file descriptors, functions become positions.
///
/// `decode(encode(x)) == x` for every sequence that [`super::encode`] accepts.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Insn>, DecodeError> {
    let slots = read_slots(bytes)?;
    let starts = instruction_starts(&slots);
    let mut insns = Vec::with_capacity(slots.len());
    let mut rest = slots.iter().copied().zip(0u32..);
    while let Some((slot, number)) = rest.next() {
        let decoder = Decoder { slot, number, starts: &starts };
        insns.push(if slot.opcode == op::LD_IMM64 {
            let (second, _) = rest.next().ok_or(DecodeError::Truncated { slot: number })?;
            decoder.load_imm64(second)?
        } else {
            decoder.insn()?
        });
    }
    Ok(insns)
}

fn read_slots(bytes: &[u8]) -> Result<Vec<InsnSlot>, DecodeError> {
    let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
    if !rest.is_empty() || u32::try_from(slots.len()).is_err() {
        return Err(DecodeError::Length(bytes.len()));
    }
    Ok(slots
        .iter()
        .map(|&[opcode, registers, offset0, offset1, imm @ ..]| InsnSlot {
            opcode,
            dst: registers & 0xf,
            src: registers >> 4,
            offset: i16::from_le_bytes([offset0, offset1]),
            imm: i32::from_le_bytes(imm),
        })
        .collect())
}

/// Returns for each slot the instruction that starts there.
fn instruction_starts(slots: &[InsnSlot]) -> Vec<Option<InsnIndex>> {
    let mut starts = Vec::with_capacity(slots.len());
    let mut next = 0;
    while let Some(slot) = slots.get(starts.len()) {
        starts.push(Some(InsnIndex(next)));
        next += 1;
        if slot.opcode == op::LD_IMM64 {
            starts.push(None);
        }
    }
    starts
}

struct Decoder<'a> {
    slot: InsnSlot,
    number: u32,
    starts: &'a [Option<InsnIndex>],
}

impl Decoder<'_> {
    fn insn(&self) -> Result<Insn, DecodeError> {
        match self.slot.opcode & 7 {
            op::CLASS_LDX => self.load(),
            op::CLASS_ST | op::CLASS_STX => self.store(),
            op::CLASS_ALU => self.alu(Width::W32),
            op::CLASS_ALU64 => self.alu(Width::W64),
            op::CLASS_JMP => self.jump(Width::W64),
            op::CLASS_JMP32 => self.jump(Width::W32),
            _ => Err(self.unknown()),
        }
    }

    fn load_imm64(&self, second: InsnSlot) -> Result<Insn, DecodeError> {
        let plain = InsnSlot { imm: second.imm, ..InsnSlot::default() };
        if self.slot.offset != 0 || second != plain {
            return Err(self.unknown());
        }
        let (low, high) = (self.slot.imm.cast_unsigned(), second.imm.cast_unsigned());
        let value = match (self.slot.src, high) {
            (0, _) => Imm64::Value(u64::from(high) << 32 | u64::from(low)),
            (op::PSEUDO_MAP_FD, 0) => Imm64::MapFd(self.slot.imm),
            (op::PSEUDO_MAP_VALUE, offset) => Imm64::MapValueFd { fd: self.slot.imm, offset },
            (op::PSEUDO_FUNC, 0) => Imm64::FunctionAt(self.target(self.slot.imm)?),
            _ => return Err(self.unknown()),
        };
        Ok(Insn::LoadImm64 { dst: self.dst()?, value })
    }

    fn load(&self) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, offset, imm, .. } = self.slot;
        let (dst, base) = (self.dst()?, self.src()?);
        self.require(imm == 0)?;
        match opcode & 0xe0 {
            op::MODE_MEM => Ok(Insn::Load { size: self.size(), dst, base, offset }),
            op::MODE_MEMSX => {
                let size = match self.size() {
                    Size::B => Narrow::B,
                    Size::H => Narrow::H,
                    Size::W => Narrow::W,
                    Size::DW => return Err(self.unknown()),
                };
                Ok(Insn::LoadSx { size, dst, base, offset })
            }
            _ => Err(self.unknown()),
        }
    }

    fn store(&self) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, offset, imm, src, .. } = self.slot;
        let base = self.dst()?;
        match (opcode & 7, opcode & 0xe0) {
            (op::CLASS_ST, op::MODE_MEM) => {
                self.require(src == 0)?;
                Ok(Insn::Store { size: self.size(), base, offset, src: Operand::Imm(imm) })
            }
            (op::CLASS_STX, op::MODE_MEM) => {
                self.require(imm == 0)?;
                Ok(Insn::Store { size: self.size(), base, offset, src: Operand::Reg(self.src()?) })
            }
            (op::CLASS_STX, op::MODE_ATOMIC) => {
                let width = match self.size() {
                    Size::W => Width::W32,
                    Size::DW => Width::W64,
                    Size::B | Size::H => return Err(self.unknown()),
                };
                let op = atomic_op(imm).ok_or_else(|| self.unknown())?;
                Ok(Insn::Atomic { op, width, base, offset, src: self.src()? })
            }
            _ => Err(self.unknown()),
        }
    }

    fn alu(&self, width: Width) -> Result<Insn, DecodeError> {
        let code = self.slot.opcode & 0xf0;
        match code {
            op::NEG => self.neg(width),
            op::END => self.endian(width),
            op::MOV if self.slot.offset != 0 => self.mov_sx(width),
            op::MOV => Ok(Insn::Mov { width, dst: self.dst()?, src: self.operand()? }),
            _ => {
                let op = alu_op(code, self.slot.offset).ok_or_else(|| self.unknown())?;
                Ok(Insn::Alu { op, width, dst: self.dst()?, src: self.operand()? })
            }
        }
    }

    fn neg(&self, width: Width) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, src, offset, imm, .. } = self.slot;
        self.require(opcode & op::SOURCE_X == 0 && (src, offset, imm) == (0, 0, 0))?;
        Ok(Insn::Neg { width, dst: self.dst()? })
    }

    fn endian(&self, width: Width) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, src, offset, imm, .. } = self.slot;
        self.require((src, offset) == (0, 0))?;
        let order = match (width, opcode & op::SOURCE_X == 0) {
            (Width::W32, true) => ByteOrder::Little,
            (Width::W32, false) => ByteOrder::Big,
            (Width::W64, true) => ByteOrder::Swap,
            (Width::W64, false) => return Err(self.unknown()),
        };
        let bits = match imm {
            16 => SwapBits::Bits16,
            32 => SwapBits::Bits32,
            64 => SwapBits::Bits64,
            _ => return Err(self.unknown()),
        };
        Ok(Insn::Endian { order, bits, dst: self.dst()? })
    }

    fn mov_sx(&self, width: Width) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, offset, imm, .. } = self.slot;
        self.require(opcode & op::SOURCE_X != 0 && imm == 0)?;
        let from = match (offset, width) {
            (8, _) => Narrow::B,
            (16, _) => Narrow::H,
            (32, Width::W64) => Narrow::W,
            _ => return Err(self.unknown()),
        };
        Ok(Insn::MovSx { width, from, dst: self.dst()?, src: self.src()? })
    }

    fn jump(&self, width: Width) -> Result<Insn, DecodeError> {
        let InsnSlot { opcode, dst, src, offset, imm } = self.slot;
        let bare = opcode & op::SOURCE_X == 0 && dst == 0;
        match (opcode & 0xf0, width) {
            (op::JA, Width::W64) => {
                self.require(bare && src == 0 && imm == 0)?;
                Ok(Insn::Jump { target: self.target(offset.into())? })
            }
            (op::JA, Width::W32) => {
                self.require(bare && src == 0 && offset == 0)?;
                Ok(Insn::JumpLong { target: self.target(imm)? })
            }
            (op::JCOND, Width::W64) => {
                self.require(bare && src == 0 && imm == 0)?;
                Ok(Insn::MayGoto { target: self.target(offset.into())? })
            }
            (op::CALL, Width::W64) => {
                self.require(bare)?;
                self.call()
            }
            (op::EXIT, Width::W64) => {
                self.require(bare && (src, offset, imm) == (0, 0, 0))?;
                Ok(Insn::Exit)
            }
            (code, _) => {
                let op = jump_op(code).ok_or_else(|| self.unknown())?;
                let (dst, src) = (self.dst()?, self.operand()?);
                Ok(Insn::JumpIf { op, width, dst, src, target: self.target(offset.into())? })
            }
        }
    }

    fn call(&self) -> Result<Insn, DecodeError> {
        let InsnSlot { src, offset, imm, .. } = self.slot;
        let target = match (src, offset) {
            (0, 0) => CallTarget::Helper(imm.cast_unsigned()),
            (op::PSEUDO_CALL, 0) => CallTarget::FunctionAt(self.target(imm)?),
            (op::PSEUDO_KFUNC_CALL, module) => CallTarget::KfuncId { btf_id: imm, module },
            _ => return Err(self.unknown()),
        };
        Ok(Insn::Call { target })
    }

    fn target(&self, distance: i32) -> Result<InsnIndex, DecodeError> {
        let target = i64::from(self.number) + 1 + i64::from(distance);
        usize::try_from(target)
            .ok()
            .and_then(|slot| *self.starts.get(slot)?)
            .ok_or(DecodeError::Target { slot: self.number, target })
    }

    /// Returns the second operand; the unused field must be zero.
    fn operand(&self) -> Result<Operand, DecodeError> {
        if self.slot.opcode & op::SOURCE_X != 0 {
            self.require(self.slot.imm == 0)?;
            Ok(Operand::Reg(self.src()?))
        } else {
            self.require(self.slot.src == 0)?;
            Ok(Operand::Imm(self.slot.imm))
        }
    }

    fn dst(&self) -> Result<Reg, DecodeError> {
        self.register(self.slot.dst)
    }

    fn src(&self) -> Result<Reg, DecodeError> {
        self.register(self.slot.src)
    }

    fn register(&self, number: u8) -> Result<Reg, DecodeError> {
        Reg::new(number).ok_or(DecodeError::Register { slot: self.number, number })
    }

    fn size(&self) -> Size {
        match self.slot.opcode & 0x18 {
            op::SIZE_B => Size::B,
            op::SIZE_H => Size::H,
            op::SIZE_W => Size::W,
            _ => Size::DW,
        }
    }

    fn require(&self, holds: bool) -> Result<(), DecodeError> {
        if holds { Ok(()) } else { Err(self.unknown()) }
    }

    fn unknown(&self) -> DecodeError {
        DecodeError::Unknown { slot: self.number, opcode: self.slot.opcode }
    }
}

const fn alu_op(code: u8, offset: i16) -> Option<AluOp> {
    Some(match (code, offset) {
        (0x00, 0) => AluOp::Add,
        (0x10, 0) => AluOp::Sub,
        (0x20, 0) => AluOp::Mul,
        (0x30, 0) => AluOp::Div,
        (0x30, 1) => AluOp::Sdiv,
        (0x40, 0) => AluOp::Or,
        (0x50, 0) => AluOp::And,
        (0x60, 0) => AluOp::Lsh,
        (0x70, 0) => AluOp::Rsh,
        (0x90, 0) => AluOp::Mod,
        (0x90, 1) => AluOp::Smod,
        (0xa0, 0) => AluOp::Xor,
        (0xc0, 0) => AluOp::Arsh,
        _ => return None,
    })
}

const fn jump_op(code: u8) -> Option<JmpOp> {
    Some(match code {
        0x10 => JmpOp::Eq,
        0x20 => JmpOp::Gt,
        0x30 => JmpOp::Ge,
        0x40 => JmpOp::Set,
        0x50 => JmpOp::Ne,
        0x60 => JmpOp::Sgt,
        0x70 => JmpOp::Sge,
        0xa0 => JmpOp::Lt,
        0xb0 => JmpOp::Le,
        0xc0 => JmpOp::Slt,
        0xd0 => JmpOp::Sle,
        _ => return None,
    })
}

const fn atomic_op(imm: i32) -> Option<AtomicOp> {
    Some(match imm {
        0x00 => AtomicOp::Add,
        0x40 => AtomicOp::Or,
        0x50 => AtomicOp::And,
        0xa0 => AtomicOp::Xor,
        0x01 => AtomicOp::FetchAdd,
        0x41 => AtomicOp::FetchOr,
        0x51 => AtomicOp::FetchAnd,
        0xa1 => AtomicOp::FetchXor,
        0xe1 => AtomicOp::Xchg,
        0xf1 => AtomicOp::CmpXchg,
        _ => return None,
    })
}
