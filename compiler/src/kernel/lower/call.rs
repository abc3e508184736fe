//! Lowers calls of helpers and the passing of their parameters.
//!
//! The hidden parameters come first: the address for an aggregate result, then the address of the status word
//! if the helper may fail (`errors`). Scalars are passed by value, aggregates by the address of a copy. If there
//! are more than five parameters in all, see `pass::pack`.

use super::super::mir::{Callee, Origin, Type, Value};
use super::errors::Status;
use super::memory::{Addr, Base};
use super::pointer::Pointer;
use super::sink::Sink;
use super::storage::KernelObject;
use super::{Home, Lower, Lowerer, impossible, int_type};
use crate::hir::{self, Expr, FuncId};
use crate::source::Span;

/// An argument after its evaluation, as it is passed.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    Value(Value),
    /// The address of a copy of a string, an array or a struct.
    Memory(Addr),
    Pointer(Pointer),
    /// A pointer to the kernel, and the object that it points to.
    Object(Value, KernelObject),
}

impl Lowerer<'_> {
    /// Declares the function's parameters, the hidden ones first.
    pub(super) fn parameters(&mut self, id: FuncId) -> Lower<()> {
        let source = self.active.source;
        if self.hir.is_entry(id) {
            let name = match source.params.as_slice() {
                [only] if self.is_context(source.locals[*only].ty) => &source.locals[*only].name,
                _ => "ctx",
            };
            let context = self.builder.function_param(name, Type::Ptr(Origin::Context));
            self.entry_context = Some(context);
            self.given_context = Some(context);
            return self.program_parameters(context);
        }
        let returns_aggregate = !self.is_scalar(source.ret);
        let may_fail = self.may_fail(id);
        let mut params = Vec::new();
        if returns_aggregate {
            params.push(("__result", Type::Ptr(Origin::Memory)));
        }
        if may_fail {
            params.push(("__status", Type::Ptr(Origin::Memory)));
        }
        let specialization = self.specialization.clone();
        for local in source.params.iter().filter(|_| specialization.is_none()) {
            let local = &source.locals[*local];
            params.push((&local.name, self.parameter_type(local)?));
        }
        let values: Vec<Value> =
            params.into_iter().map(|(name, ty)| self.builder.function_param(name, ty)).collect();
        let mut values = values.into_iter();
        if returns_aggregate && let Some(pointer) = values.next() {
            self.result_in(pointer);
        }
        if may_fail && let Some(pointer) = values.next() {
            self.status = Status::Passed(pointer);
        }
        if let Some(specialization) = specialization {
            return self.specialized_parameters(&specialization);
        }
        source.params.iter().zip(values).try_for_each(|(local, value)| self.bind_value(*local, value))
    }

    /// Binds a parameter that is no pointer.
    pub(super) fn bind_value(&mut self, local: hir::LocalId, value: Value) -> Lower<()> {
        if self.is_context(self.active.source.locals[local].ty) {
            self.given_context = Some(value);
        }
        self.bind_parameter(local, value)?;
        self.find_context(local, value);
        Ok(())
    }

    pub(super) fn parameter_type(&self, local: &hir::Local) -> Lower<Type> {
        if self.is_scalar(local.ty) {
            self.scalar_type(local.ty, local.span)
        } else {
            Ok(Type::Ptr(Origin::Memory))
        }
    }

    pub(super) fn bind_parameter(&mut self, id: hir::LocalId, value: Value) -> Lower<()> {
        let ty = self.active.source.locals[id].ty;
        let home = if self.is_scalar(ty) && self.active.exposed.contains(&id) {
            let span = self.active.source.locals[id].span;
            let int = self.int(ty, span)?;
            let own = Base::Slot(self.builder.dedicated_slot(self.size(ty, span)?));
            self.store_scalar(Addr::of(own), int, value);
            Home::Memory(own)
        } else if self.is_function(ty) && self.active.fixed.contains(&id) {
            Home::Fixed(value)
        } else if self.is_scalar(ty) {
            let variable = self.builder.variable(self.builder.ty(value));
            self.builder.set(variable, value);
            Home::Scalar(variable)
        } else {
            let home = self.memory_home(id, Base::Pointer(value));
            if let Home::Alias(alias) = home {
                self.unbind(alias);
            }
            home
        };
        let home = self.set_home(id, home);
        self.set_present(home, true);
        Ok(())
    }

    /// Calls a helper and delivers its result to a sink.
    pub(super) fn call(&mut self, func: FuncId, args: &[Expr], sink: Sink, span: Span) -> Lower<()> {
        let args = args.iter().map(|arg| self.argument(arg)).collect::<Lower<Vec<_>>>()?;
        self.call_with(func, &args, sink, span)
    }

    pub(super) fn call_with(&mut self, func: FuncId, args: &[Argument], sink: Sink, span: Span) -> Lower<()> {
        if self.program.inlined.contains(&func) {
            return match self.specialization(func, args, span) {
                Some(one) => self.call_specialized(&one, args, sink, span),
                None => self.inline(func, args, sink, span),
            };
        }
        let mut given = Vec::with_capacity(args.len());
        for arg in args {
            given.push(match arg {
                Argument::Value(value) | Argument::Object(value, _) => *value,
                Argument::Memory(addr) => self.pointer(*addr),
                Argument::Pointer(_) => return impossible(span, "a pointer here"),
            });
        }
        self.call_function(func, func, given, sink, span)
    }

    /// Calls the function that a helper of the script became, with what is given to it behind the hidden
    /// parameters.
    pub(super) fn call_function(
        &mut self,
        callee: FuncId,
        func: FuncId,
        given: Vec<Value>,
        sink: Sink,
        span: Span,
    ) -> Lower<()> {
        let ret = self.hir.functions[func].ret;
        let mut values = Vec::new();
        let result_memory = match sink {
            _ if self.is_scalar(ret) => None,
            Sink::Memory(to) if to.is_aligned() => Some(to),
            _ => Some(Addr::of(Base::Slot(self.builder.slot(self.size(ret, span)?)))),
        };
        values.extend(result_memory.map(|to| self.pointer(to)));
        let status = self.may_fail(func).then(|| self.clear_status());
        values.extend(status);
        values.extend(given);
        let ty = self.types().scalar(ret).map_or(Type::I32, int_type);
        let result = self.builder.call(ty, Callee::Function(callee), values);
        if let Some(status) = status {
            self.look_at_status(status, func);
        }
        if let (Sink::Memory(to), Some(from)) = (sink, result_memory)
            && !to.is_aligned()
        {
            self.copy(to, from, self.size(ret, span)?);
        }
        if let Sink::Scalar(variable) = sink {
            self.builder.set(variable, result);
        }
        Ok(())
    }

    /// Evaluates an argument. Strings, arrays and structs are copied.
    pub(super) fn argument(&mut self, arg: &Expr) -> Lower<Argument> {
        if self.is_context(arg.ty) {
            return Ok(Argument::Value(self.context_argument(arg)?));
        }
        if self.is_pointer(arg.ty) {
            return Ok(Argument::Pointer(self.pointer_value(arg)?));
        }
        if let Some((object, address)) = self.passed_object(arg)? {
            let address = address.map_or_else(|| self.scalar(arg), Ok)?;
            return Ok(Argument::Object(address, object));
        }
        if self.is_scalar(arg.ty) {
            return Ok(Argument::Value(self.scalar(arg)?));
        }
        Ok(Argument::Memory(self.temporary(arg)?))
    }

    pub(super) fn context_argument(&mut self, arg: &Expr) -> Lower<Value> {
        if let hir::ExprKind::Load(lvalue) = &arg.kind {
            return self.read_scalar(lvalue);
        }
        impossible(arg.span, "a context from here")
    }
}
