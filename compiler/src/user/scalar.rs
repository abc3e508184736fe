//! Scalars on the Wasm stack: integers of up to 32 bits as i32, others as i64. They are always *normal*:
//! extended to the whole width by their own signedness.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{WasmCode, mem};
use crate::types::IntType;

/// Returns the core type that represents an integer.
pub fn val_type(int: IntType) -> ValType {
    if is_wide(int) { ValType::I64 } else { ValType::I32 }
}

/// Returns whether an integer is represented as i64.
pub fn is_wide(int: IntType) -> bool {
    int.bits == 64
}

/// Returns the load of a normal value from the address on the stack.
pub fn load_op(int: IntType, offset: u32) -> I<'static> {
    let at = mem(offset);
    match (int.bits, int.signed) {
        (8, false) => I::I32Load8U(at),
        (8, true) => I::I32Load8S(at),
        (16, false) => I::I32Load16U(at),
        (16, true) => I::I32Load16S(at),
        (32, _) => I::I32Load(at),
        _ => I::I64Load(at),
    }
}

/// Returns the store of the low bits of a value.
pub fn store_op(int: IntType, offset: u32) -> I<'static> {
    let at = mem(offset);
    match int.bits {
        8 => I::I32Store8(at),
        16 => I::I32Store16(at),
        32 => I::I32Store(at),
        _ => I::I64Store(at),
    }
}

/// Pushes the normal value of the low bits of `bits`.
pub fn push_const(code: &mut WasmCode, int: IntType, bits: u64) {
    let value = int.value(bits);
    if is_wide(int) {
        code.i64(value as i64);
    } else {
        code.i32(value as i32);
    }
}

/// Normalises the value on the stack, whose low bits are right.
pub fn normalise(code: &mut WasmCode, int: IntType) {
    match (int.bits, int.signed) {
        (8, true) => code.op(I::I32Extend8S),
        (16, true) => code.op(I::I32Extend16S),
        (8, false) => code.i32(0xff).op(I::I32And),
        (16, false) => code.i32(0xffff).op(I::I32And),
        _ => code,
    };
}

/// Converts the normal value on the stack: truncates it, or extends it by the signedness of `from`.
pub fn convert(code: &mut WasmCode, from: IntType, to: IntType) {
    match (is_wide(from), is_wide(to)) {
        (true, true) => {}
        (false, true) if from.signed => {
            code.op(I::I64ExtendI32S);
        }
        (false, true) => {
            code.op(I::I64ExtendI32U);
        }
        (true, false) => {
            code.op(I::I32WrapI64);
            normalise(code, to);
        }
        (false, false) => {
            let fits = from.bits < to.bits && (!from.signed || to.signed);
            if from != to && !fits {
                normalise(code, to);
            }
        }
    }
}

/// Converts the value on the stack to an i32 that is non-zero if the value is.
pub fn is_not_zero(code: &mut WasmCode, int: IntType) {
    if is_wide(int) {
        code.i64(0).op(I::I64Ne);
    } else {
        code.i32(0).op(I::I32Ne);
    }
}
