//! Stubs for instructions that the BPF interpreter lacks or executes differently from the kernel. Each such
//! instruction becomes a jump to a few others after the code, which call a function of the test
//! ([`instruction`]) and jump back. All other instructions and their positions stay unchanged.
//!
//! `rbpf` 0.4 lacks atomic operations, signed division, moves and loads that extend the sign and the byte
//! swap of the newest instruction set. It compares with a negative constant as if it had 32 bits, and leaves
//! the upper half of a 32-bit remainder by zero unchanged.
//!
//! Source of their semantics: Documentation/bpf/standardization/instruction-set.rst, v6.12.

use crate::oracles::arena::Arena;
use crate::oracles::image::InsnSlot;

/// Number of the helper that executes instructions: it takes destination, source and the instruction itself.
pub const HELPER: u32 = 0x4000_0010;
/// Bytes of stack below a frame in which a stub saves registers.
pub const STUB_BYTES: u16 = 48;
/// Size of a stack frame in the kernel, in bytes (MAX_BPF_STACK).
pub const FRAME_BYTES: u16 = 512;

/// Instruction classes, in the low 3 bits of the opcode.
const LDX: u8 = 1;
const STX: u8 = 3;
const ALU: u8 = 4;
const JMP: u8 = 5;
const ALU64: u8 = 7;
/// Operations, in the high 4 bits of the opcode.
const DIV: u8 = 0x30;
const MOD: u8 = 0x90;
const MOV: u8 = 0xb0;
const END: u8 = 0xd0;
/// Set if the second operand is a register.
const BY_REGISTER: u8 = 8;
/// Memory access modes, in the high 3 bits of the opcode.
const SIGN_EXTENDED: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
/// Atomic operations, in the constant of the instruction.
const FETCH: i32 = 1;
const EXCHANGE: i32 = 0xe1;
const COMPARE_EXCHANGE: i32 = 0xf1;

pub fn insn(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> InsnSlot {
    let (offset, imm) = (offset.to_le_bytes(), imm.to_le_bytes());
    [opcode, src << 4 | dst, offset[0], offset[1], imm[0], imm[1], imm[2], imm[3]]
}

pub fn load_imm64(dst: u8, value: u64) -> [InsnSlot; 2] {
    [insn(0x18, dst, 0, 0, value as i32), insn(0, 0, 0, 0, (value >> 32) as i32)]
}

pub fn imm(slot: &InsnSlot) -> i32 {
    i32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]])
}

fn offset(slot: &InsnSlot) -> i16 {
    i16::from_le_bytes([slot[2], slot[3]])
}

/// Returns whether the interpreter lacks an instruction, or executes it differently.
fn is_unknown(slot: &InsnSlot) -> bool {
    let (class, operation, mode) = (slot[0] & 7, slot[0] & 0xf0, slot[0] & 0xe0);
    match class {
        STX => mode == ATOMIC,
        LDX => mode == SIGN_EXTENDED,
        ALU64 if operation == END => true,
        ALU if operation == MOD => true,
        ALU | ALU64 => matches!(operation, DIV | MOD | MOV) && offset(slot) != 0,
        _ => false,
    }
}

/// Returns whether this is an unsigned comparison with a negative constant.
fn is_wrong_jump(slot: &InsnSlot) -> bool {
    let unsigned = [0x10, 0x20, 0x30, 0x50, 0xa0, 0xb0].contains(&(slot[0] & 0xf0));
    slot[0] & 7 == JMP && slot[0] & BY_REGISTER == 0 && unsigned && imm(slot) < 0
}

/// Replaces these instructions by stubs, from index `first` on.
pub fn replace_unknown(code: &mut Vec<InsnSlot>, first: usize) {
    let end = code.len();
    let mut at = first;
    while at < end {
        let slot = code[at];
        assert!(slot[0] != 0x06, "a jump of 32 bits, which the test does not know");
        if is_unknown(&slot) || is_wrong_jump(&slot) {
            let stub = code.len();
            code[at] = jump(at, stub);
            if is_unknown(&slot) { operation(code, &slot, at) } else { comparison(code, &slot, at) }
        }
        // The second half of a 64-bit constant is not an operation.
        at += if slot[0] == 0x18 { 2 } else { 1 };
    }
}

fn jump(from: usize, to: usize) -> InsnSlot {
    let distance = to as i64 - from as i64 - 1;
    insn(0x05, 0, 0, i16::try_from(distance).expect("programs are short"), 0)
}

/// Returns the offset of a saved register, below the frame.
fn kept(number: i16) -> i16 {
    -(FRAME_BYTES as i16) - 8 * (number + 1)
}

fn keep(register: u8, number: i16) -> InsnSlot {
    insn(0x7b, 10, register, kept(number), 0)
}

