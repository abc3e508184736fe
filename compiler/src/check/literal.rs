//! Literals of structs and arrays.

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::{Expr, ExprKind};
use crate::source::Span;
use crate::types::{Field, StructId, TypeId, TypeKind};

impl Body<'_, '_> {
    pub(super) fn array_literal(
        &mut self,
        elements: &[ast::Expr],
        wanted: Option<TypeId>,
        span: Span,
    ) -> Typed {
        let shape = wanted.and_then(|ty| match self.checker.types.kind(ty) {
            TypeKind::Array(element, len) => Some((ty, *element, *len)),
            _ => None,
        });
        let Some((ty, element, len)) = shape else { return self.unshaped_array(elements, wanted, span) };
        if elements.len() as u64 > len {
            let text = format!("{} elements do not fit `{}`", elements.len(), self.type_name(ty));
            self.report(Diagnostic::error(406, elements[len as usize].span, text));
            return self.error_expr(span);
        }
        let mut values: Vec<Expr> = elements.iter().map(|one| self.value(one, element)).collect();
        let kind = match (values.len(), len) {
            // One element fills the array.
            (1, 2..) => ExprKind::Repeat(Box::new(values.remove(0))),
            _ => ExprKind::Array(values),
        };
        self.make(kind, ty, span)
    }

    /// Checks a literal without a declared type: at least two elements determine the type.
    fn unshaped_array(&mut self, elements: &[ast::Expr], wanted: Option<TypeId>, span: Span) -> Typed {
        if wanted.is_some_and(|ty| self.checker.types.is_error(ty)) {
            return self.error_expr(span);
        }
        if elements.len() < 2 {
            self.report(
                Diagnostic::error(421, span, "array length unknown")
                    .help("declare the type: `var name: u32[4] = ...`"),
            );
            return self.error_expr(span);
        }
        let first = self.expr(&elements[0], None).expr.ty;
        if self.checker.types.is_error(first) {
            return self.error_expr(span);
        }
        let ty = self.checker.types.intern(TypeKind::Array(first, elements.len() as u64));
        let values = elements.iter().map(|one| self.value(one, first)).collect();
        self.make(ExprKind::Array(values), ty, span)
    }

    /// Checks a key whose parts are given one by one, `m[a, b]`: the fields of the map's key in their order.
    pub(super) fn key_of_parts(&mut self, parts: &[ast::Expr], wanted: Option<TypeId>, span: Span) -> Typed {
        if wanted.is_some_and(|ty| self.checker.types.is_error(ty)) {
            return self.error_expr(span);
        }
        let fields = wanted.and_then(|ty| match self.checker.types.kind(ty) {
            TypeKind::Struct(id) => Some((ty, self.checker.types.struct_def(*id).fields.clone())),
            _ => None,
        });
        let Some((ty, fields)) = fields else {
            let error = Diagnostic::error(401, span, "expected one value here, found several");
            self.report(error.note("`m[a, b]` is an entry of a map whose key is a struct with two fields"));
            return self.error_expr(span);
        };
        if parts.len() != fields.len() {
            let text = format!(
                "the key `{}` has {}, {} given",
                self.type_name(ty),
                super::count_of(fields.len(), "field"),
                parts.len()
            );
            self.report(Diagnostic::error(401, span, text));
            return self.error_expr(span);
        }
        let values = parts.iter().zip(&fields).map(|(part, field)| self.value(part, field.ty)).collect();
        self.make(ExprKind::Struct(values), ty, span)
    }

