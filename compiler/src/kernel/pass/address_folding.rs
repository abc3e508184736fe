//! Folds constants into the addresses of loads and stores, and removes truncations before stores.
//!
//! - A constant part of an address becomes the access's own offset; of `p + c + x` the constant is added
//!   last.
//! - Parts of one global variable are addressed from its start, so that one address serves all.
//! - A packet test at a constant distance from a pointer becomes a test at the pointer, with more bytes.
//! - A truncation that keeps at least the stored bytes is removed before a store.

use super::changes::Changes;
use super::rewrite::{insert, note};
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Inst, MirFunction, Op, Origin, Size, Type, Value};
use crate::source::Span;

/// Runs address folding on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let mut changed = false;
    let mut ops: IndexVec<Value, Option<Op>> = IndexVec::filled(function.values.len(), None);
    for block in flow.order.iter().copied() {
        let insts = &mut function.blocks[block].insts;
        let mut added = Vec::new();
        for (at, inst) in insts.iter_mut().enumerate() {
            if let Some(before) = rewrite(inst, &mut ops, &mut function.values) {
                changed = true;
                added.extend(before.map(|before| (at, before)));
            }
            if let Some(result) = inst.result {
                note(&mut ops, result, &inst.op);
            }
        }
        insert(insts, added);
    }
    Changes::VALUES.when(changed)
}

type Ops = IndexVec<Value, Option<Op>>;

/// Rewrites an instruction; returns the instruction to insert before it, if any. `None` if it stays as it is.
fn rewrite(inst: &mut Inst, ops: &mut Ops, types: &mut IndexVec<Value, Type>) -> Option<Option<Inst>> {
    let span = inst.span;
    if let Op::Store { size, value, .. } = &mut inst.op
        && let Some(whole) = uncut(ops, *size, *value)
    {
        *value = whole;
        return Some(None);
    }
    match &mut inst.op {
        Op::Load { base, offset, .. }
        | Op::Store { base, offset, .. }
        | Op::AtomicAdd { base, offset, .. }
        | Op::AtomicExchange { base, offset, .. } => match ops[*base].clone()? {
            Op::PtrAdd(inner, by) => {
                *offset = plus(*offset, constant(ops, by)?)?;
                *base = inner;
                Some(None)
            }
            Op::GlobalAddr { global, offset: start } if start != 0 => {
                *offset = plus(*offset, u64::from(start))?;
                let ty = Type::Ptr(Origin::Global);
                let (whole, added) = make(ops, types, ty, Op::GlobalAddr { global, offset: 0 }, span);
                *base = whole;
                Some(Some(added))
            }
            _ => None,
        },
        Op::PtrAdd(base, by) => {
            let Some(Op::PtrAdd(inner, first)) = ops[*base].clone() else { return None };
            let first_bytes = constant(ops, first)?;
            match constant(ops, *by) {
                Some(second) => {
                    let (sum, added) =
                        make(ops, types, Type::I64, Op::Const(first_bytes.wrapping_add(second)), span);
                    (*base, *by) = (inner, sum);
                    Some(Some(added))
                }
                None => {
                    let ty = types[*base];
                    let (moved, added) = make(ops, types, ty, Op::PtrAdd(inner, *by), span);
                    (*base, *by) = (moved, first);
                    Some(Some(added))
                }
            }
        }
        Op::Within { pointer, bytes, .. } => {
            let (start, by) = moved(ops, *pointer)?;
            *bytes = reach(*bytes, constant(ops, by)?)?;
            *pointer = start;
            Some(None)
        }
        Op::InPacket { pointer, bytes } => {
            let (start, by) = moved(ops, *pointer)?;
            let bytes = reach(*bytes, constant(ops, by)?)?;
            let op = Op::InPacket { pointer: start, bytes };
            let (whole, added) = make(ops, types, Type::Ptr(Origin::InPacket), op, span);
            inst.op = Op::PtrAdd(whole, by);
            Some(Some(added))
        }
        _ => None,
    }
}

/// The operands of a pointer that was moved: the base pointer and the offset.
fn moved(ops: &Ops, pointer: Value) -> Option<(Value, Value)> {
    match ops[pointer] {
        Some(Op::PtrAdd(start, by)) => Some((start, by)),
        _ => None,
    }
}

/// The sum of bytes at a packet pointer; `None` beyond 16 bits, the verifier's limit. Source:
/// kernel/bpf/verifier.c, `MAX_PACKET_OFF`, v6.12.
fn reach(bytes: u32, more: u64) -> Option<u32> {
    let whole = more.checked_add(u64::from(bytes))?;
    u16::try_from(whole).ok().map(u32::from)
}

fn make(ops: &mut Ops, types: &mut IndexVec<Value, Type>, ty: Type, op: Op, span: Span) -> (Value, Inst) {
    ops.push(Some(op.clone()));
    let value = types.push(ty);
    (value, Inst { result: Some(value), op, span })
}

fn constant(ops: &Ops, value: Value) -> Option<u64> {
    match ops[value] {
        Some(Op::Const(bits)) => Some(bits),
        _ => None,
    }
}

fn plus(offset: i16, bytes: u64) -> Option<i16> {
    i16::try_from(i64::from(offset).checked_add(i64::try_from(bytes).ok()?)?).ok()
}

/// The number before a truncation that keeps the stored bytes.
fn uncut(ops: &Ops, size: Size, value: Value) -> Option<Value> {
    let stored = 8 * u32::from(size.bytes());
    match ops[value] {
        Some(Op::Narrow { value, bits, .. }) if u32::from(bits) >= stored => Some(value),
        _ => None,
    }
}
