//! Checks expressions and computes their constant values.

use super::function::{Body, Scoped};
use super::implied::left_out;
use super::names::Symbol;
use super::nested_maps::ElementKey;
use super::prescan::strip;
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::statistics::Statistic;
use crate::hir::{Expr, ExprKind, Half, MapId};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// Words of other languages and their equivalents here.
const FOREIGN: &[(&str, &str)] = &[
    ("NULL", "null"),
    ("nullptr", "null"),
    ("None", "null"),
    ("nil", "null"),
    ("True", "true"),
    ("TRUE", "true"),
    ("False", "false"),
    ("FALSE", "false"),
    ("and", "&&"),
    ("or", "||"),
    ("not", "!"),
    ("nsecs", "time_ns()"),
    ("curtask", "bpf_get_current_task_btf()"),
    ("retval", "ret"),
];

/// A checked expression and its value at compile time.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub(super) expr: Expr,
    /// The value of an integer or enumerator that is known at compile time; see [`super::fold`] for
    /// complements.
    pub(super) constant: Option<i128>,
    /// Whether it consists of literals only: it then fits every integer type.
    pub(super) literal: bool,
}

impl Typed {
    pub(super) fn of(expr: Expr) -> Typed {
        Typed { expr, constant: None, literal: false }
    }
}

impl Body<'_, '_> {
    /// Checks an expression and converts it to type `to`.
    pub(super) fn value(&mut self, expr: &ast::Expr, to: TypeId) -> Expr {
        let found = self.expr(expr, Some(to));
        self.coerce(found, to)
    }

    /// Returns the placeholder for an expression whose error was reported.
    pub(super) fn error_expr(&self, span: Span) -> Typed {
        Typed::of(Expr { kind: ExprKind::Const(0), ty: self.checker.types.common().error, span })
    }

    pub(super) fn make(&self, kind: ExprKind, ty: TypeId, span: Span) -> Typed {
        Typed::of(Expr { kind, ty, span })
    }

