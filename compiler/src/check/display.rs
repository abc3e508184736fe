//! Builtins that make text of numbers and addresses of the kernel: `ipv4`, `syscall_name`, `ksym`, `strftime`. In
//! userspace their result is a string. The kernel half makes no text: there a call is only a value of `print`, whose
//! record has the operands.

use ks_wit::object::DisplayForm;

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Half, LvalueKind, SharedBuiltin};
use crate::kernel_types::KernelType;
use crate::source::Span;
use crate::types::TypeKind;

/// Bytes of a string that holds every IPv4 address, as `INET_ADDRSTRLEN` of C.
const IPV4: u32 = 16;
/// Bytes of a string that holds every IPv6 address, as `INET6_ADDRSTRLEN` of C.
const IPV6: u32 = 46;
/// Bytes of a string that holds every link-layer address of 6 bytes.
const MAC: u32 = 18;
/// Bytes of a string that holds every name of a number, and every number.
const NAME: u32 = 32;
/// Bytes of a string for the name of a function, as those of `symbol`.
const FUNCTION: u32 = 128;
/// Bytes of a string for an enumerator: the longest one of the kernel has 104 letters.
const ENUMERATOR: u32 = 128;
/// Bytes of a string for a time of day.
const TIME_OF_DAY: u32 = 64;
/// Bytes of a string that holds every size and duration with its unit.
const QUANTITY: u32 = 16;

/// Letters of the conversions of `strftime`. Source: strftime(3), and `%f` and `%N` of Python and date(1).
const OF_TIME: &[u8] = b"%aAbBcCdDeFgGhHIjklmMnNfpPrRsSTuUVwWxXyYzZt";

