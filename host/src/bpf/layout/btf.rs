//! A strict parser for an object's BTF that uses neither libbpf nor the kernel.
//!
//! Source: Documentation/bpf/btf.rst and include/uapi/linux/btf.h, v6.12.

/// `BTF_MAGIC`, little-endian.
const MAGIC: u16 = 0xeb9f;

/// Bytes of a type record without its kind-specific data.
const TYPE_BYTES: usize = 12;

/// All types, indexed by BTF id. Id 0 is `void`.
pub(super) struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Type<'a> {
    name: u32,
    pub(super) kind: BtfKind,
    /// `kind_flag`. For structs: member offsets include bit-field sizes.
    flag: bool,
    /// Size in bytes, or the id of the referenced type, depending on the kind.
    size_or_type: u32,
    /// The data that follows the type record, depending on the kind.
    rest: &'a [u8],
}

/// Kinds of types. Kinds without a layout in memory are `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BtfKind {
    Int,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Float,
    Typedef,
    /// `const`, `volatile`, `restrict` and type tags.
    Modifier,
    Variable,
    Section,
    Other,
}

pub(super) struct Member<'a> {
    /// Empty for an anonymous member.
    pub(super) name: &'a str,
    pub(super) ty: u32,
    /// Offset from the start of the struct in bits.
    pub(super) bit: u32,
    /// Width of a bit-field in bits; 0 for other members.
    pub(super) bits: u32,
}

/// An integer: the flags of `BTF_INT_ENCODING`, and its width in bits.
pub(super) struct Int {
    pub(super) is_signed: bool,
    pub(super) is_bool: bool,
    pub(super) bits: u32,
}

impl<'a> Btf<'a> {
    /// Parses a `.BTF` section. None if it is malformed or contains an unknown kind: the types after that one
    /// cannot be located.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Btf<'a>> {
        let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let [header, type_start, type_bytes, string_start, string_bytes] =
            [4, 8, 12, 16, 20].map(|at| number(bytes, at));
        if magic != MAGIC {
            return None;
        }
        let body = bytes.get(header? as usize..)?;
        let part = |start: Option<u32>, len: Option<u32>| body.get(start? as usize..)?.get(..len? as usize);
        let (mut rest, strings) = (part(type_start, type_bytes)?, part(string_start, string_bytes)?);
        let void = Type { name: 0, kind: BtfKind::Other, flag: false, size_or_type: 0, rest: &[] };
        let mut types = vec![void];
        while !rest.is_empty() {
            let (ty, tail) = Type::parse(rest)?;
            types.push(ty);
            rest = tail;
        }
        Some(Btf { types, strings })
    }

    pub(super) fn get(&self, id: u32) -> Option<Type<'a>> {
        self.types.get(id as usize).copied()
    }

    /// Returns all types with their ids.
    pub(super) fn types(&self) -> impl Iterator<Item = (u32, Type<'a>)> {
        (0..).zip(self.types.iter().copied())
    }

    /// Returns the name; empty for an anonymous type.
    pub(super) fn name(&self, ty: Type<'_>) -> &'a str {
        self.string(ty.name)
    }

    fn string(&self, at: u32) -> &'a str {
        let bytes = self.strings.get(at as usize..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or_default();
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    /// Returns the members of a struct or union.
    pub(super) fn members(&self, ty: Type<'a>) -> impl Iterator<Item = Member<'a>> {
        ty.entries().map(move |[name, member, offset]| {
            let (bit, bits) = if ty.flag { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            Member { name: self.string(name), ty: member, bit, bits }
        })
    }

    /// Returns the variables of a section (`BTF_KIND_DATASEC`), as types.
    pub(super) fn variables(&self, section: Type<'a>) -> impl Iterator<Item = Type<'a>> {
        section.entries().filter_map(|[id, _, _]| self.get(id)).filter(|ty| ty.kind == BtfKind::Variable)
    }
}

impl<'a> Type<'a> {
    /// Parses the type at the start of these bytes. Returns it and the rest.
    fn parse(bytes: &'a [u8]) -> Option<(Type<'a>, &'a [u8])> {
        let (name, info, size_or_type) = (number(bytes, 0)?, number(bytes, 4)?, number(bytes, 8)?);
        let entries = (info & 0xffff) as usize;
        // The `BTF_KIND_*` values of include/uapi/linux/btf.h, and the size of each kind's data.
        let (kind, added) = match info >> 24 & 0x1f {
            1 => (BtfKind::Int, 4),
            2 => (BtfKind::Pointer, 0),
            3 => (BtfKind::Array, 12),
            4 => (BtfKind::Struct, 12 * entries),
            5 => (BtfKind::Union, 12 * entries),
            6 => (BtfKind::Enum, 8 * entries),
            7 | 12 => (BtfKind::Other, 0),
            8 => (BtfKind::Typedef, 0),
            9..=11 | 18 => (BtfKind::Modifier, 0),
            13 => (BtfKind::Other, 8 * entries),
            14 => (BtfKind::Variable, 4),
            15 => (BtfKind::Section, 12 * entries),
            16 => (BtfKind::Float, 0),
            17 => (BtfKind::Other, 4),
            19 => (BtfKind::Enum, 12 * entries),
            _ => return None,
        };
        let (rest, tail) = bytes.get(TYPE_BYTES..)?.split_at_checked(added)?;
        Some((Type { name, kind, flag: info >> 31 != 0, size_or_type, rest }, tail))
    }

    /// Returns the size in bytes, for kinds that have one.
    pub(super) fn size(self) -> u32 {
        self.size_or_type
    }

    /// Returns the id of the referenced type, for kinds that have one.
    pub(super) fn target(self) -> u32 {
        self.size_or_type
    }

    /// Returns an array's element type and length.
    pub(super) fn array(self) -> Option<(u32, u32)> {
        Some((number(self.rest, 0)?, number(self.rest, 8)?))
    }

    pub(super) fn int(self) -> Option<Int> {
        let word = number(self.rest, 0)?;
        let encoding = word >> 24;
        Some(Int { is_signed: encoding & 1 != 0, is_bool: encoding & 4 != 0, bits: word & 0xff })
    }

    /// Returns the kind-specific data as entries of `WORDS` 32-bit words.
    fn entries<const WORDS: usize>(self) -> impl Iterator<Item = [u32; WORDS]> {
        self.rest
            .chunks_exact(4 * WORDS)
            .map(|entry| std::array::from_fn(|word| number(entry, 4 * word).unwrap_or_default()))
    }
}

/// Reads 4 little-endian bytes at an offset; none if they are out of bounds.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
