//! Builtins whose arguments are plain values: clocks, tasks, strings, byte order (language reference, 6.11,
//! 11.9, 11.10 and 11.13).

use super::builtin::literal_text;
use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use super::types::Position;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FunctionKind, Half, KernelBuiltin, SharedBuiltin, UserBuiltin};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Size in bytes of the name of a task, terminator included.
const COMM: u32 = 16;
/// Least and most bytes of the text of `probe`, terminator included.
const LEAST_PROBE: usize = 16;
const MOST_PROBE: usize = 256;
/// Size in bytes of the result of `symbol`, terminator included.
const SYMBOL: u32 = 128;

impl Body<'_, '_> {
    pub(super) fn sleep_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.common();
        let ms = self.number(&args[0], common.u64);
        self.user_builtin(UserBuiltin::Sleep(Box::new(ms)), common.u32, span)
    }

    pub(super) fn time_ns_call(&mut self, span: Span) -> Typed {
        let ty = self.common().u64;
        match self.half() {
            Half::Kernel => self.kernel_builtin(KernelBuiltin::TimeNs, ty, span),
            Half::User => self.user_builtin(UserBuiltin::TimeNs, ty, span),
        }
    }

    pub(super) fn exit_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.common();
        let code = self.number(&args[0], common.i32);
        self.user_builtin(UserBuiltin::Exit(Box::new(code)), common.void, span)
    }

    pub(super) fn pid_of_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.text_arg(&args[0]) {
            Some(name) => self.user_builtin(UserBuiltin::PidOf(Box::new(name)), self.common().i32, span),
            None => self.error_expr(span),
        }
    }

    pub(super) fn comm_of_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let pid = self.number(&args[0], self.common().i32);
        let ty = self.checker.types.str_type(COMM);
        self.user_builtin(UserBuiltin::CommOf(Box::new(pid)), ty, span)
    }

    pub(super) fn next_thread_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let i32 = self.common().i32;
        let numbers = [0, 1].map(|index: usize| self.number(&args[index], i32));
        self.user_builtin(UserBuiltin::NextThread(Box::new(numbers)), i32, span)
    }

    pub(super) fn next_bpf_program_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let u32 = self.common().u32;
        let after = self.number(&args[0], u32);
        self.user_builtin(UserBuiltin::NextBpfProgram(Box::new(after)), u32, span)
    }

    pub(super) fn bpf_program_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let id = self.number(&args[0], self.common().u32);
        let ty = self.checker.known.bpf_program_info;
        self.user_builtin(UserBuiltin::BpfProgram(Box::new(id)), ty, span)
    }

    pub(super) fn comm_call(&mut self, span: Span) -> Typed {
        let ty = self.checker.types.str_type(COMM);
        self.kernel_builtin(KernelBuiltin::Comm, ty, span)
    }

    /// Checks `probe()`: where the program is attached. The text has the same type in all programs, so that it can be a key.
    pub(super) fn probe_call(&mut self, span: Span) -> Typed {
        let Some(text) = self.attach_point.clone().filter(|_| matches!(self.kind, FunctionKind::Program(_)))
        else {
            let error =
                Diagnostic::error(306, span, "`probe` stands in a program whose attribute names a target");
            self.report(error.note("`@tracepoint(\"sched/sched_switch\")` names one, `@xdp` does not"));
            return self.error_expr(span);
        };
        let targets = self.checker.signatures.iter().filter_map(|one| one.target.text());
        let longest = targets.map(|target| target.len() + 1).max().unwrap_or_default();
        let bytes = longest.next_multiple_of(8).clamp(LEAST_PROBE, MOST_PROBE) as u32;
        let ty = self.checker.types.str_type(bytes);
        let text = text.as_bytes();
        self.make(ExprKind::Bytes(text[..text.len().min(bytes as usize - 1)].to_vec()), ty, span)
    }

    pub(super) fn len_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.text_arg(&args[0]) {
            Some(text) => self.shared_builtin(SharedBuiltin::Len(Box::new(text)), self.common().u32, span),
            None => self.error_expr(span),
        }
    }

    pub(super) fn events_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.text_arg(&args[0]) {
            Some(pattern) => {
                self.user_builtin(UserBuiltin::Events(Box::new(pattern)), self.common().u32, span)
            }
            None => self.error_expr(span),
        }
    }

    pub(super) fn symbol_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.common();
        let (pid, address) = match args {
            [address] => (None, address),
            [pid, address, ..] => (Some(Box::new(self.number(pid, common.i32))), address),
            [] => return self.error_expr(span),
        };
        let address = Box::new(self.number(address, common.u64));
        let ty = self.checker.types.str_type(SYMBOL);
        self.user_builtin(UserBuiltin::Symbol { pid, address }, ty, span)
    }

    pub(super) fn ratio_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let u64 = self.common().u64;
        let numbers = [0, 1, 2].map(|index: usize| self.number(&args[index], u64));
        self.shared_builtin(SharedBuiltin::Ratio(Box::new(numbers)), u64, span)
    }

    pub(super) fn rate_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let reading = self.checker.known.perf_read;
        let readings = [0, 1].map(|index: usize| self.value(&args[index], reading));
        self.shared_builtin(SharedBuiltin::Rate(Box::new(readings)), self.common().u64, span)
    }

    /// Checks `ntohs` and the like. A constant is converted at compile time.
    pub(super) fn swap_bytes_call(&mut self, ty: TypeId, args: &[ast::Expr], span: Span) -> Typed {
        let value = self.value(&args[0], ty);
        if self.checker.types.is_error(value.ty) {
            return self.error_expr(span);
        }
        if let (ExprKind::Const(bits), Some(int)) = (&value.kind, self.checker.types.int(ty)) {
            let swapped = bits.swap_bytes() >> (64 - u32::from(int.bits));
            return self.integer(i128::from(swapped), ty, span);
        }
        self.shared_builtin(SharedBuiltin::SwapBytes(Box::new(value)), ty, span)
    }

    pub(super) fn size_of_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.common();
        let Some(written) = as_type(&args[0]) else {
            self.report(
                Diagnostic::error(303, args[0].span, "`sizeof` takes a type").help("write `sizeof(u32)`"),
            );
            return self.error_expr(span);
        };
        let ty = self.checker.type_expr(&written, Position::Value);
        if self.checker.types.is_error(ty) {
            return self.error_expr(span);
        }
        let size = self.checker.types.size(ty);
        self.literal(i128::from(size), common.u32, span)
    }

    pub(super) fn attachment_id_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.event_context(&args[0]) {
            Some(ctx) => {
                self.kernel_builtin(KernelBuiltin::AttachmentId(Box::new(ctx)), self.common().u64, span)
            }
            None => self.error_expr(span),
        }
    }

    /// Checks the context argument of a program that runs on an event: programs on packets have neither stack
    /// nor attachment.
    pub(super) fn event_context(&mut self, arg: &ast::Expr) -> Option<Expr> {
        let value = self.expr(arg, None).expr;
        let types = &self.checker.types;
        let fits = match types.kind(value.ty) {
            TypeKind::Error => return None,
            TypeKind::Ptr(to) if *to == self.checker.known.perf_context => true,
            TypeKind::Ptr(to) => match types.kind(*to) {
                TypeKind::Struct(id) => {
                    let name = &types.struct_def(*id).name;
                    name.starts_with("trace_event_raw_")
                        || name == "pt_regs" && types.is_context_pointer(value.ty)
                }
                _ => false,
            },
            _ => false,
        };
        if !fits {
            let text = format!(
                "expected the context of a perf event, tracepoint or probe, found `{}`",
                self.type_name(value.ty)
            );
            self.report(Diagnostic::error(401, value.span, text).help("pass the program's parameter `ctx`"));
        }
        fits.then_some(value)
    }

    /// Checks `exec("script.py")`: the host decides whether it has an effect.
    pub(super) fn exec_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let Some(path) = literal_text(&args[0]).filter(|path| path.ends_with(b".py")) else {
            self.report(Diagnostic::error(
                427,
                args[0].span,
                "`exec` takes a string literal that ends in `.py`",
            ));
            return self.error_expr(span);
        };
        let path = path.to_vec();
        self.report(
            Diagnostic::warning(428, span, "the host decides whether this happens")
                .note("a host refuses `exec` unless it was told otherwise; the script then goes on"),
        );
        self.user_builtin(UserBuiltin::Exec(path), self.common().void, span)
    }

    pub(super) fn register_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.top_symbol(&args[0]) {
            Some(Symbol::Impl(block)) => {
                self.checker.check_registrable(block, args[0].span);
                return self.user_builtin(UserBuiltin::Register(block), self.common().u32, span);
            }
            Some(Symbol::Error) => {}
            _ => {
                let blocks = self.checker.names.all(|symbol| matches!(symbol, Symbol::Impl(_)));
                let diagnostic =
                    Diagnostic::error(513, args[0].span, "`register` takes the name of an impl block");
                let diagnostic = match &strip(&args[0]).kind {
                    ast::ExprKind::Name(name) => {
                        diagnostic.suggest_near(args[0].span, "impl block", name, blocks)
                    }
                    _ => diagnostic,
                };
                self.report(diagnostic.note("an impl block has the attribute `@struct_ops(\"..\")`"));
            }
        }
        self.error_expr(span)
    }
}

