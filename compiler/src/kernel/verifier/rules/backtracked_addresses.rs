//! Backtracked addresses: precision of a number that was computed from a pointer.
//!
//! - Rule: to see which numbers count, the verifier goes back from an index, and from a comparison whose outcome it
//!   knows, to what they were computed from. Where it meets a pointer through which something was stored, or a
//!   parameter, it stops and marks all numbers; Linux 6.18 then fails at registers that nobody reads ("backtracking
//!   call unexpected regs"). It does not go back through memory whose halves were stored one by one, nor beyond the load
//!   of a packet pointer, whose distances are compared everywhere. It does not know the outcome of a comparison with
//!   zero. Source: kernel/bpf/verifier.c, `backtrack_insn` and `check_stack_read_fixed_off`.
//! - Kernels: 6.18.
//! - Here: an address that becomes a number goes through memory in two halves where an index is computed from it or it
//!   is compared.

use std::collections::BTreeSet;

use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Inst, MirFunction, Op, Origin, Size, Slot, Type, Value};
use crate::kernel::pass::new_insts::NewInsts;
use crate::kernel::pass::origins::Origins;

/// Runs the pass; returns whether anything changed. It must run once.
pub fn run(function: &mut MirFunction) -> bool {
    if !function.insts().any(is_address) {
        return false;
    }
    let precise = precise(function);
    if precise.is_empty() {
        return false;
    }
    let is_hidden = |inst: &Inst| inst.result.is_some_and(|result| precise.contains(&result));
    let slot = function.push_slot(8);
    let MirFunction { blocks, values, .. } = function;
    for block in blocks.iter_mut() {
        let insts = std::mem::take(&mut block.insts);
        let mut new_insts = NewInsts { insts: Vec::with_capacity(insts.len()), span: block.span };
        for inst in insts {
            if is_hidden(&inst) {
                new_insts.span = inst.span;
                hide(inst, slot, values, &mut new_insts);
            } else {
                new_insts.insts.push(inst);
            }
        }
        block.insts = new_insts.insts;
    }
    true
}

fn is_address(inst: &Inst) -> bool {
    matches!(inst.op, Op::Address(_))
}

/// The addresses from which indices and compared numbers are computed.
fn precise(function: &MirFunction) -> BTreeSet<Value> {
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
    let is_precise = |inst: &Inst| {
        let (Op::Address(pointer), Some(number)) = (&inst.op, inst.result) else { return None };
        let of_packet = matches!(function.values[*pointer], Type::Ptr(origin) if origin.is_of_packet());
        (indices[number] || compared[number] && !of_packet).then_some(number)
    };
    function.insts().filter_map(is_precise).collect()
}

/// Stores both halves of an address in a slot, and reads them together as a number.
fn hide(address: Inst, slot: Slot, values: &mut IndexVec<Value, Type>, new_insts: &mut NewInsts) {
    let whole = new_insts.make(values, Type::I64, address.op);
    let base = new_insts.make(values, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset: 0 });
    let half = new_insts.make(values, Type::I64, Op::Const(32));
    let high = new_insts.make(values, Type::I64, Op::Binary(BinaryOp::LShr, whole, half));
    for (offset, part) in [(0, whole), (4, high)] {
        let value = new_insts.make(values, Type::I32, Op::Truncate(part));
        new_insts.push(None, Op::Store { size: Size::W, base, offset, value });
    }
    new_insts.push(address.result, Op::Load { size: Size::DW, base, offset: 0 });
}
