//! Functions and variables of the kernel that a script declares (language reference, 6.12).

use super::Checker;
use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::types::Position;
use crate::ast::{self, Param, TypeExpr, TypeExprKind};
use crate::bpf::helper_number;
use crate::diag::Diagnostic;
use crate::hir::{
    Expr, ExprKind, Extern, ExternId, Half, KernelBuiltin, KernelVariable, KernelVariableId, Lvalue,
};
use crate::source::Span;
use crate::types::TypeKind;

impl Checker<'_> {
    pub(super) fn declare_extern(&mut self, name: &ast::Ident, params: &[Param], ret: Option<&TypeExpr>) {
        if self.declared_by_header(name) {
            return;
        }
        let types: Vec<_> = params.iter().map(|param| self.type_expr(&param.ty, Position::Value)).collect();
        self.check_param_names(params);
        let ret = match ret {
            Some(ret) => self.type_expr(ret, Position::Result),
            None => self.types.common().void,
        };
        for (param, ty) in params.iter().zip(&types) {
            let by_value =
                matches!(self.types.kind(*ty), TypeKind::Struct(_) | TypeKind::Str(_) | TypeKind::Array(..));
            if by_value {
                let text =
                    format!("a function of the kernel takes `{}` by pointer only", self.types.name(*ty));
                self.report(Diagnostic::error(516, param.ty.span, text));
            }
        }
        let helper = helper_number(&name.name);
        let id = self.externs.push(Extern {
            name: name.name.clone(),
            span: Some(name.span),
            params: types,
            ret,
            helper,
            optional: false,
        });
        self.declare_name(name, Symbol::Extern(id));
    }

    /// Declares a variable of the kernel. Its type may be a struct of the kernel, which stands behind pointers only.
    pub(super) fn declare_kernel_variable(
        &mut self,
        per_cpu: Option<Span>,
        name: &ast::Ident,
        ty: &TypeExpr,
    ) {
        let kind = TypeExprKind::Ptr(Box::new(ty.clone()));
        let pointer = self.type_expr(&TypeExpr { kind, span: ty.span }, Position::Value);
        if self.types.is_error(pointer) {
            self.declare_name(name, Symbol::Error);
            return;
        }
        if self.kernel().has_function(&name.name) {
            let text = format!("`{}` is a function of the kernel, not a variable", name.name);
            self.report(Diagnostic::error(525, name.span, text));
        }
        match (per_cpu, self.kernel().is_per_cpu(&name.name)) {
            (None, Some(true)) => {
                let text = format!("`{}` has a value for each CPU", name.name);
                self.report(Diagnostic::error(525, name.span, text).help(format!(
                    "write `percpu extern {}: ..`, which is the value of the running CPU",
                    name.name
                )));
            }
            (Some(word), Some(false)) => {
                let text = format!("the kernel has no `{}` with a value for each CPU", name.name);
                self.report(
                    Diagnostic::error(525, name.span, text)
                        .also(word, "`percpu` is for variables of `DEFINE_PER_CPU`"),
                );
            }
            _ => {}
        }
        let id = self.kernel_variables.push(KernelVariable {
            name: name.name.clone(),
            span: name.span,
            pointer,
            per_cpu: per_cpu.is_some(),
        });
        self.declare_name(name, Symbol::KernelVariable(id));
    }

    /// Lets a kernel lack the functions that are only called where an `exists` has found them.
    pub(super) fn let_kernels_lack_functions(&mut self) {
        let asked: Vec<ExternId> = (self.externs.iter_enumerated())
            .filter(|(id, one)| {
                self.asked_functions.contains_key(&one.name) && !self.needed_externs.contains(id)
            })
            .map(|(id, _)| id)
            .collect();
        for id in asked {
            self.externs[id].optional = true;
        }
    }

    /// Reports two parameters of the same name. Where there is a body, declaring its variables finds them.
    fn check_param_names(&mut self, params: &[Param]) {
        let mut seen: std::collections::HashMap<&str, Span> = std::collections::HashMap::new();
        for param in params {
            if let Some(first) = seen.insert(&param.name.name, param.name.span) {
                self.report_duplicate(&param.name, first);
            }
        }
    }
}

impl Body<'_, '_> {
    /// Returns a variable of the kernel: memory at an address that the loader knows.
    pub(super) fn kernel_variable(&mut self, id: KernelVariableId, span: Span) -> Option<Lvalue> {
        let KernelVariable { pointer, .. } = self.checker.kernel_variables[id];
        let address = self.variable_address(id, None, span)?;
        let pointer = Expr { kind: ExprKind::Convert(Box::new(address)), ty: pointer, span };
        self.follow(pointer, span)
    }

    /// Checks `per_cpu_ptr(name, cpu)`: a pointer to the value of a CPU.
    pub(super) fn per_cpu_ptr_call(&mut self, variable: &ast::Expr, cpu: &ast::Expr, span: Span) -> Typed {
        let Some(id) = self.per_cpu_variable(variable) else { return self.error_expr(span) };
        let u32 = self.common().u32;
        let cpu = Box::new(self.number(cpu, u32));
        let pointer = self.checker.kernel_variables[id].pointer;
        match self.variable_address(id, Some(cpu), span) {
            Some(address) => self.make(ExprKind::Convert(Box::new(address)), pointer, span),
            None => self.error_expr(span),
        }
    }

    /// The variable that an argument names. Reports any other argument.
    fn per_cpu_variable(&mut self, variable: &ast::Expr) -> Option<KernelVariableId> {
        if let Some(Symbol::KernelVariable(id)) = self.named_symbol(variable)
            && self.checker.kernel_variables[id].per_cpu
        {
            return Some(id);
        }
        let text = "`per_cpu_ptr` takes a variable of the kernel with a value for each CPU";
        self.report(
            Diagnostic::error(401, variable.span, text).help("declare it: `percpu extern runqueues: rq`"),
        );
        None
    }

    fn variable_address(
        &mut self,
        id: KernelVariableId,
        of_cpu: Option<Box<Expr>>,
        span: Span,
    ) -> Option<Expr> {
        let KernelVariable { name, span: declared, .. } = self.checker.kernel_variables[id].clone();
        if self.half() == Half::User {
            self.report(
                Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half"))
                    .also(declared, "it is a variable of the kernel")
                    .help("let a program store its value in a variable of the script"),
            );
            return None;
        }
        let u64 = self.common().u64;
        Some(self.kernel_builtin(KernelBuiltin::VariableAddress { variable: id, of_cpu }, u64, span).expr)
    }
}
