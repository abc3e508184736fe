//! struct_ops: kernel structs that an object fills in.

use super::super::name::Name;
use super::ProgramId;
use crate::object::btf::TypeId;

/// A kernel struct that an object fills in. The loader creates a map from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOps {
    /// Name of the variable.
    pub name: Name,
    /// Kernel name of the struct, with a suffix after `___` if the object has several shapes of it.
    pub ops: Name,
    /// The object's type of the struct. The loader matches its members with the kernel's by name.
    pub ty: TypeId,
    /// Whether it is registered by a link, which can be released.
    pub by_link: bool,
    /// Whether the loader creates the map by default.
    pub autocreate: bool,
    /// Members, in the order of the type.
    pub members: Vec<StructOpsMember>,
}

/// A member of a kernel struct.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsMember {
    /// Name; none for an anonymous struct or union.
    pub name: Option<Name>,
    /// Offset in bytes from the start of the struct.
    pub offset: u32,
    /// Program or bytes.
    pub value: StructOpsValue,
}

/// Value of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StructOpsValue {
    /// A program that implements the function.
    Program(ProgramId),
    /// Data of the member's size. Pointers are zero.
    Bytes(Vec<u8>),
}
