//! Calls of helpers, and how helpers find their parameters.
//!
//! The hidden parameters come first: the address for an aggregate result, then the address of the fault flag if the helper
//! may reach the limit of a loop. Scalars are passed as they are, aggregates by the address of a copy. More than five in all:
//! the first four go in registers, the others to a block of 8-byte words in the caller's frame, whose address is the fifth.

use super::super::mir::{Callee, Condition, Op, Origin, Size, Slot, Type, Value};
use super::memory::{Addr, Base};
use super::{Fault, Home, Lower, Lowerer, int_type, not_yet};
use crate::hir::{self, Expr, FuncId, PlaceKind};
use crate::source::Span;

/// Registers for arguments.
const REGISTER_ARGS: usize = 5;

impl Lowerer<'_> {
    /// Declares the parameters and what is hidden before them.
    pub(super) fn parameters(&mut self, id: FuncId) -> Lower<()> {
        let source = self.source;
        if source.kind.is_program() {
            let entry = self.builder.entry();
            let value = self.builder.param(entry, Type::Ptr(Origin::Context));
            for local in &source.params {
                self.bind_parameter(*local, value)?;
            }
            if self.program.faulting.contains(&id) {
                let slot = self.builder.slot(8);
                let zero = self.builder.constant(Type::I64, 0);
                self.store(Addr::of(Base::Slot(slot)), Size::DW, zero);
                self.fault = Fault::Program(Some(slot));
            }
            return Ok(());
        }
        let returns_aggregate = !self.is_scalar(source.ret);
        let faults = self.program.faulting.contains(&id);
        let hidden = usize::from(returns_aggregate) + usize::from(faults);
        let mut types = vec![Type::Ptr(Origin::Memory); hidden];
        for local in &source.params {
            types.push(self.parameter_type(&source.locals[*local])?);
        }
        let mut values = self.receive(&types).into_iter();
        if returns_aggregate {
            self.result = values.next();
        }
        if faults {
            self.fault = Fault::Helper(values.next());
        }
        for (local, value) in source.params.iter().zip(values) {
            self.bind_parameter(*local, value)?;
        }
        Ok(())
    }

    fn parameter_type(&self, local: &hir::Local) -> Lower<Type> {
        if self.is_scalar(local.ty) {
            self.scalar_type(local.ty, local.span)
        } else {
            Ok(Type::Ptr(Origin::Memory))
        }
    }

    /// The values of parameters of these types, from registers and from the block that the last register points to.
    fn receive(&mut self, types: &[Type]) -> Vec<Value> {
        let entry = self.builder.entry();
        if types.len() <= REGISTER_ARGS {
            return types.iter().map(|ty| self.builder.param(entry, *ty)).collect();
        }
        let (direct, packed) = types.split_at(REGISTER_ARGS - 1);
        let mut values: Vec<_> = direct.iter().map(|ty| self.builder.param(entry, *ty)).collect();
        let block = self.builder.param(entry, Type::Ptr(Origin::Memory));
        for (index, ty) in packed.iter().enumerate() {
            let wide = if *ty == Type::I32 { Type::I64 } else { *ty };
            let offset = i16::try_from(8 * index).unwrap_or(i16::MAX);
            let word = self.builder.value(wide, Op::Load { size: Size::DW, base: block, offset });
            values.push(match ty {
                Type::I32 => self.builder.value(Type::I32, Op::Truncate(word)),
                _ => word,
            });
        }
        values
    }

    fn bind_parameter(&mut self, id: hir::LocalId, value: Value) -> Lower<()> {
        let ty = self.source.locals[id].ty;
        let home = if self.is_scalar(ty) {
            let variable = self.builder.variable(self.builder.ty(value));
            self.builder.set(variable, value);
            Home::Scalar(variable)
        } else {
            let home = self.memory_home(id, Base::Pointer(value));
            if let Home::Alias { pointer, .. } = home {
                self.builder.set(pointer, value);
            }
            home
        };
        let home = self.set_home(id, home);
        self.set_present(home, true);
        Ok(())
    }

    /// Calls a helper. An aggregate result is written to `to`; the value is then of no use.
    pub(super) fn call(&mut self, func: FuncId, args: &[Expr], to: Option<Addr>, span: Span) -> Lower<Value> {
        let callee = &self.hir.functions[func];
        let mut values = Vec::new();
        if !self.is_scalar(callee.ret) {
            let Some(to) = to else {
                return not_yet(span, "this value here is");
            };
            values.push(self.pointer(to));
        }
        let faults = self.program.faulting.contains(&func);
        if faults {
            values.push(self.fault_flag(span)?);
        }
        for arg in args {
            values.push(self.argument(arg)?);
        }
        let values = self.pack(values);
        let ty = self.types().scalar(callee.ret).map_or(Type::I32, int_type);
        let result = self.builder.call(ty, Callee::Function(func), values);
        if faults {
            self.leave_after_fault(span)?;
        }
        Ok(result)
    }

    fn argument(&mut self, arg: &Expr) -> Lower<Value> {
        if self.is_context(arg.ty) {
            return self.context_argument(arg);
        }
        if self.is_scalar(arg.ty) {
            return self.scalar(arg);
        }
        let copy = self.temporary(arg)?;
        Ok(self.pointer(copy))
    }

    fn context_argument(&mut self, arg: &Expr) -> Lower<Value> {
        if let hir::ExprKind::Load(place) = &arg.kind
            && let PlaceKind::Local(_) = place.kind
        {
            return self.read_scalar(place);
        }
        not_yet(arg.span, "a context from here is")
    }

    fn pack(&mut self, mut values: Vec<Value>) -> Vec<Value> {
        if values.len() <= REGISTER_ARGS {
            return values;
        }
        let packed = values.split_off(REGISTER_ARGS - 1);
        let slot: Slot = self.builder.slot(8 * packed.len() as u32);
        for (index, value) in packed.into_iter().enumerate() {
            let word = match self.builder.ty(value) {
                Type::I32 => self.builder.value(Type::I64, Op::ZeroExtend(value)),
                _ => value,
            };
            self.store(Addr::of(Base::Slot(slot)).plus(8 * index as u32), Size::DW, word);
        }
        values.push(self.pointer(Addr::of(Base::Slot(slot))));
        values
    }

    /// The address through which callees tell that a loop reached its limit.
    fn fault_flag(&mut self, span: Span) -> Lower<Value> {
        match self.fault {
            Fault::Program(Some(slot)) => Ok(self.pointer(Addr::of(Base::Slot(slot)))),
            Fault::Helper(Some(pointer)) => Ok(pointer),
            Fault::Program(None) | Fault::Helper(None) => not_yet(span, "this call is"),
        }
    }

    /// Ends this function too if the callee ended the program.
    fn leave_after_fault(&mut self, span: Span) -> Lower<()> {
        let base = self.fault_flag(span)?;
        let flag = self.builder.value(Type::I64, Op::Load { size: Size::DW, base, offset: 0 });
        let faulted = self.builder.compare_const(Condition::Ne, flag, 0);
        let (leave, stay) = (self.builder.block(), self.builder.block());
        self.builder.branch(faulted, leave, stay);
        self.builder.switch_to_sealed(leave);
        self.return_zero();
        self.builder.switch_to_sealed(stay);
        Ok(())
    }

    /// Ends the program because a loop reached its limit.
    pub(super) fn fault_here(&mut self) {
        if let Fault::Helper(Some(base)) = self.fault {
            let one = self.builder.constant(Type::I64, 1);
            self.builder.effect(Op::Store { size: Size::DW, base, offset: 0, value: one });
        }
        self.return_zero();
    }

    fn return_zero(&mut self) {
        self.destroy_iterators();
        let zero = self.builder.constant(self.builder.result_type(), 0);
        self.builder.ret(zero);
    }
}
