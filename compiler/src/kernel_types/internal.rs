//! Which structs are in the kernel's memory only, so that a pointer to one is never an address of a user program.

use crate::object::btf::{Btf, Members, Type, TypeId};

/// Types that are in no struct which the kernel shares with user programs: links of lists and trees, and numbers that CPUs
/// change together. Almost every struct of the kernel that lives on the heap has one.
///
/// Source: include/linux/types.h, list_bl.h, list_nulls.h, llist.h, rbtree_types.h, refcount_types.h, v6.18; none is in
/// include/uapi.
const INTERNAL: [&str; 14] = [
    "list_head",
    "hlist_head",
    "hlist_node",
    "hlist_bl_head",
    "hlist_bl_node",
    "hlist_nulls_head",
    "hlist_nulls_node",
    "llist_node",
    "callback_head",
    "rb_node",
    "rb_root",
    "atomic_t",
    "atomic64_t",
    "refcount_struct",
];

/// Maximum nesting of structs, arrays and typedefs that is followed.
const MAX_DEPTH: u32 = 8;

/// Whether a struct is the kernel's own: one of [`INTERNAL`] is in it. One that only points to such a struct may be shared:
/// several of `xt_*_info` have a member that user programs leave alone.
pub(super) fn is_internal(btf: &Btf, structure: TypeId) -> bool {
    is_internal_within(btf, structure, MAX_DEPTH)
}

fn is_internal_within(btf: &Btf, ty: TypeId, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let is_one = |name: &str| INTERNAL.contains(&name);
    match btf.get(ty) {
        Ok(Type::Typedef { name, ty }) => is_one(name) || is_internal_within(btf, ty, depth),
        Ok(Type::Modifier(ty) | Type::Array { element: ty, .. }) => is_internal_within(btf, ty, depth),
        Ok(Type::Struct { name, members, .. } | Type::Union { name, members, .. }) => {
            is_one(name) || types(members).any(|member| is_internal_within(btf, member, depth))
        }
        _ => false,
    }
}

fn types(members: Members<'_>) -> impl Iterator<Item = TypeId> {
    members.filter_map(Result::ok).map(|member| member.ty)
}
