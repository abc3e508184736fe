//! Lowers `throw`, `try` and `catch`, and the end of the program by a fault.
//!
//! Inside a function a throw is a jump to the innermost `try` around it. A MIR function that a throw or a
//! fault may leave gets the address of a status word as a hidden parameter. It writes there why it ended, and
//! its caller checks the word after the call. The word is 0 on success.

use super::super::mir::builder::Variable;
use super::super::mir::{BinaryOp, Block, Condition, Count, Op, Origin, Size, Slot, Type, Value};
use super::memory::{Addr, Base};
use super::{Home, Lower, Lowerer, arithmetic, impossible};
use crate::hir::{Catch, CatchPattern, Expr, FuncId, Stmt};
use crate::source::Span;
use crate::types::IntType;

/// The status of a fault. The status of a throw has the code in its lower half and 1 in the upper half.
const FAULT: u64 = 1;

const CODE: IntType = IntType { bits: 32, signed: true };

/// The status word that callees of the MIR function write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Status {
    /// No callee has needed a status word yet.
    None,
    /// A slot of this frame.
    Own(Slot),
    /// The status word that the function itself was passed.
    Passed(Value),
}

/// A `try` around the current statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handler {
    /// The block that tests its clauses.
    block: Block,
    code: Variable,
    /// The number of loops around it.
    loops: usize,
    /// The scope that it belongs to.
    scope: usize,
}

/// The exit of a function for a throw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thrown {
    block: Block,
    code: Variable,
}

