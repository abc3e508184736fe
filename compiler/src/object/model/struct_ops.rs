//! Structs of the kernel that an object fills in.

use super::super::name::Name;
use super::ProgramId;
use crate::btf::TypeId;

/// A struct of the kernel that an object fills in. The loader makes a map of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOps {
    /// The variable's name.
    pub name: Name,
    /// The kernel's name of the struct, with what follows `___` if the object has several shapes of it.
    pub ops: Name,
    /// The struct as the object knows it. The loader compares its members with the kernel's by name.
    pub ty: TypeId,
    /// Whether it is registered by a link, which undoes it.
    pub by_link: bool,
    /// Whether the loader makes the map without being asked to.
    pub autocreate: bool,
    /// The members, in the order of the type.
    pub members: Vec<StructOpsMember>,
}

/// A member of a struct of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StructOpsMember {
    /// Its name; none for an anonymous struct or union.
    pub name: Option<Name>,
    /// Bytes from the start of the struct.
    pub offset: u32,
    /// Its value.
    pub value: StructOpsValue,
}

/// The value of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StructOpsValue {
    /// A program takes the place of the function.
    Program(ProgramId),
    /// Data, as many bytes as the member has. Of pointers only zeros.
    Bytes(Vec<u8>),
}
