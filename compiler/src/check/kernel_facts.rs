//! What the running kernel has: values of its enumerators, `exists(p->member)`, `exists(function)`,
//! `container_of(p, T, member)`.

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, ExternId, Global, Half, KernelBuiltin, Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::{IntType, StructId, TypeId, TypeKind};

/// Something that a kernel may lack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum KernelFact {
    /// A member of a struct.
    Member(StructId, String),
    /// A function.
    Function(String),
}

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

    /// Checks `exists(p->member)` and `exists(function)`.
    pub(super) fn exists_call(&mut self, asked: &ast::Expr, span: Span) -> Typed {
        match &strip(asked).kind {
            ast::ExprKind::Field { base, arrow, name } => {
                self.member_exists(asked.span, base, *arrow, name, span)
            }
            ast::ExprKind::Name(name) => self.function_exists(name, asked.span, span),
            _ => {
                self.report(
                    Diagnostic::error(
                        401,
                        asked.span,
                        "`exists` takes a member of a kernel struct, or a function",
                    )
                    .help("write `exists(p->member)` or `exists(vfs_read)`"),
                );
                self.error_expr(span)
            }
        }
    }

    /// Checks `exists(function)`: a constant that the host sets before the load.
    fn function_exists(&mut self, name: &str, name_span: Span, span: Span) -> Typed {
        let is_of_kernel = self.lookup(name).is_none()
            && matches!(self.checker.names.get(name), None | Some(Symbol::Extern(_)));
        if !is_of_kernel {
            let text = format!("`exists` asks for functions of the kernel; `{name}` belongs to the script");
            self.report(Diagnostic::error(401, name_span, text));
            return self.error_expr(span);
        }
        let kernel = self.checker.kernel();
        if !kernel.has_function(name) && (kernel.has_structure(name) || kernel.has_enum_of(name)) {
            self.report(
                Diagnostic::error(401, name_span, format!("`{name}` is no function of the kernel"))
                    .note("`exists` asks for members of structs and for functions")
                    .help("ask for a member of a struct: `exists(p->member)`"),
            );
            return self.error_expr(span);
        }
        let bool = self.common().bool;
        let checker = &mut *self.checker;
        let global = *checker.asked_functions.entry(name.to_owned()).or_insert_with(|| {
            checker.globals.push(Global {
                kernel_only: true,
                constant: true,
                ..Global::new(ks_wit::object::function_variable(name), bool, name_span)
            })
        });
        self.tested.insert(span, KernelFact::Function(name.to_owned()));
        let lvalue = Lvalue { kind: LvalueKind::Global(global), ty: bool, span };
        self.make(ExprKind::Load(lvalue), bool, span)
    }

    /// Notes a call of a kfunc, and returns whether the running kernel has it there.
    pub(super) fn is_known_function(&mut self, id: ExternId) -> bool {
        let fact = KernelFact::Function(self.checker.externs[id].name.clone());
        let is_known = self.checker.existing.contains(&fact);
        if !is_known {
            self.checker.needed_externs.insert(id);
        }
        is_known
    }

    fn member_exists(
        &mut self,
        member_span: Span,
        base: &ast::Expr,
        arrow: bool,
        name: &ast::Ident,
        span: Span,
    ) -> Typed {
        self.checker.asked_member = Some(name.span);
        let lvalue = self.field_lvalue(base, arrow, name, member_span);
        self.checker.asked_member = None;
        let Some(lvalue) = lvalue else { return self.error_expr(span) };
        let owner = match &lvalue.kind {
            LvalueKind::Field { base, .. } => self.checker.types.kernel_struct(base.ty),
            _ => None,
        };
        let Some(owner) = owner else {
            self.report(Diagnostic::error(401, member_span, "`exists` asks for members of kernel structs"));
            return self.error_expr(span);
        };
        let fact = KernelFact::Member(owner, name.name.clone());
        self.checker.tested_members.insert(fact.clone());
        self.tested.insert(span, fact);
        let bool = self.common().bool;
        let operand = Box::new(self.address_expr(lvalue));
        self.kernel_builtin(KernelBuiltin::Exists(operand), bool, span)
    }

    /// What the running kernel has if a condition is `outcome`.
    pub(super) fn facts_known(&self, cond: &ast::Expr, outcome: bool) -> Vec<KernelFact> {
        let cond = strip(cond);
        match &cond.kind {
            ast::ExprKind::Call { .. } if outcome => {
                self.tested.get(&cond.span).cloned().into_iter().collect()
            }
            ast::ExprKind::Unary(ast::UnaryOp::Not, inner) => self.facts_known(inner, !outcome),
            ast::ExprKind::Binary(ast::BinaryOp::AndAnd, left, right) if outcome => {
                [self.facts_known(left, true), self.facts_known(right, true)].concat()
            }
            ast::ExprKind::Binary(ast::BinaryOp::OrOr, left, right) if !outcome => {
                [self.facts_known(left, false), self.facts_known(right, false)].concat()
            }
            _ => Vec::new(),
        }
    }

    /// Checks what runs only if a condition is `outcome`: what it asked for may be used there.
    pub(super) fn knowing<T>(
        &mut self,
        cond: &ast::Expr,
        outcome: bool,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let known = self.facts_known(cond, outcome);
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
        let pointer = self.not_last(|body| body.expr(&args[0], None)).expr;
        self.container_of(pointer, &args[1], &args[2], span).unwrap_or_else(|| self.error_expr(span))
    }

    /// Checks the struct and the member of a `container_of`; `None` if an error was reported.
    pub(super) fn container_of(
        &mut self,
        pointer: Expr,
        owner: &ast::Expr,
        member: &ast::Expr,
        span: Span,
    ) -> Option<Typed> {
        let ast::ExprKind::Name(owner_name) = &strip(owner).kind else {
            self.report(
                Diagnostic::error(
                    401,
                    owner.span.to(member.span),
                    "expected a struct of the kernel and a member",
                )
                .help("such as `task_struct, sibling`"),
            );
            return None;
        };
        match self.checker.types.kind(pointer.ty) {
            TypeKind::Ptr(_) => {}
            TypeKind::Error => return None,
            _ => {
                let text = format!("`container_of` takes a pointer, not `{}`", self.type_name(pointer.ty));
                self.report(Diagnostic::error(401, pointer.span, text));
                return None;
            }
        }
        let written = ast::TypeExpr { kind: ast::TypeExprKind::Name(owner_name.clone()), span: owner.span };
        let structure = self.checker.type_expr(&written, super::types::Position::Pointee);
        let Some(id) = self.checker.types.kernel_struct(structure) else {
            let text = format!("`{owner_name}` is not a struct of the kernel");
            self.report(Diagnostic::error(303, owner.span, text));
            return None;
        };
        let TypeKind::Ptr(pointee) = *self.checker.types.kind(pointer.ty) else { return None };
        let ty = self.checker.types.intern(TypeKind::Ptr(structure));
        let start = Expr { kind: ExprKind::Convert(Box::new(pointer)), ty, span };
        let whole = Lvalue { kind: LvalueKind::Deref(Box::new(start)), ty: structure, span };
        let part = self.part_of(whole, id, member)?;
        if !self.may_point_to(pointee, part.ty) {
            let (pointee, part) = (self.type_name(pointee), self.type_name(part.ty));
            self.report(
                Diagnostic::error(402, member.span, format!("this is a `{part}`"))
                    .note(format!("the pointer points to a `{pointee}`"))
                    .help(format!("name the member of `{owner_name}` that is the `{pointee}`")),
            );
            return None;
        }
        let operand = self.address_expr(part);
        Some(self.kernel_builtin(KernelBuiltin::ContainerOf(Box::new(operand)), ty, span))
    }

    /// Whether a pointer may point to a member of this type, or to its first element; one to bytes may point to any, as
    /// in C.
    ///
    /// Source: include/linux/container_of.h, `container_of`, v6.12.
    fn may_point_to(&self, pointee: TypeId, member: TypeId) -> bool {
        let types = &self.checker.types;
        if let TypeKind::Array(element, _) = *types.kind(member)
            && pointee != member
        {
            return self.may_point_to(pointee, element);
        }
        let common = types.common();
        let name = |ty| types.kernel_struct(ty).map(|id| &types.struct_def(id).name);
        pointee == member
            || [common.void, common.u8].contains(&pointee)
            || (name(pointee).is_some() && name(pointee) == name(member))
            || (types.scalar(pointee).is_some()
                && types.scalar(member).is_some()
                && types.size(pointee) == types.size(member))
    }

    /// Checks a part of a struct of the kernel, as an lvalue without the struct: `sibling`, `se.run_node`, `pid_links[0]`.
    fn part_of(&mut self, whole: Lvalue, id: StructId, part: &ast::Expr) -> Option<Lvalue> {
        let span = part.span;
        match &strip(part).kind {
            ast::ExprKind::Name(name) => {
                let name = ast::Ident { name: name.clone(), span };
                self.part_member(whole, id, &name, span)
            }
            ast::ExprKind::Field { base, arrow: false, name } => {
                let base = self.part_of(whole, id, base)?;
                match self.checker.types.kernel_struct(base.ty) {
                    Some(id) => self.part_member(base, id, name, span),
                    None => {
                        let text = format!("a `{}` has no member `{}`", self.type_name(base.ty), name.name);
                        self.report(Diagnostic::error(304, name.span, text));
                        None
                    }
                }
            }
            ast::ExprKind::Index(base, index) => {
                let base = self.part_of(whole, id, base)?;
                let index = self.not_last(|body| body.expr(index, None));
                self.array_element(base, index, span)
            }
            _ => {
                self.report(
                    Diagnostic::error(401, span, "expected a member of the struct")
                        .help("such as `sibling`, `se.run_node` or `pid_links[0]`"),
                );
                None
            }
        }
    }

    fn part_member(&mut self, whole: Lvalue, id: StructId, name: &ast::Ident, span: Span) -> Option<Lvalue> {
        let field = self.checker.kernel_member(id, name)?;
        let ty = self.checker.types.struct_def(id).fields[field].ty;
        Some(Lvalue { kind: LvalueKind::Field { base: Box::new(whole), field }, ty, span })
    }

    fn address_expr(&mut self, lvalue: Lvalue) -> Expr {
        let ty = self.checker.types.intern(TypeKind::Ptr(lvalue.ty));
        Expr { span: lvalue.span, kind: ExprKind::AddrOf(lvalue), ty }
    }
}
