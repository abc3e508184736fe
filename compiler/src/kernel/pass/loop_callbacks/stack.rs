//! The pointers that may point to stack memory which other code uses.

use std::collections::BTreeSet;

use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::kernel::mir::iterator_loops::IteratorLoop;
use crate::kernel::mir::loop_iterators::is_step;
use crate::kernel::mir::{Callee, Helper, Inst, MirFunction, Op, Origin, Program, Slot, Type, Value};

/// The functions that may get a pointer to their caller's stack.
pub struct Receivers(BTreeSet<FuncId>);

impl Receivers {
    /// Those of a program.
    pub fn of(program: &Program) -> Receivers {
        let (mut found, none) = (Receivers(BTreeSet::new()), BTreeSet::new());
        loop {
            let before = found.0.len();
            for function in &program.functions {
                let pointers = StackPointers::new(function, &found, &none);
                let mut called = Vec::new();
                for inst in function.blocks.iter().flat_map(|block| &block.insts) {
                    if let Op::Call { callee: Callee::Function(id), args } = &inst.op
                        && args.iter().any(|arg| pointers.may_be_foreign_stack(*arg))
                    {
                        called.push(*id);
                    }
                }
                found.0.extend(called);
            }
            if found.0.len() == before {
                return found;
            }
        }
    }
}

/// The pointers of a function.
pub struct StackPointers<'a> {
    function: &'a MirFunction,
    ops: IndexVec<Value, Option<&'a Op>>,
    /// The arguments of each parameter of a block.
    passed: IndexVec<Value, Vec<Value>>,
    /// Whether the function may get pointers to its caller's stack.
    receives: bool,
    /// The slots that only the loop body uses, and others to which writes do no harm.
    own: &'a BTreeSet<Slot>,
}

impl<'a> StackPointers<'a> {
    /// `own` are the slots that only the loop body uses, and others to which writes do no harm.
    pub fn new(
        function: &'a MirFunction,
        receivers: &Receivers,
        own: &'a BTreeSet<Slot>,
    ) -> StackPointers<'a> {
        let mut passed: IndexVec<Value, Vec<Value>> = function.values.iter().map(|_| Vec::new()).collect();
        for target in function.blocks.iter().flat_map(|block| block.term.targets()) {
            for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                passed[*param].push(*arg);
            }
        }
        let receives = receivers.0.contains(&function.id);
        StackPointers { function, ops: function.definitions(), passed, receives, own }
    }

    /// Whether a value may be a pointer to stack memory other than the body's own.
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

    /// Whether a loop may write to stack memory other than its own. The iterators of inner loops are none of it.
    pub fn writes(&self, one: &IteratorLoop) -> bool {
        let blocks = one.blocks.iter().map(|block| &self.function.blocks[*block]);
        blocks.flat_map(|data| &data.insts).any(|inst| !is_step(inst) && self.inst_writes(inst))
    }

    fn inst_writes(&self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Store { base, value, .. } => {
                let kept_elsewhere = self.may_be_foreign_stack(*value) && !self.is_own(*base);
                kept_elsewhere || self.may_be_foreign_stack(*base)
            }
            Op::AtomicAdd { base, .. } | Op::AtomicExchange { base, .. } => self.may_be_foreign_stack(*base),
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

/// Whether a callee may write to the pointees of its arguments.
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
        Helper::SpinLock,
        Helper::SpinUnlock,
    ];
    match callee {
        Callee::Helper(helper) => !only_reads.contains(&helper),
        Callee::MapIter(_) | Callee::TaskId(_) => false,
        Callee::Kfunc(_) | Callee::External(_) | Callee::Function(_) => true,
    }
}
