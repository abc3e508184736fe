//! Kernel structs that programs fill in: their offsets in `.struct_ops.link`.
//!
//! libbpf creates a map from each variable there. It looks up the struct and its members by name in the
//! running kernel's types, compares kinds and sizes, and stores the programs of the relocations in the
//! members.
//!
//! Source: libbpf v1.7 libbpf.c, `init_struct_ops_maps`, `bpf_object__collect_st_ops_relos`,
//! `bpf_map__init_kern_struct_ops`.

use super::{BuildError, FunctionRef, to_u32};
use crate::object::btf::{BtfBuilder, DatasecEntry, Member, TypeId, VarLinkage};

/// Section whose structs are registered by a link.
pub(super) const SECTION: &str = ".struct_ops.link";
/// Alignment in bytes; no member needs more.
pub(super) const ALIGN: u32 = 8;

/// A kernel struct that programs fill in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsDef {
    /// Name: a C identifier, unique in the object.
    pub name: String,
    /// Kernel name of the struct.
    pub ops: String,
    /// Members that are set.
    pub members: Vec<StructOpsMember>,
}

/// A member that is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsMember {
    /// Kernel name of the member.
    pub name: String,
    /// Type, an id of [`super::ObjectBuilder::btf`], with the kind and size of the kernel's; a pointer to a
    /// `FUNC_PROTO` for a program.
    pub ty: TypeId,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// Bytes or program.
    pub value: StructOpsValue,
}

/// Value of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StructOpsValue {
    /// All bytes of the member.
    Bytes(Vec<u8>),
    /// A program, in a section that begins with `struct_ops`.
    Program(FunctionRef),
}

/// The final section.
pub(super) struct StructOps {
    pub content: Vec<u8>,
    /// Offset and size of each struct in bytes.
    pub placements: Vec<(u32, u32)>,
    /// Offset of each member that holds a program's address.
    pub programs: Vec<(u32, FunctionRef)>,
}

pub(super) fn lay_out(btf: &mut BtfBuilder, defs: &[StructOpsDef]) -> Result<StructOps, BuildError> {
    let mut laid_out = StructOps { content: Vec::new(), placements: Vec::new(), programs: Vec::new() };
    let mut entries = Vec::new();
    for def in defs {
        let offset = laid_out.align_to(ALIGN)?;
        let mut members = Vec::with_capacity(def.members.len());
        for member in &def.members {
            let at = laid_out.align_to(member.align)?;
            members.push(Member::at(&member.name, member.ty, at - offset));
            match &member.value {
                StructOpsValue::Bytes(bytes) => laid_out.content.extend_from_slice(bytes),
                StructOpsValue::Program(program) => {
                    laid_out.programs.push((at, *program));
                    laid_out.content.extend_from_slice(&[0; 8]);
                }
            }
        }
        if def.members.is_empty() {
            // libbpf rejects a map without a value.
            laid_out.content.extend_from_slice(&[0; 8]);
        }
        let bytes = laid_out.align_to(ALIGN)? - offset;
        let ty = btf.structure(&def.ops, bytes, &members);
        let var = btf.var(&def.name, ty, VarLinkage::Global);
        entries.push(DatasecEntry { var, offset, size: bytes });
        laid_out.placements.push((offset, bytes));
    }
    if !entries.is_empty() {
        btf.datasec(SECTION, to_u32(laid_out.content.len())?, &entries);
    }
    Ok(laid_out)
}

impl StructOps {
    /// Pads with zeros, and returns the size afterwards.
    fn align_to(&mut self, align: u32) -> Result<u32, BuildError> {
        let len = to_u32(self.content.len())?.checked_next_multiple_of(align).ok_or(BuildError::TooLarge)?;
        self.content.resize(len as usize, 0);
        Ok(len)
    }
}
