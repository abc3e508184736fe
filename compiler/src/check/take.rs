//! `m.take(key)`: reads an entry of a map and removes it. It stands where a variable is set, and is written down as
//! statements that any script could have:
//!
//! ```text
//! if (var since = started.take(tid())) { .. }
//!     -> var key = tid()
//!        if (var since = started[key]) {
//!            delete started[key]
//!            ..
//!        }
//! ```
//!
//! A binding to a struct or an array is the entry itself: the value is copied before that is removed.

use super::Checker;
use super::aggregates::evaluated_index;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast::{self, Cond, ExprKind, If, StmtKind};
use crate::hir::{MapId, MapKind};
use crate::implicit_main::At;
use crate::types::TypeKind;

/// The method that removes an entry and returns its value.
pub(super) const TAKE: &str = "take";

/// A variable that is set to an entry, which is removed.
struct Taken<'e> {
    name: &'e ast::Ident,
    call: &'e ast::Expr,
    /// The statements that evaluate the key.
    before: Vec<ast::Stmt>,
    /// The entry: `m[key]`.
    entry: ast::Expr,
    /// Whether a binding is an alias of the entry: a struct or an array.
    is_alias: bool,
}

impl Checker<'_> {
    /// Whether entries of a map can be taken: they have values of their own, and can be removed.
    pub(super) fn can_take(&self, map: MapId) -> bool {
        let one = &self.maps[map];
        let is_pointer = matches!(self.types.kind(one.value), TypeKind::Ptr(_));
        matches!(one.kind, MapKind::Hash | MapKind::LruHash) && !is_pointer && one.outer.is_none()
    }
}

impl Body<'_, '_> {
    /// Returns the statements for which `var x = m.take(key)` and `if (var x = m.take(key)) ..` stand; none for any other
    /// statement.
    pub(super) fn taking_statements(&self, stmt: &ast::Stmt) -> Option<Vec<ast::Stmt>> {
        match &stmt.kind {
            StmtKind::Var { name, ty, init: Some(call) } => {
                let taken = self.taken(name, call)?;
                let mut stmts = taken.before.clone();
                let init = if taken.is_alias {
                    stmts.push(taken.bind());
                    Some(taken.bound())
                } else {
                    Some(taken.entry.clone())
                };
                let kind = StmtKind::Var { name: name.clone(), ty: ty.clone(), init };
                stmts.push(ast::Stmt { kind, span: stmt.span });
                stmts.push(taken.remove());
                Some(stmts)
            }
            StmtKind::If(one) => {
                let Cond::Var { name, value } = &one.cond else { return None };
                let taken = self.taken(name, value)?;
                let mut stmts = taken.before.clone();
                let bound = if taken.is_alias { taken.binding() } else { name.clone() };
                let cond = Cond::Var { name: bound, value: taken.entry.clone() };
                let mut then = Vec::new();
                if taken.is_alias {
                    let kind = StmtKind::Var { name: name.clone(), ty: None, init: Some(taken.bound()) };
                    then.push(ast::Stmt { kind, span: value.span });
                }
                then.push(taken.remove());
                then.extend(one.then.stmts.iter().cloned());
                let then = ast::Block { stmts: then, span: one.then.span };
                let kind = StmtKind::If(If { cond, then, otherwise: one.otherwise.clone() });
                stmts.push(ast::Stmt { kind, span: stmt.span });
                Some(stmts)
            }
            _ => None,
        }
    }

    /// Notes whether there was an entry, where the variable of a taking statement is a copy of it.
    pub(super) fn carry_presence(&mut self, stmt: &ast::Stmt) {
        let StmtKind::Var { name, .. } = &stmt.kind else { return };
        let at = At(stmt.span);
        let named = [at.name(name.name.clone()), at.name(binding_name(name))];
        if let [Some(local), Some(entry)] = named.map(|name| self.named_local(&name)) {
            self.locals[entry].binding = true;
            self.presence.insert(local, entry);
        }
    }

    /// Whether an `else if` takes an entry: its statements then stand in a block.
    pub(super) fn is_taking(&self, one: &If) -> bool {
        matches!(&one.cond, Cond::Var { name, value } if self.taken(name, value).is_some())
    }

    fn taken<'e>(&self, name: &'e ast::Ident, call: &'e ast::Expr) -> Option<Taken<'e>> {
        let ExprKind::Call { callee, args } = &strip(call).kind else { return None };
        let ExprKind::Field { base, arrow: false, name: method } = &strip(callee).kind else { return None };
        let ExprKind::Name(map) = &strip(base).kind else { return None };
        if method.name != TAKE || args.is_empty() || self.lookup(map).is_some() {
            return None;
        }
        let is_alias = match self.checker.names.get(map) {
            Some(Symbol::Map(map)) if self.checker.can_take(map) => {
                let kind = self.checker.types.kind(self.checker.maps[map].value);
                matches!(kind, TypeKind::Struct(_) | TypeKind::Array(..))
            }
            // The first use of a map makes its values numbers.
            None if self.implies_maps() => false,
            _ => return None,
        };
        let key = match args.as_slice() {
            [key] => key.clone(),
            parts => {
                let span = parts[0].span.to(parts[parts.len() - 1].span);
                ast::Expr { kind: ExprKind::Keys(parts.to_vec()), span }
            }
        };
        let mut before = Vec::new();
        let key = evaluated_index(&key, call.span, &mut before);
        let entry = At(call.span).index((**base).clone(), key);
        Some(Taken { name, call, before, entry, is_alias })
    }
}

/// The name of the variable that is bound to an entry, beside the one with the copy.
fn binding_name(name: &ast::Ident) -> String {
    format!("(entry {})", name.span.start)
}

impl Taken<'_> {
    fn at(&self) -> At {
        At(self.call.span)
    }

    /// The variable that is bound to the entry. No script can name it.
    fn binding(&self) -> ast::Ident {
        self.at().ident(binding_name(self.name))
    }

    fn bind(&self) -> ast::Stmt {
        self.at().var(&self.binding().name, self.entry.clone())
    }

    /// The value of the entry, which outlives it.
    fn bound(&self) -> ast::Expr {
        self.at().name(self.binding().name)
    }

    fn remove(&self) -> ast::Stmt {
        ast::Stmt { kind: StmtKind::Delete(self.entry.clone()), span: self.call.span }
    }
}
