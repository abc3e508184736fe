//! The arithmetic of MIR, from its definition and in wider numbers: it shares no code with the compiler under
//! test.

use ks_compiler::kernel::mir::{BinaryOp, Condition};

use super::{InterpError, fault};

/// Converts bits to an unsigned number.
fn unsigned(width: u32, bits: u64) -> i128 {
    i128::from(bits) % (1 << width)
}

/// Converts bits to a number in two's complement.
fn signed(width: u32, bits: u64) -> i128 {
    let number = unsigned(width, bits);
    if number < 1 << (width - 1) { number } else { number - (1 << width) }
}

/// Converts a number to its bits, modulo 2^width.
fn bits(width: u32, number: i128) -> u64 {
    u64::try_from(number.rem_euclid(1 << width)).expect("a remainder by at most 2^64 has 64 bits")
}

/// Computes an operation on 32 or 64 bits.
///
/// # Errors
/// A signed division by 0 or -1, which MIR does not have.
pub(super) fn compute(op: BinaryOp, width: u32, left: u64, right: u64) -> Result<u64, InterpError> {
    let (a, b) = (unsigned(width, left), unsigned(width, right));
    let (x, y) = (signed(width, left), signed(width, right));
    let power = 1_i128 << (b % i128::from(width));
    let number = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        // The product of two unsigned 64-bit numbers does not fit.
        BinaryOp::Mul => x * y,
        BinaryOp::UDiv if b == 0 => 0,
        BinaryOp::UDiv => a / b,
        BinaryOp::URem if b == 0 => a,
        BinaryOp::URem => a % b,
        BinaryOp::SDiv | BinaryOp::SRem if y == 0 || y == -1 => return fault("a signed division by 0 or -1"),
        BinaryOp::SDiv => x / y,
        BinaryOp::SRem => x % y,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => (a % ((1_i128 << width) / power)) * power,
        BinaryOp::LShr => a / power,
        BinaryOp::AShr => x.div_euclid(power),
    };
    Ok(bits(width, number))
}

/// Whether a comparison of 32 or 64 bits holds.
pub(super) fn compare(condition: Condition, width: u32, left: u64, right: u64) -> bool {
    let order = match condition {
        Condition::SLt | Condition::SLe | Condition::SGt | Condition::SGe => {
            signed(width, left).cmp(&signed(width, right))
        }
        _ => unsigned(width, left).cmp(&unsigned(width, right)),
    };
    match condition {
        Condition::Eq => order.is_eq(),
        Condition::Ne => order.is_ne(),
        Condition::Lt | Condition::SLt => order.is_lt(),
        Condition::Le | Condition::SLe => order.is_le(),
        Condition::Gt | Condition::SGt => order.is_gt(),
        Condition::Ge | Condition::SGe => order.is_ge(),
    }
}

/// Extends the low bits of a number to 32 bits.
pub(super) fn narrow(value: u64, width: u8, is_signed: bool) -> u64 {
    let width = u32::from(width);
    bits(32, if is_signed { signed(width, value) } else { unsigned(width, value) })
}

/// Reverses the low bytes of a number.
pub(super) fn swap_bytes(value: u64, width: u8) -> u64 {
    let bytes = value.to_le_bytes();
    bytes[..usize::from(width / 8)].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
