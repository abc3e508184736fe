//! Maps that a script without `main` uses without a declaration: `calls[comm()] += 1` is a
//! `hash<str(16), u64>`. The first use in the text decides the types; a later one of other types is an error.
//!
//! In: a statement, before it is checked. Out: declared maps. Values are 64 bits wide, so that counts, sums
//! and times fit whatever they are made of.

use super::Checker;
use super::aggregates;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast::{self, Cond, Else, ExprKind, If, StmtKind, UnaryOp};
use crate::diag::Diagnostic;
use crate::hir::{Global, Half, Map, MapId, MapKind};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// Number of entries of a map that no declaration gives a size. An update that a full map refuses is counted
/// and reported.
pub(super) const DEFAULT_ENTRIES: u32 = 10240;
/// Size of text keys and values that a literal is the first of: as many bytes as the name of a task has.
const TEXT_BYTES: u32 = 16;

/// A use of a name with `[key]`.
struct Indexed<'e> {
    name: &'e str,
    span: Span,
    key: &'e ast::Expr,
    /// What is stored there.
    stored: Option<&'e ast::Expr>,
    /// Whether `add` counts a value there: it is a histogram.
    is_counted: bool,
}

/// The types of a use. None where the use does not say it.
#[derive(Clone, Copy)]
struct Used {
    key: TypeId,
    /// Whether the key is a literal, which fits other widths, too.
    literal_key: bool,
    value: Option<TypeId>,
    literal_value: bool,
}

impl Body<'_, '_> {
    /// Declares the maps that a statement is the first to use, and compares its uses of others with their
    /// types. Returns whether they fit.
    pub(super) fn imply_maps(&mut self, stmt: &ast::Stmt) -> bool {
        if !self.checker.infers_maps || self.half() != Half::Kernel {
            return true;
        }
        if let ast::StmtKind::Expr(expr) = &stmt.kind
            && let Some((base, _)) = aggregates::addition(expr)
            && let Some((name, span)) = named(base)
        {
            self.imply_histogram(name, span);
        }
        let mut uses = Vec::new();
        of_statement(stmt, &mut uses);
        uses.into_iter().all(|used| self.imply_map(&used))
    }

    /// Declares a variable that `add` is the first to use.
    fn imply_histogram(&mut self, name: &str, span: Span) {
        if self.lookup(name).is_some() || self.checker.names.get(name).is_some() {
            return;
        }
        let ty = self.checker.types.struct_type(self.checker.known.log2_hist);
        let global = self.checker.globals.push(Global {
            name: name.to_owned(),
            ty,
            span,
            kernel_only: false,
            pinned: false,
            constant: false,
            init: Vec::new(),
        });
        let name = ast::Ident { name: name.to_owned(), span };
        self.checker.declare_name(&name, Symbol::Global(global));
    }

    fn imply_map(&mut self, used: &Indexed<'_>) -> bool {
        if self.lookup(used.name).is_some() {
            return true;
        }
        let known = match self.checker.names.get(used.name) {
            Some(Symbol::Map(map)) if self.checker.implied.contains(&map) => Some(map),
            Some(_) => return true,
            None => None,
        };
        let Some(types) = self.tried(|body| body.used_types(used)) else { return true };
        match known {
            Some(map) => self.check_implied(map, types, used),
            None => {
                self.declare_implied(types, used);
                true
            }
        }
    }

    fn declare_implied(&mut self, types: Used, used: &Indexed<'_>) {
        let value = types.value.unwrap_or(self.common().u64);
        self.checker.check_key(MapKind::Hash, types.key, used.key.span);
        self.checker.check_value(MapKind::Hash, value, used.span);
        let name = ast::Ident { name: used.name.to_owned(), span: used.span };
        let map = self.checker.maps.push(Map {
            name: name.name.clone(),
            span: used.span,
            kind: MapKind::Hash,
            key: types.key,
            value,
            objects: false,
            max_entries: DEFAULT_ENTRIES,
            size_option: None,
            flags: 0,
            numa_node: 0,
            pinned: false,
            kernel_only: false,
        });
        self.checker.implied.insert(map);
        self.checker.declare_name(&name, Symbol::Map(map));
    }

    /// Reports a use of other types than the first one's.
    fn check_implied(&mut self, map: MapId, used: Used, at: &Indexed<'_>) -> bool {
        let one = &self.checker.maps[map];
        let (key, value, first) = (one.key, one.value, one.span);
        let (wrong, found, span) = match used.value {
            _ if !self.fits_key(used, key) => ("key", used.key, at.key.span),
            Some(found) if found != value && !(used.literal_value && self.integer_of(value).is_some()) => {
                ("value", found, at.stored.map_or(at.span, |stored| stored.span))
            }
            _ => return true,
        };
        let expected = if wrong == "key" { key } else { value };
        let text = format!(
            "`{}` has another {wrong} here: `{}`, not `{}`",
            at.name,
            self.type_name(found),
            self.type_name(expected)
        );
        let declaration =
            format!("`var {} : hash<{}, {}>(1024)`", at.name, self.type_name(key), self.type_name(value));
        self.report(
            Diagnostic::error(624, span, text)
                .also(first, "the first use decides the types")
                .help(format!("convert it, or declare the map: {declaration}")),
        );
        false
    }

