//! Members: of structs, through pointers, of config blocks (language reference, 3.7, 3.10, 4.4, 5.9).

use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::builtins::context_members::{self, Access, SkbProgram};
use crate::diag::Diagnostic;
use crate::hir::{ConfigId, FunctionKind, Lvalue, LvalueKind, ProgramKind};
use crate::source::Span;
use crate::types::{StructId, StructOrigin, TypeKind};

impl Body<'_, '_> {
    pub(super) fn field_lvalue(
        &mut self,
        base: &ast::Expr,
        arrow: bool,
        name: &ast::Ident,
        span: Span,
    ) -> Option<Lvalue> {
        match self.owner_symbol(base) {
            Some(Symbol::Config(config)) => return self.config_lvalue(config, arrow, name, span),
            Some(symbol @ (Symbol::Map(_) | Symbol::Ring(_))) => {
                self.no_member(base, symbol, name);
                return None;
            }
            Some(Symbol::Module(_) | Symbol::Python(_)) => {
                self.module_value(base, name, span);
                return None;
            }
            Some(Symbol::Type(_)) => {
                self.report(
                    Diagnostic::error(304, span, "a type has no members")
                        .help(format!("enumerators are used alone: `{}`", name.name)),
                );
                return None;
            }
            _ => {}
        }
        if arrow {
            return self.arrow_lvalue(base, name, span);
        }
        let base = self.lvalue(base)?;
        let structure = match self.checker.types.kind(base.ty) {
            TypeKind::Struct(id) => *id,
            TypeKind::Ptr(_) => {
                self.report(
                    Diagnostic::error(410, span, "use `->` on a pointer")
                        .label(format!("this is a `{}`", self.type_name(base.ty)))
                        .help(format!("write `->{}`", name.name)),
                );
                return None;
            }
            _ => {
                let text = format!("`{}` has no member `{}`", self.type_name(base.ty), name.name);
                self.report(Diagnostic::error(304, name.span, text));
                return None;
            }
        };
        self.member(base, structure, name, span)
    }

    /// Checks `pointer->name` as an lvalue.
    fn arrow_lvalue(&mut self, base: &ast::Expr, name: &ast::Ident, span: Span) -> Option<Lvalue> {
        let pointer = self.expr(base, None).expr;
        if self.checker.types.is_error(pointer.ty) {
            return None;
        }
        let target = match self.checker.types.kind(pointer.ty) {
            TypeKind::Ptr(to) => match self.checker.types.kind(*to) {
                TypeKind::Struct(id) => Some((*to, *id)),
                _ => None,
            },
            TypeKind::Struct(_) => {
                self.report(
                    Diagnostic::error(410, span, "use `.` on a value")
                        .label(format!("this is a `{}`", self.type_name(pointer.ty)))
                        .help(format!("write `.{}`", name.name)),
                );
                return None;
            }
            _ => None,
        };
        let Some((ty, structure)) = target else {
            let text = format!("`{}` has no member `{}`", self.type_name(pointer.ty), name.name);
            self.report(Diagnostic::error(304, name.span, text));
            return None;
        };
        let lvalue = Lvalue { kind: LvalueKind::Deref(Box::new(pointer)), ty, span };
        self.member(lvalue, structure, name, span)
    }

    /// Returns a member of a struct as an lvalue.
    fn member(&mut self, base: Lvalue, structure: StructId, name: &ast::Ident, span: Span) -> Option<Lvalue> {
        if self.checker.types.struct_def(structure).origin == StructOrigin::Context {
            self.check_context_member(structure, name)?;
        }
        let Some(field) = self.struct_member(structure, name)? else {
            let def = self.checker.types.struct_def(structure).clone();
            self.unknown_field(&def.name, name, &def.fields);
            return None;
        };
        let ty = self.checker.types.struct_def(structure).fields[field].ty;
        (!self.checker.types.is_error(ty)).then_some(Lvalue {
            kind: LvalueKind::Field { base: Box::new(base), field },
            ty,
            span,
        })
    }

    /// Returns the position of a member; the outer `None` if an error was reported.
    fn struct_member(&mut self, structure: StructId, name: &ast::Ident) -> Option<Option<usize>> {
        if self.checker.types.struct_def(structure).origin == StructOrigin::Kernel {
            return self.checker.kernel_member(structure, name).map(Some);
        }
        Some(self.checker.types.struct_def(structure).field(&name.name))
    }

    /// Rejects members of a socket buffer that the kernel does not expose to this kind of program.
    fn check_context_member(&mut self, structure: StructId, name: &ast::Ident) -> Option<()> {
        let def = self.checker.types.struct_def(structure);
        let access = match (def.name.as_str(), self.kind) {
            ("__sk_buff", FunctionKind::Program(kind)) => {
                let program = match kind {
                    ProgramKind::Cgroup => SkbProgram::Cgroup,
                    ProgramKind::SocketFilter => SkbProgram::SocketFilter,
                    _ => SkbProgram::Tc,
                };
                context_members::skb_access(program, &name.name)
            }
            (other, _) => {
                context_members::find(other).and_then(|one| one.field(&name.name)).map(|one| one.access)
            }
        };
        if let Some(Access::Refused(reason)) = access {
            let text = format!("`{}` cannot be read here", name.name);
            self.report(Diagnostic::error(304, name.span, text).note(reason));
            return None;
        }
        Some(())
    }

    fn config_lvalue(
        &mut self,
        config: ConfigId,
        arrow: bool,
        name: &ast::Ident,
        span: Span,
    ) -> Option<Lvalue> {
        if arrow {
            self.report(Diagnostic::error(410, span, "use `.` on a config block"));
            return None;
        }
        let TypeKind::Struct(id) = *self.checker.types.kind(self.checker.configs[config].ty) else {
            return None;
        };
        let def = self.checker.types.struct_def(id).clone();
        let Some(field) = def.field(&name.name) else {
            self.unknown_field(&def.name, name, &def.fields);
            return None;
        };
        let ty = def.fields[field].ty;
        (!self.checker.types.is_error(ty)).then_some(Lvalue {
            kind: LvalueKind::Config(config, field),
            ty,
            span,
        })
    }

    /// Reports a member of a map or ring that is not called, or does not exist.
    pub(super) fn no_member(&mut self, base: &ast::Expr, symbol: Symbol, name: &ast::Ident) {
        let ast::ExprKind::Name(owner) = &strip(base).kind else { return };
        let text = format!("{} has no member `{}`", symbol.what(), name.name);
        let help = match symbol {
            Symbol::Map(_) => format!("`{owner}[key]` looks up, `{owner}[key] = value` updates"),
            _ => format!("`{owner}.reserve()`, `.submit(record)`, `.discard(record)`, `.on_event(handler)`"),
        };
        self.report(Diagnostic::error(304, name.span, text).help(help));
    }

    /// Reports a member of a module that is used as a value.
    fn module_value(&mut self, base: &ast::Expr, name: &ast::Ident, span: Span) {
        let ast::ExprKind::Name(module) = &strip(base).kind else { return };
        self.report(
            Diagnostic::error(304, span, format!("`{}` of module `{module}` cannot be reached", name.name))
                .note("functions of a module can be called; its variables, maps and configs are its own")
                .help(format!("call a function: `{module}.f()`")),
        );
    }
}
