//! Control flow of x86 instructions, in 64-bit and 32-bit mode.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Decoded, Next};

/// Length of the longest instruction, in bytes.
pub(super) const MAX_BYTES: usize = 15;

/// Decodes the instruction at the start of `bytes`, which is loaded at `address`. None if it is invalid, or
/// if Intel and AMD processors decode it differently.
pub(super) fn decode(bytes: &[u8], address: u64, bits: u32) -> Option<Decoded> {
    let instruction = decode_as(bytes, address, bits, DecoderOptions::NONE)?;
    let next = match instruction.flow_control() {
        FlowControl::Next | FlowControl::Interrupt if instruction.code() != Code::Int3 => Next::Following,
        FlowControl::Call | FlowControl::IndirectCall => match near_target(&instruction) {
            Some(target) => Next::Both(target),
            None => Next::Following,
        },
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => match near_target(&instruction) {
            Some(target) => Next::Both(target),
            None => Next::Following,
        },
        FlowControl::UnconditionalBranch => near_target(&instruction).map_or(Next::Nothing, Next::Only),
        FlowControl::Interrupt
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => Next::Nothing,
        FlowControl::Next => Next::Nothing,
    };
    // With the prefix 0x66, a near branch has a 2-byte displacement on some vendors' processors and a 4-byte
    // one on others.
    if next != Next::Following && decode_as(bytes, address, bits, DecoderOptions::AMD)? != instruction {
        return None;
    }
    Some(Decoded { bytes: instruction.len(), next })
}

fn decode_as(bytes: &[u8], address: u64, bits: u32, options: u32) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(bits, bytes, address, options);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Returns the target of a branch within the code segment if the encoding contains it.
fn near_target(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}
