//! Operations on a map by name: methods of queues, stacks and bloom filters, and the builtins `per_cpu`,
//! `clear`, `count` and `print_map` (language reference, 5.5, 11.7 and 11.8).

use super::builtin::named_argument;
use super::count;
use super::expr::Typed;
use super::function::Body;
use super::implied::left_out;
use super::names::Symbol;
use super::nested_maps::ElementKey;
use super::prescan::strip;
use super::take::TAKE;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::kept;
use crate::hir::{Expr, ExprKind, Map, MapId, MapKind, SharedBuiltin, TakeOp, UserBuiltin};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Returns the methods of a kind of map, with the number of their arguments.
fn methods(kind: MapKind) -> &'static [(&'static str, usize)] {
    match kind {
        MapKind::Queue | MapKind::Stack => &[("push", 1), ("pop", 0), ("peek", 0)],
        MapKind::Bloom => &[("add", 1), ("has", 1)],
        _ => &[],
    }
}

impl Body<'_, '_> {
    /// Checks a call of `m.method(args)`.
    pub(super) fn map_method(
        &mut self,
        map: MapId,
        method: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        if self.checker.maps[map].outer.is_some() {
            return self.nested_method(map, method, args, span);
        }
        let Map { name, kind, value, .. } = self.checker.maps[map].clone();
        if method.name == TAKE && self.checker.can_take(map) {
            let text = "`take` stands where a variable is set, with the key of the entry";
            let help = format!("write `if (var value = {name}.take(key))` or `var value = {name}.take(key)`");
            self.report(Diagnostic::error(608, span, text).help(help));
            return self.error_expr(span);
        }
        let methods = methods(kind);
        let Some((_, wanted)) = methods.iter().find(|(one, _)| *one == method.name) else {
            let diagnostic = if methods.is_empty() {
                let text = format!("maps of the kind `{}` have no methods", kind.name());
                Diagnostic::error(304, method.span, text)
                    .help(format!("`{name}[key]` looks up, `{name}[key] = value` updates"))
            } else {
                let known: Vec<_> = methods.iter().map(|(one, _)| format!("`{one}`")).collect();
                let text = format!("maps of the kind `{}` have no method `{}`", kind.name(), method.name);
                Diagnostic::error(304, method.span, text)
                    .suggest_near(method.span, "method", &method.name, methods.iter().map(|one| one.0))
                    .note(format!("its methods are {}", known.join(", ")))
            };
            self.report(diagnostic);
            return self.error_expr(span);
        };
        if args.len() != *wanted {
            let text = format!("`{}` takes {}, {} given", method.name, count(*wanted), args.len());
            self.report(Diagnostic::error(404, span, text));
            return self.error_expr(span);
        }
        match method.name.as_str() {
            "pop" => {
                self.check_readable(map, span);
                self.check_writable_map(map, span);
            }
            "push" | "add" => self.check_writable_map(map, span),
            _ => self.check_readable(map, span),
        }
        let common = self.common();
        match (method.name.as_str(), args) {
            ("pop", _) => self.make(ExprKind::Take { map, op: TakeOp::Pop }, value, span),
            ("peek", _) => self.make(ExprKind::Take { map, op: TakeOp::Peek }, value, span),
            ("push", [arg]) => {
                let arg = Box::new(self.value(arg, value));
                self.shared_builtin(SharedBuiltin::Push(map, arg), common.u32, span)
            }
            ("add", [arg]) => {
                let arg = Box::new(self.value(arg, value));
                self.shared_builtin(SharedBuiltin::Add(map, arg), common.u32, span)
            }
            ("has", [arg]) => {
                let arg = Box::new(self.value(arg, value));
                self.shared_builtin(SharedBuiltin::Has(map, arg), common.bool, span)
            }
            _ => self.error_expr(span),
        }
    }

    /// Checks an argument that names a map; `None` if it was reported.
    pub(super) fn map_arg(&mut self, arg: &ast::Expr) -> Option<MapId> {
        match self.top_symbol(arg) {
            Some(Symbol::Map(map)) => return Some(map),
            Some(Symbol::Error) => return None,
            Some(symbol) => {
                let text = format!("expected the name of a map, found {}", symbol.what());
                self.report(Diagnostic::error(401, arg.span, text));
            }
            None => match &strip(arg).kind {
                ast::ExprKind::Name(name) if self.lookup(name).is_none() => {
                    let maps = self.checker.names.all(|symbol| matches!(symbol, Symbol::Map(_)));
                    let error = Diagnostic::error(301, arg.span, format!("no name `{name}` here"));
                    self.report(if self.checker.is_left_out(name) {
                        error.help(left_out(name))
                    } else {
                        error.suggest_near(arg.span, "map", name, maps)
                    });
                }
                _ => self.report(Diagnostic::error(401, arg.span, "expected the name of a map")),
            },
        }
        None
    }

