//! Constants of the format. Source: include/uapi/linux/btf.h (v6.12; the layouts of kinds: v7.1).

/// Magic number in the first two bytes of BTF.
pub(super) const MAGIC: u16 = 0xeb9f;
/// The only version of the format.
pub(super) const VERSION: u8 = 1;
/// Size in bytes of `struct btf_header` on older kernels, which the builder writes.
pub(super) const HEADER_BYTES: u32 = 24;
/// Size in bytes of a header with a layout section.
pub(super) const LAYOUT_HEADER_BYTES: u32 = 32;
/// Size in bytes of `struct btf_layout`.
pub(super) const LAYOUT_BYTES: usize = 4;
/// Size in bytes of `struct btf_type`.
pub(super) const TYPE_BYTES: usize = 12;
/// Largest offset of a string or name; the kernel rejects larger ones.
pub(super) const MAX_NAME_OFFSET: u32 = 0x00ff_ffff;
/// Maximum number of members, parameters, enumerators or variables of one type.
pub(super) const MAX_VLEN: usize = 0xffff;

/// Flag in bit 31 of a record's info: a signed enum, the forward declaration of a union, a struct with
/// bitfields.
pub(super) const KIND_FLAG: u32 = 1 << 31;

/// Kind of a type record (`BTF_KIND_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BtfKind {
    /// An integer, bool or char.
    Int = 1,
    /// A pointer to another type.
    Ptr = 2,
    /// An array of a fixed length.
    Array = 3,
    /// A struct with its members.
    Struct = 4,
    /// A union with its members.
    Union = 5,
    /// An enum of up to 32 bits.
    Enum = 6,
    /// A forward declaration of a struct or union.
    Fwd = 7,
    /// An alias of a type.
    Typedef = 8,
    /// The qualifier `volatile`.
    Volatile = 9,
    /// The qualifier `const`.
    Const = 10,
    /// The qualifier `restrict`.
    Restrict = 11,
    /// A function with its linkage.
    Func = 12,
    /// The signature of a function.
    FuncProto = 13,
    /// A variable with its linkage.
    Var = 14,
    /// The variables of an ELF section.
    Datasec = 15,
    /// A floating-point number of 2 to 16 bytes.
    Float = 16,
    /// An attribute of a declaration.
    DeclTag = 17,
    /// An attribute of a type.
    TypeTag = 18,
    /// An enum of up to 64 bits.
    Enum64 = 19,
}

impl BtfKind {
    pub(super) fn from_number(number: u32) -> Option<BtfKind> {
        const ALL: [BtfKind; 19] = [
            BtfKind::Int,
            BtfKind::Ptr,
            BtfKind::Array,
            BtfKind::Struct,
            BtfKind::Union,
            BtfKind::Enum,
            BtfKind::Fwd,
            BtfKind::Typedef,
            BtfKind::Volatile,
            BtfKind::Const,
            BtfKind::Restrict,
            BtfKind::Func,
            BtfKind::FuncProto,
            BtfKind::Var,
            BtfKind::Datasec,
            BtfKind::Float,
            BtfKind::DeclTag,
            BtfKind::TypeTag,
            BtfKind::Enum64,
        ];
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        ALL.get(index).copied()
    }

    /// Returns the size of the data after `struct btf_type`, for a record with `vlen` elements.
    pub(super) const fn tail_bytes(self, vlen: usize) -> usize {
        match self {
            BtfKind::Int | BtfKind::Var | BtfKind::DeclTag => 4,
            BtfKind::Array => 12,
            BtfKind::Struct | BtfKind::Union | BtfKind::Datasec | BtfKind::Enum64 => 12 * vlen,
            BtfKind::Enum | BtfKind::FuncProto => 8 * vlen,
            BtfKind::Ptr
            | BtfKind::Fwd
            | BtfKind::Typedef
            | BtfKind::Volatile
            | BtfKind::Const
            | BtfKind::Restrict
            | BtfKind::Func
            | BtfKind::Float
            | BtfKind::TypeTag => 0,
        }
    }
}

/// Visibility of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FuncLinkage {
    /// Visible in this object; the verifier checks the body at each call, with the facts known at the call.
    Static,
    /// Visible everywhere; the verifier checks the body once, without facts about the arguments.
    Global,
    /// Defined outside the object (in the kernel).
    Extern,
}

impl FuncLinkage {
    pub(super) const fn number(self) -> u32 {
        match self {
            FuncLinkage::Static => 0,
            FuncLinkage::Global => 1,
            FuncLinkage::Extern => 2,
        }
    }

    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(FuncLinkage::Static),
            1 => Some(FuncLinkage::Global),
            2 => Some(FuncLinkage::Extern),
            _ => None,
        }
    }
}

/// Visibility of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VarLinkage {
    /// Visible in this object. libbpf does not make a section of only static variables mappable.
    Static,
    /// Visible everywhere.
    Global,
    /// Defined outside the object (in the kernel).
    Extern,
}

impl VarLinkage {
    pub(super) const fn number(self) -> u32 {
        match self {
            VarLinkage::Static => 0,
            VarLinkage::Global => 1,
            VarLinkage::Extern => 2,
        }
    }

    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(VarLinkage::Static),
            1 => Some(VarLinkage::Global),
            2 => Some(VarLinkage::Extern),
            _ => None,
        }
    }
}
