//! Calls: of the script's own functions, of kernel functions, through values, and tail calls.

use super::builtin_table;
use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use super::{Signature, count};
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::{Expr, ExprKind, ExternId, FuncId, FunctionKind, Half};
use crate::implicit_main;
use crate::kernel_types::KernelLookupError;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Functions of other languages, bpftrace's among them, with those that do the same here.
const FOREIGN: &[(&str, &str)] = &[
    ("printf", "print"),
    ("println", "print"),
    ("printk", "print"),
    ("bpf_printk", "print"),
    ("echo", "print"),
    ("puts", "print"),
    ("strerror", "errno_name"),
    ("macaddr", "mac"),
];

/// The position of a call in its function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallPosition {
    /// The operand of `return`, where the call may enter another program.
    Tail,
    Other,
}

/// The rules for the conversion of arguments to the types of parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentRules {
    /// Those of assignments.
    Script,
    /// Those for functions of the kernel, with more conversions of pointers.
    Kernel,
}

impl Body<'_, '_> {
    pub(super) fn call(&mut self, callee: &ast::Expr, args: &[ast::Expr], span: Span) -> Typed {
        let position =
            if std::mem::take(&mut self.tail_call) { CallPosition::Tail } else { CallPosition::Other };
        match &strip(callee).kind {
            ast::ExprKind::Name(name) if !self.hides_function(name) => {
                self.named_call(name, callee.span, args, position, span)
            }
            ast::ExprKind::Field { base, arrow: false, name } => match self.owner_symbol(base) {
                Some(Symbol::Ring(ring)) => self.ring_method(ring, name, args, span),
                Some(Symbol::Map(map)) => self.map_method(map, name, args, span),
                Some(Symbol::Module(unit)) => self.module_call(unit, base, name, args, span),
                Some(Symbol::Python(file)) => self.python_call(file, name, args, span),
                Some(Symbol::Error) => self.arguments_of_unknown(args, span),
                _ => self.value_call(callee, args, span),
            },
            _ => self.value_call(callee, args, span),
        }
    }

    /// Whether a call of this name is one of a variable. A variable that cannot be called leaves the name to a builtin: a
    /// parameter that nobody wrote, `buf` of `@syscall_enter("write")`, does not hide `buf(p, length)`.
    fn hides_function(&self, name: &str) -> bool {
        let Some(Scoped::Local(local)) = self.lookup(name) else { return false };
        let kind = self.checker.types.kind(self.locals[local].ty);
        matches!(kind, TypeKind::Fn(..) | TypeKind::Error) || builtin_table::named(name).is_none()
    }

    fn named_call(
        &mut self,
        name: &str,
        name_span: Span,
        args: &[ast::Expr],
        position: CallPosition,
        span: Span,
    ) -> Typed {
        match self.lookup(name) {
            Some(Scoped::Program(id)) => return self.function_call(id, args, name_span, position, span),
            Some(Scoped::Const(..)) => {
                self.report(Diagnostic::error(
                    305,
                    name_span,
                    format!("`{name}` is a constant, not a function"),
                ));
                return self.arguments_of_unknown(args, span);
            }
            Some(Scoped::Local(_)) | None => {}
        }
        if let Some(method) = self.method_named(name) {
            return self.function_call(method, args, name_span, CallPosition::Other, span);
        }
        if let Some(builtin) = implicit_main::builtin(name)
            && let Some(call) = self.builtin_call(builtin, false, args, name_span, span)
        {
            return call;
        }
        let own = self.checker.names.own(name);
        if let Some(call) = self.builtin_call(name, own.is_some(), args, name_span, span) {
            return call;
        }
        match own {
            Some(Symbol::Function(id)) => self.function_call(id, args, name_span, position, span),
            Some(Symbol::Extern(id)) => self.extern_call(id, args, name_span, span),
            Some(Symbol::Global(_)) => {
                let callee = ast::Expr { kind: ast::ExprKind::Name(name.into()), span: name_span };
                self.value_call(&callee, args, span)
            }
            Some(Symbol::Error) => self.arguments_of_unknown(args, span),
            Some(symbol) => {
                let text = format!("`{name}` is {}, not a function", symbol.what());
                self.report(Diagnostic::error(305, name_span, text));
                self.arguments_of_unknown(args, span)
            }
            None => match self.helper_named(name) {
                Some(id) => {
                    self.checker.strict(name_span, "helper without `extern`");
                    self.extern_call(id, args, name_span, span)
                }
                None => {
                    self.unknown_function(name, name_span);
                    self.arguments_of_unknown(args, span)
                }
            },
        }
    }

