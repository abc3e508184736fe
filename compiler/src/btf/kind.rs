//! Constants of the format. Source: include/uapi/linux/btf.h (v6.12; the layouts of kinds: v7.1).

/// First two bytes of every BTF blob.
pub(super) const MAGIC: u16 = 0xeb9f;
/// The only version.
pub(super) const VERSION: u8 = 1;
/// Bytes of `struct btf_header`, as older kernels have it and as the builder writes it.
pub(super) const HEADER_BYTES: u32 = 24;
/// Bytes of one that names the section of layouts.
pub(super) const LAYOUT_HEADER_BYTES: u32 = 32;
/// Bytes of `struct btf_layout`.
pub(super) const LAYOUT_BYTES: usize = 4;
/// Bytes of `struct btf_type`.
pub(super) const TYPE_BYTES: usize = 12;
/// Strings and names start below this offset; the kernel refuses more.
pub(super) const MAX_NAME_OFFSET: u32 = 0x00ff_ffff;
/// Most members, parameters, enumerators or variables of one type.
pub(super) const MAX_VLEN: usize = 0xffff;

/// Bit 31 of a record's info: a signed enum, the forward declaration of a union, a struct with bitfields.
pub(super) const KIND_FLAG: u32 = 1 << 31;

/// What a type record describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BtfKind {
    /// An integer, bool or char.
    Int = 1,
    /// A pointer.
    Ptr = 2,
    /// An array.
    Array = 3,
    /// A struct.
    Struct = 4,
    /// A union.
    Union = 5,
    /// An enum of up to 32 bits.
    Enum = 6,
    /// A struct or union without its body.
    Fwd = 7,
    /// A typedef.
    Typedef = 8,
    /// `volatile`.
    Volatile = 9,
    /// `const`.
    Const = 10,
    /// `restrict`.
    Restrict = 11,
    /// A function.
    Func = 12,
    /// A function's signature.
    FuncProto = 13,
    /// A variable.
    Var = 14,
    /// The variables of an ELF section.
    Datasec = 15,
    /// A floating-point number.
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

    /// Bytes after `struct btf_type`, for a record with `vlen` elements.
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

/// Who can call a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FuncLinkage {
    /// This object; the verifier checks the body once per call, with what it knows at the call.
    Static,
    /// Anyone; the verifier checks the body once, with nothing known of the arguments.
    Global,
    /// Defined elsewhere (a kernel function).
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

/// Who can see a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VarLinkage {
    /// This object. libbpf does not make a section of only static variables mappable.
    Static,
    /// Anyone.
    Global,
    /// Defined elsewhere.
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