    /// Checks an expression. `wanted` is the type of its destination, if it has one: it determines the types
    /// of literals.
    pub(super) fn expr(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Typed {
        let found = self.unsettled(expr, wanted);
        self.settle(found)
    }

    /// Like [`Body::expr`] for an expression that may be part of a constant one: its value may exceed every
    /// type.
    pub(super) fn unsettled(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Typed {
        let common = self.checker.types.common();
        let span = expr.span;
        match &expr.kind {
            ast::ExprKind::Int(value) => {
                let ty = if *value > u64::from(u32::MAX) { common.u64 } else { common.u32 };
                self.literal(i128::from(*value), ty, span)
            }
            ast::ExprKind::Bool(value) => self.make(ExprKind::Const(u64::from(*value)), common.bool, span),
            ast::ExprKind::Char(value) => self.make(ExprKind::Const(u64::from(*value)), common.char, span),
            ast::ExprKind::Str(bytes) => match wanted.filter(|ty| self.is_byte_array(*ty)) {
                Some(array) => self.byte_literal(bytes, array, span),
                None => self.string(bytes, span),
            },
            ast::ExprKind::Null => self.make(ExprKind::Const(0), common.null, span),
            ast::ExprKind::Array(elements) => self.array_literal(elements, wanted, span),
            ast::ExprKind::Struct { module, name, fields } => {
                self.struct_literal(module.as_ref(), name, fields, span)
            }
            ast::ExprKind::Name(name) => self.name(name, span),
            ast::ExprKind::Paren(inner) => self.unsettled(inner, wanted),
            ast::ExprKind::Field { base, arrow: false, name } if Statistic::named(&name.name).is_some() => {
                self.statistic(base, name).unwrap_or_else(|| self.part(expr, wanted))
            }
            ast::ExprKind::Field { .. } | ast::ExprKind::Index(..) => self.part(expr, wanted),
            ast::ExprKind::Keys(parts) => self.key_of_parts(parts, wanted, span),
            ast::ExprKind::Named(name, value) => {
                let text = format!("this call has no argument with the name `{}`", name.name);
                self.report(Diagnostic::error(404, name.span, text));
                self.not_last(|body| body.expr(value, None));
                self.error_expr(span)
            }
            ast::ExprKind::Call { callee, args } => {
                let outer = std::mem::replace(&mut self.destination, wanted);
                let found = self.call(callee, args, span);
                self.destination = outer;
                found
            }
            ast::ExprKind::Unary(op, operand) => self.unary(*op, operand, span),
            ast::ExprKind::Binary(op, left, right) => self.binary(*op, left, right, span),
            ast::ExprKind::Cast(value, ty) => self.cast(value, ty, span),
            ast::ExprKind::New(ty, flag) => self.new_object(ty, flag.as_deref(), span),
            ast::ExprKind::Match { value, arms } => self.match_value(value, arms, wanted, span),
            ast::ExprKind::Type(_) => {
                self.report(Diagnostic::error(301, span, "a type is not a value"));
                self.error_expr(span)
            }
        }
    }

    /// Checks a member or an element.
    fn part(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Typed {
        self.record_bytes(expr, wanted).unwrap_or_else(|| self.load(expr))
    }

    /// Returns a constant. It fits `ty`, or is a mask or larger than every type, see [`super::fold`].
    pub(super) fn integer(&mut self, value: i128, ty: TypeId, span: Span) -> Typed {
        let int = self.checker.types.scalar(ty).expect("a constant is a scalar");
        let expr = Expr { kind: ExprKind::Const(int.truncate(value as u64)), ty, span };
        Typed { expr, constant: Some(value), literal: false }
    }

    /// Like [`Body::integer`] for a constant that consists of literals only.
    pub(super) fn literal(&mut self, value: i128, ty: TypeId, span: Span) -> Typed {
        Typed { literal: true, ..self.integer(value, ty, span) }
    }

    /// Converts a string literal to the bytes of an array: it may contain zeros, and has no terminator.
    fn byte_literal(&mut self, bytes: &[u8], array: TypeId, span: Span) -> Typed {
        if bytes.len() as u64 > self.checker.types.size(array) {
            let text = format!("{} bytes do not fit `{}`", bytes.len(), self.type_name(array));
            self.report(Diagnostic::error(401, span, text));
            return self.error_expr(span);
        }
        self.make(ExprKind::Bytes(bytes.to_vec()), array, span)
    }

    fn is_byte_array(&self, ty: TypeId) -> bool {
        matches!(self.checker.types.kind(ty), TypeKind::Array(element, _) if self.is_byte(*element))
    }

    fn string(&mut self, bytes: &[u8], span: Span) -> Typed {
        // The text ends at the first zero byte, wherever it is stored.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let Ok(size) = u32::try_from(text.len() + 1) else {
            self.report(Diagnostic::error(430, span, "string size must be 1 to 65535"));
            return self.error_expr(span);
        };
        let ty = self.checker.types.str_type(size);
        self.make(ExprKind::Bytes(text.to_vec()), ty, span)
    }

    fn name(&mut self, name: &str, span: Span) -> Typed {
        match self.lookup(name) {
            Some(Scoped::Local(local)) => {
                return if self.checker.types.is_error(self.locals[local].ty) {
                    self.error_expr(span)
                } else {
                    Typed::of(self.load_local(local, span))
                };
            }
            Some(Scoped::Const(_, ty)) if self.checker.types.is_error(ty) => return self.error_expr(span),
            Some(Scoped::Const(value, ty)) => return self.literal(value, ty, span),
            Some(Scoped::Program(_)) => return self.program_value(name, span),
            None => {}
        }
        if let Some(method) = self.method_named(name) {
            return self.function_value(method, span);
        }
        match self.checker.names.get(name) {
            Some(Symbol::Enumerator(ty, bits)) => {
                let repr = self.checker.types.scalar(ty).expect("an enum is a scalar");
                let ty = if self.in_constant { self.int_type(repr) } else { ty };
                Typed { literal: self.in_constant, ..self.integer(repr.value(bits), ty, span) }
            }
            Some(Symbol::Const(value, ty)) => self.literal(value, ty, span),
            Some(Symbol::Global(_) | Symbol::PerCpu(_) | Symbol::KernelVariable(_)) => {
                self.load(&ast::Expr { kind: ast::ExprKind::Name(name.into()), span })
            }
            Some(Symbol::Function(id)) => self.function_value(id, span),
            Some(Symbol::Error) => self.error_expr(span),
            Some(symbol) => self.no_value(name, symbol, span),
            None => match self.kernel_enumerator(name, span) {
                Some(found) => found,
                None => {
                    self.unknown_name(name, span);
                    self.error_expr(span)
                }
            },
        }
    }

    /// Reports a name that has no value.
    fn no_value(&mut self, name: &str, symbol: Symbol, span: Span) -> Typed {
        let (code, help) = match symbol {
            Symbol::Map(map) if self.checker.maps[map].outer.is_some() => {
                (608, Some(format!("an element is: `{name}[key of an inner map][key]`")))
            }
            Symbol::Map(_) => (608, Some(format!("an element is: `{name}[key]`"))),
            Symbol::Ring(_) => (608, Some(format!("records come from `{name}.reserve()`"))),
            Symbol::Config(_) => (608, Some(format!("a field is: `{name}.field`"))),
            Symbol::Counter(_) => (608, Some(format!("its count is `read({name})`"))),
            Symbol::Module(_) | Symbol::Python(_) => {
                (608, Some(format!("call a function of it: `{name}.f()`")))
            }
            Symbol::Extern(_) => (301, Some("an extern can only be called".to_owned())),
            Symbol::Impl(_) => (608, Some(format!("it can be registered: `register({name})`"))),
            _ => (301, None),
        };
        let text = format!("`{name}` is {}, not a value", symbol.what());
        self.report(Diagnostic::error(code, span, text).maybe_help(help));
        self.error_expr(span)
    }

    /// Checks a function used as a value.
    fn function_value(&mut self, id: crate::hir::FuncId, span: Span) -> Typed {
        let signature = self.checker.signatures[id].clone();
        let Some(kind) = signature.kind else { return self.error_expr(span) };
        if kind.is_program() {
            return self.program_value(&signature.name, span);
        }
        if kind.half() != self.half() {
            let text = format!("`{}` belongs to the {} half", signature.name, kind.half().name());
            self.report(
                Diagnostic::error(306, span, text)
                    .also(signature.span, "declared here")
                    .help("a function value stays in its half"),
            );
            return self.error_expr(span);
        }
        let ty = self.checker.types.intern(TypeKind::Fn(signature.params, signature.ret));
        self.make(ExprKind::Function(id), ty, span)
    }

    fn program_value(&mut self, name: &str, span: Span) -> Typed {
        self.report(
            Diagnostic::error(426, span, format!("`{name}` is a program; it can only be loaded or tested"))
                .help(format!("write `load({name})`")),
        );
        self.error_expr(span)
    }

    pub(super) fn unknown_name(&mut self, name: &str, span: Span) {
        if super::builtin_table::named(name).is_some() {
            self.report(
                Diagnostic::error(301, span, format!("`{name}` is a builtin function, not a value"))
                    .help(format!("call it: `{name}(..)`")),
            );
            return;
        }
        let values = self.checker.names.all(|symbol| !matches!(symbol, Symbol::Type(_)));
        let near = near(name, self.scoped_names().into_iter().chain(values)).map(str::to_owned);
        let diagnostic = Diagnostic::error(301, span, format!("no name `{name}` here"));
        let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == name);
        self.report(match near {
            _ if foreign.is_some() => {
                let meant = foreign.map_or("", |(_, meant)| meant);
                diagnostic.suggest(span, meant, "in this language")
            }
            _ if self.checker.is_left_out(name) => diagnostic.help(left_out(name)),
            Some(near) => {
                let text = format!("a similar name exists: `{near}`");
                diagnostic.suggest(span, near, text)
            }
            None if self.checker.infers_maps => diagnostic.help(format!(
                "a map needs no declaration, `{name}[..] += 1`; a variable does: `var {name} : u64 = 0`"
            )),
            None => diagnostic,
        });
    }

    fn cast(&mut self, value: &ast::Expr, ty: &ast::TypeExpr, span: Span) -> Typed {
        self.checker.strict(span, "cast with `as`");
        let to = self.checker.type_expr(ty, super::types::Position::Value);
        // Text that is read has as many bytes as its destination; a literal has its own.
        let is_read = matches!(strip(value).kind, ast::ExprKind::Call { .. } | ast::ExprKind::Field { .. });
        let is_text = matches!(self.checker.types.kind(to), TypeKind::Str(_));
        let from = self.expr(value, (is_read && is_text).then_some(to));
        let types = &self.checker.types;
        if types.is_error(to) || types.is_error(from.expr.ty) {
            return self.error_expr(span);
        }
        let number = |ty: TypeId| {
            matches!(types.kind(ty), TypeKind::Int(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Enum(_))
        };
        let pointer = |ty: TypeId| matches!(types.kind(ty), TypeKind::Ptr(_) | TypeKind::Null);
        let wide = |ty: TypeId| types.int(ty).is_some_and(|int| int.bits == 64);
        let kernel = self.half() == Half::Kernel;
        let fits = match (number(from.expr.ty), number(to)) {
            (true, true) => true,
            (false, false) => {
                self.is_text_cast(from.expr.ty, to)
                    || (pointer(from.expr.ty) && pointer(to) && !self.loses_context(from.expr.ty, to))
            }
            (true, false) => {
                pointer(to) && kernel && (wide(from.expr.ty) || from.literal) && !types.is_context_pointer(to)
            }
            (false, true) => pointer(from.expr.ty) && kernel && wide(to),
        };
        if !fits {
            let (source, target) = (self.type_name(from.expr.ty), self.type_name(to));
            let address = (pointer(from.expr.ty) || pointer(to)) && !kernel;
            let context = types.is_context_pointer(from.expr.ty) || types.is_context_pointer(to);
            let note = match (address, context) {
                (true, _) => {
                    Some("a pointer of the userspace half leads into the plugin's own memory".into())
                }
                (_, true) => Some("a context is read by its members, `ctx->..`".into()),
                _ => None,
            };
            self.report(
                Diagnostic::error(401, span, format!("`{source}` cannot be cast to `{target}`"))
                    .maybe_help(note),
            );
            return self.error_expr(span);
        }
        if matches!(types.kind(from.expr.ty), TypeKind::Null) {
            let null = self.coerce(from, to);
            return self.make(null.kind, to, span);
        }
        if from.expr.ty == to && matches!(types.kind(to), TypeKind::Str(_)) {
            return self.make(from.expr.kind, to, span);
        }
        if to == self.checker.types.common().bool {
            return self.make(ExprKind::Truth(Box::new(from.expr)), to, span);
        }
        let known = from.constant.or_else(|| {
            let bits = super::fold::constant_scalar(&self.checker.types, &from.expr)?;
            Some(self.checker.types.scalar(from.expr.ty)?.value(bits))
        });
        match (known, self.checker.types.scalar(to)) {
            (Some(value), Some(int)) => {
                let value = int.value(int.truncate(value as u64));
                self.integer(value, to, span)
            }
            _ => self.make(ExprKind::Convert(Box::new(from.expr)), to, span),
        }
    }

    /// Whether a cast gives text another size, or takes the bytes of an array as text.
    fn is_text_cast(&self, from: TypeId, to: TypeId) -> bool {
        match (self.checker.types.kind(from), self.checker.types.kind(to)) {
            (TypeKind::Str(_), TypeKind::Str(_)) => true,
            (TypeKind::Array(element, _), TypeKind::Str(_)) => self.is_byte(*element),
            _ => false,
        }
    }

    /// Whether a cast creates a context from something else, or something else from a context whose members
    /// the verifier translates: the kernel stores them elsewhere. Records of tracepoints lie in memory as
    /// declared.
    fn loses_context(&self, from: TypeId, to: TypeId) -> bool {
        let types = &self.checker.types;
        let is_translated = matches!(types.kind(from), TypeKind::Ptr(to) if self.is_context(*to));
        from != to && (types.is_context_pointer(to) || is_translated)
    }

    /// Returns the integer type, for an enum its underlying integer.
    pub(super) fn integer_of(&self, ty: TypeId) -> Option<IntType> {
        match self.checker.types.kind(ty) {
            TypeKind::Int(int) => Some(*int),
            TypeKind::Enum(_) => self.checker.types.scalar(ty),
            _ => None,
        }
    }

    /// Returns the map and key if an expression is `m[k]`, or `m[a][b]` of a map of maps.
    pub(super) fn map_element<'e>(&self, expr: &'e ast::Expr) -> Option<(MapId, ElementKey<'e>)> {
        let ast::ExprKind::Index(base, key) = &strip(expr).kind else { return None };
        if let Some(Symbol::Map(map)) = self.named_symbol(base) {
            return self.checker.maps[map].outer.is_none().then_some((map, ElementKey::One(key)));
        }
        let (map, outer) = self.inner_map(base)?;
        Some((map, ElementKey::Nested { outer, inner: key }))
    }

    /// Returns the variable that an expression names, if it names one.
    pub(super) fn named_local(&self, expr: &ast::Expr) -> Option<crate::hir::LocalId> {
        let ast::ExprKind::Name(name) = &strip(expr).kind else { return None };
        match self.lookup(name) {
            Some(Scoped::Local(local)) => Some(local),
            _ => None,
        }
    }
}
