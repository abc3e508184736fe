//! Instructions of x86, in 64 and 32 bits.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Decoded, Next};

/// Longest instruction.
pub(super) const MAX_BYTES: usize = 15;

/// The instruction at the start of `bytes`, which lies at an address. None if there is none, or if processors do not agree
/// on what it is.
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
    // With the prefix 0x66 a near branch has 2 bytes of distance for some makers' processors and 4 for others.
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

/// Where a branch within the code segment goes, if the instruction says.
fn near_target(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}
