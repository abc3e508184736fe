//! Config blocks (language reference, 5.9).

use std::collections::HashMap;

use super::Checker;
use super::names::Symbol;
use super::prescan::strip;
use super::types::Position;
use crate::ast::{self, Expr, ExprKind, FieldDecl, UnaryOp};
use crate::diag::Diagnostic;
use crate::hir::Config;
use crate::source::Span;
use crate::types::{Field, StructDef, StructOrigin, TypeId, TypeKind};

impl Checker<'_> {
    pub(super) fn declare_config(&mut self, name: &ast::Ident, fields: &[FieldDecl]) {
        if self.declared_by_header(name) {
            return;
        }
        let (mut declared, mut seen): (Vec<Field>, HashMap<&str, Span>) = Default::default();
        for field in fields {
            if let Some(first) = seen.insert(&field.name.name, field.name.span) {
                self.report_duplicate(&field.name, first);
                continue;
            }
            let ty = self.config_type(field);
            let default = field.default.as_ref().and_then(|default| self.config_default(default, ty));
            let docs = field.docs.clone().unwrap_or_default();
            declared.push(Field { default, docs, ..Field::new(&field.name.name, ty) });
        }
        let full_name = self.full_name(name);
        let def = StructDef { name: full_name.clone(), fields: declared, origin: StructOrigin::Script };
        let id = self.types.add_struct(def);
        let ty = self.types.struct_type(id);
        let size = self.types.size(ty);
        if size > super::items::MAX_OBJECT_BYTES {
            let text = format!("size must be at most {} bytes", super::items::MAX_OBJECT_BYTES);
            self.report(Diagnostic::error(606, name.span, text));
            self.declare_name(name, Symbol::Error);
            return;
        }
        let mut init = vec![0; usize::try_from(size).unwrap_or(0)];
        for (index, field) in self.types.struct_def(id).fields.iter().enumerate() {
            let at = self.types.field_offset(id, index) as usize;
            let bytes = field.default.as_deref().unwrap_or_default();
            init[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let config = self.configs.push(Config { name: full_name, span: name.span, ty, init });
        self.declare_name(name, Symbol::Config(config));
    }

    fn config_type(&mut self, field: &FieldDecl) -> TypeId {
        let ty = self.type_expr(&field.ty, Position::Value);
        let element = match self.types.kind(ty) {
            TypeKind::Array(element, _) => *element,
            _ => ty,
        };
        if matches!(
            self.types.kind(element),
            TypeKind::Int(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Error
        ) {
            return ty;
        }
        let text = "config fields are integers, bool, char or arrays of them";
        let label = format!("`{}` is of type `{}`", field.name.name, self.types.name(ty));
        self.report(Diagnostic::error(618, field.ty.span, text).label(label));
        self.types.common().error
    }

    fn config_default(&mut self, default: &Expr, ty: TypeId) -> Option<Vec<u8>> {
        if self.types.is_error(ty) {
            return None;
        }
        if let Some(span) = not_literal(default) {
            self.report_not_constant(
                span,
                "the default of a config field is a literal; `main` can set the field",
            );
            return None;
        }
        let value = self.constant_expr(default, Some(ty));
        self.constant_bytes(&value, ty)
    }
}

/// Returns the part of an expression that is not a literal.
pub(super) fn not_literal(expr: &Expr) -> Option<Span> {
    match &expr.kind {
        ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Char(_) | ExprKind::Bool(_) | ExprKind::Null => None,
        ExprKind::Unary(UnaryOp::Neg, digits) if matches!(strip(digits).kind, ExprKind::Int(_)) => None,
        ExprKind::Array(elements) => elements.iter().find_map(not_literal),
        _ => Some(expr.span),
    }
}
