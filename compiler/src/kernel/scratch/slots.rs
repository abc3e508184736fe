//! The slots of a frame that leave it: which can, where they go, and the pointers to them.

use std::collections::BTreeSet;

use crate::hir::ExternId;
use crate::index::IndexVec;
use crate::kernel::mir::{Callee, Inst, MirFunction, Op, Origin, Slot, SlotData, Type, Value};
use crate::kernel::pass::origins::Origins;

/// The slots of at least `least` bytes that may move. Pointers and the state of iterators stay, because the
/// verifier tracks them only on the stack.
pub fn movable(function: &MirFunction, least: u32, need_stack: &BTreeSet<ExternId>) -> BTreeSet<Slot> {
    let large = function.slots.iter_enumerated().filter(|(_, data)| data.size >= least);
    let mut slots: BTreeSet<Slot> = large.map(|(slot, _)| slot).collect();
    let origins = Origins::new(function);
    let mut stay = |pointer: Value| {
        for origin in origins.of_pointer(pointer) {
            if let Some(Op::StackAddr { slot, .. }) = origins.definitions[origin] {
                slots.remove(slot);
            }
        }
    };
    for inst in function.insts() {
        match &inst.op {
            Op::Call { callee: Callee::External(id), args } if need_stack.contains(id) => {
                args.iter().for_each(|arg| stay(*arg));
            }
            Op::Call { callee: Callee::Kfunc(_) | Callee::MapIter(_), args } => {
                args.first().into_iter().for_each(|arg| stay(*arg));
            }
            Op::Store { base, value, .. } if matches!(function.values[*value], Type::Ptr(_)) => stay(*base),
            _ => {}
        }
    }
    slots
}

/// Positions of some of a function's slots after removing the bytes that only other slots use. Slots overlap
/// exactly if they did before.
pub struct Compact {
    /// For each byte of the frame, how many bytes of these slots are below it.
    below: Vec<u32>,
    /// The bytes of these slots together.
    pub bytes: u32,
}

impl Compact {
    /// Computes the positions of the wanted slots.
    pub fn new(function: &MirFunction, wanted: impl Fn(Slot) -> bool) -> Compact {
        let mut used = vec![false; function.slot_bytes as usize];
        for (_, data) in function.slots.iter_enumerated().filter(|(slot, _)| wanted(*slot)) {
            let end = data.position.saturating_add(data.size.next_multiple_of(8));
            used[data.position as usize..end as usize].fill(true);
        }
        let mut bytes = 0;
        let mut below = Vec::with_capacity(used.len());
        for used in used {
            below.push(bytes);
            bytes += u32::from(used);
        }
        Compact { below, bytes }
    }

    /// The new position of one of these slots, in bytes.
    pub fn position(&self, data: SlotData) -> u32 {
        self.below.get(data.position as usize).copied().unwrap_or(self.bytes)
    }
}

/// The slots that leave a function's frame.
pub struct Moved {
    /// The offset of the function's bytes in the scratch slot.
    pub start: u32,
    /// The slots.
    pub slots: BTreeSet<Slot>,
    /// Their positions in the function's bytes.
    pub positions: Compact,
}

impl Moved {
    /// Replaces the slots by memory at the address in `base`.
    pub fn apply(&self, function: &mut MirFunction, base: Value) {
        let rest = Compact::new(function, |slot| !self.slots.contains(&slot));
        let mut scratch: IndexVec<Slot, u32> = IndexVec::new();
        for slot in function.slots.ids() {
            let data = function.slots[slot];
            scratch.push(self.start.saturating_add(self.positions.position(data)));
            function.slots[slot] = if self.slots.contains(&slot) {
                SlotData { size: 0, position: 0 }
            } else {
                SlotData { position: rest.position(data), ..data }
            };
        }
        function.slot_bytes = rest.bytes;
        for block in function.blocks.iter_mut() {
            let insts = std::mem::take(&mut block.insts);
            for mut inst in insts {
                if let Op::StackAddr { slot, offset } = inst.op
                    && self.slots.contains(&slot)
                {
                    let bytes = function.values.push(Type::I64);
                    let op = Op::Const(u64::from(scratch[slot]) + u64::from(offset));
                    block.insts.push(Inst { result: Some(bytes), op, span: inst.span });
                    inst.op = Op::PtrAdd(base, bytes);
                }
                block.insts.push(inst);
            }
        }
        retype(function);
    }
}

/// Changes the origin of pointers derived from moved slots to a map entry.
fn retype(function: &mut MirFunction) {
    let stack = Type::Ptr(Origin::Stack);
    loop {
        let mut changed = false;
        for block in function.blocks.ids() {
            let mut turned = Vec::new();
            for inst in &function.blocks[block].insts {
                if let (Some(result), Op::PtrAdd(from, _) | Op::NonNull(from)) = (inst.result, &inst.op)
                    && function.values[result] == stack
                    && function.values[*from] != stack
                {
                    turned.push((result, function.values[*from]));
                }
            }
            for target in function.blocks[block].term.targets() {
                for (arg, param) in target.args.iter().zip(&function.blocks[target.block].params) {
                    if function.values[*param] == stack && function.values[*arg] != stack {
                        turned.push((*param, Type::Ptr(Origin::Memory)));
                    }
                }
            }
            changed |= !turned.is_empty();
            for (value, ty) in turned {
                function.values[value] = ty;
            }
        }
        if !changed {
            return;
        }
    }
}