    /// Checks the arguments of a rejected call, to report further errors in them.
    fn arguments_of_unknown(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        for arg in args {
            // An argument without a value may be right for the function that was meant.
            let meant = matches!(
                self.named_symbol(arg),
                Some(
                    Symbol::Function(_)
                        | Symbol::Map(_)
                        | Symbol::Ring(_)
                        | Symbol::Impl(_)
                        | Symbol::Counter(_)
                )
            );
            if !meant {
                self.not_last(|body| body.expr(arg, None));
            }
        }
        self.error_expr(span)
    }

    /// Returns the method of this name in the current impl block.
    pub(super) fn method_named(&self, name: &str) -> Option<FuncId> {
        let FunctionKind::Method(block) = self.kind else { return None };
        self.checker.methods[block].get(name).copied()
    }

    fn function_call(
        &mut self,
        id: FuncId,
        args: &[ast::Expr],
        name_span: Span,
        position: CallPosition,
        span: Span,
    ) -> Typed {
        let Signature { name, params, ret, kind, span: declared, .. } = self.checker.signatures[id].clone();
        let Some(kind) = kind else { return self.arguments_of_unknown(args, span) };
        if kind.is_program() {
            return self.program_call(id, args, name_span, position, span);
        }
        if !self.may_call(kind, &name, name_span, declared) {
            return self.arguments_of_unknown(args, span);
        }
        let Some(args) = self.checked_args(&name, &params, args, Some(declared), ArgumentRules::Script, span)
        else {
            return self.error_expr(span);
        };
        self.make(ExprKind::Call { func: id, args }, ret, span)
    }

    /// Whether the current function may call one of this kind; reports why not.
    fn may_call(&mut self, kind: FunctionKind, name: &str, name_span: Span, declared: Span) -> bool {
        if kind.half() != self.half() {
            let help = match kind {
                FunctionKind::Plain | FunctionKind::Test => {
                    "mark it `@helper` to call it from the kernel half"
                }
                _ => "share the result through a map or a global variable",
            };
            let text = format!("`{name}` belongs to the {} half", kind.half().name());
            self.report(Diagnostic::error(306, name_span, text).also(declared, "declared here").help(help));
            return false;
        }
        let refusal = match kind {
            FunctionKind::Private if !matches!(self.kind, FunctionKind::Kfunc | FunctionKind::Private) => {
                Some("only `@kfunc` and `@private` functions call a `@private` one")
            }
            FunctionKind::Method(block) if self.kind != FunctionKind::Method(block) => {
                Some("only methods of its own impl block call a method")
            }
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.report(
                Diagnostic::error(306, name_span, format!("`{name}` cannot be called here"))
                    .also(declared, "declared here")
                    .note(refusal),
            );
        }
        refusal.is_none()
    }

    /// Checks arguments against the parameters' types; `None` if they were rejected.
    fn checked_args(
        &mut self,
        name: &str,
        params: &[TypeId],
        args: &[ast::Expr],
        declared: Option<Span>,
        rules: ArgumentRules,
        span: Span,
    ) -> Option<Vec<Expr>> {
        if args.len() != params.len() {
            let text = format!("`{name}` takes {}, {} given", count(params.len()), args.len());
            let mut diagnostic = Diagnostic::error(404, span, text);
            if let Some(declared) = declared {
                diagnostic = diagnostic.also(declared, "declared here");
            }
            self.report(diagnostic);
            self.arguments_of_unknown(args, span);
            return None;
        }
        let checked = args.iter().zip(params).map(|(arg, ty)| match rules {
            ArgumentRules::Script => self.not_last(|body| body.value(arg, *ty)),
            ArgumentRules::Kernel => self.kernel_argument(arg, *ty),
        });
        Some(checked.collect())
    }