impl Body<'_, '_> {
    /// Checks `ipv4(address)`.
    pub(super) fn ipv4_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let u32 = self.common().u32;
        let value = self.expr(&args[0], None);
        let operand = match *self.checker.types.kind(value.expr.ty) {
            TypeKind::Int(_) => self.coerce(value, u32),
            _ => match self.network_address(value.expr, 4, "`u32` or `u8[4]`") {
                Some(address) => address,
                None => return self.error_expr(span),
            },
        };
        self.display(DisplayForm::Ipv4, vec![operand], IPV4, span)
    }

    /// Checks `ipv6(address)` and `mac(address)`.
    pub(super) fn address_call(&mut self, form: DisplayForm, args: &[ast::Expr], span: Span) -> Typed {
        let (bytes, expected, size) = match form {
            DisplayForm::Ipv6 => (16, "`u8[16]` or `u32[4]`", IPV6),
            _ => (6, "`u8[6]`", MAC),
        };
        let value = self.expr(&args[0], None).expr;
        match self.network_address(value, bytes, expected) {
            Some(address) => self.display(form, vec![address], size, span),
            None => self.error_expr(span),
        }
    }

    /// Checks an address in network byte order: an array of integers with so many bytes.
    fn network_address(&mut self, value: Expr, bytes: u64, expected: &str) -> Option<Expr> {
        let types = &self.checker.types;
        let fits = match types.kind(value.ty) {
            TypeKind::Error => return None,
            TypeKind::Array(element, _) => {
                matches!(types.kind(*element), TypeKind::Int(_) | TypeKind::Char)
                    && types.size(value.ty) == bytes
            }
            _ => false,
        };
        if !fits {
            let text = format!(
                "expected an address in network byte order ({expected}), found `{}`",
                self.type_name(value.ty)
            );
            self.report(Diagnostic::error(401, value.span, text));
        }
        fits.then_some(value)
    }

    /// Checks `syscall_name(number)` and the like.
    pub(super) fn name_call(&mut self, form: DisplayForm, args: &[ast::Expr], span: Span) -> Typed {
        let number = self.number(&args[0], self.common().i64);
        self.display(form, vec![number], NAME, span)
    }

    /// Checks `enum_name(ENUM, number)` and `enum_name(p->member)`.
    pub(super) fn enum_name_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let (of, number) =
            match args {
                [of, number] => (self.enum_named(of), self.number(number, self.common().i64)),
                [member, ..] => {
                    let value = self.expr(member, None);
                    let i64 = self.common().i64;
                    match self.enum_of_member(&value.expr) {
                        Ok(of) => (Some(of), self.as_number(value, i64)),
                        Err(why) => {
                            if !self.checker.types.is_error(value.expr.ty) {
                                self.report(Diagnostic::error(401, member.span, why).help(
                                    "name the enum, or one of its enumerators: `enum_name(pid_type, n)`",
                                ));
                            }
                            return self.error_expr(span);
                        }
                    }
                }
                [] => return self.error_expr(span),
            };
        match of {
            Some(of) => self.display(DisplayForm::Enumerator(of), vec![number], ENUMERATOR, span),
            None => self.error_expr(span),
        }
    }

    /// Checks the name of an enum of the kernel or of an enumerator.
    fn enum_named(&mut self, of: &ast::Expr) -> Option<String> {
        let ast::ExprKind::Name(name) = &strip(of).kind else {
            self.report(
                Diagnostic::error(401, of.span, "the first operand names an enum of the kernel").help(
                    "write `enum_name(pid_type, n)`, or an enumerator of it: `enum_name(TCP_LISTEN, n)`",
                ),
            );
            return None;
        };
        let kernel = self.checker.kernel();
        if !kernel.has_btf() {
            let text = format!("enum `{name}` could not be checked: {}", kernel.no_btf());
            self.report(
                Diagnostic::warning(806, of.span, text).help("give the kernel's types with `--btf FILE`"),
            );
        } else if !kernel.has_enum_of(name) {
            self.report(
                Diagnostic::error(509, of.span, format!("this kernel has no enum or enumerator `{name}`"))
                    .note("an enumerator that several enums have with different values is none"),
            );
            return None;
        }
        Some(name.clone())
    }

    /// Returns the name of the kernel's enum that a member has, else why there is none.
    fn enum_of_member(&self, value: &Expr) -> Result<String, String> {
        let ExprKind::Load(lvalue) = &value.kind else {
            return Err("`enum_name` with one operand takes a member of a kernel struct".to_owned());
        };
        let member = match &lvalue.kind {
            LvalueKind::Field { base, field } => self.checker.types.kernel_struct(base.ty).and_then(|id| {
                let def = self.checker.types.struct_def(id);
                Some((&def.name, &def.fields.get(*field)?.name))
            }),
            _ => None,
        };
        let Some((owner, member)) = member else {
            return Err("`enum_name` with one operand takes a member of a kernel struct".to_owned());
        };
        match self.checker.kernel().member(owner, member).map(|found| found.ty) {
            Some(KernelType::Enum { name, .. }) if !name.is_empty() => Ok(name),
            Some(KernelType::Enum { .. }) => Err(format!("the enum of `{member}` has no name")),
            _ => Err(format!("`{member}` of `{owner}` is no enum in the kernel's types")),
        }
    }

    /// Checks `human_bytes(number)` and `human_time(ns)`.
    pub(super) fn quantity_call(&mut self, form: DisplayForm, args: &[ast::Expr], span: Span) -> Typed {
        let number = self.number(&args[0], self.common().u64);
        self.display(form, vec![number], QUANTITY, span)
    }

    /// Checks `ksym(address)`.
    pub(super) fn ksym_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let address = self.code_address(&args[0]);
        self.display(DisplayForm::KernelFunction, vec![address], FUNCTION, span)
    }

    /// Checks `usym(pid, address)`.
    pub(super) fn usym_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let pid = self.number(&args[0], self.common().i32);
        let address = self.code_address(&args[1]);
        self.display(DisplayForm::ProcessFunction, vec![pid, address], FUNCTION, span)
    }

    /// Checks an address of code: a number or, in the kernel half, a pointer.
    fn code_address(&mut self, arg: &ast::Expr) -> Expr {
        let u64 = self.common().u64;
        let value = self.expr(arg, Some(u64));
        match self.checker.types.kind(value.expr.ty) {
            TypeKind::Ptr(_) if self.half() == Half::Kernel => self.address(value.expr),
            _ => self.as_number(value, u64),
        }
    }

    /// Checks `strftime(format, ns)`.
    pub(super) fn strftime_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let time = self.number(&args[1], self.common().u64);
        let ast::ExprKind::Str(format) = &strip(&args[0]).kind else {
            let text = "the format of `strftime` is a string literal";
            self.report(
                Diagnostic::error(401, args[0].span, text).help("write `strftime(\"%H:%M:%S\", ns)`"),
            );
            return self.error_expr(span);
        };
        if let Some(unknown) = unknown_conversion(format) {
            let text = format!("`{unknown}` is not a conversion of `strftime`");
            self.report(
                Diagnostic::error(425, args[0].span, text)
                    .help("write `%H:%M:%S`, `%Y-%m-%d`, `%f` for microseconds, or `%%` for a percent sign"),
            );
            return self.error_expr(span);
        }
        self.display(DisplayForm::TimeOfDay(format.clone()), vec![time], TIME_OF_DAY, span)
    }

    /// Makes the text. In the kernel half only `print` takes it.
    fn display(&mut self, form: DisplayForm, args: Vec<Expr>, size: u32, span: Span) -> Typed {
        if args.iter().any(|arg| self.checker.types.is_error(arg.ty)) {
            return self.error_expr(span);
        }
        if self.half() == Half::Kernel && self.printed != Some(span) {
            let text = "in the kernel half this text is only a value of `print`";
            self.report(
                Diagnostic::error(306, span, text)
                    .note("the host makes the text, of the numbers that a record of `print` has")
                    .help("keep the number or the address, and make the text in userspace"),
            );
            return self.error_expr(span);
        }
        let ty = self.checker.types.str_type(size);
        self.shared_builtin(SharedBuiltin::Display { form, args }, ty, span)
    }
}

/// Returns the first conversion of a format that strftime(3) does not have.
fn unknown_conversion(format: &[u8]) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        match rest.get(at + 1) {
            Some(letter) if OF_TIME.contains(letter) => rest = &rest[at + 2..],
            _ => {
                let end = rest.len().min(at + 2);
                return Some(String::from_utf8_lossy(&rest[at..end]).into_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_strftime() {
        assert_eq!(unknown_conversion(b"%H:%M:%S.%f %% no"), None);
        assert_eq!(unknown_conversion(b"%H %q"), Some("%q".into()));
        assert_eq!(unknown_conversion(b"100%"), Some("%".into()));
    }
}
