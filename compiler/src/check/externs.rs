//! Functions and variables of the kernel that a script declares (language reference, 6.12).

use super::Checker;
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
    pub(super) fn declare_kernel_variable(&mut self, name: &ast::Ident, ty: &TypeExpr) {
        let kind = TypeExprKind::Ptr(Box::new(ty.clone()));
        let pointer = self.type_expr(&TypeExpr { kind, span: ty.span }, Position::Value);
        if self.types.is_error(pointer) {
            self.declare_name(name, Symbol::Error);
            return;
        }
        if self.kernel().is_per_cpu(&name.name) {
            let text = format!("`{}` has a value for each CPU", name.name);
            self.report(
                Diagnostic::error(525, name.span, text)
                    .note("its symbol is no address of a value: each CPU adds an offset of its own"),
            );
        }
        let id =
            self.kernel_variables.push(KernelVariable { name: name.name.clone(), span: name.span, pointer });
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
        let KernelVariable { name, span: declared, pointer } = self.checker.kernel_variables[id].clone();
        if self.half() == Half::User {
            self.report(
                Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half"))
                    .also(declared, "it is a variable of the kernel")
                    .help("let a program store its value in a variable of the script"),
            );
            return None;
        }
        let u64 = self.common().u64;
        let address = self.kernel_builtin(KernelBuiltin::VariableAddress(id), u64, span).expr;
        let pointer = Expr { kind: ExprKind::Convert(Box::new(address)), ty: pointer, span };
        self.follow(pointer, span)
    }
}
