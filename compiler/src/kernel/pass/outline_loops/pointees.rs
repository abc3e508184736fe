//! How many bytes of the pointee of a pointer code accesses: the verifier wants the size of each memory parameter.

use std::collections::{BTreeMap, BTreeSet};

use super::super::bounds;
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Block, Callee, Inst, MirFunction, Op, Origin, Size, Type, Value};

/// The limit of bytes that are looked for.
const MAX_BYTES: u64 = 1 << 20;

/// Blocks that use pointers from outside.
pub struct Pointees<'a> {
    pub function: &'a MirFunction,
    pub blocks: &'a BTreeSet<Block>,
    pub ops: &'a IndexVec<Value, Option<&'a Op>>,
    /// The pointee sizes of the last parameters of other outlined functions.
    pub pointee_bytes: &'a BTreeMap<FuncId, Vec<u32>>,
}

impl Pointees<'_> {
    /// The bytes that are accessed of the pointee of a pointer to memory, which may be null; `None` if not all uses
    /// show how many.
    pub fn pointer(&self, pointer: Value) -> Option<u32> {
        let Type::Ptr(origin) = self.function.values[pointer] else { return None };
        let known =
            matches!(origin, Origin::Memory | Origin::Entry | Origin::MemoryOrNull | Origin::EntryOrNull);
        let bytes = self.bytes(pointer, 0).filter(|_| known)?;
        u32::try_from(bytes.max(1)).ok()
    }

    /// The same for a pointer at an offset from it.
    fn bytes(&self, pointer: Value, at: u64) -> Option<u64> {
        let data = &self.function.blocks;
        let is_passed = |block: &Block| data[*block].term.reads(pointer);
        if at > MAX_BYTES || self.blocks.iter().any(is_passed) {
            return None;
        }
        let mut most = at;
        for inst in self.blocks.iter().flat_map(|block| &data[*block].insts) {
            if inst.op.reads(pointer) {
                most = most.max(self.used_by(inst, pointer, at)?);
            }
        }
        Some(most)
    }

    fn used_by(&self, inst: &Inst, pointer: Value, at: u64) -> Option<u64> {
        let end = |offset: i16, bytes: u64| Some(at.checked_add_signed(offset.into())? + bytes);
        match &inst.op {
            Op::IsNull(_) => Some(at),
            Op::NonNull(_) => self.bytes(inst.result?, at),
            // A pointer in memory of unknown type is a number to the verifier.
            Op::Load { .. } if self.function.values[inst.result?].bits().is_none() => None,
            Op::Load { size, offset, .. } => end(*offset, size.bytes().into()),
            Op::Store { size, offset, value, .. } | Op::AtomicAdd { size, offset, value, .. } => {
                end(*offset, size.bytes().into()).filter(|_| *value != pointer)
            }
            Op::AtomicExchange { offset, value, .. } => {
                end(*offset, Size::DW.bytes().into()).filter(|_| *value != pointer)
            }
            Op::PtrAdd(base, distance) if *base == pointer => {
                self.bytes(inst.result?, at.checked_add(self.most(*distance)?)?)
            }
            Op::Call { callee: Callee::Function(id), args } => {
                let pointee_bytes = self.pointee_bytes.get(id)?;
                let first = args.len().checked_sub(pointee_bytes.len())?;
                let used = args.iter().enumerate().filter(|(_, arg)| **arg == pointer);
                let bytes = used.map(|(index, _)| pointee_bytes.get(index.checked_sub(first)?).copied());
                Some(at + u64::from(bytes.collect::<Option<Vec<_>>>()?.into_iter().max()?))
            }
            _ => None,
        }
    }

    /// The maximum of an index times an element size, or of a sum of such products.
    fn most(&self, value: Value) -> Option<u64> {
        match self.ops[value] {
            Some(Op::Binary(BinaryOp::Add, a, b)) => self.most(*a)?.checked_add(self.most(*b)?),
            Some(Op::Binary(BinaryOp::Mul, a, b)) => self.most(*a)?.checked_mul(self.most(*b)?),
            Some(Op::Binary(BinaryOp::Shl, a, b)) => {
                let factor = 1u64.checked_shl(u32::try_from(self.most(*b)?).ok()?)?;
                self.most(*a)?.checked_mul(factor)
            }
            _ => Some(bounds::proven(self.ops, &self.function.values, value).most),
        }
    }
}
