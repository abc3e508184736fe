//! Queries about types: aliases, fields and methods.

use super::{DefId, DefKind, Facts, Ty};

impl Facts {
    /// Returns the type with its alias replaced.
    pub fn unalias(&self, ty: &Ty) -> Ty {
        let Ty::Named(name) = ty else { return ty.clone() };
        match self.type_named(name).and_then(|id| self.definition(id)) {
            Some(one) if one.kind == DefKind::Type && one.ty.is_known() => one.ty.clone(),
            _ => ty.clone(),
        }
    }

    /// Returns the names that may follow `.` or `->` after a value, or a pointer to it: fields, or the
    /// methods of a map.
    pub fn fields(&self, ty: &Ty) -> &[DefId] {
        match self.unalias(ty) {
            Ty::Ring(..) => self.methods_of("ringbuf"),
            Ty::Keyless(kind, ..) => self.methods_of(&kind),
            known => match known.name().and_then(|name| self.type_named(name)) {
                Some(id) if self.definition(id).is_some_and(|one| one.kind == DefKind::Struct) => {
                    self.children(id)
                }
                _ => &[],
            },
        }
    }

    /// Returns the field or method of a value by name.
    pub fn field(&self, ty: &Ty, name: &str) -> Option<DefId> {
        let named = |id: &&DefId| self.definition(**id).is_some_and(|one| one.name == name);
        self.fields(ty).iter().find(named).copied()
    }

    fn methods_of(&self, kind: &str) -> &[DefId] {
        let is_kind =
            |(_, one): &(DefId, &super::Definition)| one.kind == DefKind::MapKind && one.name == kind;
        self.definitions().find(is_kind).map_or(&[], |(id, _)| self.children(id))
    }
}
