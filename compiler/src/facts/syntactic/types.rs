//! References in types, and queries about types.

use super::Collector;
use crate::ast::{Ident, Size, TypeExpr, TypeExprKind};
use crate::facts::{DefId, DefKind, Ty};
use crate::source::Span;

/// Maximum length of a chain of aliases; longer ones are cycles.
const MAX_ALIASES: u32 = 32;

impl Collector<'_> {
    /// Records the references in a type, and returns the type.
    pub(super) fn type_expr(&mut self, written: &TypeExpr) -> Ty {
        self.type_names(written);
        Ty::written(written)
    }

    fn type_names(&mut self, written: &TypeExpr) {
        match &written.kind {
            TypeExprKind::Name(name) => {
                let found = self.lookup_global(name);
                self.refer(written.span, found);
            }
            TypeExprKind::Qualified { module, name } => self.qualified_type(module, name),
            TypeExprKind::Str(_) | TypeExprKind::LinearHist { .. } => {}
            TypeExprKind::Ptr(inner) => self.type_names(inner),
            TypeExprKind::Array(inner, len) => {
                self.type_names(inner);
                self.size(len);
            }
            TypeExprKind::Fn(params, ret) => {
                params.iter().for_each(|one| self.type_names(one));
                self.type_names(ret);
            }
            TypeExprKind::Map { kind, key, value, size } => {
                self.refer(kind.span, self.kinds.get(&kind.name).copied());
                self.type_names(key);
                self.type_names(value);
                size.iter().for_each(|size| self.size(size));
            }
            TypeExprKind::Keyless { kind, value, size } => {
                self.refer(kind.span, self.kinds.get(&kind.name).copied());
                value.iter().for_each(|value| self.type_names(value));
                size.iter().for_each(|size| self.size(size));
            }
            TypeExprKind::Ring(record, size) => {
                let keyword_span = Span { end: written.span.start + "ringbuf".len() as u32, ..written.span };
                self.refer(keyword_span, self.kinds.get("ringbuf").copied());
                self.type_names(record);
                self.size(size);
            }
        }
    }

    fn size(&mut self, size: &Size) {
        if let Size::Const(name) = size {
            let found = self.lookup_global(&name.name);
            self.refer(name.span, found);
        }
    }

    fn qualified_type(&mut self, module: &Ident, name: &Ident) {
        let Some(id) = self.globals.get(&module.name).copied() else { return };
        self.facts.refer(module.span, id);
        let found = self.member(id, &name.name);
        self.refer(name.span, found);
    }

    /// Returns the struct, enum or predeclared type of a name; aliases are followed.
    pub(super) fn type_def(&self, name: &str) -> Option<DefId> {
        let mut name = name.to_owned();
        for _ in 0..MAX_ALIASES {
            let id = match name.split_once('.') {
                Some((module, member)) => self.member(*self.globals.get(module)?, member)?,
                None => self.lookup_global(&name)?,
            };
            let one = self.facts.definition(id)?;
            match (&one.ty, one.kind) {
                (Ty::Named(next), DefKind::Type) => name = next.clone(),
                _ => return Some(id),
            }
        }
        None
    }

    /// Returns the type with its alias replaced, if that stands for an array, pointer, function or string.
    pub(super) fn unalias(&self, ty: &Ty) -> Ty {
        let Ty::Named(name) = ty else { return ty.clone() };
        match self.type_def(name).and_then(|id| self.facts.definition(id)) {
            Some(one) if one.kind == DefKind::Type && one.ty.is_known() => one.ty.clone(),
            _ => ty.clone(),
        }
    }

    /// Returns the field of a value or of a pointer's pointee.
    pub(super) fn field_of(&self, base: &Ty, name: &str) -> Option<DefId> {
        let base = self.unalias(base);
        if let Ty::Ring(..) = base {
            return self.member(*self.kinds.get("ringbuf")?, name);
        }
        if let Ty::Keyless(kind, ..) = &base {
            return self.member(*self.kinds.get(kind)?, name);
        }
        let of = self.type_def(base.name()?)?;
        self.member(of, name)
    }
}
