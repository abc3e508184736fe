//! Structs of the kernel that programs fill in: their places in `.struct_ops.link`.
//!
//! libbpf makes a map of each variable there. It looks for the struct and its members by name in the running kernel's
//! types, compares kinds and sizes, and puts the programs that the relocations name in the places of the members.
//!
//! Source: libbpf v1.7 libbpf.c, `init_struct_ops_maps`, `bpf_object__collect_st_ops_relos`, `bpf_map__init_kern_struct_ops`.

use super::{ElfError, FunctionRef, to_u32};
use crate::btf::{BtfBuilder, DatasecEntry, Member, TypeId, VarLinkage};

/// The section: what is registered from it is a link.
pub(super) const SECTION: &str = ".struct_ops.link";
/// No member has more.
pub(super) const ALIGN: u32 = 8;

/// A struct of the kernel that programs fill in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsDef {
    /// A C identifier, unique in the object.
    pub name: String,
    /// The kernel's name of the struct.
    pub ops: String,
    /// The members that are filled in.
    pub members: Vec<StructOpsMember>,
}

/// A member that is filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsMember {
    /// Its name.
    pub name: String,
    /// Its type, of [`super::ObjectBuilder::btf`]: of the kind and size that the kernel's has. A pointer to a `FUNC_PROTO` for a
    /// program.
    pub ty: TypeId,
    /// A power of two.
    pub align: u32,
    /// What is in it.
    pub value: StructOpsValue,
}

/// What is in a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StructOpsValue {
    /// All bytes.
    Bytes(Vec<u8>),
    /// A program, in a section that begins with `struct_ops`.
    Program(FunctionRef),
}

/// The section as it will be in the file.
pub(super) struct StructOps {
    pub content: Vec<u8>,
    /// For each struct, its offset and size in bytes.
    pub placements: Vec<(u32, u32)>,
    /// Which program's address goes where.
    pub programs: Vec<(u32, FunctionRef)>,
}

pub(super) fn lay_out(btf: &mut BtfBuilder, defs: &[StructOpsDef]) -> Result<StructOps, ElfError> {
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
            // libbpf refuses a map without a value.
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
    /// Fills up with zeros, and gives the size then.
    fn align_to(&mut self, align: u32) -> Result<u32, ElfError> {
        let len = to_u32(self.content.len())?.checked_next_multiple_of(align).ok_or(ElfError::TooLarge)?;
        self.content.resize(len as usize, 0);
        Ok(len)
    }
}
