//! Records of `.BTF`: `struct btf_type` and the data after it.

use super::super::super::error::{Reason, TypeFault, at_most};
use super::super::super::kind;
use super::super::super::limits::{MAX_SECTIONS, MAX_TARGET_BYTES, MAX_TYPES};
use super::super::super::model::{Member, Modifier, Type};
use super::super::super::name::{Name, NameError, visible};
use super::super::super::table::Attribute;
use super::super::bytes::u32_at;
use super::{RawEntry, RawSection, RawType, Strings};
use crate::object::btf::{FuncLinkage, FwdKind, IntEncoding, Signedness, TypeId, VarLinkage};

/// Size in bytes of `struct btf_type`.
const TYPE_BYTES: u32 = 12;

/// Parses all records; `start` is the offset of the first one in the section.
pub(super) fn read(
    types: &[u8],
    start: u32,
    strings: &mut Strings<'_>,
) -> Result<(Vec<RawType>, Vec<u32>), (u32, Reason)> {
    let (mut records, mut offsets) = (Vec::new(), Vec::new());
    let mut sections = 0;
    let mut rest = types;
    let mut offset = start;
    while !rest.is_empty() {
        let id = u32::try_from(records.len() + 1).unwrap_or(u32::MAX);
        let error = |reason| (offset, reason);
        at_most("types", records.len() + 1, MAX_TYPES).map_err(error)?;
        let head = Head::read(rest).ok_or_else(|| error(Reason::Outside("the record of a type")))?;
        let (record, after) = match head.tail(rest) {
            Ok(found) => found,
            Err(fault) => return Err(error(fault.into_reason(id))),
        };
        let mut reader = Reader { head, tail: record, strings, offset };
        let record = reader.read().map_err(|fault| error(fault.into_reason(id)))?;
        // Section names are long, and may all be the same string.
        sections += usize::from(matches!(record, RawType::Section(_)));
        at_most("sections of variables", sections, MAX_SECTIONS).map_err(error)?;
        records.push(record);
        offsets.push(offset);
        offset += TYPE_BYTES + u32::try_from(reader.tail.len()).unwrap_or_default();
        rest = after;
    }
    Ok((records, offsets))
}

/// Fault of a record: in its fields, or in one of its strings.
enum Fault {
    Type(TypeFault),
    Other(Reason),
}

impl Fault {
    fn into_reason(self, id: u32) -> Reason {
        match self {
            Fault::Type(fault) => Reason::Type { id, fault },
            Fault::Other(reason) => reason,
        }
    }
}

impl From<TypeFault> for Fault {
    fn from(fault: TypeFault) -> Self {
        Fault::Type(fault)
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Fault::Other(reason)
    }
}

/// `struct btf_type`
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    flag: bool,
    reserved: u32,
    len: u32,
    size_or_type: u32,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Head> {
        let info = u32_at(bytes, 4)?;
        Some(Head {
            name: u32_at(bytes, 0)?,
            kind: info >> 24 & 0x1f,
            flag: info >> 31 != 0,
            reserved: info & 0x60ff_0000,
            len: info & 0xffff,
            size_or_type: u32_at(bytes, 8)?,
        })
    }

    /// Splits the bytes after the head into the record's data and the remaining records.
    fn tail<'t>(&self, bytes: &'t [u8]) -> Result<(&'t [u8], &'t [u8]), Fault> {
        let len = self.len as usize;
        let tail = match self.kind {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * len,
            kind::ENUM | kind::FUNC_PROTO => 8 * len,
            1..=18 => 0,
            kind => return Err(TypeFault::Kind(kind).into()),
        };
        let rest = bytes.get(TYPE_BYTES as usize..).unwrap_or_default();
        rest.split_at_checked(tail).ok_or(Reason::Outside("the record of a type").into())
    }
}

struct Reader<'r, 'a, 't> {
    head: Head,
    tail: &'t [u8],
    strings: &'r mut Strings<'a>,
    /// Offset of the record in the section.
    offset: u32,
}