    /// Checks an argument of a helper, kfunc or method: byte pointers are accepted for every pointer, text
    /// for byte pointers.
    fn kernel_argument(&mut self, arg: &ast::Expr, to: TypeId) -> Expr {
        let found = self.not_last(|body| body.expr(arg, Some(to)));
        let types = &self.checker.types;
        let common = types.common();
        let TypeKind::Ptr(target) = *types.kind(to) else { return self.coerce(found, to) };
        let bytes = |ty: TypeId| ty == common.u8 || ty == common.void || ty == common.char || ty == common.i8;
        match (types.kind(found.expr.ty).clone(), found.expr.kind.clone()) {
            (TypeKind::Ptr(from), _) if from != target && (bytes(from) || bytes(target)) => {
                let span = found.expr.span;
                Expr { kind: ExprKind::Convert(Box::new(found.expr)), ty: to, span }
            }
            (TypeKind::Str(_), ExprKind::Bytes(text)) if bytes(target) => {
                Expr { kind: ExprKind::Bytes(text), ty: to, span: found.expr.span }
            }
            (TypeKind::Str(_) | TypeKind::Array(..), ExprKind::Load(lvalue)) if bytes(target) => {
                Expr { kind: ExprKind::AddrOf(lvalue), ty: to, span: found.expr.span }
            }
            _ => self.coerce(found, to),
        }
    }

    pub(super) fn extern_call(
        &mut self,
        id: ExternId,
        args: &[ast::Expr],
        name_span: Span,
        span: Span,
    ) -> Typed {
        let one = self.checker.externs[id].clone();
        if self.half() == Half::User {
            let text = format!("`{}` belongs to the kernel half", one.name);
            let mut diagnostic = Diagnostic::error(306, name_span, text);
            if let Some(declared) = one.span {
                diagnostic = diagnostic.also(declared, "a function of the kernel, declared here");
            }
            self.report(diagnostic);
            return self.arguments_of_unknown(args, span);
        }
        if one.helper.is_none() && !self.is_known_function(id) {
            self.check_kfunc(&one.name, name_span);
        }
        let Some(args) =
            self.checked_args(&one.name, &one.params, args, one.span, ArgumentRules::Kernel, span)
        else {
            return self.error_expr(span);
        };
        self.make(ExprKind::CallExtern { function: id, args }, one.ret, span)
    }

    /// Reports a kfunc that the target kernel does not have.
    fn check_kfunc(&mut self, name: &str, name_span: Span) {
        let kernel = self.checker.kernel();
        let Err(KernelLookupError::Missing { near }) = kernel.kfunc(name) else { return };
        let text = format!("this kernel has no kfunc `{name}`");
        let mut error = if kernel.is_chosen() {
            Diagnostic::error(520, name_span, text)
        } else {
            // A kernel has the kfuncs that it was built with, and the script may be for another kernel.
            Diagnostic::warning(520, name_span, text)
        };
        for one in near {
            let text = format!("a similar one exists: `{one}`");
            error = error.suggest(name_span, one, text);
        }
        self.report(
            error.note(
                "an `extern` that is not a numbered helper is found by name when the program is loaded",
            ),
        );
    }

    /// Checks a call through a variable, a field, or any other function value.
    fn value_call(&mut self, callee: &ast::Expr, args: &[ast::Expr], span: Span) -> Typed {
        let value = self.not_last(|body| body.expr(callee, None)).expr;
        let (params, ret) = match self.checker.types.kind(value.ty) {
            TypeKind::Fn(params, ret) => (params.clone(), *ret),
            TypeKind::Error => return self.arguments_of_unknown(args, span),
            _ => {
                let text = format!("`{}` cannot be called", self.type_name(value.ty));
                self.report(Diagnostic::error(305, callee.span, text).label("not a function"));
                return self.arguments_of_unknown(args, span);
            }
        };
        let name = match &strip(callee).kind {
            ast::ExprKind::Name(name) => name.clone(),
            ast::ExprKind::Field { name, .. } => name.name.clone(),
            _ => "this function".to_owned(),
        };
        let Some(args) = self.checked_args(&name, &params, args, None, ArgumentRules::Script, span) else {
            return self.error_expr(span);
        };
        self.make(ExprKind::CallValue { callee: Box::new(value), args }, ret, span)
    }

