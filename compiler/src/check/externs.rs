//! Functions of the kernel that a script declares (language reference, 6.12).

use super::Checker;
use super::names::Symbol;
use super::types::Position;
use crate::ast::{self, Param, TypeExpr};
use crate::bpf::helper_number;
use crate::diag::Diagnostic;
use crate::hir::{Extern, ExternId};
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
