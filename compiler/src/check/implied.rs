//! Maps that a script without `main` uses without a declaration: `calls[comm()] += 1` is a
//! `hash<str(16), u64>`. The first use in the text decides the types; a later one of other types is an error.
//!
//! In: a statement, before it is checked. Out: declared maps. Values are 64 bits wide, so that counts, sums
//! and times fit whatever they are made of.

use super::Checker;
use super::aggregates;
use super::builtin_table;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast::{self, Cond, Else, ExprKind, If, StmtKind, UnaryOp};
use crate::diag::Diagnostic;
use crate::hir::{Global, Half, Map, MapId, MapKind};
use crate::implicit_main;
use crate::source::Span;
use crate::types::{Field, IntType, StructDef, StructOrigin, TypeId, TypeKind};

/// Number of entries of a map that no declaration gives a size. An update that a full map refuses is counted
/// and reported.
pub(super) const DEFAULT_ENTRIES: u32 = 10240;
/// The field of a key whose expression has no name.
const KEY_PART: &str = "key";
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

/// A key of a use, or a part of one.
#[derive(Clone)]
struct KeyPart {
    ty: TypeId,
    /// Whether it is a literal, which fits other widths, too.
    literal: bool,
    /// What the expression is called: `pid` of `pid()`.
    name: String,
}

/// The types of a use.
struct Used {
    /// The key; several parts if the use gives it part by part: `m[a, b]`.
    key: Vec<KeyPart>,
    /// None where the use does not say it.
    value: Option<TypeId>,
    literal_value: bool,
}

