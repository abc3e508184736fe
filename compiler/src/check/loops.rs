//! Loops (language reference, 8.1 and 11.7).

use ks_wit::object::MAX_ITERATIONS;

use super::expr::Typed;
use super::fold::constant_scalar;
use super::function::Body;
use super::kernel_lists::Element;
use super::names::Symbol;
use super::nested_maps::ElementKey;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Block, Expr, ExprKind, Half, Lvalue, LvalueKind, MapId, MapIteration, MapKind, StmtKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Body<'_, '_> {
    pub(super) fn while_loop(&mut self, cond: &ast::Expr, body: &ast::Block) -> Option<StmtKind> {
        if self.half() == Half::User && matches!(strip(cond).kind, ast::ExprKind::Bool(true)) {
            self.checker.strict(cond.span, "`while (true)`");
        }
        let (cond, body) = self.not_last(|this| (this.loop_condition(cond), this.loop_body(body)));
        Some(StmtKind::While { cond, body })
    }

    /// Returns the condition of a `while`: `true` itself if it is a constant that is true, whatever its form.
    /// In the kernel half that is an error, but for integers: `while (1)` is a loop up to the limit (8.1).
    fn loop_condition(&mut self, cond: &ast::Expr) -> Expr {
        let found = self.condition(cond);
        let types = &self.checker.types;
        let is_integer = matches!(&found.kind, ExprKind::Truth(value) if types.int(value.ty).is_some());
        if is_integer || constant_scalar(types, &found).is_none_or(|bits| bits == 0) {
            return found;
        }
        if self.half() == Half::Kernel {
            self.report(
                Diagnostic::error(703, cond.span, "loop never ends")
                    .note("the kernel accepts a program only if each loop in it ends")
                    .help("write `while (1)` for a loop that `break` or `return` ends, or a condition that changes"),
            );
        }
        Expr { kind: ExprKind::Const(1), ..found }
    }

    pub(super) fn loop_body(&mut self, body: &ast::Block) -> Block {
        self.loops += 1;
        let block = self.inner_block(body);
        self.loops -= 1;
        block
    }

    pub(super) fn for_loop(
        &mut self,
        name: &ast::Ident,
        start: &ast::Expr,
        end: &ast::Expr,
        body: &ast::Block,
        span: Span,
    ) -> Option<StmtKind> {
        let head = Span { end: end.span.end, ..span };
        if self.loops > 0 && self.checker.options.strict_011 {
            self.report(Diagnostic::error(702, head, "a `for` inside a loop").note("0.1.1 refuses it"));
        }
        let (first, last) = self.not_last(|body| (body.expr(start, None), body.expr(end, None)));
        let ty = self.range_type(&first, &last);
        let error = self.checker.types.common().error;
        self.check_range(&first, &last, start.span.to(end.span));
        let ty = ty.unwrap_or(error);
        let (start, end) = (self.coerce(first, ty), self.coerce(last, ty));
        self.scoped(|scope| {
            let local = scope.declare_local(name, ty);
            scope.fixed.push(local);
            let body = scope.loop_body(body);
            Some(StmtKind::For { local, start, end, body })
        })
    }

    fn check_range(&mut self, first: &Typed, last: &Typed, span: Span) {
        let types = &self.checker.types;
        let (Some(a), Some(b)) = (first.number(types), last.number(types)) else { return };
        if a >= b && first.literal && last.literal {
            self.report(Diagnostic::error(701, span, "range is empty").label("the end is exclusive"));
        } else if b.saturating_sub(a) > i128::from(MAX_ITERATIONS) && self.half() == Half::Kernel {
            self.report(
                Diagnostic::error(705, span, "loop is longer than a kernel program may run")
                    .label(format!("{} iterations; at most {MAX_ITERATIONS} are possible", b - a)),
            );
        }
    }

    /// Returns the wider type of the two ends; a literal takes the type of the other end.
    fn range_type(&mut self, first: &Typed, last: &Typed) -> Option<TypeId> {
        let (a, b) = (first.expr.ty, last.expr.ty);
        if self.checker.types.is_error(a) || self.checker.types.is_error(b) {
            return None;
        }
        if let (Some(int_a), Some(int_b)) = (self.integer_of(a), self.integer_of(b)) {
            let combined = match (first.literal, last.literal) {
                (true, false) => Some(int_b),
                (false, true) => Some(int_a),
                _ => super::convert::combine(int_a, int_b),
            };
            if let Some(int) = combined {
                return Some(self.int_type(int));
            }
        }
        let span = first.expr.span.to(last.expr.span);
        let text =
            format!("`{}` and `{}` do not go together in a range", self.type_name(a), self.type_name(b));
        self.report(Diagnostic::error(402, span, text));
        None
    }

    /// The map and the key of `per_cpu(variable)` and `per_cpu(map, key)`; `None` for other operands.
    fn per_cpu_entry(&mut self, args: &[ast::Expr]) -> Option<(MapId, Expr)> {
        match args {
            [variable] => match self.top_symbol(variable)? {
                Symbol::PerCpu(map) => Some((map, self.first_key(variable.span))),
                _ => None,
            },
            [map, key] => match self.named_symbol(map)? {
                Symbol::Map(map) if self.checker.maps[map].kind.is_per_cpu() => {
                    Some((map, self.map_key(map, ElementKey::One(key))))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Checks `for (key, value in over)`. Variables that the loop needs are declared before it in `out`.
    pub(super) fn for_each(
        &mut self,
        key: &ast::Ident,
        value: &ast::Ident,
        over: &ast::Expr,
        body: &ast::Block,
        span: Span,
        out: &mut Block,
    ) -> Option<StmtKind> {
        self.checker.strict(Span { end: over.span.end, ..span }, "loop over a map or an array");
        if let Some(args) = self.list_iterated(over) {
            let element = Element { index: key, pointer: value };
            return self.list_loop(&element, args, body, over.span, out);
        }
        let iteration = self.not_last(|body| body.iteration(over));
        let error = self.checker.types.common().error;
        let (key_ty, value_ty) = iteration.as_ref().map_or((error, error), |(_, key, value)| (*key, *value));
        let (key, value, body) = self.scoped(|scope| {
            let key = scope.declare_local(key, key_ty);
            let value = scope.declare_local(value, value_ty);
            scope.fixed.push(key);
            if let Some((MapIteration::Map(_), ..)) = &iteration {
                scope.entry_values.push(value);
            }
            (key, value, scope.loop_body(body))
        });
        let (iteration, ..) = iteration?;
        Some(StmtKind::ForEach { key, value, iteration, body })
    }

    /// Returns the map or array of the loop, with the types of its keys and values.
    fn iteration(&mut self, over: &ast::Expr) -> Option<(MapIteration, TypeId, TypeId)> {
        let u32 = self.checker.types.common().u32;
        if let Some(Symbol::Map(map)) = self.named_symbol(over) {
            let one = &self.checker.maps[map];
            let (kind, name) = (one.kind, one.name.clone());
            let (key, value) = (one.key, one.value);
            let kernel = matches!(kind, MapKind::Hash | MapKind::Array | MapKind::LruHash)
                || (kind.is_keyed() && kind.is_per_cpu());
            let iterable = match self.half() {
                Half::Kernel => kernel,
                Half::User => kind.is_keyed() || kind == MapKind::StackTrace,
            };
            if one.outer.is_some() && self.half() == Half::Kernel {
                let text =
                    format!("the entries of `{name}`, a map of maps, cannot be walked in the kernel half");
                let help = "iterate it in userspace, or over the keys that programs use: `for (i in 0..16)`";
                self.report(Diagnostic::error(608, over.span, text).help(help));
                return None;
            }
            if !iterable {
                let text = format!(
                    "the entries of `{name}`, a `{}`, cannot be walked in the {} half",
                    kind.name(),
                    self.half().name()
                );
                self.report(Diagnostic::error(608, over.span, text));
                return None;
            }
            self.check_readable(map, over.span);
            return Some((MapIteration::Map(map), key, value));
        }
        if let ast::ExprKind::Call { callee, args } = &strip(over).kind
            && matches!(&strip(callee).kind, ast::ExprKind::Name(name) if name == "per_cpu")
            && self.half() == Half::User
            && let Some((map, key)) = self.per_cpu_entry(args)
        {
            return Some((MapIteration::PerCpu { map, key }, u32, self.checker.maps[map].value));
        }
        if let Some((map, _)) = self.inner_map(over) {
            let name = self.checker.maps[map].name.clone();
            let text = format!("the entries of one map in `{name}` cannot be walked alone");
            let help = match self.half() {
                Half::Kernel => "walk over the keys that programs use: `for (i in 0..16)`".into(),
                Half::User => {
                    format!("walk all: `for (key, value in {name}) {{ if (key.outer == ..) {{ .. }} }}`")
                }
            };
            self.report(Diagnostic::error(608, over.span, text).help(help));
            return None;
        }
        let value = self.expr(over, None).expr;
        if self.checker.types.is_error(value.ty) {
            return None;
        }
        match *self.checker.types.kind(value.ty) {
            TypeKind::Array(element, _) => {
                let (ty, span) = (value.ty, value.span);
                let lvalue = match value.kind {
                    ExprKind::Load(lvalue) => lvalue,
                    _ => Lvalue { kind: LvalueKind::Value(Box::new(value)), ty, span },
                };
                Some((MapIteration::Array(lvalue), u32, element))
            }
            _ => {
                let text = format!("`{}` has no entries to walk", self.type_name(value.ty));
                self.report(
                    Diagnostic::error(402, over.span, text)
                        .help("walk a map, an array, or a range: `for (i in 0..10)`"),
                );
                None
            }
        }
    }
}
