//! Lowering of `match`.

use wasm_encoder::Instruction as I;

use super::addr::Addr;
use super::code::Var;
use super::cx::Lower;
use super::func::FnCx;
use super::runtime::Routine;
use super::scalar::{is_wide, push_const, val_type};
use crate::hir::{ArmBody, Expr, Match, Pattern};
use crate::types::IntType;

/// The matched value, evaluated once.
enum Subject {
    Number(Var, IntType),
    /// A text, and the size of its type in bytes.
    Text(Addr, u32),
}

impl FnCx<'_, '_> {
    /// Runs the matching arm and pushes its value; pushes nothing if the match is void.
    pub fn match_scalar(&mut self, one: &Match, expr: &Expr) -> Lower<()> {
        let Some(int) = self.cx.hir.types.scalar(expr.ty) else {
            return self.match_with(one, &mut |fcx, value| value.map_or(Ok(()), |value| fcx.discard(value)));
        };
        let result = self.temp(val_type(int));
        self.match_with(one, &mut |fcx, value| {
            match value {
                Some(value) => fcx.scalar(value)?,
                None => push_const(&mut fcx.code, int, 0),
            }
            fcx.code.set(result);
            Ok(())
        })?;
        self.code.get(result);
        Ok(())
    }

    /// Runs the matching arm and builds its value at `to`.
    pub fn match_aggregate(&mut self, one: &Match, expr: &Expr, to: Addr) -> Lower<()> {
        let size = self.cx.hir.types.size(expr.ty);
        self.match_with(one, &mut |fcx, value| {
            match value {
                Some(value) => fcx.aggregate(value, to)?,
                None => fcx.zero(to, size),
            }
            Ok(())
        })
    }

    /// Calls `take` with the value of each arm, and with none for the case that no arm matches.
    fn match_with(
        &mut self,
        one: &Match,
        take: &mut dyn FnMut(&mut Self, Option<&Expr>) -> Lower<()>,
    ) -> Lower<()> {
        let subject = self.subject(&one.value)?;
        let done = self.code.block();
        for arm in &one.arms {
            self.push_fits(&subject, &arm.pattern);
            self.code.if_();
            self.arm(&arm.body, take)?;
            self.code.br(done).end();
        }
        match &one.otherwise {
            Some(body) => self.arm(body, take)?,
            None => take(self, None)?,
        }
        self.code.end();
        Ok(())
    }

    /// An arm without a value is void or does not reach its end.
    fn arm(
        &mut self,
        body: &ArmBody,
        take: &mut dyn FnMut(&mut Self, Option<&Expr>) -> Lower<()>,
    ) -> Lower<()> {
        let mark = self.mark();
        self.block(&body.block)?;
        if body.value.is_some() {
            take(self, body.value.as_ref())?;
        }
        self.release(mark);
        Ok(())
    }

    fn subject(&mut self, value: &Expr) -> Lower<Subject> {
        let Some(int) = self.cx.hir.types.scalar(value.ty) else {
            let size = self.cx.hir.types.size(value.ty) as u32;
            return Ok(Subject::Text(self.aggregate_addr(value)?, size));
        };
        let var = self.temp(val_type(int));
        self.scalar(value)?;
        self.code.set(var);
        Ok(Subject::Number(var, int))
    }

    fn push_fits(&mut self, subject: &Subject, pattern: &Pattern) {
        match (subject, pattern) {
            (Subject::Number(var, int), Pattern::Const(bits)) => {
                self.code.get(*var);
                push_const(&mut self.code, *int, *bits);
                self.code.op(if is_wide(*int) { I::I64Eq } else { I::I32Eq });
            }
            (Subject::Text(addr, size), Pattern::Text(text)) => {
                let equal = self.cx.routine(Routine::TextEqual);
                let text = self.cx.text(text);
                self.push_addr(*addr);
                self.code.u32(*size);
                self.push_text(text);
                self.code.call(equal);
            }
            _ => panic!("the checker lets only patterns of the value's type here"),
        }
    }
}
