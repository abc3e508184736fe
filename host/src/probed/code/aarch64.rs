//! Control flow of AArch64 instructions.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1.93 "Branches, Exception
//! Generating and System instructions".

use super::{Decoded, Next};

/// Length of every instruction, in bytes.
pub(super) const BYTES: usize = 4;

/// Decodes the instruction at the start of `bytes`, which is loaded at `address`. None if it is invalid.
pub(super) fn decode(bytes: &[u8], address: u64) -> Option<Decoded> {
    let word = u32::from_le_bytes(bytes.get(..BYTES)?.try_into().ok()?);
    // UDF, which is also the encoding of a literal pool of zeros.
    if !address.is_multiple_of(BYTES as u64) || word >> 16 == 0 {
        return None;
    }
    // `bits` bits from `low` on are a signed offset in instructions.
    let target = |low: u32, bits: u32| {
        let shifted = (word << (u32::BITS - low - bits)).cast_signed() >> (u32::BITS - bits);
        address.wrapping_add_signed(i64::from(shifted) * BYTES as i64)
    };
    let is = |mask: u32, value: u32| word & mask == value;
    let next = match () {
        // B
        () if is(0xfc00_0000, 0x1400_0000) => Next::Only(target(0, 26)),
        // BL
        () if is(0xfc00_0000, 0x9400_0000) => Next::Both(target(0, 26)),
        // B.cond, BC.cond; CBZ, CBNZ
        () if is(0xff00_0000, 0x5400_0000) || is(0x7e00_0000, 0x3400_0000) => Next::Both(target(5, 19)),
        // TBZ, TBNZ
        () if is(0x7e00_0000, 0x3600_0000) => Next::Both(target(5, 14)),
        // CB of two registers, or of a register and an immediate
        () if is(0x7e00_0000, 0x7400_0000) => Next::Both(target(5, 9)),
        // RETAASPPC, RETABSPPC with an immediate
        () if is(0xff00_0000, 0x5500_0000) => Next::Nothing,
        // BLR and its authenticated forms; all others of this group (BR, RET, ERET, DRPS) do not return.
        () if is(0xfe00_0000, 0xd600_0000) => match word >> 21 & 0xf {
            0b0001 | 0b1001 => Next::Following,
            _ => Next::Nothing,
        },
        // BRK, HLT
        () if is(0xffe0_001f, 0xd420_0000) || is(0xffe0_001f, 0xd440_0000) => Next::Nothing,
        () => Next::Following,
    };
    Some(Decoded { bytes: BYTES, next })
}
