//! Which pointers may lead to memory on the stack that somebody else uses.

use std::collections::BTreeSet;

use super::super::outline::Loop;
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::{Callee, Helper, Inst, MirFunction, Op, Origin, Program, Slot, Type, Value};

/// The functions that may be given a pointer to their caller's stack.
pub struct Receivers(BTreeSet<FuncId>);

impl Receivers {
    /// Those of a program.
    pub fn of(program: &Program) -> Receivers {
        let (mut found, none) = (Receivers(BTreeSet::new()), BTreeSet::new());
        loop {
            let before = found.0.len();
            for function in &program.functions {
                let pointers = Pointers::new(function, &found, &none);
                let mut given = Vec::new();
                for inst in function.blocks.iter().flat_map(|block| &block.insts) {
                    if let Op::Call { callee: Callee::Function(id), args } = &inst.op
                        && args.iter().any(|arg| pointers.may_be_foreign_stack(*arg))
                    {
                        given.push(*id);
                    }
                }
                found.0.extend(given);
            }
            if found.0.len() == before {
                return found;
            }
        }
    }
}

/// The pointers of a function.
pub struct Pointers<'a> {
    function: &'a MirFunction,
    ops: IndexVec<Value, Option<&'a Op>>,
    /// The arguments of each parameter of a block.
    passed: IndexVec<Value, Vec<Value>>,
    /// The function may be given pointers to its caller's stack.
    receives: bool,
    /// Slots that only the code in question uses.
    own: &'a BTreeSet<Slot>,
}

impl<'a> Pointers<'a> {
    /// With the slots that only the code in question uses.
    pub fn new(function: &'a MirFunction, receivers: &Receivers, own: &'a BTreeSet<Slot>) -> Pointers<'a> {
        let mut passed: IndexVec<Value, Vec<Value>> = function.values.iter().map(|_| Vec::new()).collect();
        for target in function.blocks.iter().flat_map(|block| block.term.targets()) {
            for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                passed[*param].push(*arg);
            }
        }
        let receives = receivers.0.contains(&function.id);
        Pointers { function, ops: function.definitions(), passed, receives, own }
    }

    /// Whether a value may be a pointer to the stack, but for slots of its own.
    pub fn may_be_foreign_stack(&self, value: Value) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            let Type::Ptr(Origin::Stack | Origin::Memory | Origin::MemoryOrNull) =
                self.function.values[value]
            else {
                continue;
            };
            if !seen.insert(value) {
                continue;
            }
            match self.ops[value] {
                Some(Op::StackAddr { slot, .. }) if !self.own.contains(slot) => return true,
                Some(Op::PtrAdd(base, _) | Op::NonNull(base)) => open.push(*base),
                Some(Op::Load { .. }) => return true,
                Some(_) => {}
                None if self.is_parameter(value) => {
                    if self.receives {
                        return true;
                    }
                }
                None => open.extend(&self.passed[value]),
            }
        }
        false
    }

    fn is_parameter(&self, value: Value) -> bool {
        self.function.blocks[self.function.entry()].params.contains(&value)
    }

    /// Whether a loop may write to the stack, but for slots of its own.
    pub fn writes(&self, one: &Loop) -> bool {
        let blocks = one.blocks.iter().map(|block| &self.function.blocks[*block]);
        blocks.flat_map(|data| &data.insts).any(|inst| self.inst_writes(inst))
    }

    fn inst_writes(&self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Store { base, value, .. } => {
                let kept_elsewhere = self.may_be_foreign_stack(*value) && !self.is_own(*base);
                kept_elsewhere || self.may_be_foreign_stack(*base)
            }
            Op::AtomicAdd { base, .. } => self.may_be_foreign_stack(*base),
            Op::Call { callee, args } if writes(*callee) => {
                args.iter().any(|arg| self.may_be_foreign_stack(*arg))
            }
            _ => false,
        }
    }

    fn is_own(&self, base: Value) -> bool {
        matches!(self.ops[base], Some(Op::StackAddr { slot, .. }) if self.own.contains(slot))
    }
}

/// Whether what is called may write behind the pointers that it is given.
fn writes(callee: Callee) -> bool {
    let only_reads = [
        Helper::MapLookup,
        Helper::MapUpdate,
        Helper::MapDelete,
        Helper::MapPush,
        Helper::GetStackId,
        Helper::GetAttachCookie,
        Helper::SkbPullData,
        Helper::TailCall,
        Helper::RingSubmit,
        Helper::RingDiscard,
    ];
    match callee {
        Callee::Helper(helper) => !only_reads.contains(&helper),
        Callee::MapIter(_) => false,
        Callee::Kfunc(_) | Callee::External(_) | Callee::Function(_) => true,
    }
}
