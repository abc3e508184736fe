//! Aliases and constants: each may refer to others, in any order.

use std::collections::HashMap;

use super::Checker;
use super::builtin_table::named;
use super::function::Body;
use super::names::Symbol;
use super::prescan::Prescan;
use super::types::Position;
use crate::ast::{Expr, ExprKind, Ident, Item, ItemKind, Size, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::hir::FunctionKind;
use crate::source::Span;

/// An alias or constant that is declared after those it refers to.
#[derive(Clone, Copy)]
enum Late<'a> {
    Alias(&'a TypeExpr),
    Const(Option<&'a TypeExpr>, &'a Expr),
}

impl Checker<'_> {
    /// Declares aliases and constants in dependency order.
    pub(super) fn declare_in_order(&mut self, items: &[Item]) {
        let mut late = Vec::new();
        for item in items {
            match &item.kind {
                ItemKind::Alias { name, ty } => late.push((name, Late::Alias(ty))),
                ItemKind::Const { name, ty, value } => late.push((name, Late::Const(ty.as_ref(), value))),
                _ => {}
            }
        }
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for (at, (name, _)) in late.iter().enumerate() {
            positions.entry(&name.name).or_insert(at);
        }
        let needs = |(_, one): &(&Ident, Late<'_>)| {
            let mut names = Vec::new();
            match one {
                Late::Alias(ty) => type_names(ty, &mut names),
                Late::Const(ty, value) => {
                    ty.iter().for_each(|ty| type_names(ty, &mut names));
                    expr_names(value, &mut names);
                }
            }
            names.into_iter().filter_map(|name| positions.get(name).copied()).collect::<Vec<_>>()
        };
        let mut state = vec![State::New; late.len()];
        for first in 0..late.len() {
            if state[first] != State::New {
                continue;
            }
            state[first] = State::Open;
            let mut open = vec![(first, needs(&late[first]))];
            while let Some((at, waiting)) = open.last_mut() {
                let at = *at;
                match waiting.pop() {
                    Some(next) if state[next] == State::New => {
                        state[next] = State::Open;
                        open.push((next, needs(&late[next])));
                    }
                    Some(next) if state[next] == State::Open => {
                        self.report_circle(late[next], late[at].0);
                        self.declare_name(late[next].0, Symbol::Error);
                        state[next] = State::Done;
                    }
                    Some(_) => {}
                    None => {
                        // A declaration that refers to itself has already been declared as an error.
                        if state[at] == State::Open {
                            state[at] = State::Done;
                            self.declare_late(late[at]);
                        }
                        open.pop();
                    }
                }
            }
        }
    }

    fn report_circle(&mut self, (name, one): (&Ident, Late<'_>), user: &Ident) {
        let diagnostic = match one {
            Late::Alias(_) => {
                Diagnostic::error(419, name.span, format!("type `{}` contains itself", name.name))
            }
            Late::Const(..) => {
                let text = format!("the value of `{}` depends on itself", name.name);
                Diagnostic::error(619, name.span, text)
            }
        };
        let elsewhere = user.span != name.span;
        self.report(if elsewhere { diagnostic.also(user.span, "made of it") } else { diagnostic });
    }

    fn declare_late(&mut self, (name, one): (&Ident, Late<'_>)) {
        if self.declared_by_header(name) {
            return;
        }
        match one {
            Late::Alias(ty) => {
                let target = self.type_expr(ty, Position::Value);
                if self.names.predeclared(&name.name) != Some(Symbol::Type(target)) {
                    self.declare_name(name, Symbol::Type(target));
                }
            }
            Late::Const(ty, value) => {
                self.strict(name.span, "constants at top level");
                let symbol = self.constant_symbol(ty, value);
                self.declare_name(name, symbol);
            }
        }
    }

    fn constant_symbol(&mut self, written: Option<&TypeExpr>, value: &Expr) -> Symbol {
        let declared = written.map(|ty| self.type_expr(ty, Position::Value));
        if let Some(span) = self.variable_in(value) {
            self.report_not_constant(span, "a constant is made of literals, enumerators and other constants");
            return Symbol::Error;
        }
        let void = self.types.common().void;
        let mut body = Body::new(self, FunctionKind::Plain, void, Prescan::default());
        let found = body.expr(value, declared);
        let ty = declared.unwrap_or(found.expr.ty);
        let (Some(constant), Some(int)) = (found.constant, body.integer_of(ty)) else {
            if !self.types.is_error(ty) && !self.types.is_error(found.expr.ty) {
                let found = self.types.name(if declared.is_some() { ty } else { found.expr.ty });
                let text = format!("a constant is an integer, not `{found}`");
                self.report(Diagnostic::error(401, value.span, text));
            }
            return Symbol::Error;
        };
        body.coerce(found, ty);
        // Without a declared type, a complement takes the width of its destination.
        let value = if declared.is_some() { int.value(constant as u64) } else { constant };
        Symbol::Const(value, ty)
    }

    pub(super) fn report_not_constant(&mut self, span: Span, help: &str) {
        self.report(Diagnostic::error(619, span, "initial value must be constant").help(help));
    }

    /// Returns the first part of an expression whose value is only known at run time: a variable, a call.
    pub(super) fn variable_in(&self, expr: &Expr) -> Option<Span> {
        match &expr.kind {
            ExprKind::Name(name) => {
                let hidden = self.not_constant.contains(name) && self.names.own(name).is_none();
                let symbol = self.names.get(name);
                let variable = matches!(
                    symbol,
                    Some(
                        Symbol::Global(_)
                            | Symbol::PerCpu(_)
                            | Symbol::Function(_)
                            | Symbol::Map(_)
                            | Symbol::Ring(_)
                            | Symbol::Config(_)
                            | Symbol::Extern(_)
                            | Symbol::KernelVariable(_)
                            | Symbol::Counter(_)
                            | Symbol::Impl(_)
                            | Symbol::Module(_)
                            | Symbol::Python(_)
                    )
                );
                (hidden || variable).then_some(expr.span)
            }
            ExprKind::Call { callee, args } => match &callee.kind {
                ExprKind::Name(name) if named(name).is_some_and(|builtin| builtin.is_constant) => {
                    args.iter().find_map(|arg| self.variable_in(arg))
                }
                _ => Some(expr.span),
            },
            ExprKind::New(..) | ExprKind::Match { .. } => Some(expr.span),
            _ => expr.parts().into_iter().find_map(|part| self.variable_in(part)),
        }
    }
}

/// The progress of one declaration; `Open` means that its dependencies are being declared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Collects the names that a type mentions.
fn type_names<'t>(ty: &'t TypeExpr, out: &mut Vec<&'t str>) {
    match &ty.kind {
        TypeExprKind::Name(name) => out.push(name),
        TypeExprKind::Str(_) | TypeExprKind::Qualified { .. } | TypeExprKind::LinearHist { .. } => {}
        TypeExprKind::Keyless { value, .. } => value.iter().for_each(|value| type_names(value, out)),
        TypeExprKind::Array(element, size) => {
            type_names(element, out);
            if let Size::Const(name) = size {
                out.push(&name.name);
            }
        }
        TypeExprKind::Ptr(to) | TypeExprKind::Ring(to, _) => type_names(to, out),
        TypeExprKind::Fn(params, ret) => {
            params.iter().for_each(|param| type_names(param, out));
            type_names(ret, out);
        }
        TypeExprKind::Map { key, value, .. } => {
            type_names(key, out);
            type_names(value, out);
        }
    }
}

/// Collects the names that a constant expression mentions.
fn expr_names<'e>(expr: &'e Expr, out: &mut Vec<&'e str>) {
    match &expr.kind {
        ExprKind::Name(name) => out.push(name),
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => expr_names(inner, out),
        ExprKind::Cast(inner, ty) => {
            expr_names(inner, out);
            type_names(ty, out);
        }
        ExprKind::Binary(_, left, right) => {
            expr_names(left, out);
            expr_names(right, out);
        }
        _ => {}
    }
}
