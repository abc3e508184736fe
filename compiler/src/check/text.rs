//! Text and bytes whose length is known only at run time: `str`, `buf`, `join`, `path`, and members of tracepoints' records.
//! The destination says how many bytes they have at most.

use super::expr::Typed;
use super::function::Body;
use super::kernel_structs::RECORD;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, KernelBuiltin, MAX_SEPARATOR};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Size of a text whose destination names none, terminator included.
const DEFAULT_BYTES: u32 = 64;
/// Maximum size of a text that is read: larger ones do not fit the kernel's stack.
const MAX_BYTES: u32 = 256;
/// Minimum size of a path that is read: `..` and the terminator.
const PATH_BYTES: u32 = 3;

impl Body<'_, '_> {
    pub(super) fn buf_call(&mut self, pointer: &ast::Expr, length: &ast::Expr, span: Span) -> Typed {
        let from = self.not_last(|body| body.expr(pointer, None));
        let Some(address) = self.text_address(from) else { return self.error_expr(span) };
        let u64 = self.checker.types.common().u64;
        let length = Box::new(self.number(length, u64));
        let ty = match self.destination.map(|ty| (ty, self.checker.types.kind(ty))) {
            Some((ty, TypeKind::Array(element, _))) if self.is_byte(*element) => ty,
            _ => {
                let bytes = match length.kind {
                    ExprKind::Const(bytes) if (1..=MAX_BYTES.into()).contains(&bytes) => bytes,
                    _ => DEFAULT_BYTES.into(),
                };
                let u8 = self.checker.types.common().u8;
                self.checker.types.intern(TypeKind::Array(u8, bytes))
            }
        };
        self.kernel_builtin(KernelBuiltin::Buffer { address: Box::new(address), length }, ty, span)
    }

    pub(super) fn path_call(&mut self, path: &ast::Expr, size: Option<&ast::Expr>, span: Span) -> Typed {
        let Some(ty) = self.text_of_size(size, PATH_BYTES) else { return self.error_expr(span) };
        let from = self.not_last(|body| body.expr(path, None));
        if self.checker.types.is_error(from.expr.ty) {
            return self.error_expr(span);
        }
        if !self.checker.points_to(from.expr.ty, "path") {
            let text = format!(
                "`path` takes a pointer to the kernel's `path`, not `{}`",
                self.type_name(from.expr.ty)
            );
            self.report(Diagnostic::error(401, from.expr.span, text).help("write `path(&file->f_path)`"));
            return self.error_expr(span);
        }
        let address = Box::new(self.address(from.expr));
        self.kernel_builtin(KernelBuiltin::Path(address), ty, span)
    }

    /// Returns the type of a text with this size as the last argument; without one the type of the destination.
    /// `None` if an error was reported.
    fn text_of_size(&mut self, size: Option<&ast::Expr>, least: u32) -> Option<TypeId> {
        match size {
            Some(size) => self.text_size(size, least).map(|size| self.checker.types.str_type(size)),
            None => Some(self.destination_text(self.destination, least)),
        }
    }

