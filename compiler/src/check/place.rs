//! Places: what can be read, and what can be written.

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::builtins::context::REGISTERS;
use crate::diag::{Diagnostic, near};
use crate::hir::{ContextMember, Expr, ExprKind, GlobalId, Half, MapId, Place, PlaceKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

const RDONLY: u32 = 8;
const WRONLY: u32 = 16;

impl Body<'_, '_> {
    /// The value of a name, member or element.
    pub(super) fn load(&mut self, expr: &ast::Expr) -> Typed {
        if let Some(member) = self.context_member(expr) {
            return member;
        }
        let Some(place) = self.place(expr) else { return self.error_expr(expr.span) };
        if let Some(map) = element_map(&place) {
            self.check_access(map, WRONLY, expr.span);
        }
        let ty = place.ty;
        self.make(ExprKind::Load(place), ty, expr.span)
    }

    /// The place an expression names; `None` if it was reported.
    fn place(&mut self, expr: &ast::Expr) -> Option<Place> {
        let span = expr.span;
        match &strip(expr).kind {
            ast::ExprKind::Name(name) => self.named_place(name, span),
            ast::ExprKind::Field { base, arrow, name } => self.field_place(base, *arrow, name, span),
            ast::ExprKind::Index(base, index) => match self.map_element(expr) {
                Some((map, key)) => {
                    let key = Box::new(self.map_key(map, key));
                    let ty = self.checker.maps[map].value;
                    Some(Place { kind: PlaceKind::Element { map, key }, ty, span })
                }
                None => self.index_place(base, index, span),
            },
            _ => {
                let value = self.expr(expr, None).expr;
                let ty = value.ty;
                (!self.checker.types.is_error(ty)).then(|| Place {
                    kind: PlaceKind::Value(Box::new(value)),
                    ty,
                    span,
                })
            }
        }
    }

    fn named_place(&mut self, name: &str, span: Span) -> Option<Place> {
        if let Some(Scoped::Local(local)) = self.lookup(name) {
            let ty = self.locals[local].ty;
            return (!self.checker.types.is_error(ty)).then_some(Place {
                kind: PlaceKind::Local(local),
                ty,
                span,
            });
        }
        if let (None, Some(Symbol::Global(global))) = (self.lookup(name), self.checker.names.get(name)) {
            self.check_half(global, span);
            let ty = self.checker.globals[global].ty;
            return (!self.checker.types.is_error(ty)).then_some(Place {
                kind: PlaceKind::Global(global),
                ty,
                span,
            });
        }
        let value = self.expr(&ast::Expr { kind: ast::ExprKind::Name(name.into()), span }, None).expr;
        let ty = value.ty;
        (!self.checker.types.is_error(ty)).then(|| Place {
            kind: PlaceKind::Value(Box::new(value)),
            ty,
            span,
        })
    }

    fn check_half(&mut self, global: GlobalId, span: Span) {
        let one = &self.checker.globals[global];
        if one.kernel_only && self.half() == Half::User {
            let (name, declared) = (one.name.clone(), one.span);
            self.report(
                Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half"))
                    .also(declared, "declared `local` here"),
            );
        }
    }

    fn field_place(&mut self, base: &ast::Expr, arrow: bool, name: &ast::Ident, span: Span) -> Option<Place> {
        if self.is_map_name(base) {
            let ast::ExprKind::Name(map) = &strip(base).kind else { return None };
            let text = format!("a map has no member `{}`", name.name);
            self.report(
                Diagnostic::error(304, name.span, text)
                    .help(format!("`{map}[key]` looks up, `{map}[key] = value` updates")),
            );
            return None;
        }
        let base = self.place(base)?;
        let structure = match self.checker.types.kind(base.ty) {
            TypeKind::Struct(id) => *id,
            TypeKind::Ptr(_) if !arrow => {
                self.report(Diagnostic::error(410, span, "use `->` on a pointer").help("write `->` for `.`"));
                return None;
            }
            _ => {
                let text = format!("`{}` has no member `{}`", self.type_name(base.ty), name.name);
                self.report(Diagnostic::error(304, name.span, text));
                return None;
            }
        };
        if arrow {
            self.report(Diagnostic::error(410, span, "use `.` on a value").help("write `.` for `->`"));
            return None;
        }
        let def = self.checker.types.struct_def(structure).clone();
        let Some(field) = def.field(&name.name) else {
            self.unknown_field(&def.name, name, &def.fields);
            return None;
        };
        let ty = def.fields[field].ty;
        (!self.checker.types.is_error(ty)).then_some(Place {
            kind: PlaceKind::Field { base: Box::new(base), field },
            ty,
            span,
        })
    }

    fn is_map_name(&self, expr: &ast::Expr) -> bool {
        let ast::ExprKind::Name(name) = &strip(expr).kind else { return false };
        self.lookup(name).is_none() && matches!(self.checker.names.get(name), Some(Symbol::Map(_)))
    }

    fn index_place(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Option<Place> {
        let base = self.place(base)?;
        let index = self.expr(index, None);
        let (ty, len) = match self.checker.types.kind(base.ty) {
            TypeKind::Array(element, len) => (*element, *len),
            TypeKind::Str(size) => (self.checker.types.common().char, u64::from(*size)),
            _ => {
                let text = format!("`{}` has no elements", self.type_name(base.ty));
                self.report(Diagnostic::error(402, base.span, text));
                return None;
            }
        };
        if self.checker.types.is_error(index.expr.ty) {
            return None;
        }
        if self.integer_of(index.expr.ty).is_none() {
            let text = format!("expected an integer as index, found `{}`", self.type_name(index.expr.ty));
            self.report(Diagnostic::error(401, index.expr.span, text));
            return None;
        }
        if let Some(value) = index.constant
            && !(0..i128::from(len)).contains(&value)
        {
            let text = format!("index {value} is outside `{}`", self.type_name(base.ty));
            self.report(
                Diagnostic::error(406, index.expr.span, text).label(format!("from 0 to {}", len - 1)),
            );
            return None;
        }
        let index = Box::new(index.expr);
        Some(Place { kind: PlaceKind::Index { base: Box::new(base), index }, ty, span })
    }

    /// A key of a map's key type. A constant beyond the end of an array is an error.
    pub(super) fn map_key(&mut self, map: MapId, key: &ast::Expr) -> Expr {
        let ty = self.checker.maps[map].key;
        let found = self.expr(key, Some(ty));
        let one = &self.checker.maps[map];
        if one.kind.is_array()
            && let Some(index) = found.constant
            && !(0..i128::from(one.max_entries)).contains(&index)
        {
            let text = format!("index {index} is outside `{}`", one.name);
            let label = format!("from 0 to {}", one.max_entries.saturating_sub(1));
            self.report(Diagnostic::error(406, key.span, text).label(label));
        }
        self.coerce(found, ty)
    }

    fn check_access(&mut self, map: MapId, forbidding: u32, span: Span) {
        let one = &self.checker.maps[map];
        if self.half() == Half::User && one.flags & forbidding != 0 {
            let what = if forbidding == RDONLY { "read-only" } else { "write-only" };
            let text = format!("map `{}` is {what} for userspace", one.name);
            let declared = one.span;
            self.report(Diagnostic::error(603, span, text).also(declared, "its flags say so"));
        }
    }

    /// A place that may be written; `None` if it was reported.
    pub(super) fn target(&mut self, expr: &ast::Expr) -> Option<Place> {
        if self.context_member(expr).is_some() {
            self.report(Diagnostic::error(412, expr.span, "a context member cannot be assigned"));
            return None;
        }
        let (ast::ExprKind::Name(_) | ast::ExprKind::Field { .. } | ast::ExprKind::Index(..)) =
            &strip(expr).kind
        else {
            if matches!(strip(expr).kind, ast::ExprKind::Unary(ast::UnaryOp::Deref, _)) {
                self.report(Diagnostic::not_yet(expr.span, "storing through a pointer is"));
            } else {
                self.report(
                    Diagnostic::error(212, expr.span, "cannot assign to this")
                        .help("a variable, a field, an element or a map entry stands on the left"),
                );
            }
            return None;
        };
        let place = self.place(expr)?;
        self.check_writable(&place, expr.span).then_some(place)
    }

    fn check_writable(&mut self, place: &Place, span: Span) -> bool {
        match &place.kind {
            PlaceKind::Local(local) if self.fixed.contains(local) => {
                let text = format!("`{}` cannot be assigned", self.locals[*local].name);
                self.report(Diagnostic::error(412, span, text).label("a loop variable"));
                false
            }
            PlaceKind::Local(_) | PlaceKind::Global(_) => true,
            PlaceKind::Element { map, .. } => {
                self.check_access(*map, RDONLY, span);
                true
            }
            PlaceKind::Field { base, .. } if base.ty == self.checker.known.perf_attachment => {
                self.report(Diagnostic::error(412, span, "a member of an attachment cannot be assigned"));
                false
            }
            PlaceKind::Index { base, .. } if matches!(self.checker.types.kind(base.ty), TypeKind::Str(_)) => {
                self.report(Diagnostic::error(212, span, "cannot assign to a byte of a string"));
                false
            }
            PlaceKind::Field { base, .. } | PlaceKind::Index { base, .. } => self.check_writable(base, span),
            PlaceKind::Value(_) => {
                self.report(Diagnostic::error(212, span, "cannot assign to this").label("this is a value"));
                false
            }
        }
    }

    /// `ctx->member` or `ctx->regs.register`; `None` if the expression is something else.
    fn context_member(&mut self, expr: &ast::Expr) -> Option<Typed> {
        let ast::ExprKind::Field { base, arrow, name } = &strip(expr).kind else { return None };
        if let ast::ExprKind::Field { base: ctx, arrow: true, name: regs } = &strip(base).kind
            && regs.name == "regs"
            && let Some(ctx) = self.context_pointer(ctx)
        {
            return Some(self.register(ctx, *arrow, name, expr.span));
        }
        let ctx = self.context_pointer(base)?;
        if !*arrow {
            self.report(
                Diagnostic::error(410, expr.span, "use `->` on a pointer")
                    .help(format!("write `->{}`", name.name)),
            );
            return Some(self.error_expr(expr.span));
        }
        let member = match name.name.as_str() {
            "sample_period" => ContextMember::SamplePeriod,
            "addr" => ContextMember::Addr,
            "regs" => {
                self.report(
                    Diagnostic::error(304, name.span, "`regs` is not a value")
                        .help("name a register: `ctx->regs.ip`"),
                );
                return Some(self.error_expr(expr.span));
            }
            other => {
                let help = near(other, ["sample_period", "addr", "regs"])
                    .map_or("its members are `regs`, `sample_period`, `addr`".to_owned(), |near| {
                        format!("a similar member exists: `{near}`")
                    });
                let text = format!("`bpf_perf_event_data` has no member `{other}`");
                self.report(Diagnostic::error(304, name.span, text).help(help));
                return Some(self.error_expr(expr.span));
            }
        };
        Some(self.context_load(ctx, member, expr.span))
    }

    fn register(&mut self, ctx: Expr, arrow: bool, name: &ast::Ident, span: Span) -> Typed {
        if arrow {
            self.report(
                Diagnostic::error(410, span, "use `.` on a value").help("`regs` is a struct, no pointer"),
            );
            return self.error_expr(span);
        }
        let Some(index) = REGISTERS.iter().position(|register| register.name == name.name) else {
            let help = near(&name.name, REGISTERS.iter().map(|register| register.name))
                .map(|near| format!("a similar register exists: `{near}`"));
            let text = format!("no register `{}`", name.name);
            self.report(
                Diagnostic::error(304, name.span, text)
                    .maybe_help(help)
                    .note("`ip`, `sp` and `fp` exist on every architecture"),
            );
            return self.error_expr(span);
        };
        self.context_load(ctx, ContextMember::Register(index), span)
    }

    fn context_load(&mut self, ctx: Expr, member: ContextMember, span: Span) -> Typed {
        let u64 = self.checker.types.common().u64;
        self.make(ExprKind::Context { ctx: Box::new(ctx), member }, u64, span)
    }

    /// The value of a variable that points to a context.
    fn context_pointer(&mut self, expr: &ast::Expr) -> Option<Expr> {
        let local = self.named_local(expr)?;
        let pointer: TypeId = self.checker.types.intern(TypeKind::Ptr(self.checker.known.perf_context));
        (self.locals[local].ty == pointer).then(|| self.load_local(local, expr.span))
    }
}

/// The map whose element, or part of one, a place is.
fn element_map(place: &Place) -> Option<MapId> {
    match &place.kind {
        PlaceKind::Element { map, .. } => Some(*map),
        PlaceKind::Field { base, .. } | PlaceKind::Index { base, .. } => element_map(base),
        _ => None,
    }
}
