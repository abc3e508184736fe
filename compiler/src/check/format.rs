//! Checks the format of `print` against its values (language reference, 6.1).

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::format::{Piece, pieces};
use crate::hir::{Expr, ExprKind, SharedBuiltin};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Body<'_, '_> {
    pub(super) fn print_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let literal = args.first().and_then(|first| match &strip(first).kind {
            ast::ExprKind::Str(bytes) => Some((bytes.clone(), first.span)),
            _ => None,
        });
        let values = &args[usize::from(literal.is_some())..];
        let values: Vec<Expr> = values.iter().map(|value| self.printed_value(value)).collect();
        if values.iter().any(|value| self.checker.types.is_error(value.ty)) {
            return self.error_expr(span);
        }
        let format = match literal {
            Some((format, format_span)) => self.check_format(&format, format_span, &values),
            None => {
                values.iter().for_each(|value| self.check_natural(value));
                vec!["{}"; values.len()].join(" ").into_bytes()
            }
        };
        let u32 = self.checker.types.common().u32;
        self.make(ExprKind::Shared(SharedBuiltin::Print { format, args: values }), u32, span)
    }

    /// Checks a value. In the kernel half only such a value may be a text that the host makes.
    fn printed_value(&mut self, value: &ast::Expr) -> Expr {
        let outer = self.printed.replace(strip(value).span);
        let checked = self.expr(value, None).expr;
        self.printed = outer;
        checked
    }

    /// Returns the format for the host: one conversion for each value.
    fn check_format(&mut self, format: &[u8], format_span: Span, values: &[Expr]) -> Vec<u8> {
        let mut out = Vec::with_capacity(format.len());
        let mut left = values.iter();
        for piece in pieces(format) {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Percent => out.extend_from_slice(b"%%"),
                Piece::Unknown(text) => {
                    let conversion_text = String::from_utf8_lossy(text).into_owned();
                    self.report(
                        Diagnostic::warning(
                            425,
                            format_span,
                            format!("`{conversion_text}` is not a conversion and is printed as it is"),
                        )
                        .help("write `%%` for a percent sign"),
                    );
                    out.push(b'%');
                    out.extend_from_slice(text);
                }
                Piece::Natural => match left.next() {
                    Some(value) => {
                        self.check_natural(value);
                        out.extend_from_slice(b"{}");
                    }
                    None => self.too_few("{}", format_span),
                },
                Piece::Conversion(text, letter) => match left.next() {
                    Some(value) => {
                        self.check_conversion(letter, value);
                        out.extend_from_slice(text);
                    }
                    None => self.too_few(&String::from_utf8_lossy(text), format_span),
                },
            }
        }
        // A line end in the text stays at the end.
        let ended = left.len() > 0 && out.pop_if(|last| *last == b'\n').is_some();
        for value in left {
            self.check_natural(value);
            let text = "a value without a conversion is printed at the end";
            self.report(
                Diagnostic::warning(425, value.span, text).help("add a conversion such as `%d` or `{}`"),
            );
            out.extend_from_slice(if out.is_empty() { b"{}" } else { b" {}" });
        }
        out.extend(ended.then_some(b'\n'));
        out
    }

    fn too_few(&mut self, conversion: &str, format_span: Span) {
        let text = format!("no value for `{conversion}`");
        self.report(
            Diagnostic::error(425, format_span, text)
                .help("every conversion needs a value behind the format"),
        );
    }

    fn check_conversion(&mut self, letter: u8, value: &Expr) {
        if self.is_handle(value) {
            return;
        }
        let numeric = self.is_numeric(value.ty);
        let common = self.checker.types.common();
        let fits = match letter {
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => numeric || value.ty == common.bool,
            b'c' => value.ty == common.char || numeric,
            b's' => self.is_text(value.ty) || self.is_text_pointer(value.ty),
            b'p' => matches!(self.checker.types.kind(value.ty), TypeKind::Ptr(_)),
            _ => false,
        };
        if !fits {
            let letter = char::from(letter);
            let text = format!("`{}` cannot be printed with `%{letter}`", self.type_name(value.ty));
            let pointer = matches!(self.checker.types.kind(value.ty), TypeKind::Ptr(_));
            let help = match (letter, numeric, self.is_text(value.ty)) {
                ('f' | 'e' | 'g' | 'E' | 'G' | 'F' | 'a' | 'A', ..) => {
                    "there are no floating-point values: use `%d`"
                }
                (_, true, _) => "use `%d` or `%u`",
                (_, _, true) => "use `%s`",
                ('s', ..) if pointer => "`%s` takes `*u8` or `*char`; `%p` shows the address",
                _ if pointer => "use `%p`",
                _ => "`{}` shows a scalar or string in its natural form",
            };
            self.report(Diagnostic::error(424, value.span, text).help(help));
        }
    }

    /// Reports a program handle, which is not a number.
    fn is_handle(&mut self, value: &Expr) -> bool {
        let handle = *self.checker.types.kind(value.ty) == TypeKind::Program;
        if handle {
            self.report(
                Diagnostic::error(424, value.span, "a program handle cannot be printed")
                    .note("a handle can only be attached, detached, tested for null"),
            );
        }
        handle
    }

    fn check_natural(&mut self, value: &Expr) {
        if self.is_handle(value) {
            return;
        }
        let common = self.checker.types.common();
        let scalar = self.is_numeric(value.ty)
            || value.ty == common.bool
            || value.ty == common.char
            || matches!(self.checker.types.kind(value.ty), TypeKind::Ptr(_));
        if !scalar && !self.is_text(value.ty) {
            let text = format!("`{}` cannot be printed", self.type_name(value.ty));
            let help = match self.checker.types.kind(value.ty) {
                TypeKind::Struct(_) => "print its fields",
                TypeKind::Array(..) => "print its elements",
                TypeKind::Fn(..) => "print what a call of it gives",
                _ => "only numbers, bools, characters and strings can be printed",
            };
            self.report(Diagnostic::error(424, value.span, text).help(help));
        }
    }

    fn is_numeric(&self, ty: TypeId) -> bool {
        matches!(self.checker.types.kind(ty), TypeKind::Int(_) | TypeKind::Enum(_))
    }

    /// Whether a type is a pointer to text in memory.
    fn is_text_pointer(&self, ty: TypeId) -> bool {
        let common = self.checker.types.common();
        matches!(self.checker.types.kind(ty), TypeKind::Ptr(to) if *to == common.u8 || *to == common.char)
    }

    fn is_text(&self, ty: TypeId) -> bool {
        let common = self.checker.types.common();
        match self.checker.types.kind(ty) {
            TypeKind::Str(_) => true,
            TypeKind::Array(element, _) => *element == common.u8 || *element == common.char,
            _ => false,
        }
    }
}