fn restore(register: u8, number: i16) -> InsnSlot {
    insn(0x79, register, 10, kept(number), 0)
}

/// Appends the stub of an instruction that changes a register or memory.
fn operation(code: &mut Vec<InsnSlot>, slot: &InsnSlot, at: usize) {
    const DST: i16 = 4;
    const SRC: i16 = 5;
    let (dst, src) = (slot[1] & 15, slot[1] >> 4);
    code.extend([keep(dst, DST), keep(src, SRC)]);
    code.extend((0..4).map(|register| keep(register, register.into())));
    code.extend([restore(1, DST), restore(2, SRC)]);
    code.extend(load_imm64(3, u64::from_le_bytes(*slot)));
    code.push(insn(0x85, 0, 0, 0, HELPER as i32));
    code.push(keep(0, DST));
    code.extend((0..4).map(|register| restore(register, register.into())));
    let changed = match slot[0] & 7 {
        STX if imm(slot) == COMPARE_EXCHANGE => Some(0),
        STX => (imm(slot) & FETCH != 0).then_some(src),
        _ => Some(dst),
    };
    code.extend(changed.map(|register| restore(register, DST)));
    let end = code.len();
    code.push(jump(end, at + 1));
}

/// Appends the stub of a comparison: it sign-extends the constant into a register.
fn comparison(code: &mut Vec<InsnSlot>, slot: &InsnSlot, at: usize) {
    let dst = slot[1] & 15;
    let spare = u8::from(dst == 0);
    code.extend([keep(spare, 0), insn(0xb7, spare, 0, 0, imm(slot))]);
    code.push(insn(slot[0] | BY_REGISTER, dst, spare, 2, 0));
    for target in [at + 1, (at as i64 + 1 + i64::from(offset(slot))) as usize] {
        code.push(restore(spare, 0));
        let end = code.len();
        code.push(jump(end, target));
    }
}

/// Executes an instruction of [`is_unknown`] and returns its result. A compare-and-exchange compares with
/// `r0`, which stubs do not pass: the compiler emits none.
pub fn instruction(memory: &Arena, dst: u64, src: u64, slot: InsnSlot) -> u64 {
    let (class, operation) = (slot[0] & 7, slot[0] & 0xf0);
    let address = |base: u64| base.wrapping_add(i64::from(offset(&slot)) as u64);
    match class {
        STX => atomic(memory, address(dst), src, &slot),
        LDX => {
            let bytes = access_bytes(&slot);
            signed(memory.number(address(src), bytes), 8 * bytes as u32)
        }
        ALU64 if operation == END => match imm(&slot) {
            16 => u64::from((dst as u16).swap_bytes()),
            32 => u64::from((dst as u32).swap_bytes()),
            _ => dst.swap_bytes(),
        },
        _ => {
            let right = if slot[0] & BY_REGISTER == 0 { i64::from(imm(&slot)) as u64 } else { src };
            let bits = if class == ALU { 32 } else { 64 };
            let result = arithmetic(operation, offset(&slot), signed(dst, bits), signed(right, bits), bits);
            if class == ALU { u64::from(result as u32) } else { result }
        }
    }
}

fn access_bytes(slot: &InsnSlot) -> usize {
    match slot[0] & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

fn signed(value: u64, bits: u32) -> u64 {
    ((value << (64 - bits)) as i64 >> (64 - bits)) as u64
}

fn arithmetic(operation: u8, kind: i16, left: u64, right: u64, bits: u32) -> u64 {
    let (a, b) = (left as i64, right as i64);
    match (operation, kind) {
        (MOV, moved) => signed(right, moved as u32),
        (DIV, _) if b == 0 => 0,
        (DIV, _) => a.wrapping_div(b) as u64,
        (MOD, _) if b == 0 => left,
        (MOD, 1) => a.wrapping_rem(b) as u64,
        (MOD, _) => {
            assert_eq!(bits, 32, "the interpreter has the remainder of 64 bits");
            u64::from(left as u32 % right as u32)
        }
        other => panic!("{other:?} is not an instruction that is replaced"),
    }
}

fn atomic(memory: &Arena, address: u64, src: u64, slot: &InsnSlot) -> u64 {
    let bytes = access_bytes(slot);
    let old = memory.number(address, bytes);
    let new = match imm(slot) & !FETCH {
        0x00 => old.wrapping_add(src),
        0x40 => old | src,
        0x50 => old & src,
        0xa0 => old ^ src,
        kind if kind == EXCHANGE & !FETCH => src,
        other => panic!("the test does not know the atomic operation {other:#x}"),
    };
    memory.write(address, &new.to_le_bytes()[..bytes]);
    old
}