impl<'a, 't> Reader<'_, 'a, 't> {
    fn read(&mut self) -> Result<RawType, Fault> {
        let Head { flag, len, size_or_type, .. } = self.head;
        self.check_reserved()?;
        let (bytes, ty) = (size_or_type, TypeId(size_or_type));
        let composite_kind = if flag { FwdKind::Union } else { FwdKind::Struct };
        let ty = match self.head.kind {
            kind::INT => self.int(bytes)?,
            kind::FLOAT => match bytes {
                2 | 4 | 8 | 12 | 16 => Type::Float { name: self.number_name()?, bytes },
                _ => return Err(TypeFault::Size { kind: "a floating-point number", bytes }.into()),
            },
            kind::PTR => self.unnamed(Type::Pointer(ty))?,
            kind::CONST => self.unnamed(Type::Modified { modifier: Modifier::Const, ty })?,
            kind::VOLATILE => self.unnamed(Type::Modified { modifier: Modifier::Volatile, ty })?,
            kind::RESTRICT => self.unnamed(Type::Modified { modifier: Modifier::Restrict, ty })?,
            kind::TYPEDEF => Type::Typedef { name: self.name()?, ty },
            kind::TYPE_TAG => {
                let attribute = Attribute::of_type(self.text()?).ok_or(TypeFault::Attribute)?;
                Type::Tagged { attribute, ty }
            }
            // The index type is ignored: the writer uses its own.
            kind::ARRAY => {
                self.unnamed(Type::Array { element: TypeId(self.field(0)?), len: self.field(2)? })?
            }
            kind::STRUCT => self.composite(FwdKind::Struct)?,
            kind::UNION => self.composite(FwdKind::Union)?,
            kind::FWD => Type::Forward { kind: composite_kind, name: self.name()? },
            kind::ENUM | kind::ENUM64 => self.enumeration()?,
            kind::FUNC_PROTO => self.signature()?,
            kind::FUNC => {
                let linkage = match len {
                    0 => FuncLinkage::Static,
                    1 => FuncLinkage::Global,
                    2 => FuncLinkage::Extern,
                    _ => return Err(TypeFault::Reserved.into()),
                };
                return Ok(RawType::Func { name: self.name()?, signature: ty, linkage });
            }
            kind::VAR => {
                let linkage = match self.field(0)? {
                    0 => VarLinkage::Static,
                    1 => VarLinkage::Global,
                    2 => VarLinkage::Extern,
                    _ => return Err(TypeFault::Reserved.into()),
                };
                return Ok(RawType::Var { name: self.name()?, ty, linkage });
            }
            kind::DATASEC => return self.section(),
            kind::DECL_TAG => {
                let attribute = Attribute::of_declaration(self.text()?).ok_or(TypeFault::Attribute)?;
                let component = match self.field(0)? {
                    u32::MAX => None,
                    index => Some(u16::try_from(index).map_err(|_| TypeFault::Reserved)?),
                };
                return Ok(RawType::Note { attribute, ty, component });
            }
            kind => return Err(TypeFault::Kind(kind).into()),
        };
        Ok(RawType::Type(ty))
    }

    /// Checks the fields that the kernel requires to be zero.
    fn check_reserved(&self) -> Result<(), TypeFault> {
        use kind::{ARRAY, DATASEC, ENUM, ENUM64, FUNC, FUNC_PROTO, FWD, STRUCT, UNION};
        let Head { kind, flag, reserved, len, size_or_type, .. } = self.head;
        let may_have_flag = matches!(kind, STRUCT | UNION | ENUM | ENUM64 | FWD);
        let has_len = matches!(kind, STRUCT | UNION | ENUM | ENUM64 | FUNC_PROTO | FUNC | DATASEC);
        let is_empty = matches!(kind, ARRAY | FWD) && size_or_type != 0;
        if reserved != 0 || flag && !may_have_flag || len != 0 && !has_len || is_empty {
            return Err(TypeFault::Reserved);
        }
        Ok(())
    }

    fn int(&mut self, bytes: u32) -> Result<Type, Fault> {
        if !matches!(bytes, 1 | 2 | 4 | 8 | 16) {
            return Err(TypeFault::Size { kind: "an integer", bytes }.into());
        }
        let extra = self.field(0)?;
        // Integers with fewer bits than their bytes, or with a bit offset, are bit fields of old compilers.
        if extra & 0xf0ff_ffff != bytes * 8 {
            return Err(TypeFault::Reserved.into());
        }
        let encoding = match extra >> 24 {
            0 => IntEncoding::Unsigned,
            1 => IntEncoding::Signed,
            2 => IntEncoding::Char,
            4 => IntEncoding::Bool,
            _ => return Err(TypeFault::Reserved.into()),
        };
        Ok(Type::Int { name: self.number_name()?, bytes, encoding })
    }

    fn composite(&mut self, kind: FwdKind) -> Result<Type, Fault> {
        let mut members = Vec::with_capacity(self.head.len as usize);
        for [name, ty, offset] in self.elements() {
            let (bit_offset, bits) =
                if self.head.flag { (offset & 0x00ff_ffff, (offset >> 24) as u8) } else { (offset, 0) };
            let name = self.strings.name(name)?;
            members.push(Member { name, ty: TypeId(ty), bit_offset, bits });
        }
        let name = self.strings.name(self.head.name)?;
        Ok(Type::Composite { kind, name, bytes: self.head.size_or_type, members })
    }

    fn enumeration(&mut self) -> Result<Type, Fault> {
        let wide = self.head.kind == kind::ENUM64;
        let bytes = self.head.size_or_type;
        if !matches!(bytes, 1 | 2 | 4 | 8) {
            return Err(TypeFault::Size { kind: "an enum", bytes }.into());
        }
        let is_signed = self.head.flag;
        let number = |low: u32, high: u32| match (wide, is_signed) {
            (true, _) => (u64::from(high) << 32 | u64::from(low)).cast_signed(),
            (false, true) => i64::from(low.cast_signed()),
            (false, false) => i64::from(low),
        };
        let raw: Vec<_> = if wide {
            self.elements().map(|[name, low, high]| (name, number(low, high))).collect()
        } else {
            self.elements().map(|[name, value]| (name, number(value, 0))).collect()
        };
        let mut values = Vec::with_capacity(raw.len());
        for (name, value) in raw {
            values.push((self.strings.name(name)?.ok_or(TypeFault::Name)?, value));
        }
        let name = self.strings.name(self.head.name)?;
        let sign = if is_signed { Signedness::Signed } else { Signedness::Unsigned };
        Ok(Type::Enum { name, bytes, sign, wide, values })
    }

    fn signature(&mut self) -> Result<Type, Fault> {
        let mut params = Vec::with_capacity(self.head.len as usize);
        for [name, ty] in self.elements() {
            params.push((self.strings.name(name)?, TypeId(ty)));
        }
        self.unnamed(Type::Signature { result: TypeId(self.head.size_or_type), params })
    }

    fn section(&mut self) -> Result<RawType, Fault> {
        let name = self.text()?;
        let is_plain = !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if name.len() > MAX_TARGET_BYTES || !is_plain {
            return Err(Reason::Name(NameError::Character(visible(name))).into());
        }
        let mut entries = Vec::with_capacity(self.head.len as usize);
        let mut reloc_offset = u64::from(self.offset) + u64::from(TYPE_BYTES) + 4;
        for [var, offset, bytes] in self.elements() {
            entries.push(RawEntry { var: TypeId(var), offset, bytes, reloc_offset });
            reloc_offset += 12;
        }
        // The size is 0 or that of the ELF section; the writer uses the latter.
        Ok(RawType::Section(RawSection { name: name.to_owned(), entries }))
    }

    /// Returns the elements after the head, each of `WORDS` numbers.
    fn elements<const WORDS: usize>(&self) -> impl Iterator<Item = [u32; WORDS]> + use<'a, 't, WORDS> {
        let words = |element: &[u8]| std::array::from_fn(|at| u32_at(element, 4 * at).unwrap_or_default());
        let tail: &'t [u8] = self.tail;
        tail.chunks_exact(4 * WORDS).map(words)
    }

    fn field(&self, index: usize) -> Result<u32, TypeFault> {
        u32_at(self.tail, 4 * index).ok_or(TypeFault::Reserved)
    }

    fn name(&mut self) -> Result<Name, Fault> {
        Ok(self.strings.name(self.head.name)?.ok_or(TypeFault::Name)?)
    }

    fn number_name(&self) -> Result<Name, Fault> {
        let bytes = self.strings.bytes(self.head.name)?;
        if bytes.is_empty() {
            return Err(TypeFault::Name.into());
        }
        Ok(Name::of_number(bytes).map_err(Reason::Name)?)
    }

    fn unnamed(&self, ty: Type) -> Result<Type, Fault> {
        if self.head.name == 0 { Ok(ty) } else { Err(TypeFault::Name.into()) }
    }

    /// Returns the name as text, for kinds whose names are not identifiers.
    fn text(&self) -> Result<&str, Fault> {
        let bytes = self.strings.bytes(self.head.name)?;
        Ok(std::str::from_utf8(bytes).map_err(|_| TypeFault::Name)?)
    }
}