    pub(super) fn struct_literal(
        &mut self,
        module: Option<&ast::Ident>,
        name: &ast::Ident,
        fields: &[(ast::Ident, ast::Expr)],
        span: Span,
    ) -> Typed {
        let symbol = match module {
            Some(module) => Some(Symbol::Type(self.checker.module_type(module, name))),
            None => self.checker.names.get(&name.name),
        };
        let found = match symbol {
            Some(Symbol::Type(ty)) if self.checker.types.is_error(ty) => return self.error_expr(span),
            Some(Symbol::Type(ty)) => match self.checker.types.kind(ty) {
                TypeKind::Struct(id) => Some((ty, *id)),
                _ => None,
            },
            _ => None,
        };
        let Some((ty, id)) = found else {
            self.unknown_struct(name);
            fields.iter().for_each(|(_, value)| {
                self.expr(value, None);
            });
            return self.error_expr(span);
        };
        if ty == self.checker.known.perf_options {
            return self.options_literal(name, fields, span);
        }
        let declared = self.checker.types.struct_def(id).fields.clone();
        let errors = self.checker.diagnostics.error_count();
        let mut given = self.given_fields(name, id, &declared, fields);
        // A misspelt field is not reported as missing, too.
        if self.checker.diagnostics.error_count() > errors {
            return self.error_expr(span);
        }
        let mut values = Vec::with_capacity(declared.len());
        for (index, field) in declared.iter().enumerate() {
            values.push(match given[index].take() {
                Some(value) => value,
                None => match self.default_field(field, span) {
                    Some(value) => value,
                    None => self.missing_field(name, field, span),
                },
            });
        }
        self.make(ExprKind::Struct(values), ty, span)
    }

    /// Returns the values of a literal by the position of their field.
    fn given_fields(
        &mut self,
        name: &ast::Ident,
        id: StructId,
        declared: &[Field],
        fields: &[(ast::Ident, ast::Expr)],
    ) -> Vec<Option<Expr>> {
        let mut given: Vec<Option<Expr>> = vec![None; declared.len()];
        let mut spans: Vec<Option<Span>> = vec![None; declared.len()];
        for (field, value) in fields {
            let Some(index) = self.checker.types.struct_def(id).field(&field.name) else {
                self.unknown_field(&name.name, field, declared);
                continue;
            };
            if let Some(first) = spans[index].replace(field.span) {
                self.report(
                    Diagnostic::error(409, field.span, format!("field `{}` given twice", field.name))
                        .also(first, "first given here"),
                );
            }
            given[index] = Some(self.value(value, declared[index].ty));
        }
        given
    }

    fn unknown_struct(&mut self, name: &ast::Ident) {
        let types = &self.checker.types;
        let structs = self.checker.names.all(
            |symbol| matches!(symbol, Symbol::Type(ty) if matches!(types.kind(ty), TypeKind::Struct(_))),
        );
        let help = near(&name.name, structs).map(|near| format!("a similar struct exists: `{near}`"));
        let text = format!("no struct `{}`", name.name);
        self.report(Diagnostic::error(303, name.span, text).maybe_help(help));
    }

    /// Returns the value of a field that a literal leaves out.
    fn default_field(&mut self, field: &Field, span: Span) -> Option<Expr> {
        let bytes = field.default.as_ref()?;
        let kind = match self.checker.types.scalar(field.ty) {
            Some(_) => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                ExprKind::Const(u64::from_le_bytes(word))
            }
            None => {
                let text = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                ExprKind::Bytes(bytes[..text].to_vec())
            }
        };
        Some(Expr { kind, ty: field.ty, span })
    }

    fn missing_field(&mut self, name: &ast::Ident, field: &Field, span: Span) -> Expr {
        self.report(
            Diagnostic::error(408, name.span, format!("missing field `{}` of `{}`", field.name, name.name))
                .help(format!("add `{}: ...`, of type `{}`", field.name, self.type_name(field.ty))),
        );
        self.error_expr(span).expr
    }

    pub(super) fn unknown_field(&mut self, structure: &str, field: &ast::Ident, declared: &[Field]) {
        let names: Vec<_> = declared.iter().map(|field| field.name.as_str()).collect();
        let help = match near(&field.name, names.iter().copied()) {
            Some(near) => Some(format!("a similar field exists: `{near}`")),
            None if names.is_empty() => None,
            None => Some(format!("its fields are {}", quoted(&names))),
        };
        let text = format!("`{structure}` has no field `{}`", field.name);
        self.report(Diagnostic::error(304, field.span, text).maybe_help(help));
    }
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
