//! Promotes stack slots to SSA values if all accesses read or write the whole slot.
//!
//! ```text
//! store4 slot, a                   x = a
//! if c then store4 slot, b    ->   if c then x = b
//! d = load4 slot                   d = x            with block parameters where the paths meet
//! ```

use std::collections::BTreeMap;

use super::changes::Changes;
use super::rewrite::Replacements;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::ssa_repair;
use crate::kernel::mir::{Block, Inst, MirFunction, Op, Size, Type, Value};

/// Runs the promotion on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let candidates = candidates(function, &flow.order);
    for (addresses, ty) in &candidates {
        promote(function, flow, addresses, *ty);
    }
    (Changes::VALUES | Changes::MEMORY).when(!candidates.is_empty())
}

/// The frame offset and size of a slot in bytes. Slots with disjoint lifetimes may share a range.
type Range = (u32, u32);

/// The form of the accesses to a range.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Access {
    /// The offset in bytes from the start of the slot.
    start: i64,
    size: Size,
    ty: Type,
}

/// The addresses of each range that has only accesses of one form, and the type of its content.
fn candidates(function: &MirFunction, order: &[Block]) -> Vec<(Vec<Value>, Type)> {
    let mut ranges: IndexVec<Value, Option<(Range, u32)>> = function.values.iter().map(|_| None).collect();
    let mut any = false;
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let (Op::StackAddr { slot, offset }, Some(result)) = (&inst.op, inst.result) {
            let data = function.slots[*slot];
            ranges[result] = Some(((data.position, data.size), *offset));
            any = true;
        }
    }
    if !any {
        return Vec::new();
    }
    // `None` for ranges with accesses of several forms, or whose address is used otherwise.
    let mut found: BTreeMap<Range, Option<Access>> = BTreeMap::new();
    let mut note = |range: Range, access: Option<Access>| {
        let known = found.entry(range).or_insert(access);
        if *known != access {
            *known = None;
        }
    };
    for block in order {
        let data = &function.blocks[*block];
        for inst in &data.insts {
            let accessed = access(function, inst);
            inst.op.each_operand(|operand| {
                let Some((range, offset)) = &ranges[operand] else { return };
                note(
                    *range,
                    accessed
                        .filter(|(base, _)| *base == operand)
                        .map(|(_, access)| Access { start: access.start + i64::from(*offset), ..access }),
                );
            });
        }
        data.term.each_operand(|operand| {
            if let Some((range, _)) = &ranges[operand] {
                note(*range, None);
            }
        });
    }
    let simple = found.into_iter().filter_map(|(range, access)| Some((range, access?.ty)));
    let is_in = |range, at: &Option<(Range, u32)>| at.is_some_and(|(one, _)| one == range);
    let all = || ranges.iter_enumerated();
    let addresses = |range| all().filter(move |(_, at)| is_in(range, at)).map(|(value, _)| value);
    simple.map(|(range, ty)| (addresses(range).collect(), ty)).collect()
}

/// The address of a load or store of a whole number, and the form of the access.
fn access(function: &MirFunction, inst: &Inst) -> Option<(Value, Access)> {
    let (size, base, offset, value) = match inst.op {
        Op::Load { size, base, offset } => (size, base, offset, inst.result?),
        // The stored value must not be the address itself.
        Op::Store { size, base, offset, value } if value != base => (size, base, offset, value),
        _ => return None,
    };
    let ty = function.values[value];
    let whole = matches!((size, ty), (Size::W, Type::I32) | (Size::DW, Type::I64));
    whole.then_some((base, Access { start: i64::from(offset), size, ty }))
}

/// Replaces all accesses through these addresses.
fn promote(function: &mut MirFunction, flow: &Flow, addresses: &[Value], ty: Type) {
    let unset = function.values.push(ty);
    let at_start = function.values.push(ty);
    let mut replacements = Replacements::default();
    let entry = function.entry();
    let mut ends: BTreeMap<Block, Value> = BTreeMap::from([(entry, unset)]);
    for block in flow.order.iter().copied() {
        let mut current = if block == entry { unset } else { at_start };
        function.blocks[block].insts.retain(|inst| match inst.op {
            Op::Load { base, .. } if addresses.contains(&base) => {
                inst.result.into_iter().for_each(|result| replacements.replace(result, current));
                false
            }
            Op::Store { base, value, .. } if addresses.contains(&base) => {
                current = value;
                ends.insert(block, value);
                false
            }
            _ => true,
        });
    }
    replacements.apply(function);
    ends.values_mut().for_each(|value| *value = replacements.resolve(*value));
    // The initial value only satisfies the MIR verifier: a slot that was never set is never read.
    let span = function.span;
    let zero = Inst { result: Some(unset), op: Op::Const(0), span };
    function.blocks[entry].insts.insert(0, zero);
    ssa_repair::run(function, (&flow.order, &flow.predecessors), at_start, &ends, None);
}