    /// Checks `per_cpu(m, k, cpu)`.
    pub(super) fn per_cpu_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let (map, key, cpu) = match args {
            [map, key, cpu] => {
                let Some(map) = self.per_cpu_map(map) else { return self.error_expr(span) };
                self.check_readable(map, span);
                (map, self.map_key(map, ElementKey::One(key)), cpu)
            }
            [variable, cpu] => match self.top_symbol(variable) {
                Some(Symbol::PerCpu(map)) => (map, self.first_key(variable.span), cpu),
                _ => {
                    let text = "`per_cpu` with two operands takes a `percpu` variable and a CPU";
                    self.report(
                        Diagnostic::error(401, variable.span, text)
                            .help("an entry of a map has a key: `per_cpu(map, key, cpu)`"),
                    );
                    return self.error_expr(span);
                }
            },
            _ => return self.error_expr(span),
        };
        let key = Box::new(key);
        let cpu = Box::new(self.number(cpu, self.common().u32));
        let value = self.checker.maps[map].value;
        self.user_builtin(UserBuiltin::PerCpu { map, key, cpu }, value, span)
    }

    /// Checks an argument that names a map with a value per CPU; `None` if it was reported.
    pub(super) fn per_cpu_map(&mut self, arg: &ast::Expr) -> Option<MapId> {
        let map = self.map_arg(arg)?;
        let one = &self.checker.maps[map];
        if one.kind.is_per_cpu() {
            return Some(map);
        }
        let text = format!("expected a per-CPU map, `{}` is of the kind `{}`", one.name, one.kind.name());
        let declared = one.span;
        self.report(Diagnostic::error(401, arg.span, text).also(declared, "declared here"));
        None
    }

    /// Checks a call of `clear(m)`.
    pub(super) fn clear_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let Some(map) = self.iterable_map("clear", &args[0]) else { return self.error_expr(span) };
        let one = &self.checker.maps[map];
        if one.kind.is_array() {
            let declared = one.span;
            self.report(
                Diagnostic::error(607, args[0].span, "array elements cannot be deleted")
                    .also(declared, "declared here")
                    .help("store zeros instead"),
            );
            return self.error_expr(span);
        }
        self.check_writable_map(map, span);
        self.user_builtin(UserBuiltin::Clear(map), self.common().void, span)
    }

    /// Checks a call of `take(m)`.
    pub(super) fn take_map_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        use MapKind::{Hash, LruHash, LruPercpuHash, PercpuHash};
        let Some(map) = self.iterable_map("take", &args[0]) else { return self.error_expr(span) };
        let one = &self.checker.maps[map];
        let is_exchangeable = matches!(one.kind, Hash | LruHash | PercpuHash | LruPercpuHash);
        if !is_exchangeable || one.pinned || one.objects || one.outer.is_some() {
            let what = if one.pinned {
                "is pinned".to_owned()
            } else if one.outer.is_some() {
                "is a map of maps".to_owned()
            } else {
                format!("is of the kind `{}`", one.kind.name())
            };
            let text = format!("`take` exchanges hashes that are not pinned, `{}` {what}", one.name);
            let declared = one.span;
            self.report(Diagnostic::error(401, args[0].span, text).also(declared, "declared here"));
            return self.error_expr(span);
        }
        self.check_readable(map, span);
        self.check_writable_map(map, span);
        self.user_builtin(UserBuiltin::TakeMap(map), self.common().void, span)
    }

    /// Checks a call of `count(m)`.
    pub(super) fn count_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.iterable_map("count", &args[0]) {
            Some(map) => {
                self.check_readable(map, span);
                self.user_builtin(UserBuiltin::Count(map), self.common().u32, span)
            }
            None => self.error_expr(span),
        }
    }

    /// Checks a call of `print_map(m)`.
    pub(super) fn print_map_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let Some(map) = self.iterable_map("print_map", &args[0]) else { return self.error_expr(span) };
        self.check_readable(map, span);
        let one = &self.checker.maps[map];
        let types = &self.checker.types;
        let has_keys =
            !one.objects && one.kind != MapKind::StackTrace && kept::is_printed_key(types, one.key);
        let has_values = kept::is_printed(types, one.value);
        let declared = one.span;
        for (what, ty, is_printed) in [("keys", one.key, has_keys), ("values", one.value, has_values)] {
            if !is_printed {
                let text = format!("`print_map` cannot print {what} of type `{}`", self.type_name(ty));
                self.report(
                    Diagnostic::error(401, args[0].span, text)
                        .also(declared, "declared here")
                        .help("iterate the map, and print the parts"),
                );
                return self.error_expr(span);
            }
        }
        let by = match named_argument(args, "by").map(|by| self.column(map, by)) {
            Some(None) => return self.error_expr(span),
            by => by.flatten(),
        };
        let u32 = self.common().u32;
        let top = named_argument(args, "top").map(|top| Box::new(self.number(top, u32)));
        if let Some(named) =
            args.get(1).filter(|_| !kept::is_sorted(&self.checker.types, self.checker.maps[map].value))
        {
            let text = "`print_map` does not sort the elements of arrays";
            self.report(Diagnostic::error(401, named.span, text));
            return self.error_expr(span);
        }
        let headings = match named_argument(args, "headings").map(|headings| self.headings(map, headings)) {
            Some(None) => return self.error_expr(span),
            headings => headings.flatten().map(Box::new),
        };
        self.user_builtin(UserBuiltin::PrintMap { map, top, by, headings }, self.common().void, span)
    }

    /// Checks headings of the columns of values; `None` if they were reported.
    fn headings(&mut self, map: MapId, headings: &ast::Expr) -> Option<Expr> {
        let value = self.expr(headings, None).expr;
        if self.checker.types.is_error(value.ty) {
            return None;
        }
        let one = &self.checker.maps[map];
        let columns = if self.is_histogram(one.value) {
            0
        } else {
            kept::value_headings(&self.checker.types, one).len() as u64
        };
        let is_text = |element: &TypeId| matches!(self.checker.types.kind(*element), TypeKind::Str(_));
        match self.checker.types.kind(value.ty) {
            TypeKind::Array(element, count) if is_text(element) && *count <= columns => return Some(value),
            _ => {}
        }
        let (found, name) = (self.type_name(value.ty), &one.name);
        let text = format!("expected `str(N)[M]` for at most {columns} columns of values, found `{found}`");
        let note = if columns == 0 {
            format!("`{name}` has histograms, which have no columns")
        } else {
            format!(
                "the values of `{name}` have the columns {}",
                listed(&kept::value_headings(&self.checker.types, one))
            )
        };
        self.report(Diagnostic::error(401, value.span, text).note(note));
        None
    }

    fn is_histogram(&self, ty: TypeId) -> bool {
        matches!(self.checker.types.kind(ty), TypeKind::Struct(id) if self.checker.histograms.contains_key(id))
    }

    /// Checks the name of a column in the table of a map.
    fn column(&mut self, map: MapId, by: &ast::Expr) -> Option<u32> {
        let one = &self.checker.maps[map];
        let is_histogram = self.is_histogram(one.value);
        let columns = if is_histogram { Vec::new() } else { kept::headings(&self.checker.types, one) };
        let wanted = match &strip(by).kind {
            ast::ExprKind::Name(name) => name.clone(),
            ast::ExprKind::Str(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let found = columns.iter().position(|column| *column == wanted);
        if found.is_none() {
            let text = format!("the table of `{}` has no column `{wanted}`", one.name);
            let note = if is_histogram {
                "histograms are sorted by the number of their values".to_owned()
            } else {
                format!("its columns are {}", listed(&columns))
            };
            self.report(Diagnostic::error(401, by.span, text).note(note));
        }
        found.map(|at| at as u32)
    }

    /// Checks an argument that names a map whose entries userspace can iterate.
    fn iterable_map(&mut self, call: &str, arg: &ast::Expr) -> Option<MapId> {
        let map = self.map_arg(arg)?;
        let one = &self.checker.maps[map];
        if one.kind.is_keyed() || one.kind == MapKind::StackTrace {
            return Some(map);
        }
        let text = format!("`{call}` does not go with the kind `{}`", one.kind.name());
        let declared = one.span;
        self.report(
            Diagnostic::error(401, arg.span, text)
                .also(declared, "declared here")
                .note("the entries of this kind of map cannot be listed"),
        );
        None
    }
}

/// Returns names as a list for a message.
fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
