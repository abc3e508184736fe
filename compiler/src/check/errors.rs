//! `try`, `throw` and `defer` (language reference, 8.3), and `delete`.

use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Catch, CatchPattern, ExprKind, Half, StmtKind};
use crate::source::Span;
use crate::types::TypeKind;

impl Body<'_, '_> {
    pub(super) fn try_catch(&mut self, body: &ast::Block, catches: &[ast::Catch]) -> StmtKind {
        let body = self.block(body);
        let catches = catches.iter().map(|catch| self.catch(catch)).collect();
        StmtKind::Try { body, catches }
    }

    fn catch(&mut self, catch: &ast::Catch) -> Catch {
        let i32 = self.checker.types.common().i32;
        self.scoped(|scope| {
            let (pattern, span) = match &catch.pattern {
                ast::CatchPattern::Int(code) => {
                    (CatchPattern::Code(scope.code(i128::from(code.value), code.span)), code.span)
                }
                ast::CatchPattern::Name(name) if name.name == "_" => (CatchPattern::Any, name.span),
                ast::CatchPattern::Name(name) => match scope.checker.names.get(&name.name) {
                    Some(Symbol::Enumerator(ty, bits)) => {
                        let value = scope.checker.types.scalar(ty).map_or(0, |int| int.value(bits));
                        (CatchPattern::Code(scope.code(value, name.span)), name.span)
                    }
                    Some(Symbol::Const(value, _)) => {
                        (CatchPattern::Code(scope.code(value, name.span)), name.span)
                    }
                    _ => (CatchPattern::Bind(scope.declare_local(name, i32)), name.span),
                },
            };
            Catch { pattern, body: scope.block(&catch.body), span }
        })
    }

    /// Converts a value to a code as `throw` does.
    fn code(&mut self, value: i128, span: Span) -> i32 {
        let code = value as i32;
        if i128::from(code) != value {
            self.report(
                Diagnostic::warning(414, span, "value is cut to fit `i32`")
                    .label(format!("{value} becomes {code}"))
                    .note("a thrown code is an `i32`"),
            );
        }
        code
    }

    pub(super) fn throw(&mut self, code: &ast::Expr) -> Option<StmtKind> {
        let i32 = self.checker.types.common().i32;
        let value = self.not_last(|body| body.expr(code, None));
        if self.checker.types.is_error(value.expr.ty) {
            return Some(StmtKind::Throw(value.expr));
        }
        match self.checker.types.kind(value.expr.ty) {
            TypeKind::Int(_) => {}
            TypeKind::Enum(_) => self.checker.strict(code.span, "`throw` of an enumerator"),
            _ => {
                let text = format!("a thrown code is an integer, not `{}`", self.type_name(value.expr.ty));
                self.report(Diagnostic::error(709, code.span, text));
                return None;
            }
        }
        if value.constant == Some(0) {
            self.report(
                Diagnostic::warning(709, code.span, "the code 0 is thrown")
                    .note("0 means success wherever codes are compared"),
            );
        }
        let value = self.convert_int(value, i32);
        Some(StmtKind::Throw(value))
    }

    pub(super) fn defer(&mut self, call: &ast::Expr, span: Span) -> Option<StmtKind> {
        if self.loops > 0 && self.half() == Half::Kernel {
            self.report(
                Diagnostic::error(712, span, "`defer` inside a loop")
                    .note("how often it would run at the end has no bound that the kernel can see"),
            );
        }
        if !matches!(strip(call).kind, ast::ExprKind::Call { .. }) {
            self.not_last(|body| body.expr(call, None));
            self.report(
                Diagnostic::error(713, call.span, "`defer` needs a call").help("write `defer f(arguments)`"),
            );
            return None;
        }
        let value = self.not_last(|body| body.expr(call, None)).expr;
        (!self.checker.types.is_error(value.ty)).then_some(StmtKind::Defer(value))
    }

    pub(super) fn delete(&mut self, value: &ast::Expr) -> Option<StmtKind> {
        if let Some((map, key)) = self.inner_map(value) {
            return self.delete_inner_map(map, key, value.span);
        }
        if let Some((map, key)) = self.map_element(value) {
            let key = self.map_key(map, key);
            let one = &self.checker.maps[map];
            if one.kind.is_array() {
                let text = format!("elements of `{}`, an array, cannot be deleted", one.name);
                let declared = one.span;
                self.report(
                    Diagnostic::error(607, value.span, text)
                        .also(declared, "declared here")
                        .help("set the element to zero, or use a `hash`"),
                );
                return None;
            }
            self.check_writable_map(map, value.span);
            return Some(StmtKind::Remove { map, key });
        }
        if let Some(Symbol::Map(map)) = self.named_symbol(value) {
            let name = self.checker.maps[map].name.clone();
            self.report(Diagnostic::error(608, value.span, "a whole map cannot be deleted").help(format!(
                "delete an entry: `delete {name}[key]`; in userspace `clear({name})` deletes all"
            )));
            return None;
        }
        let pointer = self.not_last(|body| body.expr(value, None)).expr;
        match self.checker.types.kind(pointer.ty) {
            TypeKind::Error => None,
            TypeKind::Null => Some(StmtKind::Expr(pointer)),
            TypeKind::Ptr(_) => Some(StmtKind::Free(pointer)),
            _ => {
                let text =
                    format!("expected a pointer or a map entry, found `{}`", self.type_name(pointer.ty));
                self.report(
                    Diagnostic::error(613, value.span, text)
                        .help("`delete` takes what `new` gave, or an entry: `delete map[key]`"),
                );
                None
            }
        }
    }

    /// Checks `new T()` or `new T(FLAG)`.
    pub(super) fn new_object(
        &mut self,
        ty: &ast::TypeExpr,
        flag: Option<&ast::Expr>,
        span: Span,
    ) -> super::expr::Typed {
        use crate::hir::FunctionKind::{Kfunc, Private};
        let object = self.checker.type_expr(ty, super::types::Position::Value);
        if let Some(flag) = flag {
            if !matches!(self.kind, Kfunc | Private) {
                self.report(
                    Diagnostic::error(613, flag.span, "an allocation flag stands in `@kfunc` functions only")
                        .help("write `new T()`"),
                );
            } else {
                let gfp = self.checker.known.gfp_flag;
                let found = self.expr(flag, None).expr;
                if found.ty != gfp && !self.checker.types.is_error(found.ty) {
                    self.report(
                        Diagnostic::error(613, flag.span, "expected `GFP_KERNEL` or `GFP_ATOMIC`")
                            .label(format!("this is `{}`", self.type_name(found.ty))),
                    );
                }
            }
        }
        if self.checker.types.is_error(object) {
            return self.error_expr(span);
        }
        let fits = match self.checker.types.kind(object) {
            TypeKind::Struct(id) => {
                use crate::types::StructOrigin::{Predeclared, Script};
                matches!(self.checker.types.struct_def(*id).origin, Script | Predeclared)
            }
            TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Program => false,
            _ => self.checker.types.scalar(object).is_some(),
        };
        if !fits {
            let text = format!("`new` makes structs and scalars, not `{}`", self.type_name(object));
            self.report(Diagnostic::error(613, ty.span, text));
            return self.error_expr(span);
        }
        let pointer = self.checker.types.intern(TypeKind::Ptr(object));
        self.make(ExprKind::New, pointer, span)
    }
}
