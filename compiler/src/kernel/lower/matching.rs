//! Lowers `match`.

use super::super::mir::{Block, Condition, Value};
use super::sink::Sink;
use super::strings::Bytes;
use super::{Lower, Lowerer, arithmetic};
use crate::hir::{ArmBody, Expr, ExprKind, Match, Pattern};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// The evaluated operand of a `match`.
enum Subject<'e> {
    Number { value: Value, int: IntType },
    Text { bytes: Bytes<'e>, size: u32 },
}

impl Lowerer<'_> {
    /// Compares with one pattern after the other; the first matching arm delivers the value.
    pub(super) fn matched(&mut self, one: &Match, ty: TypeId, sink: Sink, span: Span) -> Lower<()> {
        let subject = self.subject(&one.value)?;
        let join = self.builder.block();
        for arm in &one.arms {
            let outer = self.builder.set_span(arm.span);
            let (fits, next) = (self.builder.block(), self.builder.block());
            self.fits(&subject, &arm.pattern, fits, next);
            self.builder.switch_to_sealed(fits);
            self.arm(&arm.body, sink, join)?;
            self.builder.switch_to_sealed(next);
            self.builder.set_span(outer);
        }
        match &one.otherwise {
            Some(body) => self.arm(body, sink, join)?,
            None => {
                self.deliver_zero(ty, sink, span)?;
                self.builder.jump(join);
            }
        }
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    fn subject<'e>(&mut self, value: &'e Expr) -> Lower<Subject<'e>> {
        if let TypeKind::Str(size) = self.types().kind(value.ty) {
            let size = *size;
            let bytes = match &value.kind {
                ExprKind::Bytes(bytes) => Bytes::Constant(bytes),
                // The arms may change the operand, but no pattern is tested after an arm has begun.
                _ => Bytes::At(self.address_of(value)?),
            };
            return Ok(Subject::Text { bytes, size });
        }
        let int = self.int(value.ty, value.span)?;
        Ok(Subject::Number { value: self.scalar(value)?, int })
    }

    fn fits(&mut self, subject: &Subject<'_>, pattern: &Pattern, yes: Block, no: Block) {
        let fits = match (subject, pattern) {
            (Subject::Number { value, int }, Pattern::Const(bits)) => {
                let constant = arithmetic::constant(&mut self.builder, *int, *bits);
                self.builder.compare(Condition::Eq, *value, constant)
            }
            (Subject::Text { bytes, size }, Pattern::Text(text)) if text.len() < *size as usize => {
                let compared = text.len() as u32 + 1;
                self.bytes_equal(bytes, &Bytes::Constant(text), compared)
            }
            _ => self.builder.constant(super::Type::I32, 0),
        };
        self.builder.branch(fits, yes, no);
    }

    /// The arm is a scope: a record that its statements reserve is released at its end, unless it is the
    /// arm's value.
    fn arm(&mut self, body: &ArmBody, sink: Sink, join: Block) -> Lower<()> {
        let scope = self.open_scope(|lowerer| {
            body.block.iter().try_for_each(|stmt| lowerer.stmt(stmt))?;
            body.value.as_ref().map_or(Ok(()), |value| lowerer.deliver(value, sink))
        })?;
        self.close_scope(scope);
        if !self.builder.is_filled() {
            self.builder.jump(join);
        }
        Ok(())
    }
}
