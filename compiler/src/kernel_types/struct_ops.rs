//! struct_ops: kernel structs of functions that BPF programs may fill in (4.9, 9.4).

use super::types::{KernelType, Param, Proto};
use super::{KernelTypes, bundled, convert};
use crate::object::btf::{Btf, BtfKind, Type, TypeId};

/// Types that `register` of 0.1.1 supports, with their stable members, for use without BTF. The last two are
/// tests of the kernel and have no members here.
///
/// Source: include/net/tcp.h (`struct tcp_congestion_ops`), kernel/sched/ext_internal.h (`struct
/// sched_ext_ops`), v6.12.
pub(super) const BUNDLED: [(&str, &str); 4] = [
    ("tcp_congestion_ops", include_str!("tcp_congestion_ops.txt")),
    ("sched_ext_ops", include_str!("sched_ext_ops.txt")),
    ("bpf_iter_ops", ""),
    ("bpf_struct_ops_test", ""),
];

/// A kernel struct that an impl block can implement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOps {
    /// Kernel name of the struct.
    pub name: String,
    /// Whether the kernel accepts the struct from BPF: it has a struct `bpf_struct_ops_NAME`. Otherwise
    /// `register` of it is `KS0513`.
    pub registrable: bool,
    /// Whether the members come from the kernel's BTF. If not, members may be missing.
    pub from_btf: bool,
    /// Members, in order.
    pub members: Vec<OpsMember>,
}

impl StructOps {
    /// Returns the member of this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&OpsMember> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// A member of a struct_ops type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpsMember {
    /// Kernel name of the member.
    pub name: String,
    /// Function or data, with its type.
    pub kind: OpsMemberKind,
}

/// Kind of a struct_ops member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpsMemberKind {
    /// A function, which a method may implement.
    Function(Proto),
    /// Data, which a static field may set.
    Data(KernelType),
}

impl KernelTypes {
    /// Returns the struct that `@struct_ops("name")` names; `None` if the kernel has none of this name
    /// (`KS0806`).
    #[must_use]
    pub fn struct_ops(&self, name: &str) -> Option<StructOps> {
        let Some(btf) = self.btf() else { return bundled_ops(name) };
        let id = btf.find_struct(name)?;
        let Ok(Type::Struct { members, .. }) = btf.get(id) else { return None };
        let members = members.filter_map(Result::ok).filter(|member| !member.name.is_empty());
        let members = members.map(|member| OpsMember {
            name: member.name.to_owned(),
            kind: with_names(member_kind(btf, member.ty), btf, name, member.name),
        });
        Some(StructOps {
            name: name.to_owned(),
            registrable: is_registrable(btf, name),
            from_btf: true,
            members: members.collect(),
        })
    }

    /// Returns the parameters of one member, without names and without reading the other members. `None` if
    /// the member is not a function, or there is no BTF.
    #[must_use]
    pub fn ops_parameters(&self, ops: &str, member: &str) -> Option<Vec<Param>> {
        let btf = self.btf()?;
        let field = btf.field(btf.find_struct(ops)?, member).ok()??;
        match member_kind(btf, field.ty) {
            OpsMemberKind::Function(proto) => Some(proto.params),
            OpsMemberKind::Data(_) => None,
        }
    }
}

fn member_kind(btf: &Btf, ty: TypeId) -> OpsMemberKind {
    let pointer = btf.resolve(ty).is_ok_and(|id| matches!(btf.get(id), Ok(Type::Ptr(_))));
    let proto = if pointer { convert::proto(btf, ty) } else { None };
    proto.map_or_else(|| OpsMemberKind::Data(convert::kernel_type(btf, ty)), OpsMemberKind::Function)
}

/// Adds names to the parameters of a member. BTF has none for pointers to functions, but the kernel's stub
/// `STRUCT__MEMBER` has them, and so does the table of this crate.
fn with_names(kind: OpsMemberKind, btf: &Btf, structure: &str, member: &str) -> OpsMemberKind {
    let OpsMemberKind::Function(mut proto) = kind else { return kind };
    let stub = btf.find(&format!("{structure}__{member}"), BtfKind::Func);
    let stub = stub.and_then(|stub| convert::proto(btf, stub));
    let bundled = || match bundled_ops(structure)?.member(member)?.kind {
        OpsMemberKind::Function(ref proto) => Some(proto.clone()),
        OpsMemberKind::Data(_) => None,
    };
    let known = stub.or_else(bundled).filter(|known| known.params.len() == proto.params.len());
    for (param, known) in proto.params.iter_mut().zip(known.into_iter().flat_map(|known| known.params)) {
        param.name = known.name;
    }
    OpsMemberKind::Function(proto)
}

/// Returns whether `bpf_struct_ops_NAME` wraps the struct NAME: other kernel structs have the same name
/// prefix.
pub(super) fn is_registrable(btf: &Btf, name: &str) -> bool {
    let Some(wrapper) = btf.find_struct(&format!("bpf_struct_ops_{name}")) else { return false };
    let Ok(Some(data)) = btf.field(wrapper, "data") else { return false };
    matches!(
        btf.resolve(data.ty).map(|id| btf.get(id)),
        Ok(Ok(Type::Struct { name: wrapped, .. })) if wrapped == name
    )
}

fn bundled_ops(name: &str) -> Option<StructOps> {
    let (_, table) = BUNDLED.iter().find(|(known, _)| *known == name)?;
    let members = table.lines().filter_map(bundled::ops_member).collect();
    Some(StructOps { name: name.to_owned(), registrable: true, from_btf: false, members })
}
