//! Every form of instruction survives encoding and decoding, and any bytes decode to instructions or an
//! error.

use ks_compiler::bpf::{
    AluOp, AtomicOp, ByteOrder, CallTarget, DecodeError, Imm64, Insn, InsnIndex, JmpOp, Narrow, Operand, Reg,
    Size, SwapBits, Width, decode, disasm, encode,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Limit on the instructions, so that branches between any two stay in range.
const MAX_INSNS: u32 = 40;

fn reg() -> impl Strategy<Value = Reg> {
    (0u8..=10).prop_map(|number| Reg::new(number).expect("0 to 10 are registers"))
}

fn width() -> impl Strategy<Value = Width> {
    select(vec![Width::W32, Width::W64])
}

fn size() -> impl Strategy<Value = Size> {
    select(vec![Size::B, Size::H, Size::W, Size::DW])
}

fn narrow() -> impl Strategy<Value = Narrow> {
    select(vec![Narrow::B, Narrow::H, Narrow::W])
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![reg().prop_map(Operand::Reg), any::<i32>().prop_map(Operand::Imm)]
}

fn alu_op() -> impl Strategy<Value = AluOp> {
    use AluOp::{Add, And, Arsh, Div, Lsh, Mod, Mul, Or, Rsh, Sdiv, Smod, Sub, Xor};
    select(vec![Add, Sub, Mul, Div, Mod, Sdiv, Smod, Or, And, Xor, Lsh, Rsh, Arsh])
}

fn jmp_op() -> impl Strategy<Value = JmpOp> {
    use JmpOp::{Eq, Ge, Gt, Le, Lt, Ne, Set, Sge, Sgt, Sle, Slt};
    select(vec![Eq, Ne, Gt, Ge, Lt, Le, Sgt, Sge, Slt, Sle, Set])
}

fn atomic_op() -> impl Strategy<Value = AtomicOp> {
    use AtomicOp::{Add, And, CmpXchg, FetchAdd, FetchAnd, FetchOr, FetchXor, Or, Xchg, Xor};
    select(vec![Add, Or, And, Xor, FetchAdd, FetchOr, FetchAnd, FetchXor, Xchg, CmpXchg])
}

fn imm64(len: u32) -> impl Strategy<Value = Imm64> {
    prop_oneof![
        any::<u64>().prop_map(Imm64::Value),
        any::<i32>().prop_map(Imm64::MapFd),
        (any::<i32>(), any::<u32>()).prop_map(|(fd, offset)| Imm64::MapValueFd { fd, offset }),
        index(len).prop_map(Imm64::FunctionAt),
    ]
}

fn call_target(len: u32) -> impl Strategy<Value = CallTarget> {
    prop_oneof![
        any::<u32>().prop_map(CallTarget::Helper),
        index(len).prop_map(CallTarget::FunctionAt),
        (any::<i32>(), any::<i16>()).prop_map(|(btf_id, module)| CallTarget::KfuncId { btf_id, module }),
    ]
}

fn index(len: u32) -> impl Strategy<Value = InsnIndex> {
    (0..len).prop_map(InsnIndex)
}

fn move_or_arithmetic() -> impl Strategy<Value = Insn> {
    let order = select(vec![ByteOrder::Little, ByteOrder::Big, ByteOrder::Swap]);
    let bits = select(vec![SwapBits::Bits16, SwapBits::Bits32, SwapBits::Bits64]);
    let no_extension = |width: &Width, from: &Narrow| *width == Width::W32 && *from == Narrow::W;
    prop_oneof![
        (alu_op(), width(), reg(), operand()).prop_map(|(op, width, dst, src)| Insn::Alu {
            op,
            width,
            dst,
            src
        }),
        (width(), reg(), operand()).prop_map(|(width, dst, src)| Insn::Mov { width, dst, src }),
        (width(), narrow(), reg(), reg())
            .prop_filter("there is no extension from 32 to 32 bits", move |(width, from, ..)| !no_extension(
                width, from
            ))
            .prop_map(|(width, from, dst, src)| Insn::MovSx { width, from, dst, src }),
        (width(), reg()).prop_map(|(width, dst)| Insn::Neg { width, dst }),
        (order, bits, reg()).prop_map(|(order, bits, dst)| Insn::Endian { order, bits, dst }),
    ]
}

fn memory() -> impl Strategy<Value = Insn> {
    prop_oneof![
        (size(), reg(), reg(), any::<i16>()).prop_map(|(size, dst, base, offset)| Insn::Load {
            size,
            dst,
            base,
            offset
        }),
        (narrow(), reg(), reg(), any::<i16>()).prop_map(|(size, dst, base, offset)| Insn::LoadSx {
            size,
            dst,
            base,
            offset
        }),
        (size(), reg(), any::<i16>(), operand()).prop_map(|(size, base, offset, src)| Insn::Store {
            size,
            base,
            offset,
            src
        }),
        (atomic_op(), width(), reg(), any::<i16>(), reg())
            .prop_map(|(op, width, base, offset, src)| Insn::Atomic { op, width, base, offset, src }),
    ]
}

fn control(len: u32) -> impl Strategy<Value = Insn> {
    prop_oneof![
        index(len).prop_map(|target| Insn::Jump { target }),
        index(len).prop_map(|target| Insn::JumpLong { target }),
        index(len).prop_map(|target| Insn::MayGoto { target }),
        (jmp_op(), width(), reg(), operand(), index(len))
            .prop_map(|(op, width, dst, src, target)| Insn::JumpIf { op, width, dst, src, target }),
        call_target(len).prop_map(|target| Insn::Call { target }),
        Just(Insn::Exit),
    ]
}

fn sequence() -> impl Strategy<Value = Vec<Insn>> {
    (1..MAX_INSNS).prop_flat_map(|len| {
        let insn = prop_oneof![
            move_or_arithmetic(),
            memory(),
            control(len),
            (reg(), imm64(len)).prop_map(|(dst, value)| Insn::LoadImm64 { dst, value }),
        ];
        proptest::collection::vec(insn, len as usize)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decoding_undoes_encoding(insns in sequence()) {
        let bytes = encode(&insns).expect("the sequence has an encoding");
        let slots: u32 = insns.iter().map(Insn::slots).sum();
        prop_assert_eq!(bytes.len(), slots as usize * 8);
        prop_assert_eq!(decode(&bytes), Ok(insns));
    }

    /// Few random opcodes are valid, so the bytes are valid ones with one byte changed.
    #[test]
    fn encoding_undoes_decoding_of_damaged_bytes(
        insns in sequence(),
        at in any::<prop::sample::Index>(),
        value: u8,
    ) {
        let mut bytes = encode(&insns).expect("the sequence has an encoding");
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(decoded) = decode(&bytes) {
            prop_assert_eq!(encode(&decoded), Ok(bytes));
        }
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(insns) = decode(&bytes) {
            prop_assert_eq!(encode(&insns), Ok(bytes));
        }
    }

    #[test]
    fn every_instruction_has_one_line_of_text(insns in sequence()) {
        let text = disasm(&insns, &|_| None);
        prop_assert_eq!(text.lines().count(), insns.len());
    }
}

#[test]
fn damaged_code_is_refused() {
    let exit = [0x95, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode(&exit[..7]), Err(DecodeError::Length(7)));
    let half = [0x18, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode(&half), Err(DecodeError::Truncated { slot: 0 }));
    let r11 = [0xb7, 11, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode(&r11), Err(DecodeError::Register { slot: 0, number: 11 }));
    let outside = [0x05, 0, 7, 0, 0, 0, 0, 0];
    assert_eq!(decode(&outside), Err(DecodeError::Target { slot: 0, target: 8 }));
    let packet_load = [0x20, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode(&packet_load), Err(DecodeError::Unknown { slot: 0, opcode: 0x20 }));
    // A branch into the second half of the next instruction.
    let into_half = [[0x05, 0, 1, 0, 0, 0, 0, 0], half, [0; 8], exit].concat();
    assert_eq!(decode(&into_half), Err(DecodeError::Target { slot: 0, target: 2 }));
}
