//! Linked scalars: a number and its sum with a constant share what a branch says of one of them.
//!
//! - Rule: the verifier remembers that the two are apart by the constant. It sets the signed bounds of the other only
//!   where the constant is subtracted again, so a branch on the other that is never taken seems possible. It follows
//!   that branch, finds bounds that contradict each other, forgets both, and rejects the number in an address. Only
//!   64-bit additions of what the verifier knows to be a positive constant link. Source: kernel/bpf/verifier.c,
//!   `adjust_reg_min_max_vals` and `sync_linked_regs`.
//! - Kernels: 6.10 and later.
//! - Here: constants are subtracted with the other sign; late 6.18 links those as well, and no script is known that it
//!   rejects for that. What the verifier may know to be constant on one path or in one iteration is added to a number
//!   from which 0 was subtracted: one more instruction, only where both the number and the sum are compared.

use crate::index::{FastMap, IndexVec};
use crate::kernel::mir::{BinaryOp, Callee, Inst, MirFunction, Op, Terminator, Type, Value};
use crate::kernel::pass::rewrite::{constants, insert};
use crate::kernel::pass::scalar_ids::ScalarIds;

/// Runs the pass; returns whether anything changed. It must run when nothing folds constants any more.
pub fn run(function: &mut MirFunction) -> bool {
    let sums = sums(function);
    if sums.is_empty() {
        return false;
    }
    let mut changed = false;
    for data in function.blocks.iter_mut() {
        let mut added_insts = Vec::new();
        for (at, inst) in data.insts.iter_mut().enumerate() {
            let Some(sum) = inst.result.and_then(|result| sums.get(&result)) else { continue };
            let mut before = |op: Op| {
                let result = function.values.push(Type::I64);
                added_insts.push((at, Inst { result: Some(result), op, span: inst.span }));
                result
            };
            match *sum {
                Sum::OfConstant(number, added) => {
                    let negative = before(Op::Const(added.wrapping_neg()));
                    inst.op = Op::Binary(BinaryOp::Sub, number, negative);
                }
                Sum::OfCompared(number, added) => {
                    let zero = before(Op::Const(0));
                    let unlinked = before(Op::Binary(BinaryOp::Sub, number, zero));
                    inst.op = Op::Binary(BinaryOp::Add, unlinked, added);
                }
            }
        }
        changed |= !added_insts.is_empty();
        insert(&mut data.insts, added_insts);
    }
    changed
}

/// A sum that the verifier may link.
enum Sum {
    /// Of a number and a constant.
    OfConstant(Value, u64),
    /// Of a number that is compared, as the sum is, and another.
    OfCompared(Value, Value),
}

fn sums(function: &MirFunction) -> FastMap<Value, Sum> {
    let constants = constants(function);
    let mut sums = FastMap::default();
    let mut compared = None;
    for inst in function.insts() {
        let (Op::Binary(BinaryOp::Add, a, b), Some(result)) = (&inst.op, inst.result) else { continue };
        if function.values[result] != Type::I64 {
            continue;
        }
        match constants[*b] {
            Some(added) if added as i64 > 0 => drop(sums.insert(result, Sum::OfConstant(*a, added))),
            Some(_) => {}
            None => {
                let compared = compared.get_or_insert_with(|| Compared::new(function));
                if compared.is(*a) && compared.is(result) {
                    sums.insert(result, Sum::OfCompared(*a, *b));
                }
            }
        }
    }
    sums
}

/// The numbers that may be compared, through any value with their scalar id.
struct Compared {
    ids: ScalarIds,
    /// For the value that represents each id.
    compared: IndexVec<Value, bool>,
}

impl Compared {
    fn new(function: &MirFunction) -> Compared {
        let compared = IndexVec::filled(function.values.len(), false);
        let mut found = Compared { ids: ScalarIds::new(function), compared };
        found.mark(function);
        found
    }

    fn mark(&mut self, function: &MirFunction) {
        let params = &function.blocks[function.entry()].params;
        // Functions of the object may compare their arguments, and callers the results.
        let mut compared = params.clone();
        for data in function.blocks.iter() {
            for inst in &data.insts {
                let is_compared = match &inst.op {
                    Op::Compare(..) | Op::Below { .. } => true,
                    Op::Call { callee, .. } => matches!(callee, Callee::Function(_)),
                    _ => false,
                };
                if is_compared {
                    compared.extend(inst.op.operands());
                }
            }
            match data.term {
                Terminator::Branch { cond, .. } => compared.push(cond),
                Terminator::Return(value) => compared.push(value),
                Terminator::Jump(_) => {}
            }
        }
        for value in compared {
            let number = self.ids.number(value);
            self.compared[number] = true;
        }
    }

    fn is(&self, value: Value) -> bool {
        self.compared[self.ids.number(value)]
    }
}
