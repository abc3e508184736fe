//! Ring buffers: their methods and `dispatch` (language reference, 5.6 and 6.8).

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::{Checker, count};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FuncId, Half, Handler, KernelBuiltin, RingId, UserBuiltin};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// The methods, with their half and number of arguments.
const METHODS: &[(&str, Half, usize)] = &[
    ("reserve", Half::Kernel, 0),
    ("submit", Half::Kernel, 1),
    ("discard", Half::Kernel, 1),
    ("on_event", Half::User, 1),
];

impl Body<'_, '_> {
    /// Checks a call of `r.method(args)`.
    pub(super) fn ring_method(
        &mut self,
        ring: RingId,
        method: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        let Some((name, half, wanted)) = METHODS.iter().find(|(name, ..)| *name == method.name) else {
            let text = format!("a ring buffer has no method `{}`", method.name);
            let diagnostic = Diagnostic::error(304, method.span, text)
                .suggest_near(method.span, "method", &method.name, METHODS.iter().map(|one| one.0))
                .note("its methods are `reserve`, `submit`, `discard` and `on_event`");
            self.report(diagnostic);
            return self.error_expr(span);
        };
        if *half != self.half() {
            let text = format!("`{name}` belongs to the {} half", half.name());
            self.report(Diagnostic::error(306, method.span, text));
            return self.error_expr(span);
        }
        if args.len() != *wanted {
            let text = format!("`{name}` takes {}, {} given", count(*wanted), args.len());
            self.report(Diagnostic::error(404, span, text));
            return self.error_expr(span);
        }
        let record = self.checker.rings[ring].record;
        let pointer = self.checker.types.intern(TypeKind::Ptr(record));
        let common = self.common();
        match (*name, args) {
            ("reserve", _) => self.kernel_builtin(KernelBuiltin::Reserve(ring), pointer, span),
            ("submit", [record]) => {
                let record = Box::new(self.value(record, pointer));
                self.kernel_builtin(KernelBuiltin::Submit(ring, record), common.i32, span)
            }
            ("discard", [record]) => {
                let record = Box::new(self.value(record, pointer));
                self.kernel_builtin(KernelBuiltin::Discard(ring, record), common.i32, span)
            }
            ("on_event", [handler]) => {
                self.checker.handled.insert(ring);
                match self.handler(handler, pointer) {
                    Some(handler) => {
                        self.user_builtin(UserBuiltin::OnEvent(ring, Handler(handler)), common.u32, span)
                    }
                    None => self.error_expr(span),
                }
            }
            _ => self.error_expr(span),
        }
    }

    /// Checks an argument that names a userspace function which takes a record.
    fn handler(&mut self, arg: &ast::Expr, record: TypeId) -> Option<FuncId> {
        if self.checker.types.is_error(record) {
            return None;
        }
        let i32 = self.common().i32;
        let wanted = self.checker.types.intern(TypeKind::Fn(vec![record], i32));
        let wanted = self.type_name(wanted);
        let Some(Symbol::Function(id)) = self.top_symbol(arg) else {
            if !matches!(self.top_symbol(arg), Some(Symbol::Error)) {
                let text = format!("expected the name of a function `{wanted}`");
                self.report(Diagnostic::error(401, arg.span, text));
            }
            return None;
        };
        let signature = self.checker.signatures[id].clone();
        let kind = signature.kind?;
        if kind.half() != Half::User {
            self.report(
                Diagnostic::error(
                    306,
                    arg.span,
                    "the handler of a ring buffer belongs to the userspace half",
                )
                .also(signature.span, "this function runs in the kernel half"),
            );
            return None;
        }
        if signature.params != [record] || signature.ret != i32 {
            let found = self.checker.types.intern(TypeKind::Fn(signature.params, signature.ret));
            let text = format!("expected `{wanted}`, found `{}`", self.type_name(found));
            self.report(Diagnostic::error(401, arg.span, text).also(signature.span, "declared here"));
            return None;
        }
        Some(id)
    }

    /// Checks `dispatch(r1, r2, timeout_ms)`.
    pub(super) fn dispatch_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        if args.is_empty() {
            self.report(
                Diagnostic::error(404, span, "`dispatch` takes at least 1 argument, 0 given")
                    .help("write `dispatch(ring)`, or `dispatch(ring, timeout_ms)`"),
            );
            return self.error_expr(span);
        }
        let mut rings = Vec::new();
        let mut timeout_ms = None;
        let mut sound = true;
        for (index, arg) in args.iter().enumerate() {
            match self.top_symbol(arg) {
                Some(Symbol::Ring(ring)) => {
                    rings.push(ring);
                    self.checker.dispatched.push((ring, arg.span));
                }
                Some(Symbol::Error) => sound = false,
                _ if index > 0 && index + 1 == args.len() => match self.timeout(arg) {
                    Some(timeout) => timeout_ms = Some(Box::new(timeout)),
                    None => sound = false,
                },
                symbol => {
                    self.no_ring(arg, symbol);
                    sound = false;
                }
            }
        }
        if !sound {
            return self.error_expr(span);
        }
        self.user_builtin(UserBuiltin::Dispatch { rings, timeout_ms }, self.common().i32, span)
    }

    /// Checks the last argument if it is not a ring: milliseconds.
    fn timeout(&mut self, arg: &ast::Expr) -> Option<Expr> {
        let symbol = self.top_symbol(arg);
        if matches!(symbol, Some(Symbol::Map(_) | Symbol::Config(_) | Symbol::Counter(_) | Symbol::Type(_))) {
            self.no_ring(arg, symbol);
            return None;
        }
        let found = self.expr(arg, None).expr;
        if self.checker.types.is_error(found.ty) {
            return None;
        }
        if self.checker.types.int(found.ty).is_none() {
            let text = format!("ring buffer expected, found `{}`", self.type_name(found.ty));
            self.report(Diagnostic::error(609, arg.span, text));
            return None;
        }
        self.checker.strict(arg.span, "time limit in `dispatch`");
        let u64 = self.common().u64;
        if found.ty == u64 {
            return Some(found);
        }
        let span = found.span;
        Some(Expr { kind: ExprKind::Convert(Box::new(found)), ty: u64, span })
    }

    fn no_ring(&mut self, arg: &ast::Expr, symbol: Option<Symbol>) {
        let diagnostic = Diagnostic::error(609, arg.span, "ring buffer expected");
        let diagnostic = match symbol {
            Some(symbol) => diagnostic.label(format!("this is {}", symbol.what())),
            None => diagnostic,
        };
        self.report(diagnostic.help("declare one at top level: `var events : ringbuf<Event>(4096)`"));
    }
}

impl Checker<'_> {
    /// Reports rings that are dispatched but have no handler, after all bodies were checked.
    pub(super) fn check_handlers(&mut self) {
        for (ring, span) in std::mem::take(&mut self.dispatched) {
            let one = &self.rings[ring];
            if one.default_handler.is_some() || self.handled.contains(&ring) {
                continue;
            }
            let (name, declared) = (one.name.clone(), one.span);
            self.report(
                Diagnostic::error(617, span, format!("ring `{name}` has no handler"))
                    .also(declared, "declared here")
                    .help(format!(
                        "write `{name}.on_event(handler)` before, or a function `{name}_callback`"
                    )),
            );
        }
    }
}