    fn fits_key(&self, used: Used, key: TypeId) -> bool {
        let types = &self.checker.types;
        match (types.kind(used.key), types.kind(key)) {
            _ if used.key == key => true,
            (TypeKind::Int(_), TypeKind::Int(_)) if used.literal_key => true,
            (TypeKind::Int(found), TypeKind::Int(wanted)) => {
                found.signed == wanted.signed && found.bits <= wanted.bits
            }
            (TypeKind::Str(found), TypeKind::Str(wanted)) => found <= wanted,
            _ => false,
        }
    }

    /// Returns the types of a use; none if an expression has an error, which is reported when the statement
    /// is checked.
    fn used_types(&mut self, used: &Indexed<'_>) -> Option<Used> {
        let key = self.expr(used.key, None);
        let literal_key = key.literal;
        let key = self.text_type(key.expr.ty);
        let stored = used.stored.map(|stored| self.expr(stored, None));
        let literal_value = stored.as_ref().is_some_and(|stored| stored.literal);
        let histogram = self.checker.types.struct_type(self.checker.known.log2_hist);
        let value = stored.map(|stored| stored.expr.ty).or(used.is_counted.then_some(histogram));
        let is_error = |ty: TypeId| self.checker.types.is_error(ty);
        if is_error(key) || value.is_some_and(is_error) {
            return None;
        }
        let value = value.map(|value| self.value_type(value));
        Some(Used { key, literal_key, value, literal_value })
    }

    /// Returns the type of the values in which one of this type is stored.
    fn value_type(&mut self, ty: TypeId) -> TypeId {
        match *self.checker.types.kind(ty) {
            TypeKind::Int(IntType { signed: true, .. }) => self.common().i64,
            TypeKind::Int(_) => self.common().u64,
            _ => self.text_type(ty),
        }
    }

    fn text_type(&mut self, ty: TypeId) -> TypeId {
        match *self.checker.types.kind(ty) {
            TypeKind::Str(size) if size < TEXT_BYTES => self.checker.types.str_type(TEXT_BYTES),
            _ => ty,
        }
    }

    /// Runs `inner` without reporting anything.
    pub(super) fn tried<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        let before = (self.checker.diagnostics.clone(), self.checker.dispatched.len());
        let result = self.not_last(inner);
        *self.checker.diagnostics = before.0;
        self.checker.dispatched.truncate(before.1);
        result
    }
}

impl Checker<'_> {
    /// Whether a name that nothing declares will be that of a map.
    pub(super) fn is_implied_map(&self, name: &str) -> bool {
        self.infers_maps && self.names.get(name).is_none()
    }
}

/// Collects the uses in a statement's own expressions, without those of its blocks.
fn of_statement<'e>(stmt: &'e ast::Stmt, uses: &mut Vec<Indexed<'e>>) {
    match &stmt.kind {
        StmtKind::Var { init, .. } => init.iter().for_each(|init| of_expr(init, uses)),
        StmtKind::Assign { lvalue, value, .. } => {
            of_expr(value, uses);
            match &strip(lvalue).kind {
                ExprKind::Index(base, key) if named(base).is_some() => {
                    of_expr(key, uses);
                    uses.extend(indexed(base, key, Some(value)));
                }
                _ => of_expr(lvalue, uses),
            }
        }
        StmtKind::If(one) => of_condition(one, uses),
        StmtKind::While { cond, .. } => of_expr(cond, uses),
        StmtKind::For { start, end, .. } => {
            of_expr(start, uses);
            of_expr(end, uses);
        }
        StmtKind::Expr(one)
        | StmtKind::Return(Some(one))
        | StmtKind::Delete(one)
        | StmtKind::Throw(one)
        | StmtKind::Defer(one) => of_expr(one, uses),
        StmtKind::Const { .. }
        | StmtKind::ForEach { .. }
        | StmtKind::Try { .. }
        | StmtKind::Return(None)
        | StmtKind::Break
        | StmtKind::Continue => {}
    }
}

fn of_condition<'e>(one: &'e If, uses: &mut Vec<Indexed<'e>>) {
    match &one.cond {
        Cond::Expr(value) | Cond::Var { value, .. } => of_expr(value, uses),
    }
    if let Some(Else::If(nested, _)) = &one.otherwise {
        of_condition(nested, uses);
    }
}

fn of_expr<'e>(expr: &'e ast::Expr, uses: &mut Vec<Indexed<'e>>) {
    match &expr.kind {
        ExprKind::Index(base, key) => {
            of_expr(base, uses);
            of_expr(key, uses);
            uses.extend(indexed(base, key, None));
        }
        ExprKind::Unary(UnaryOp::AddrOf, _) => {}
        ExprKind::Call { callee, args } => {
            match aggregates::addition(expr).map(|(base, _)| &strip(base).kind) {
                Some(ExprKind::Index(base, key)) => {
                    of_expr(key, uses);
                    let counted = indexed(base, key, None);
                    uses.extend(counted.map(|counted| Indexed { is_counted: true, ..counted }));
                }
                _ => of_expr(callee, uses),
            }
            args.iter().for_each(|arg| of_expr(arg, uses));
        }
        _ => expr.parts().into_iter().for_each(|part| of_expr(part, uses)),
    }
}

fn indexed<'e>(
    base: &'e ast::Expr,
    key: &'e ast::Expr,
    stored: Option<&'e ast::Expr>,
) -> Option<Indexed<'e>> {
    let (name, span) = named(base)?;
    Some(Indexed { name, span, key, stored, is_counted: false })
}

fn named(expr: &ast::Expr) -> Option<(&str, Span)> {
    match &strip(expr).kind {
        ExprKind::Name(name) => Some((name, expr.span)),
        _ => None,
    }
}
