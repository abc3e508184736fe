//! Replaces atomic accesses by plain ones: the interpreter has no threads, and so no atomic instructions.

use wasmparser::{Operator, Parser, Payload};

/// The opcode NOP of the core specification.
const NOP: u8 = 0x01;

/// Returns the module with a plain access for each atomic one. Both encodings have two bytes before their
/// operand.
pub fn as_plain(core: &[u8]) -> Vec<u8> {
    let mut plain = core.to_vec();
    for payload in Parser::new(0).parse_all(core) {
        let Payload::CodeSectionEntry(body) = payload.expect("a module") else { continue };
        let operators = body.get_operators_reader().expect("a body").into_iter_with_offsets();
        for operator in operators {
            let (operator, offset) = operator.expect("an operator");
            if let Some(access) = access(&operator) {
                plain[offset..offset + 2].copy_from_slice(&[NOP, access]);
            }
        }
    }
    plain
}

/// Returns the opcode of the plain access.
fn access(operator: &Operator<'_>) -> Option<u8> {
    Some(match operator {
        Operator::I32AtomicLoad { .. } => 0x28,
        Operator::I64AtomicLoad { .. } => 0x29,
        Operator::I32AtomicLoad8U { .. } => 0x2d,
        Operator::I32AtomicLoad16U { .. } => 0x2f,
        Operator::I32AtomicStore { .. } => 0x36,
        Operator::I64AtomicStore { .. } => 0x37,
        Operator::I32AtomicStore8 { .. } => 0x3a,
        Operator::I32AtomicStore16 { .. } => 0x3b,
        _ => return None,
    })
}
