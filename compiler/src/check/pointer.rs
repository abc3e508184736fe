//! Pointers: addresses, dereferences, arithmetic (language reference, 3.7).

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::builtins::context_members::{self, Access};
use crate::diag::Diagnostic;
use crate::hir::{BinaryOp, Expr, ExprKind, FunctionKind, Half, KernelBuiltin, Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::{IntType, StructId, StructOrigin, TypeId, TypeKind};

const I64: IntType = IntType { bits: 64, signed: true };

impl Body<'_, '_> {
    /// Returns the pointee as an lvalue; `None` if an error was reported.
    pub(super) fn follow(&mut self, pointer: Expr, span: Span) -> Option<Lvalue> {
        if self.checker.types.is_error(pointer.ty) {
            return None;
        }
        let TypeKind::Ptr(to) = *self.checker.types.kind(pointer.ty) else {
            let text = format!("cannot dereference a `{}`", self.type_name(pointer.ty));
            self.report(Diagnostic::error(407, pointer.span, text).label("not a pointer"));
            return None;
        };
        if to == self.checker.types.common().void {
            self.report(
                Diagnostic::error(407, span, "cannot dereference a `*void`")
                    .help("cast it first: `p as *u8`"),
            );
            return None;
        }
        Some(Lvalue { kind: LvalueKind::Deref(Box::new(pointer)), ty: to, span })
    }

    /// Checks `*p` as an lvalue.
    pub(super) fn deref_lvalue(&mut self, operand: &ast::Expr, span: Span) -> Option<Lvalue> {
        let pointer = self.expr(operand, None).expr;
        let lvalue = self.follow(pointer, span)?;
        // A struct of the kernel is copied member by member; a context can only be read by members.
        if self.is_opaque(lvalue.ty) && (!self.is_kernels_struct(lvalue.ty) || self.is_record(lvalue.ty)) {
            let text = format!("`{}` cannot be read as a whole", self.type_name(lvalue.ty));
            self.report(Diagnostic::error(407, span, text).help("read its members with `->`"));
            return None;
        }
        Some(lvalue)
    }

    /// Whether a struct only ever appears as a pointee.
    fn is_opaque(&self, ty: TypeId) -> bool {
        match self.checker.types.kind(ty) {
            TypeKind::Struct(id) => matches!(
                self.checker.types.struct_def(*id).origin,
                StructOrigin::Context | StructOrigin::Kernel
            ),
            _ => ty == self.checker.known.perf_context,
        }
    }

    /// Whether a type is the record of a tracepoint.
    fn is_record(&self, ty: TypeId) -> bool {
        match self.checker.types.kind(ty) {
            TypeKind::Struct(id) => self.checker.types.struct_def(*id).name.starts_with("trace_event_raw_"),
            _ => false,
        }
    }

    /// Checks `&lvalue`, the address of an lvalue.
    pub(super) fn address_of(&mut self, operand: &ast::Expr, span: Span) -> Typed {
        let reason = match &strip(operand).kind {
            ast::ExprKind::Name(name) => match (self.lookup(name), self.checker.names.get(name)) {
                (Some(Scoped::Local(_)), _) => None,
                (Some(_), _) => Some("a constant has no address"),
                (
                    None,
                    Some(Symbol::Global(_) | Symbol::PerCpu(_) | Symbol::KernelVariable(_) | Symbol::Error)
                    | None,
                ) => None,
                (None, Some(Symbol::Function(_))) => Some("a function is a value as it is: leave `&` out"),
                (None, Some(symbol)) => Some(match symbol {
                    Symbol::Map(_) => "a map has no address; an entry has: `&map[key]`",
                    _ => "this has no address",
                }),
            },
            ast::ExprKind::Field { .. } | ast::ExprKind::Index(..) => None,
            ast::ExprKind::Unary(ast::UnaryOp::Deref, _) => None,
            ast::ExprKind::Call { .. } => Some("what a call gives has no address; keep it in a variable"),
            _ => Some("only variables, fields, elements and map entries have an address"),
        };
        if let Some(reason) = reason {
            self.report(Diagnostic::error(407, span, "cannot take the address of this").help(reason));
            return self.error_expr(span);
        }
        if self.context_member(operand).is_some() {
            self.report(Diagnostic::error(407, span, "a context member has no address"));
            return self.error_expr(span);
        }
        let Some(lvalue) = self.lvalue(operand) else { return self.error_expr(span) };
        if !self.has_address(&lvalue, span) {
            return self.error_expr(span);
        }
        let pointer = self.checker.types.intern(TypeKind::Ptr(lvalue.ty));
        self.make(ExprKind::AddrOf(lvalue), pointer, span)
    }

    fn has_address(&mut self, lvalue: &Lvalue, span: Span) -> bool {
        let mut root = lvalue;
        while let LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } = &root.kind {
            if matches!(self.checker.types.kind(base.ty), TypeKind::Str(_)) {
                self.report(
                    Diagnostic::error(407, span, "cannot take the address of a byte of a string")
                        .help("bytes of an array have addresses: `u8[N]`"),
                );
                return false;
            }
            root = base;
        }
        match root.kind {
            LvalueKind::Element { .. } if self.half() == Half::User => {
                self.report(
                    Diagnostic::error(611, span, "a map entry has no address in userspace")
                        .note("the entry lives in the kernel; a pointer would lead to a copy")
                        .help("read it into a variable, change that, and store it back"),
                );
                false
            }
            LvalueKind::Value(_) | LvalueKind::Config(..) => {
                self.report(Diagnostic::error(407, span, "cannot take the address of this"));
                false
            }
            LvalueKind::Deref(_) if self.is_context(root.ty) && !std::ptr::eq(root, lvalue) => {
                self.report(Diagnostic::error(407, span, "a context member has no address"));
                false
            }
            _ => true,
        }
    }

    pub(super) fn is_context(&self, ty: TypeId) -> bool {
        match self.checker.types.kind(ty) {
            TypeKind::Struct(id) => self.checker.types.struct_def(*id).origin == StructOrigin::Context,
            _ => false,
        }
    }

    /// Checks `pointer ± integer` and `pointer - pointer`; `None` if no operand is a pointer.
    pub(super) fn pointer_arithmetic(
        &mut self,
        op: ast::BinaryOp,
        left: &Typed,
        right: &Typed,
        span: Span,
    ) -> Option<Typed> {
        let u64 = self.checker.types.common().u64;
        let kinds =
            (self.checker.types.kind(left.expr.ty).clone(), self.checker.types.kind(right.expr.ty).clone());
        match (op, kinds) {
            (ast::BinaryOp::Sub, (TypeKind::Ptr(_), TypeKind::Ptr(_))) => {
                let kind = ExprKind::Distance(Box::new(left.expr.clone()), Box::new(right.expr.clone()));
                Some(self.make(kind, u64, span))
            }
            // In tc programs packet pointers are numbers, too (4.4): the distance from a pointer that is
            // stored as a number.
            (ast::BinaryOp::Sub, (TypeKind::Ptr(_), TypeKind::Int(_)))
                if self.packet_numbers() && right.constant.is_none() && right.expr.ty == u64 =>
            {
                let address = self.address(left.expr.clone());
                let kind = ExprKind::Binary(BinaryOp::Sub, Box::new(address), Box::new(right.expr.clone()));
                Some(self.make(kind, u64, span))
            }
            (ast::BinaryOp::Add | ast::BinaryOp::Sub, (TypeKind::Ptr(to), TypeKind::Int(_))) => {
                Some(self.moved(op, left, to, right, span))
            }
            (ast::BinaryOp::Add, (TypeKind::Int(_), TypeKind::Ptr(to))) => {
                Some(self.moved(op, right, to, left, span))
            }
            _ => None,
        }
    }

    fn moved(&mut self, op: ast::BinaryOp, pointer: &Typed, to: TypeId, by: &Typed, span: Span) -> Typed {
        let is_kernels = self.checker.types.kernel_struct(to).is_some()
            && !self.checker.types.is_context_pointer(pointer.expr.ty);
        if self.is_opaque(to) && !is_kernels {
            let text = format!("arithmetic on a `{}` is refused", self.type_name(pointer.expr.ty));
            self.report(
                Diagnostic::error(402, span, text)
                    .note("the kernel's struct has one place, and its members are reached with `->`"),
            );
            return self.error_expr(span);
        }
        let i64 = self.int_type(I64);
        let distance = match by.constant {
            Some(value) => {
                let value = if op == ast::BinaryOp::Sub { -value } else { value };
                Expr { kind: ExprKind::Const(value as u64), ty: i64, span: by.expr.span }
            }
            None => {
                let by_span = by.expr.span;
                let wide =
                    Expr { kind: ExprKind::Convert(Box::new(by.expr.clone())), ty: i64, span: by_span };
                if op == ast::BinaryOp::Sub {
                    let kind = ExprKind::Unary(crate::hir::UnaryOp::Neg, Box::new(wide));
                    Expr { kind, ty: i64, span: by_span }
                } else {
                    wide
                }
            }
        };
        let (pointer, ty) = (Box::new(pointer.expr.clone()), pointer.expr.ty);
        if is_kernels {
            let element = KernelBuiltin::Element { pointer, index: Box::new(distance) };
            return self.kernel_builtin(element, ty, span);
        }
        self.make(ExprKind::Offset(pointer, Box::new(distance)), ty, span)
    }

    /// Converts a pointer to a number.
    pub(super) fn address(&mut self, pointer: Expr) -> Expr {
        let (ty, span) = (self.checker.types.common().u64, pointer.span);
        Expr { kind: ExprKind::Convert(Box::new(pointer)), ty, span }
    }

    /// Whether packet pointers may be used as `u64` here, as 0.1.1 types them in tc programs.
    pub(super) fn packet_numbers(&mut self) -> bool {
        let context = self.checker.known.skb_context;
        let pointer = self.checker.types.intern(TypeKind::Ptr(context));
        self.params.iter().any(|param| self.locals[*param].ty == pointer)
    }

    /// Checks the comparison of a pointer with a pointer or a number; `None` if neither operand is a pointer.
    pub(super) fn pointer_comparison(
        &mut self,
        op: BinaryOp,
        left: &Typed,
        right: &Typed,
        span: Span,
    ) -> Option<Typed> {
        let types = &self.checker.types;
        let pointer = |ty: TypeId| matches!(types.kind(ty), TypeKind::Ptr(_));
        let integer = |ty: TypeId| types.int(ty).is_some();
        let (a, b) = (left.expr.ty, right.expr.ty);
        let bool = types.common().bool;
        let (left, right) = match (pointer(a), pointer(b)) {
            (true, true) => (left.expr.clone(), right.expr.clone()),
            (true, false) if integer(b) => self.mixed(left, right, span),
            (false, true) if integer(a) => {
                let (pointer, number) = self.mixed(right, left, span);
                (number, pointer)
            }
            _ => return None,
        };
        Some(self.make(ExprKind::Binary(op, Box::new(left), Box::new(right)), bool, span))
    }

    fn mixed(&mut self, pointer: &Typed, number: &Typed, span: Span) -> (Expr, Expr) {
        if !self.packet_numbers() {
            let (a, b) = (self.type_name(pointer.expr.ty), self.type_name(number.expr.ty));
            self.report(
                Diagnostic::warning(
                    402,
                    span,
                    format!("a pointer is compared with a number: `{a}` with `{b}`"),
                )
                .help("compare it with another pointer, or with `null`"),
            );
        }
        let u64 = self.checker.types.common().u64;
        let address = self.address(pointer.expr.clone());
        let number = match number.constant {
            Some(value) => Expr { kind: ExprKind::Const(value as u64), ty: u64, span: number.expr.span },
            None => {
                let span = number.expr.span;
                Expr { kind: ExprKind::Convert(Box::new(number.expr.clone())), ty: u64, span }
            }
        };
        (address, number)
    }

    /// Whether a pointer comes from the kernel: a parameter of a program other than the context, or a pointer
    /// read through one.
    pub(super) fn is_kernel_pointer(&self, pointer: &Expr) -> bool {
        match &pointer.kind {
            ExprKind::Load(lvalue) => self.is_kernel_lvalue(lvalue),
            ExprKind::Offset(pointer, _) | ExprKind::Convert(pointer) => self.is_kernel_pointer(pointer),
            ExprKind::Kernel(KernelBuiltin::VariableAddress { .. }) => true,
            _ => false,
        }
    }

    fn is_kernel_lvalue(&self, lvalue: &Lvalue) -> bool {
        match &lvalue.kind {
            LvalueKind::Local(local) => {
                let given = matches!(self.kind, FunctionKind::Program(_) | FunctionKind::Method(_));
                let context = match self.checker.types.kind(self.locals[*local].ty) {
                    TypeKind::Ptr(to) => self.is_context(*to),
                    _ => true,
                };
                given
                    && self.params.contains(local)
                    && !context
                    && !self.prescan.uses(self.locals[*local].span).assigned
            }
            LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => self.is_kernel_lvalue(base),
            LvalueKind::Deref(pointer) => self.is_kernel_pointer(pointer),
            _ => false,
        }
    }

    /// Whether the pointee of a pointer may be written; reports why not.
    pub(super) fn check_write_through(&mut self, lvalue: &Lvalue, span: Span) -> bool {
        let LvalueKind::Field { base, field } = &lvalue.kind else { return true };
        let LvalueKind::Deref(_) = base.kind else { return true };
        let TypeKind::Struct(id) = *self.checker.types.kind(base.ty) else { return true };
        self.check_member_write(id, *field, span)
    }

    fn check_member_write(&mut self, id: StructId, field: usize, span: Span) -> bool {
        let def = self.checker.types.struct_def(id);
        let member = def.fields.get(field).map(|field| field.name.clone()).unwrap_or_default();
        match def.origin {
            StructOrigin::Script | StructOrigin::Predeclared | StructOrigin::NestedKey => true,
            StructOrigin::Kernel if def.name.starts_with("trace_event_raw_") => {
                let text = format!("`{member}` of `{}` cannot be assigned", def.name);
                self.report(Diagnostic::error(412, span, text).label("a context member"));
                false
            }
            StructOrigin::Kernel => {
                let text = format!("`{member}` is kernel memory, which cannot be written");
                self.report(
                    Diagnostic::error(612, span, text)
                        .note("the kernel lets programs read its structs; a write could break it"),
                );
                false
            }
            StructOrigin::Context => {
                let name = def.name.clone();
                let writable = context_members::find(&name)
                    .and_then(|one| one.field(&member))
                    .is_some_and(|one| one.access == Access::ReadWrite);
                if !writable {
                    let text = format!("`{member}` of `{name}` cannot be assigned");
                    self.report(Diagnostic::error(412, span, text).label("a context member"));
                }
                writable
            }
        }
    }
}
