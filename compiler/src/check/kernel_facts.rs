//! What the running kernel has: values of its enumerators, `exists(p->member)`, `container_of(p, T, member)`.

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Half, KernelBuiltin, Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::{IntType, StructId, TypeKind};

impl Body<'_, '_> {
    /// Returns an enumerator of an enum of the kernel; `None` if there is none of this name. An enum without a
    /// name cannot be found again in another kernel: its values are an interface and do not change. Those of
    /// all others are the running kernel's.
    pub(super) fn kernel_enumerator(&mut self, name: &str, span: Span) -> Option<Typed> {
        // Only the spelling of enumerators is worth reading the kernel's types.
        if !name.contains(|letter: char| letter.is_ascii_uppercase()) {
            return None;
        }
        let found = self.checker.kernel().enumerator(name)?;
        self.checker.strict(span, "enumerators of the kernel");
        let bits = if found.bytes == 8 { 64 } else { 32 };
        let ty = self.int_type(IntType { bits, signed: found.signed });
        if found.owner.is_empty() {
            return Some(self.literal(found.value.into(), ty, span));
        }
        let reason = match self.half() {
            Half::Kernel if self.in_constant => "it cannot be part of a constant",
            Half::User => "userspace does not know it",
            Half::Kernel if i32::try_from(found.value).is_err() && bits == 64 => {
                "only values of 32 bits can be taken from there"
            }
            Half::Kernel => {
                let (owner, name) = (found.owner, name.to_owned());
                let builtin = KernelBuiltin::Enumerator { owner, name, value: found.value };
                return Some(self.kernel_builtin(builtin, ty, span));
            }
        };
        self.report(
            Diagnostic::error(511, span, format!("the value of `{name}` is the running kernel's: {reason}"))
                .note(format!("an enumerator of `enum {}`, whose values differ between kernels", found.owner))
                .help("compare with it in a kernel program"),
        );
        Some(self.error_expr(span))
    }

    /// Checks `exists(p->member)`.
    pub(super) fn exists_call(&mut self, member: &ast::Expr, span: Span) -> Typed {
        let ast::ExprKind::Field { base, arrow, name } = &strip(member).kind else {
            self.report(
                Diagnostic::error(401, member.span, "`exists` takes a member of a kernel struct")
                    .help("write `exists(p->member)`"),
            );
            return self.error_expr(span);
        };
        self.checker.asked_member = Some(name.span);
        let lvalue = self.field_lvalue(base, *arrow, name, member.span);
        self.checker.asked_member = None;
        let Some(lvalue) = lvalue else { return self.error_expr(span) };
        let owner = match &lvalue.kind {
            LvalueKind::Field { base, .. } => self.checker.types.kernel_struct(base.ty),
            _ => None,
        };
        let Some(owner) = owner else {
            self.report(Diagnostic::error(401, member.span, "`exists` asks for members of kernel structs"));
            return self.error_expr(span);
        };
        self.tested_members.insert(span, (owner, name.name.to_string()));
        self.checker.tested_members.insert((owner, name.name.to_string()));
        let bool = self.common().bool;
        let operand = Box::new(self.address_expr(lvalue));
        self.kernel_builtin(KernelBuiltin::Exists(operand), bool, span)
    }

    /// The members that the running kernel has if a condition is `outcome`.
    pub(super) fn members_known(&self, cond: &ast::Expr, outcome: bool) -> Vec<(StructId, String)> {
        let cond = strip(cond);
        match &cond.kind {
            ast::ExprKind::Call { .. } if outcome => {
                self.tested_members.get(&cond.span).cloned().into_iter().collect()
            }
            ast::ExprKind::Unary(ast::UnaryOp::Not, inner) => self.members_known(inner, !outcome),
            ast::ExprKind::Binary(ast::BinaryOp::And, left, right) if outcome => {
                [self.members_known(left, true), self.members_known(right, true)].concat()
            }
            ast::ExprKind::Binary(ast::BinaryOp::Or, left, right) if !outcome => {
                [self.members_known(left, false), self.members_known(right, false)].concat()
            }
            _ => Vec::new(),
        }
    }

    /// Checks what runs only if a condition is `outcome`: the members that it asked for may be used there.
    pub(super) fn knowing<T>(
        &mut self,
        cond: &ast::Expr,
        outcome: bool,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let known = self.members_known(cond, outcome);
        let before = self.checker.existing.len();
        self.checker.existing.extend(known);
        let result = check(self);
        self.checker.existing.truncate(before);
        result
    }

    /// Checks what runs only if the condition of an `if` does not hold.
    pub(super) fn knowing_otherwise<T>(&mut self, cond: &ast::Cond, check: impl FnOnce(&mut Self) -> T) -> T {
        match cond {
            ast::Cond::Expr(cond) => self.knowing(cond, false, check),
            ast::Cond::Var { .. } => check(self),
        }
    }

    /// Checks `container_of(p, T, member)`.
    pub(super) fn container_of_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let (ast::ExprKind::Name(owner), ast::ExprKind::Name(member)) =
            (&strip(&args[1]).kind, &strip(&args[2]).kind)
        else {
            self.report(
                Diagnostic::error(401, span, "`container_of` takes a pointer, a struct and a member")
                    .help("write `container_of(p, task_struct, sibling)`"),
            );
            return self.error_expr(span);
        };
        let pointer = self.not_last(|body| body.expr(&args[0], None)).expr;
        match self.checker.types.kind(pointer.ty) {
            TypeKind::Ptr(_) => {}
            TypeKind::Error => return self.error_expr(span),
            _ => {
                let text = format!("`container_of` takes a pointer, not `{}`", self.type_name(pointer.ty));
                self.report(Diagnostic::error(401, pointer.span, text));
                return self.error_expr(span);
            }
        }
        let written = ast::TypeExpr { kind: ast::TypeExprKind::Name(owner.clone()), span: args[1].span };
        let structure = self.checker.type_expr(&written, super::types::Position::Pointee);
        let Some(id) = self.checker.types.kernel_struct(structure) else {
            let text = format!("`{owner}` is not a struct of the kernel");
            self.report(Diagnostic::error(303, args[1].span, text));
            return self.error_expr(span);
        };
        let name = ast::Ident { name: member.clone(), span: args[2].span };
        let Some(field) = self.checker.kernel_member(id, &name) else { return self.error_expr(span) };
        let ty = self.checker.types.intern(TypeKind::Ptr(structure));
        let start = Expr { kind: ExprKind::Convert(Box::new(pointer)), ty, span };
        let whole = Lvalue { kind: LvalueKind::Deref(Box::new(start)), ty: structure, span };
        let member_type = self.checker.types.struct_def(id).fields[field].ty;
        let kind = LvalueKind::Field { base: Box::new(whole), field };
        let operand = self.address_expr(Lvalue { kind, ty: member_type, span });
        self.kernel_builtin(KernelBuiltin::ContainerOf(Box::new(operand)), ty, span)
    }

    fn address_expr(&mut self, lvalue: Lvalue) -> Expr {
        let ty = self.checker.types.intern(TypeKind::Ptr(lvalue.ty));
        Expr { span: lvalue.span, kind: ExprKind::AddrOf(lvalue), ty }
    }
}
