//! Hides from the verifier that a number is the address of something, where an index is made of it or it is
//! compared.
//!
//! To see what counts, the verifier goes back from an index, and from a comparison whose outcome it knows, to
//! what they were made of. Where it meets a pointer through which something was stored, or that the function
//! was given, it gives up, and takes all numbers for ones that count; Linux 6.18 then fails at registers that
//! nobody reads ("backtracking call unexpected regs"). It does not go back through memory whose halves were
//! stored one by one, nor beyond the load of a pointer to a packet, whose distances are compared everywhere.
//! Of a comparison with zero it does not know the outcome: whether there is something, and in which half of
//! the address space. Source: kernel/bpf/verifier.c, `backtrack_insn` and `check_stack_read_fixed_off`,
//! v6.18.

use std::collections::BTreeSet;

use super::new_insts::NewInsts;
use super::origins::Origins;
use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Inst, MirFunction, Op, Origin, Size, Slot, SlotData, Type, Value};

/// Runs the pass; gives whether anything changed. It must run once.
pub fn run(function: &mut MirFunction) -> bool {
    if !function.insts().any(is_address) {
        return false;
    }
    let counting = counting(function);
    if counting.is_empty() {
        return false;
    }
    let is_hidden = |inst: &Inst| inst.result.is_some_and(|result| counting.contains(&result));
    let position = function.slot_bytes.next_multiple_of(8);
    let slot = function.slots.push(SlotData { size: 8, position });
    function.slot_bytes = position.saturating_add(8);
    let MirFunction { blocks, values, .. } = function;
    for block in blocks.iter_mut() {
        let insts = std::mem::take(&mut block.insts);
        let mut made = NewInsts { insts: Vec::with_capacity(insts.len()), span: block.span };
        for inst in insts {
            if is_hidden(&inst) {
                made.span = inst.span;
                hide(inst, slot, values, &mut made);
            } else {
                made.insts.push(inst);
            }
        }
        block.insts = made.insts;
    }
    true
}

fn is_address(inst: &Inst) -> bool {
    matches!(inst.op, Op::Address(_))
}

/// The addresses of which numbers that count are made.
fn counting(function: &MirFunction) -> BTreeSet<Value> {
    let (origins, definitions) = (Origins::new(function), function.definitions());
    let is_zero = |value: &Value| matches!(definitions[*value], Some(Op::Const(0)));
    let (mut indices, mut compared) = (Vec::new(), Vec::new());
    for inst in function.insts() {
        match &inst.op {
            Op::PtrAdd(_, distance) => indices.push(*distance),
            Op::Below { value, .. } => indices.push(*value),
            Op::Compare(_, a, b) if !is_zero(a) && !is_zero(b) => compared.extend([*a, *b]),
            _ => {}
        }
    }
    let (indices, compared) = (origins.of(indices), origins.of(compared));
    let counts = |inst: &Inst| {
        let (Op::Address(pointer), Some(number)) = (&inst.op, inst.result) else { return None };
        let of_packet = matches!(function.values[*pointer], Type::Ptr(origin) if origin.is_of_packet());
        (indices[number] || compared[number] && !of_packet).then_some(number)
    };
    function.insts().filter_map(counts).collect()
}

/// Stores both halves of an address in a slot, and reads them together as a number.
fn hide(address: Inst, slot: Slot, values: &mut IndexVec<Value, Type>, made: &mut NewInsts) {
    let whole = made.make(values, Type::I64, address.op);
    let base = made.make(values, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
    let half = made.make(values, Type::I64, Op::Const(32));
    let high = made.make(values, Type::I64, Op::Binary(BinaryOp::LShr, whole, half));
    for (offset, part) in [(0, whole), (4, high)] {
        let value = made.make(values, Type::I32, Op::Truncate(part));
        made.push(None, Op::Store { size: Size::W, base, offset, value });
    }
    made.push(address.result, Op::Load { size: Size::DW, base, offset: 0 });
}