impl Body<'_, '_> {
    /// Declares the maps that a statement is the first to use, and compares its uses of others with their
    /// types. Returns whether they fit.
    pub(super) fn imply_maps(&mut self, stmt: &ast::Stmt) -> bool {
        if !self.implies_maps() {
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

    /// Whether a name that nothing declares may be that of a map here.
    pub(super) fn implies_maps(&self) -> bool {
        self.checker.infers_maps && self.half() == Half::Kernel
    }

    /// Declares a variable that `add` is the first to use.
    fn imply_histogram(&mut self, name: &str, span: Span) {
        if self.lookup(name).is_some() || self.checker.names.get(name).is_some() {
            return;
        }
        let ty = self.checker.types.struct_type(self.checker.known.log2_hist);
        let global = self.checker.globals.push(Global::new(name.to_owned(), ty, span));
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
        let Some(types) = self.tried(|body| body.used_types(used)) else {
            if known.is_none() {
                self.reject_implied(used);
            }
            return known.is_some();
        };
        match known {
            Some(map) => self.check_implied(map, &types, used),
            None => {
                self.declare_implied(&types, used);
                true
            }
        }
    }

    /// Reports why the first use has no types. Later uses are none of a name that is missing.
    fn reject_implied(&mut self, used: &Indexed<'_>) {
        self.used_types(used);
        let name = ast::Ident { name: used.name.to_owned(), span: used.span };
        self.checker.declare_name(&name, Symbol::Error);
    }

    fn declare_implied(&mut self, types: &Used, used: &Indexed<'_>) {
        let value = types.value.unwrap_or(self.common().u64);
        let key = match types.key.as_slice() {
            [one] => one.ty,
            parts => self.checker.key_struct(used.name, parts),
        };
        self.checker.check_key(MapKind::Hash, key, used.key.span);
        self.checker.check_value(MapKind::Hash, value, used.span);
        let name = ast::Ident { name: used.name.to_owned(), span: used.span };
        let named = (name.name.clone(), used.span);
        let map = self.checker.maps.push(Map::new(named, MapKind::Hash, key, value, DEFAULT_ENTRIES));
        self.checker.implied.insert(map);
        self.checker.declare_name(&name, Symbol::Map(map));
    }

    /// Reports a use of other types than the first one's.
    fn check_implied(&mut self, map: MapId, used: &Used, at: &Indexed<'_>) -> bool {
        let one = &self.checker.maps[map];
        let (value, first) = (one.value, one.span);
        let key = self.checker.key_parts(one.key);
        let (wrong, found, expected, span) = match used.value {
            _ if !self.fits_key(&used.key, &key) => {
                let found: Vec<TypeId> = used.key.iter().map(|part| part.ty).collect();
                ("key", self.types_text(&found), self.types_text(&key), at.key.span)
            }
            Some(found) if found != value && !(used.literal_value && self.integer_of(value).is_some()) => {
                let span = at.stored.map_or(at.span, |stored| stored.span);
                ("value", self.type_name(found), self.type_name(value), span)
            }
            _ => return true,
        };
        let text = format!("`{}` has another {wrong} here: `{found}`, not `{expected}`", at.name);
        let help = match key.as_slice() {
            [one] => {
                let (key, value) = (self.type_name(*one), self.type_name(value));
                format!("convert it, or declare the map: `var {} : hash<{key}, {value}>(1024)`", at.name)
            }
            _ => "convert it, or declare the map with a struct as its key".to_owned(),
        };
        self.report(
            Diagnostic::error(624, span, text).also(first, "the first use decides the types").help(help),
        );
        false
    }

    fn types_text(&self, types: &[TypeId]) -> String {
        types.iter().map(|ty| self.type_name(*ty)).collect::<Vec<_>>().join(", ")
    }

    fn fits_key(&self, used: &[KeyPart], key: &[TypeId]) -> bool {
        used.len() == key.len() && used.iter().zip(key).all(|(part, ty)| self.fits_key_part(part, *ty))
    }

    fn fits_key_part(&self, part: &KeyPart, key: TypeId) -> bool {
        let types = &self.checker.types;
        match (types.kind(part.ty), types.kind(key)) {
            _ if part.ty == key => true,
            (TypeKind::Int(_), TypeKind::Int(_)) if part.literal => true,
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
        let parts = match &strip(used.key).kind {
            ExprKind::Keys(parts) => parts.as_slice(),
            _ => std::slice::from_ref(used.key),
        };
        let key: Vec<KeyPart> = parts.iter().map(|part| self.key_part(part)).collect();
        let stored = used.stored.map(|stored| self.expr(stored, None));
        let literal_value = stored.as_ref().is_some_and(|stored| stored.literal);
        let histogram = self.checker.types.struct_type(self.checker.known.log2_hist);
        let value = stored.map(|stored| stored.expr.ty).or(used.is_counted.then_some(histogram));
        let is_error = |ty: TypeId| self.checker.types.is_error(ty);
        if key.iter().any(|part| is_error(part.ty)) || value.is_some_and(is_error) {
            return None;
        }
        let value = value.map(|value| self.value_type(value));
        Some(Used { key, value, literal_value })
    }

    fn key_part(&mut self, part: &ast::Expr) -> KeyPart {
        let found = self.expr(part, None);
        let name = name_of(part).unwrap_or(KEY_PART).to_owned();
        KeyPart { ty: self.text_type(found.expr.ty), literal: found.literal, name }
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
    /// Adds the struct of keys that are given part by part. Its fields have the names of the first use.
    fn key_struct(&mut self, map: &str, parts: &[KeyPart]) -> TypeId {
        let mut fields: Vec<Field> = Vec::with_capacity(parts.len());
        for part in parts {
            let numbered = (2..).map(|number| format!("{}_{number}", part.name));
            let is_free = |name: &String| fields.iter().all(|field| field.name != *name);
            let name = std::iter::once(part.name.clone()).chain(numbered).find(is_free);
            let name = name.expect("some number is free");
            fields.push(Field::new(name, part.ty));
        }
        let origin = StructOrigin::Predeclared;
        let id = self.types.add_struct(StructDef { name: format!("{map}_key"), fields, origin });
        self.key_structs.insert(id);
        self.types.struct_type(id)
    }

    /// Returns the types of the parts in which the script gives a key.
    fn key_parts(&self, key: TypeId) -> Vec<TypeId> {
        match self.types.kind(key) {
            TypeKind::Struct(id) if self.key_structs.contains(id) => {
                self.types.struct_def(*id).fields.iter().map(|field| field.ty).collect()
            }
            _ => vec![key],
        }
    }

    /// Whether a name that nothing declares will be that of a map.
    pub(super) fn is_implied_map(&self, name: &str) -> bool {
        self.infers_maps && self.names.get(name).is_none()
    }

    /// Whether a program that is left out uses a name.
    pub(super) fn is_left_out(&self, name: &str) -> bool {
        self.left_out.iter().any(|body| implicit_main::names(body, name))
    }
}

/// What to do about a name that only programs use that are left out.
pub(super) fn left_out(name: &str) -> String {
    format!(
        "the program whose first use decides its type is left out here (KS0526): declare it, \
         `var {name} : hash<str(16), u64>(1024)`"
    )
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
        | StmtKind::Lock { .. }
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
            // `container_of(p, task_struct, pid_links[0])`: a part of a struct, not an entry.
            let builtin = named(callee).and_then(|(name, _)| builtin_table::named(name));
            let is_member = |at| builtin.is_some_and(|builtin| builtin.names_member(at));
            let values = args.iter().enumerate().filter(|(at, _)| !is_member(*at));
            values.for_each(|(_, arg)| of_expr(arg, uses));
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

/// Returns what people call the value of an expression: a variable or member by its own name, what is computed of such a
/// value by that value's, and any other call by the function's.
fn name_of(expr: &ast::Expr) -> Option<&str> {
    match &strip(expr).kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Field { name, .. } => Some(&name.name),
        ExprKind::Call { callee, args } => args.iter().find_map(name_of).or_else(|| name_of(callee)),
        ExprKind::Index(inner, _) | ExprKind::Cast(inner, _) | ExprKind::Unary(_, inner) => name_of(inner),
        ExprKind::Binary(_, left, right) => name_of(left).or_else(|| name_of(right)),
        _ => None,
    }
}
