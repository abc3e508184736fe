//! Selection of the types that an object uses, renumbered in the order of first use.

use std::collections::VecDeque;

use super::super::super::model::{Member, Type, TypeNote, Types};
use super::{RawType, RawTypes};
use crate::object::btf::TypeId;

/// Collects the types that an object uses.
///
/// New ids depend on the parts of the object and on the types only, not on the order of the file. Parts
/// request their types in the order of the model, and types that these refer to follow breadth first. An
/// object that is written and read again therefore has the same ids.
pub(in super::super) struct Selection<'t, 'a> {
    types: Option<&'t RawTypes<'a>>,
    /// New id of each type, by old id; `void` if it has none yet.
    ids: Vec<TypeId>,
    /// Old ids, in the order of the new ones.
    order: Vec<TypeId>,
    /// Old ids whose references have no new ids yet.
    pending: VecDeque<TypeId>,
}

impl<'t, 'a> Selection<'t, 'a> {
    pub(in super::super) fn new(types: Option<&'t RawTypes<'a>>) -> Self {
        let count = types.map_or(0, |types| types.records.len());
        Selection { types, ids: vec![TypeId::VOID; count], order: Vec::new(), pending: VecDeque::new() }
    }

    /// Returns the new id of a type, assigned on first use.
    pub(in super::super) fn keep(&mut self, old: TypeId) -> TypeId {
        let assigned = (old.0 as usize).checked_sub(1).and_then(|at| self.ids.get_mut(at));
        let Some(assigned) = assigned else { return TypeId::VOID };
        if *assigned == TypeId::VOID {
            self.order.push(old);
            self.pending.push_back(old);
            *assigned = TypeId(u32::try_from(self.order.len()).unwrap_or(u32::MAX));
        }
        *assigned
    }

    /// Returns the selected types with new ids.
    pub(in super::super) fn finish(mut self) -> Types {
        let Some(types) = self.types else { return Types::default() };
        while let Some(old) = self.pending.pop_front() {
            if let Some(ty) = types.ty(old) {
                ty.references().for_each(|id| _ = self.keep(id));
            }
        }
        let order = std::mem::take(&mut self.order);
        let list: Vec<_> = order.iter().filter_map(|old| Some(self.renumber(types.ty(*old)?))).collect();
        let mut notes: Vec<_> = types.records.iter().filter_map(|record| self.note(record)).collect();
        notes.sort_unstable();
        notes.dedup();
        Types { list, notes }
    }

    fn note(&self, record: &RawType) -> Option<TypeNote> {
        let RawType::Note { attribute, ty, component } = record else { return None };
        let ty = self.new_id(*ty);
        (ty != TypeId::VOID).then(|| TypeNote { ty, member: *component, attribute: attribute.clone() })
    }

    fn new_id(&self, old: TypeId) -> TypeId {
        let assigned = (old.0 as usize).checked_sub(1).and_then(|at| self.ids.get(at));
        assigned.copied().unwrap_or(TypeId::VOID)
    }

    fn renumber(&self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        match &mut ty {
            Type::Pointer(ty)
            | Type::Modified { ty, .. }
            | Type::Tagged { ty, .. }
            | Type::Typedef { ty, .. }
            | Type::Array { element: ty, .. } => *ty = self.new_id(*ty),
            Type::Composite { members, .. } => {
                members.iter_mut().for_each(|member: &mut Member| member.ty = self.new_id(member.ty));
            }
            Type::Signature { result, params } => {
                *result = self.new_id(*result);
                params.iter_mut().for_each(|(_, ty)| *ty = self.new_id(*ty));
            }
            Type::Int { .. } | Type::Float { .. } | Type::Enum { .. } | Type::Forward { .. } => {}
        }
        ty
    }
}
