//! `@column("heading", "unit")`: how tables show a field, or the values of a map or variable.

use super::Checker;
use crate::ast::{self, ColumnAttribute, StrLit};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::types::{ColumnLabel, TypeId, TypeKind};

impl Checker<'_> {
    /// Returns the label that an attribute says for a value of a type; `None` if an error was reported.
    pub(super) fn column_label(&mut self, column: &ColumnAttribute, ty: TypeId) -> Option<ColumnLabel> {
        let heading = self.label_text(&column.heading)?;
        let unit = match &column.unit {
            Some(unit) => Some(self.label_text(unit)?),
            None => None,
        };
        self.check_labelled(column, ty)?;
        Some(ColumnLabel { heading, unit })
    }

    /// Returns the label of a variable or of the values of a map; `None` if it has none, or an error was reported.
    pub(super) fn label_of_global(&mut self, global: &ast::Global, ty: TypeId) -> Option<ColumnLabel> {
        let column = global.column.as_ref()?;
        if global.local.is_some() {
            let text = "`local` variables are the kernel half's: no table shows them";
            self.report_label(column.span, text, "remove `@column` or `local`");
            return None;
        }
        self.column_label(column, ty)
    }

    fn label_text(&mut self, text: &StrLit) -> Option<String> {
        match std::str::from_utf8(&text.bytes) {
            Ok(text) if !text.trim().is_empty() => Some(text.to_owned()),
            _ => {
                self.report_label(
                    text.span,
                    "headings and units are UTF-8 text, and not empty",
                    "write a word",
                );
                None
            }
        }
    }

    /// Checks that values of a type have a column of their own, and numbers in it if there is a unit.
    fn check_labelled(&mut self, column: &ColumnAttribute, ty: TypeId) -> Option<()> {
        let part = self.element_of(ty);
        let name = self.types.name(part);
        let is_number = match self.types.kind(part) {
            TypeKind::Error => return None,
            TypeKind::Int(_) => true,
            TypeKind::Struct(_) if self.types.stats(part).is_some() => true,
            TypeKind::Bool | TypeKind::Char | TypeKind::Enum(_) | TypeKind::Str(_) => false,
            TypeKind::Struct(id) => {
                let is_histogram = self.histograms.contains_key(id);
                let help = if is_histogram {
                    "a histogram has bars and no columns; its name is that of the map, variable or field"
                } else {
                    "write `@column` before the fields of the struct"
                };
                self.report_label(column.span, format!("`{name}` has no column of its own"), help);
                return None;
            }
            _ => {
                let help = "tables show numbers and texts";
                self.report_label(column.span, format!("tables do not show values of type `{name}`"), help);
                return None;
            }
        };
        if let (Some(unit), false) = (&column.unit, is_number) {
            let text = format!("values of type `{name}` are no numbers, and have no unit");
            self.report_label(unit.span, text, "leave the unit out");
            return None;
        }
        Some(())
    }

    /// Returns the type of the elements of arrays, else the type itself.
    fn element_of(&self, mut ty: TypeId) -> TypeId {
        while let TypeKind::Array(element, _) = self.types.kind(ty) {
            ty = *element;
        }
        ty
    }

    fn report_label(&mut self, span: Span, text: impl Into<String>, help: &str) {
        self.report(Diagnostic::error(626, span, text).help(help));
    }
}
