//! Entry points of a script: `main`, programs, tests (language reference, 4.12, 4.13, 7).

use super::{Checker, count_of};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{FuncId, FunctionKind};
use crate::source::Span;
use crate::types::{StructId, TypeKind};

impl Checker<'_> {
    /// Returns `main`, and reports a file without any entry point.
    pub(super) fn check_entries(
        &mut self,
        file: &ast::File,
        functions: &[(FuncId, &ast::AstFunction)],
    ) -> Option<FuncId> {
        let kind = |id: &FuncId| self.signatures[*id].kind;
        let is_method = |id: &FuncId| matches!(kind(id), Some(FunctionKind::Method(_)));
        let main = functions.iter().find(|(id, function)| function.name.name == "main" && !is_method(id));
        let plain = functions.iter().find(|(id, _)| kind(id) == Some(FunctionKind::Plain));
        // A function whose attributes were rejected may have been a program.
        let program = functions.iter().any(|(id, _)| kind(id).is_none_or(FunctionKind::is_program))
            || !self.impls.is_empty();
        let test = functions.iter().any(|(id, _)| kind(id) == Some(FunctionKind::Test));
        let span = file.items.first().map_or(file.end, |item| item.span);
        if self.options.tests && !test {
            self.report(
                Diagnostic::error(522, span, "no @test function in this file")
                    .help("write `@test fn name() -> i32 { ... return 0 }`"),
            );
        }
        match (main, plain) {
            (Some((id, function)), _) => {
                self.check_main(*id, function);
                Some(*id)
            }
            (None, Some((_, function))) => {
                self.report(
                    Diagnostic::error(
                        307,
                        function.name.span,
                        "a file with userspace functions needs `main`",
                    )
                    .help("add `fn main() -> i32 { ... }`, or mark the function `@helper`"),
                );
                None
            }
            (None, None) if !program && !self.options.tests => {
                self.report(Diagnostic::error(309, span, "nothing to run: no program and no `main`"));
                None
            }
            (None, None) => None,
        }
    }

    fn check_main(&mut self, id: FuncId, function: &ast::AstFunction) {
        let signature = &self.signatures[id];
        let (kind, ret, params) = (signature.kind, signature.ret, signature.params.clone());
        let error =
            |span: Span| Diagnostic::error(307, span, "main must be `fn main() -> i32` or take one struct");
        if kind.is_some_and(|kind| kind != FunctionKind::Plain) {
            let span = function.attributes.first().map_or(function.name.span, |attribute| attribute.span);
            self.report(error(span).label("main has no attribute"));
            return;
        }
        if ret != self.types.common().i32 && !self.types.is_error(ret) {
            let span = function.ret.as_ref().map_or(function.name.span, |returns| returns.ty.span);
            self.report(error(span).label("what it returns is the exit code, an `i32`"));
            return;
        }
        let (Some(param), Some(ty)) = (function.params.first(), params.first()) else { return };
        if params.len() > 1 {
            self.report(
                error(param.name.span).label(format!("{} given", count_of(params.len(), "parameter"))),
            );
            return;
        }
        match self.types.kind(*ty) {
            TypeKind::Error => {}
            &TypeKind::Struct(def) => self.check_options(def, param.ty.span),
            TypeKind::Ptr(to) => {
                let name = self.types.name(*to);
                self.report(error(param.ty.span).suggest(
                    param.ty.span,
                    name,
                    "an old spelling; without `*`",
                ));
            }
            _ => self.report(error(param.ty.span).label("not a struct")),
        }
    }

    fn check_options(&mut self, def: StructId, span: Span) {
        for field in self.types.struct_def(def).fields.clone() {
            let option = matches!(
                self.types.kind(field.ty),
                TypeKind::Int(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Str(_) | TypeKind::Error
            );
            if !option {
                let name = self.types.name(field.ty);
                self.report(
                    Diagnostic::error(308, span, "this field type cannot be a command-line option")
                        .note(format!("`{}` is of type `{name}`", field.name))
                        .help("use integers, bool, char or str(N)"),
                );
            }
        }
    }
}
