//! Initial values: constant expressions to bytes.

use super::Checker;
use super::fold::{constant_scalar, constant_text};
use super::function::Body;
use super::prescan::{Prescan, is_null};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FunctionKind};
use crate::types::{TypeId, TypeKind, Types};

impl Checker<'_> {
    /// Returns the type of a global and its initial value without trailing zeros; the error type if an error
    /// was reported.
    pub(super) fn global_init(&mut self, global: &ast::Global, written: Option<TypeId>) -> (TypeId, Vec<u8>) {
        let error = (self.types.common().error, Vec::new());
        let Some(init) = &global.init else {
            return (written.unwrap_or(error.0), Vec::new());
        };
        if let Some(span) = self.variable_in(init) {
            self.report_not_constant(span, "set it in `main`, or use a literal");
            return match written {
                Some(ty) if !self.types.is_error(ty) => (ty, Vec::new()),
                _ => error,
            };
        }
        // `null` without a type: a pointer to bytes.
        let u8 = self.types.common().u8;
        let written = match written {
            None if is_null(init) => Some(self.types.intern(TypeKind::Ptr(u8))),
            written => written,
        };
        let value = self.constant_expr(init, written);
        let ty = written.unwrap_or(value.ty);
        if self.types.is_error(ty) {
            return error;
        }
        if matches!(self.types.kind(ty), TypeKind::Null | TypeKind::Void | TypeKind::Program) {
            self.report(
                Diagnostic::error(401, init.span, "the type of this variable is not known")
                    .help(format!("write it: `var {}: *u8 = null`", global.name.name)),
            );
            return error;
        }
        let mut bytes = self.constant_bytes(&value, ty).unwrap_or_default();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        (ty, bytes)
    }

    fn zeros(&self, ty: TypeId) -> Vec<u8> {
        let size = self.types.size(ty).min(super::items::MAX_OBJECT_BYTES);
        vec![0; usize::try_from(size).unwrap_or(0)]
    }

    /// Returns a value of type `ty` in the memory layout of both halves; `None` if an error was reported, or
    /// if it is too large.
    pub(super) fn constant_bytes(&mut self, value: &Expr, ty: TypeId) -> Option<Vec<u8>> {
        if self.types.is_error(value.ty) || self.types.is_error(ty) {
            return None;
        }
        if self.types.size(ty) > super::items::MAX_OBJECT_BYTES {
            return None;
        }
        let mut bytes = self.zeros(ty);
        if store(&self.types, value, &mut bytes).is_none() {
            self.report_not_constant(value.span, "set it in `main`, or use a literal");
            return None;
        }
        Some(bytes)
    }

    /// Checks an expression outside any function.
    pub(super) fn constant_expr(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Expr {
        let void = self.types.common().void;
        let mut body = Body::new(self, FunctionKind::Plain, void, Prescan::default());
        match wanted {
            Some(ty) => body.value(expr, ty),
            None => body.expr(expr, None).expr,
        }
    }
}

/// Stores a constant in the memory layout of both halves. `None` if it is not one.
fn store(types: &Types, value: &Expr, out: &mut [u8]) -> Option<()> {
    if let Some(text) = constant_text(types, value) {
        out.get_mut(..text.len())?.copy_from_slice(&text);
        return Some(());
    }
    if let Some(bits) = constant_scalar(types, value) {
        let size = types.scalar(value.ty)?.bytes() as usize;
        out.get_mut(..size)?.copy_from_slice(&bits.to_le_bytes()[..size]);
        return Some(());
    }
    match &value.kind {
        ExprKind::Bytes(bytes) => out.get_mut(..bytes.len())?.copy_from_slice(bytes),
        ExprKind::Struct(fields) => {
            let TypeKind::Struct(id) = types.kind(value.ty) else { return None };
            for (index, field) in fields.iter().enumerate() {
                store(types, field, out.get_mut(types.field_offset(*id, index) as usize..)?)?;
            }
        }
        ExprKind::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                store(types, element, out.get_mut(index * types.size(element.ty) as usize..)?)?;
            }
        }
        ExprKind::Repeat(element) => {
            let TypeKind::Array(_, len) = types.kind(value.ty) else { return None };
            let size = types.size(element.ty) as usize;
            let slots = out.chunks_exact_mut(size.max(1)).take(usize::try_from(*len).unwrap_or(usize::MAX));
            for slot in slots {
                store(types, element, slot)?;
            }
        }
        _ => return None,
    }
    Some(())
}