impl Lowerer<'_> {
    pub(super) fn throw(&mut self, code: &Expr) -> Lower<()> {
        let code = self.scalar(code)?;
        self.throw_code(code);
        Ok(())
    }

    /// Jumps to the clauses of the innermost `try`, or leaves the function.
    pub(super) fn throw_code(&mut self, code: Value) {
        let (block, variable, loops, scope) = match self.active.handlers.last() {
            Some(handler) => (handler.block, handler.code, handler.loops, handler.scope),
            None => {
                let thrown = self.thrown();
                (thrown.block, thrown.code, self.active.outer_loops, self.active.scope)
            }
        };
        self.unlock();
        self.leave_loops(loops, scope + 1);
        self.builder.set(variable, code);
        self.builder.jump(block);
    }

    fn thrown(&mut self) -> Thrown {
        if let Some(thrown) = self.active.thrown {
            return thrown;
        }
        let thrown = Thrown { block: self.builder.block(), code: self.builder.variable(Type::I32) };
        self.active.thrown = Some(thrown);
        thrown
    }

    pub(super) fn try_catch(&mut self, body: &[Stmt], catches: &[Catch]) -> Lower<()> {
        let (block, join) = (self.builder.block(), self.builder.block());
        let code = self.builder.variable(Type::I32);
        self.active.handlers.push(Handler {
            block,
            code,
            loops: self.loops.len(),
            scope: self.records.depth,
        });
        self.block(body)?;
        self.active.handlers.pop();
        if !self.builder.is_filled() {
            self.builder.jump(join);
        }
        self.builder.switch_to_sealed(block);
        let code = self.builder.get(code);
        for catch in catches {
            self.catch(catch, code, join)?;
        }
        if !self.builder.is_filled() {
            self.throw_code(code);
        }
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// Runs a clause if it matches the code; otherwise control continues with the next one.
    fn catch(&mut self, catch: &Catch, code: Value, join: Block) -> Lower<()> {
        let mut next = None;
        match catch.pattern {
            CatchPattern::Code(taken) => {
                let taken = arithmetic::constant(&mut self.builder, CODE, taken as u32 as u64);
                let takes = self.builder.compare(Condition::Eq, code, taken);
                let (yes, no) = (self.builder.block(), self.builder.block());
                self.builder.branch(takes, yes, no);
                self.builder.switch_to_sealed(yes);
                next = Some(no);
            }
            CatchPattern::Any => {}
            CatchPattern::Bind(local) => {
                let home = self.declare(local)?;
                match home.home {
                    Home::Scalar(variable) => self.builder.set(variable, code),
                    Home::Memory(base) => self.store_scalar(Addr::of(base), CODE, code),
                    _ => return impossible(catch.span, "this variable"),
                }
            }
        }
        self.block(&catch.body)?;
        if !self.builder.is_filled() {
            self.builder.jump(join);
        }
        if let Some(next) = next {
            self.builder.switch_to_sealed(next);
        }
        Ok(())
    }

    /// Switches to the exit for a throw from the active function, after its deferred calls: the code, or
    /// `None` if the function throws nothing.
    pub(super) fn thrown_code(&mut self) -> Lower<Option<Value>> {
        let Some(thrown) = self.active.thrown else {
            return Ok(None);
        };
        self.builder.switch_to_sealed(thrown.block);
        self.run_deferred()?;
        self.discard_records(self.active.scope);
        Ok(Some(self.builder.get(thrown.code)))
    }

    /// Lowers the exit of the MIR function for a throw inside it.
    pub(super) fn leave_by_throw(&mut self) -> Lower<()> {
        let Some(code) = self.thrown_code()? else {
            return Ok(());
        };
        if let Status::Passed(base) = self.status {
            let wide = self.builder.value(Type::I64, Op::ZeroExtend(code));
            let value = self.builder.binary_const(BinaryOp::Or, wide, FAULT << 32);
            self.builder.effect(Op::Store { size: Size::DW, base, offset: 0, value });
            let zero = self.builder.constant(self.builder.result_type(), 0);
            self.builder.ret(zero);
            return Ok(());
        }
        // In KernelScript 0.1.1 a code that leaves a program is the program's result.
        let result = match self.builder.result_type() {
            Type::I64 => self.builder.value(Type::I64, Op::SignExtend(code)),
            _ => code,
        };
        self.leave(result);
        Ok(())
    }

    /// The address for a callee's status word, which is set to 0.
    pub(super) fn clear_status(&mut self) -> Value {
        let slot = match self.status {
            Status::Passed(pointer) => return pointer,
            Status::Own(slot) => slot,
            Status::None => {
                let slot = self.builder.dedicated_slot(8);
                self.status = Status::Own(slot);
                slot
            }
        };
        let zero = self.builder.constant(Type::I64, 0);
        let addr = Addr::of(Base::Slot(slot));
        self.store(addr, Size::DW, zero);
        self.pointer(addr)
    }

    /// Checks the status after a call of a function that may fail; control continues if it is 0.
    pub(super) fn look_at_status(&mut self, base: Value, callee: FuncId) {
        let status = self.builder.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
        let failed = self.builder.compare_const(Condition::Ne, status, 0);
        let (failure, fine) = (self.builder.block(), self.builder.block());
        self.builder.branch(failed, failure, fine);
        self.builder.switch_to_sealed(failure);
        let (faults, throws) = (self.program.faulting.contains(&callee), self.hir.functions[callee].throws);
        if faults && throws {
            let faulted = self.builder.compare_const(Condition::Eq, status, FAULT);
            let (fault, thrown) = (self.builder.block(), self.builder.block());
            self.builder.branch(faulted, fault, thrown);
            self.builder.switch_to_sealed(fault);
            self.end_by_fault();
            self.builder.switch_to_sealed(thrown);
        }
        if throws {
            if let Status::Passed(base) = self.status {
                let value = self.builder.constant(Type::I64, 0);
                self.builder.effect(Op::Store { size: Size::DW, base, offset: 0, value });
            }
            let code = self.builder.value(Type::I32, Op::Truncate(status));
            self.throw_code(code);
        } else {
            self.end_by_fault();
        }
        self.builder.switch_to_sealed(fine);
    }

    /// Ends the program because the loop of this statement reached its limit.
    pub(super) fn cut_loop(&mut self, span: Span) {
        self.count_one(Count::CutLoop(span));
        if let Status::Passed(base) = self.status {
            let value = self.builder.constant(Type::I64, FAULT);
            self.builder.effect(Op::Store { size: Size::DW, base, offset: 0, value });
        }
        self.end_by_fault();
    }

    /// Leaves the MIR function with the result of a fault and skips deferred calls. The fault is counted
    /// where it ends the program.
    pub(super) fn end_by_fault(&mut self) {
        if let Some(program) = self.builder.program() {
            self.count_one(Count::Faults(program));
        }
        self.leave_loops(0, 0);
        let result = self.fault_result();
        let result = self.builder.constant(self.builder.result_type(), result);
        self.builder.ret(result);
    }

    pub(super) fn count_one(&mut self, count: Count) {
        let base = self.builder.value(Type::Ptr(Origin::Global), Op::CountAddr(count));
        let value = self.builder.constant(Type::I64, 1);
        self.builder.effect(Op::AtomicAdd { size: Size::DW, base, offset: 0, value });
    }
}
