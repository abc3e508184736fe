//! Initial values of globals: constant expressions to bytes.

use super::Checker;
use super::function::Body;
use super::prescan::Prescan;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FunctionKind};
use crate::types::{TypeId, TypeKind, Types};

impl Checker<'_> {
    /// The type of a global and its initial value.
    pub(super) fn global_init(&mut self, global: &ast::Global, written: Option<TypeId>) -> (TypeId, Vec<u8>) {
        let error = self.types.common().error;
        let Some(init) = &global.init else {
            let ty = written.unwrap_or(error);
            return self.checked_global(global, ty, None);
        };
        let value = self.constant_expr(init, written);
        let ty = written.unwrap_or(value.ty);
        self.checked_global(global, ty, Some(value))
    }

    fn checked_global(&mut self, global: &ast::Global, ty: TypeId, value: Option<Expr>) -> (TypeId, Vec<u8>) {
        let error = self.types.common().error;
        let span = global.name.span;
        if self.types.is_error(ty) || value.as_ref().is_some_and(|value| self.types.is_error(value.ty)) {
            return (error, Vec::new());
        }
        if !self.sharable(ty) {
            let text = format!("a `{}` cannot be shared between the halves", self.types.name(ty));
            self.report(Diagnostic::error(601, span, text));
            return (error, Vec::new());
        }
        let size = self.types.size(ty);
        let mut bytes =
            vec![0; usize::try_from(size).unwrap_or(0).min(super::items::MAX_OBJECT_BYTES as usize)];
        if let Some(value) = value
            && store(&self.types, &value, &mut bytes).is_none()
        {
            self.report(
                Diagnostic::error(619, value.span, "initial value must be constant")
                    .help("set it in `main`, or use a literal"),
            );
        }
        (ty, bytes)
    }

    /// Checks an expression outside any function.
    fn constant_expr(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Expr {
        let void = self.types.common().void;
        let mut body = Body::new(self, FunctionKind::Plain, void, Prescan::default());
        match wanted {
            Some(ty) => body.value(expr, ty),
            None => body.expr(expr, None).expr,
        }
    }
}

/// Stores a constant as the halves keep it. `None` if it is not one.
fn store(types: &Types, value: &Expr, out: &mut [u8]) -> Option<()> {
    match &value.kind {
        ExprKind::Const(bits) => {
            let size = types.scalar(value.ty)?.bytes() as usize;
            out.get_mut(..size)?.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
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
            let size = types.size(element.ty) as usize;
            for slot in out.chunks_exact_mut(size.max(1)) {
                store(types, element, slot)?;
            }
        }
        _ => return None,
    }
    Some(())
}
