//! The destination of a value that several paths may deliver: the result of a function, the value of a
//! `match`.

use super::super::mir::Value;
use super::super::mir::builder::Variable;
use super::memory::Addr;
use super::pointer::PointerVariables;
use super::{Lower, Lowerer};
use crate::hir::{Expr, ExprKind};
use crate::source::Span;
use crate::types::TypeId;

/// The destination of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sink {
    /// None: the expression is evaluated only for its effects.
    Nothing,
    /// A scalar in a variable.
    Scalar(Variable),
    /// Memory at an address.
    Memory(Addr),
    /// A pointer in variables.
    Pointer(PointerVariables),
}

impl Lowerer<'_> {
    /// A sink for a scalar that several paths deliver.
    pub(super) fn scalar_sink(&mut self, ty: TypeId, span: Span) -> Lower<(Sink, Variable)> {
        let ty = self.scalar_type(ty, span)?;
        let variable = self.builder.variable(ty);
        Ok((Sink::Scalar(variable), variable))
    }

    /// Evaluates an expression into a sink.
    pub(super) fn deliver(&mut self, value: &Expr, sink: Sink) -> Lower<()> {
        match sink {
            Sink::Nothing => self.effects(value),
            Sink::Scalar(variable) => {
                let value = self.scalar(value)?;
                self.builder.set(variable, value);
                Ok(())
            }
            Sink::Memory(addr) => self.lower_into(value, addr),
            Sink::Pointer(variables) => self.deliver_pointer(value, variables),
        }
    }

    fn deliver_pointer(&mut self, value: &Expr, variables: PointerVariables) -> Lower<()> {
        let sink = Sink::Pointer(variables);
        match &value.kind {
            ExprKind::Call { func, args } => self.call(*func, args, sink, value.span),
            ExprKind::CallValue { callee, args } => self.call_value(callee, args, sink, value.span),
            ExprKind::Match(one) => self.matched(one, value.ty, sink, value.span),
            _ => {
                let pointer = self.pointer_value(value)?;
                self.set_pointer(variables, pointer);
                Ok(())
            }
        }
    }

    /// Delivers the zero of a type.
    pub(super) fn deliver_zero(&mut self, ty: TypeId, sink: Sink, span: Span) -> Lower<()> {
        match sink {
            Sink::Nothing => {}
            Sink::Scalar(variable) => {
                let zero: Value = self.zero_of(ty, span)?;
                self.builder.set(variable, zero);
            }
            Sink::Pointer(variables) => {
                let null = self.null();
                self.set_pointer(variables, null);
            }
            Sink::Memory(addr) => {
                let bytes = self.size(ty, span)?;
                self.zero(addr, bytes);
            }
        }
        Ok(())
    }

    fn zero_of(&mut self, ty: TypeId, span: Span) -> Lower<Value> {
        let ty = self.scalar_type(ty, span)?;
        Ok(self.builder.constant(ty, 0))
    }
}
