//! Keeps the verifier from linking a sum with the number that a constant was added to.
//!
//! Linux 6.10 and later remember that the two are apart by the constant: a branch on one of them says something about the
//! other, too. But of that they set the signed bounds only where the constant is taken off again, so that a branch on the
//! other that is never taken seems to be. Following it the verifier finds bounds that contradict each other, forgets both,
//! and refuses the number in an address. Only 64-bit additions of what the verifier knows to be a positive constant link
//! (source: kernel/bpf/verifier.c, `adjust_reg_min_max_vals` and `sync_linked_regs`, v6.12).
//!
//! So constants are subtracted instead, with the other sign. What the verifier may know to be one although it is none here,
//! on one way or in one turn, is added to a number from which 0 was subtracted: an instruction more, which is there only
//! if both the number and the sum are compared.

use super::{constants, insert};
use crate::index::{FastMap, IndexVec};
use crate::kernel::mir::{BinaryOp, Callee, Function, Inst, Op, Slot, Terminator, Type, Value};

/// Runs the pass; gives whether anything changed. It must be run when nothing folds constants any more.
pub fn run(function: &mut Function) -> bool {
    let sums = sums(function);
    if sums.is_empty() {
        return false;
    }
    let mut changed = false;
    for data in function.blocks.iter_mut() {
        let mut made = Vec::new();
        for (at, inst) in data.insts.iter_mut().enumerate() {
            let Some(sum) = inst.result.and_then(|result| sums.get(&result)) else { continue };
            let mut before = |op: Op| {
                let result = function.values.push(Type::I64);
                made.push((at, Inst { result: Some(result), op, span: inst.span }));
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
        changed |= !made.is_empty();
        insert(&mut data.insts, made);
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

fn sums(function: &Function) -> FastMap<Value, Sum> {
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

/// Which numbers may be compared, by whatever name.
struct Compared {
    /// Names of one number: each leads to the one that stands for them.
    same: IndexVec<Value, Value>,
    /// Of the values that stand for a number.
    compared: IndexVec<Value, bool>,
}

impl Compared {
    fn new(function: &Function) -> Compared {
        let values = function.values.len();
        let same = function.values.ids().collect();
        let mut found = Compared { same, compared: IndexVec::filled(values, false) };
        let mut in_slots: FastMap<(Slot, i64), Value> = FastMap::default();
        let ops = function.definitions();
        for inst in function.insts() {
            let (base, offset, kept) = match (&inst.op, inst.result) {
                (Op::ZeroExtend(value) | Op::Truncate(value) | Op::Below { value, .. }, Some(result)) => {
                    found.join(*value, result);
                    continue;
                }
                (Op::Load { base, offset, .. }, Some(result)) => (*base, *offset, result),
                (Op::Store { base, offset, value, .. }, _) => (*base, *offset, *value),
                _ => continue,
            };
            if let Some(Op::StackAddr { slot, offset: start }) = ops[base] {
                let first = *in_slots.entry((*slot, i64::from(*start) + i64::from(offset))).or_insert(kept);
                found.join(first, kept);
            }
        }
        for target in function.blocks.iter().flat_map(|data| data.term.targets()) {
            let params = function.blocks[target.block].params.iter();
            params.zip(&target.args).for_each(|(param, arg)| found.join(*param, *arg));
        }
        found.mark(function);
        found
    }

    fn mark(&mut self, function: &Function) {
        let params = &function.blocks[function.entry()].params;
        // Functions of the object may compare what they are given, and those who gave it.
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
            let number = self.number(value);
            self.compared[number] = true;
        }
    }

    fn number(&self, mut value: Value) -> Value {
        while self.same[value] != value {
            value = self.same[value];
        }
        value
    }

    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.number(a), self.number(b));
        self.same[a.max(b)] = a.min(b);
    }

    fn is(&self, value: Value) -> bool {
        self.compared[self.number(value)]
    }
}