/// Returns the type if an expression is one that the parser took for an expression: `T`, `module.T`, `T[4]`.
fn as_type(expr: &ast::Expr) -> Option<ast::TypeExpr> {
    let span = expr.span;
    let kind = match &expr.kind {
        ast::ExprKind::Type(written) => return Some(written.clone()),
        ast::ExprKind::Paren(inner) => return as_type(inner),
        ast::ExprKind::Name(name) => ast::TypeExprKind::Name(name.clone()),
        ast::ExprKind::Field { base, arrow: false, name } => match &base.kind {
            ast::ExprKind::Name(module) => ast::TypeExprKind::Qualified {
                module: ast::Ident { name: module.clone(), span: base.span },
                name: name.clone(),
            },
            _ => return None,
        },
        ast::ExprKind::Index(element, len) => {
            let size = match &len.kind {
                ast::ExprKind::Int(value) => {
                    ast::Size::Int(ast::IntLit { value: *value, negative: false, span: len.span })
                }
                ast::ExprKind::Name(name) => {
                    ast::Size::Const(ast::Ident { name: name.clone(), span: len.span })
                }
                _ => return None,
            };
            ast::TypeExprKind::Array(Box::new(as_type(element)?), size)
        }
        _ => return None,
    };
    Some(ast::TypeExpr { kind, span })
}