    pub(super) fn str_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let Some(ty) = self.text_of_size(args.get(1), 1) else { return self.error_expr(span) };
        let from = self.not_last(|body| body.expr(&args[0], None));
        match self.checker.types.kind(from.expr.ty) {
            // Text that lies in a value.
            TypeKind::Array(element, _) if self.is_byte(*element) => {
                let kind = ExprKind::Convert(Box::new(from.expr));
                self.make(kind, ty, span)
            }
            TypeKind::Error => self.error_expr(span),
            _ => match self.text_address(from) {
                Some(address) => self.kernel_builtin(KernelBuiltin::Text(Box::new(address)), ty, span),
                None => self.error_expr(span),
            },
        }
    }

    pub(super) fn join_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let [pointers, separator, ..] = args else { unreachable!("each form has two arguments at least") };
        let Some(ty) = self.text_of_size(args.get(2), 1) else { return self.error_expr(span) };
        let separator = match &strip(separator).kind {
            ast::ExprKind::Str(bytes) if bytes.len() <= MAX_SEPARATOR => bytes.clone(),
            _ => {
                let text = format!("`join` puts a literal of at most {MAX_SEPARATOR} bytes between texts");
                self.report(Diagnostic::error(401, separator.span, text));
                return self.error_expr(span);
            }
        };
        let from = self.not_last(|body| body.expr(pointers, None));
        if self.checker.types.is_error(from.expr.ty) {
            return self.error_expr(span);
        }
        let is_array = match self.checker.types.kind(from.expr.ty) {
            TypeKind::Ptr(to) => matches!(self.checker.types.kind(*to), TypeKind::Ptr(_)),
            _ => false,
        };
        if !is_array {
            let text = format!("`join` takes an array of texts, not `{}`", self.type_name(from.expr.ty));
            self.report(
                Diagnostic::error(401, from.expr.span, text).help("such as `argv: **u8` of `execve`"),
            );
            return self.error_expr(span);
        }
        let pointers = Box::new(self.address(from.expr));
        self.kernel_builtin(KernelBuiltin::Join { pointers, separator }, ty, span)
    }

    /// Checks a member of a tracepoint's record that the record only locates (`__data_loc`, `__rel_loc`);
    /// `None` for any other expression. Source: include/trace/stages/stage1_struct_define.h, v6.18.
    fn record_bytes_of(&mut self, expr: &ast::Expr) -> Option<(ast::Expr, bool)> {
        let ast::ExprKind::Field { base, arrow: true, name } = &strip(expr).kind else { return None };
        let ast::ExprKind::Name(record) = &strip(base).kind else { return None };
        let super::function::Scoped::Local(local) = self.lookup(record)? else { return None };
        let TypeKind::Ptr(to) = *self.checker.types.kind(self.locals[local].ty) else { return None };
        let TypeKind::Struct(id) = *self.checker.types.kind(to) else { return None };
        let def = self.checker.types.struct_def(id);
        if !def.name.starts_with(RECORD) || def.field(&name.name).is_some() {
            return None;
        }
        let owner = def.name.clone();
        let kernel = self.checker.kernel();
        if kernel.member(&owner, &name.name).is_some() {
            return None;
        }
        let (located, relative) = [("__data_loc_", false), ("__rel_loc_", true)]
            .map(|(prefix, relative)| (format!("{prefix}{}", name.name), relative))
            .into_iter()
            .find(|(located, _)| kernel.member(&owner, located).is_some())?;
        let name = ast::Ident { name: located, span: name.span };
        let kind = ast::ExprKind::Field { base: base.clone(), arrow: true, name };
        Some((ast::Expr { kind, span: expr.span }, relative))
    }

    pub(super) fn record_bytes(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Option<Typed> {
        let (locator, relative) = self.record_bytes_of(expr)?;
        self.checker.strict(expr.span, "members of records that differ in length");
        let locator = self.load(&locator);
        let ty = match wanted.map(|ty| (ty, self.checker.types.kind(ty))) {
            Some((ty, TypeKind::Array(element, _))) if self.checker.types.int(*element).is_some() => ty,
            _ => self.destination_text(wanted, 1),
        };
        let locator = Box::new(locator.expr);
        Some(self.kernel_builtin(KernelBuiltin::RecordBytes { locator, relative }, ty, expr.span))
    }

    /// The type of a text of at least so many bytes for a destination, which may be shorter.
    fn destination_text(&mut self, wanted: Option<TypeId>, least: u32) -> TypeId {
        let wanted = wanted.map(|ty| self.checker.types.kind(ty));
        let size = match wanted {
            Some(TypeKind::Str(size)) => (*size).clamp(least, MAX_BYTES),
            _ => DEFAULT_BYTES,
        };
        self.checker.types.str_type(size)
    }

    fn text_size(&mut self, size: &ast::Expr, least: u32) -> Option<u32> {
        let found = self.not_last(|body| body.expr(size, None));
        let bytes = found.constant.and_then(|value| u32::try_from(value).ok());
        match bytes.filter(|bytes| (least..=MAX_BYTES).contains(bytes)) {
            Some(bytes) => Some(bytes),
            None if self.checker.types.is_error(found.expr.ty) => None,
            None => {
                let text = format!("the size of a text is a constant from {least} to {MAX_BYTES}");
                self.report(
                    Diagnostic::error(430, size.span, text).note("the terminator is one of its bytes"),
                );
                None
            }
        }
    }

    /// The address that a text is read from: a pointer to bytes, or a number of 64 bits.
    fn text_address(&mut self, from: Typed) -> Option<Expr> {
        let types = &self.checker.types;
        match types.kind(from.expr.ty) {
            TypeKind::Error => None,
            TypeKind::Ptr(to) if self.is_byte(*to) || *to == types.common().void => {
                Some(self.address(from.expr))
            }
            TypeKind::Int(int) if int.bits == 64 => {
                let u64 = types.common().u64;
                Some(self.coerce(from, u64))
            }
            kind => {
                let help = match kind {
                    TypeKind::Str(_) => {
                        "it is text already: leave `str` out, or cut and pad it by `as str(N)`"
                    }
                    TypeKind::Ptr(to) if matches!(types.kind(*to), TypeKind::Array(..)) => {
                        "take the array itself, without `&`"
                    }
                    _ => "a `*u8`, an address as `u64`, or an array of bytes",
                };
                let text = format!("expected a pointer to bytes, found `{}`", self.type_name(from.expr.ty));
                self.report(Diagnostic::error(401, from.expr.span, text).help(help));
                None
            }
        }
    }
}