    /// Checks a call of a program: a tail call, or an error.
    fn program_call(
        &mut self,
        id: FuncId,
        args: &[ast::Expr],
        name_span: Span,
        position: CallPosition,
        span: Span,
    ) -> Typed {
        let signature = self.checker.signatures[id].clone();
        let declared = signature.span;
        if position != CallPosition::Tail {
            self.report(
                Diagnostic::error(716, name_span, "a program can only be entered by `return f(ctx)`")
                    .also(declared, format!("`{}` is a program", signature.name))
                    .help("move the shared part into a `@helper`"),
            );
            return self.arguments_of_unknown(args, span);
        }
        let own: Vec<TypeId> = self.params.iter().map(|param| self.locals[*param].ty).collect();
        let reason = if signature.kind != Some(self.kind) {
            Some("it is a program of another kind".to_owned())
        } else if signature.params != own || signature.ret != self.ret {
            Some("its parameters or result differ".to_owned())
        } else {
            None
        };
        if let Some(reason) = reason {
            self.report(
                Diagnostic::error(715, name_span, "tail call to a program of another kind or signature")
                    .also(declared, reason),
            );
            return self.arguments_of_unknown(args, span);
        }
        let passed: Vec<_> = args.iter().map(|arg| self.named_local(arg)).collect();
        let wanted: Vec<_> = self.params.iter().map(|param| Some(*param)).collect();
        if passed != wanted {
            self.report(
                Diagnostic::error(715, span, "a tail call passes the program's own context on")
                    .help("write the parameters as they are"),
            );
            return self.error_expr(span);
        }
        self.make(ExprKind::TailCall(id), signature.ret, span)
    }

    /// Checks a call of `module.f(..)`.
    fn module_call(
        &mut self,
        unit: usize,
        base: &ast::Expr,
        name: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        let ast::ExprKind::Name(module) = &strip(base).kind else {
            return self.arguments_of_unknown(args, span);
        };
        match self.checker.module_member(unit, module, name) {
            Some(Symbol::Function(id)) => self.function_call(id, args, name.span, CallPosition::Other, span),
            _ => self.arguments_of_unknown(args, span),
        }
    }

    /// Checks a call of a Python module's function.
    fn python_call(&mut self, file: usize, name: &ast::Ident, args: &[ast::Expr], span: Span) -> Typed {
        use crate::hir::UserBuiltin;
        if self.half() == Half::Kernel {
            self.report(Diagnostic::error(306, name.span, "a Python module belongs to the userspace half"));
            return self.arguments_of_unknown(args, span);
        }
        if !args.is_empty() {
            self.checker.strict(span, "argument of a Python function");
        }
        let mut values = Vec::new();
        for arg in args {
            let value = self.not_last(|body| body.expr(arg, None)).expr;
            let fits = matches!(
                self.checker.types.kind(value.ty),
                TypeKind::Int(_) | TypeKind::Str(_) | TypeKind::Enum(_) | TypeKind::Bool | TypeKind::Error
            );
            if !fits {
                let text = format!("expected an integer or a string, found `{}`", self.type_name(value.ty));
                self.report(Diagnostic::error(401, value.span, text));
            }
            values.push(value);
        }
        self.report(
            Diagnostic::warning(428, name.span, "the host decides whether this happens")
                .note("by default no Python is run: the call prints a message and gives 0"),
        );
        let module = self.checker.python[file].clone();
        let call = UserBuiltin::Python { module, function: name.name.clone(), args: values };
        self.make(ExprKind::User(call), self.checker.types.common().u64, span)
    }

    fn unknown_function(&mut self, name: &str, span: Span) {
        if let Some(method) = self.checker.methods.iter().find_map(|methods| methods.get(name)) {
            let declared = self.checker.signatures[*method].span;
            self.report(
                Diagnostic::error(306, span, format!("`{name}` belongs to its impl block"))
                    .also(declared, "declared here")
                    .note("the kernel calls a method, and other methods of the block may"),
            );
            return;
        }
        if self.misplaced_helper(name, span) {
            return;
        }
        let half = self.half();
        let own = self.checker.names.all(|symbol| matches!(symbol, Symbol::Function(_) | Symbol::Extern(_)));
        let builtins = super::builtin::names(half).chain(super::helper::names(half)).map(|name: &str| name);
        let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == name).map(|(_, here)| *here);
        let near = foreign.or_else(|| near(name, own.into_iter().chain(builtins))).map(str::to_owned);
        let diagnostic = Diagnostic::error(305, span, format!("no function `{name}`"));
        self.report(match near {
            Some(near) => {
                let text = format!("a similar function exists: `{near}`");
                diagnostic.suggest(span, near, text)
            }
            None => diagnostic,
        });
    }
}
