//! `.BTF`: the object's types with their own ids, followed by those that describe maps, variables and
//! functions.
//!
//! Source: Documentation/bpf/btf.rst; include/uapi/linux/btf.h, v6.18.

use std::collections::HashMap;

use super::super::kind;
use super::super::model::{Member, Modifier, Type, Types};
use super::super::name::Name;
use super::{WriteError, small};
use crate::object::btf::{FuncLinkage, FwdKind, IntEncoding, Signedness, TypeId, VarLinkage};

/// Types and strings of `.BTF` under construction.
pub(super) struct Table {
    records: Vec<u8>,
    count: u32,
    strings: Vec<u8>,
    string_offsets: HashMap<String, u32>,
    /// Pointers to arrays that encode the numbers of map definitions.
    numbers: HashMap<u32, TypeId>,
    /// Integer type of array indices.
    index: TypeId,
    /// Integer type of map definitions. libbpf also uses it for the variables it makes of kernel symbols.
    int: TypeId,
}

/// Flag in bit 31 of a record's info.
const FLAG: u32 = 1 << 31;
/// Bits of a member's offset in a struct with bit fields.
const OFFSET_BITS: u32 = 24;
/// Maximum number of elements of a record.
const MAX_ELEMENTS: usize = 0xffff;

impl Table {
    /// Creates a table with the object's types.
    pub(super) fn new(types: &Types) -> Result<Table, WriteError> {
        let count = small(types.list.len())?;
        let mut table = Table {
            records: Vec::new(),
            count: 0,
            strings: vec![0],
            string_offsets: HashMap::from([(String::new(), 0)]),
            numbers: HashMap::new(),
            // The integer types follow the object's types.
            index: TypeId(count.checked_add(1).ok_or(WriteError::TooLarge)?),
            int: TypeId(count.checked_add(2).ok_or(WriteError::TooLarge)?),
        };
        let limit = count;
        for ty in &types.list {
            table.add(ty, limit)?;
        }
        table.int("__ARRAY_SIZE_TYPE__", 4, IntEncoding::Unsigned)?;
        table.int("int", 4, IntEncoding::Signed)?;
        for note in &types.notes {
            check(note.ty, limit)?;
            table.decl_tag(note.attribute.as_str(), note.ty, note.member)?;
        }
        Ok(table)
    }

    /// Returns the bytes of `.BTF`.
    pub(super) fn finish(&self) -> Result<Vec<u8>, WriteError> {
        let (types, strings) = (small(self.records.len())?, small(self.strings.len())?);
        let mut out = Vec::new();
        header(&mut out, 24);
        words(&mut out, &[0, types, types, strings]);
        out.extend_from_slice(&self.records);
        out.extend_from_slice(&self.strings);
        Ok(out)
    }

    /// Returns the offset of a string, added on first use.
    pub(super) fn string(&mut self, text: &str) -> Result<u32, WriteError> {
        if let Some(&known) = self.string_offsets.get(text) {
            return Ok(known);
        }
        let offset = small(self.strings.len())?;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.string_offsets.insert(text.to_owned(), offset);
        Ok(offset)
    }

    /// Adds an integer type.
    pub(super) fn int(
        &mut self,
        name: &str,
        bytes: u32,
        encoding: IntEncoding,
    ) -> Result<TypeId, WriteError> {
        let encoding: u32 = match encoding {
            IntEncoding::Unsigned => 0,
            IntEncoding::Signed => 1,
            IntEncoding::Char => 2,
            IntEncoding::Bool => 4,
        };
        self.record(name, kind::INT, 0, bytes, &[(encoding << 24) | (bytes * 8)])
    }

    /// Adds a pointer type.
    pub(super) fn pointer(&mut self, to: TypeId) -> Result<TypeId, WriteError> {
        self.record("", kind::PTR, 0, to.0, &[])
    }

    /// Adds an array type.
    pub(super) fn array(&mut self, element: TypeId, len: u32) -> Result<TypeId, WriteError> {
        self.record("", kind::ARRAY, 0, 0, &[element.0, self.index.0, len])
    }

    /// Adds a number of a map definition: `int (*)[NUMBER]`.
    pub(super) fn number(&mut self, number: u32) -> Result<TypeId, WriteError> {
        if let Some(&known) = self.numbers.get(&number) {
            return Ok(known);
        }
        let array = self.array(self.int, number)?;
        let pointer = self.pointer(array)?;
        self.numbers.insert(number, pointer);
        Ok(pointer)
    }

    /// Adds a signature without parameters.
    pub(super) fn empty_signature(&mut self) -> Result<TypeId, WriteError> {
        self.record("", kind::FUNC_PROTO, 0, 0, &[])
    }

    /// Adds a `const`-qualified type.
    pub(super) fn constant(&mut self, ty: TypeId) -> Result<TypeId, WriteError> {
        self.record("", kind::CONST, 0, ty.0, &[])
    }

    /// Adds an anonymous struct of consecutive pointers; the last member may have no size.
    pub(super) fn definition(
        &mut self,
        members: &[(&str, TypeId)],
        bytes: u32,
    ) -> Result<TypeId, WriteError> {
        let mut tail = Vec::with_capacity(members.len() * 3);
        for (index, (name, ty)) in members.iter().enumerate() {
            tail.extend([self.string(name)?, ty.0, small(index * 64)?]);
        }
        self.record("", kind::STRUCT, self::len(members.len())?, bytes, &tail)
    }

    /// Adds an enum whose values count from 0.
    pub(super) fn enumeration(&mut self, name: &str, values: &[&str]) -> Result<TypeId, WriteError> {
        let mut tail = Vec::new();
        for (value, name) in (0u32..).zip(values) {
            tail.extend([self.string(name)?, value]);
        }
        self.record(name, kind::ENUM, self::len(values.len())?, 4, &tail)
    }

    /// Adds a `VAR` record.
    pub(super) fn var(&mut self, name: &Name, ty: TypeId, linkage: VarLinkage) -> Result<TypeId, WriteError> {
        let number = match linkage {
            VarLinkage::Static => 0,
            VarLinkage::Global => 1,
            VarLinkage::Extern => 2,
        };
        self.record(name.as_str(), kind::VAR, 0, ty.0, &[number])
    }

    /// Adds a `FUNC` record.
    pub(super) fn func(
        &mut self,
        name: &Name,
        signature: TypeId,
        linkage: FuncLinkage,
    ) -> Result<TypeId, WriteError> {
        let number = match linkage {
            FuncLinkage::Static => 0,
            FuncLinkage::Global => 1,
            FuncLinkage::Extern => 2,
        };
        self.record(name.as_str(), kind::FUNC, number, signature.0, &[])
    }

    /// Adds a `DATASEC` record; entries are type ids, offsets and sizes.
    pub(super) fn section(&mut self, name: &str, bytes: u32, entries: &[[u32; 3]]) -> Result<(), WriteError> {
        let len = self::len(entries.len())?;
        self.record(name, kind::DATASEC, len, bytes, entries.as_flattened()).map(|_| ())
    }

    /// Adds an attribute of a declaration or of a part of it.
    pub(super) fn decl_tag(&mut self, text: &str, of: TypeId, part: Option<u16>) -> Result<(), WriteError> {
        let part = part.map_or(u32::MAX, u32::from);
        self.record(text, kind::DECL_TAG, 0, of.0, &[part]).map(|_| ())
    }

    fn record(
        &mut self,
        name: &str,
        kind: u32,
        flag_and_len: u32,
        size_or_type: u32,
        tail: &[u32],
    ) -> Result<TypeId, WriteError> {
        let name = self.string(name)?;
        words(&mut self.records, &[name, kind << 24 | flag_and_len, size_or_type]);
        words(&mut self.records, tail);
        self.count = self.count.checked_add(1).ok_or(WriteError::TooLarge)?;
        Ok(TypeId(self.count))
    }

    fn add(&mut self, ty: &Type, limit: u32) -> Result<TypeId, WriteError> {
        ty.references().try_for_each(|id| check(id, limit))?;
        match ty {
            Type::Int { name, bytes, encoding } => self.int(name.as_str(), *bytes, *encoding),
            Type::Float { name, bytes } => self.record(name.as_str(), kind::FLOAT, 0, *bytes, &[]),
            Type::Pointer(to) => self.pointer(*to),
            Type::Modified { modifier, ty } => {
                let kind = match modifier {
                    Modifier::Volatile => kind::VOLATILE,
                    Modifier::Const => kind::CONST,
                    Modifier::Restrict => kind::RESTRICT,
                };
                self.record("", kind, 0, ty.0, &[])
            }
            Type::Tagged { attribute, ty } => self.record(attribute.as_str(), kind::TYPE_TAG, 0, ty.0, &[]),
            Type::Typedef { name, ty } => self.record(name.as_str(), kind::TYPEDEF, 0, ty.0, &[]),
            Type::Array { element, len } => self.array(*element, *len),
            Type::Composite { kind, name, bytes, members } => self.composite(*kind, name, *bytes, members),
            Type::Enum { name, bytes, sign, wide, values } => self.values(name, *bytes, *sign, *wide, values),
            Type::Forward { kind, name } => {
                let flag = if *kind == FwdKind::Union { FLAG } else { 0 };
                self.record(name.as_str(), kind::FWD, flag, 0, &[])
            }
            Type::Signature { result, params } => {
                let mut tail = Vec::with_capacity(params.len() * 2);
                for (name, ty) in params {
                    tail.extend([self.name(name)?, ty.0]);
                }
                self.record("", kind::FUNC_PROTO, len(params.len())?, result.0, &tail)
            }
        }
    }

    fn composite(
        &mut self,
        composite: FwdKind,
        name: &Option<Name>,
        bytes: u32,
        members: &[Member],
    ) -> Result<TypeId, WriteError> {
        let has_bit_fields = members.iter().any(|member| member.bits != 0);
        let mut tail = Vec::with_capacity(members.len() * 3);
        for member in members {
            if has_bit_fields && member.bit_offset >> OFFSET_BITS != 0 {
                return Err(WriteError::TooLarge);
            }
            let offset = u32::from(member.bits) << OFFSET_BITS | member.bit_offset;
            tail.extend([self.name(&member.name)?, member.ty.0, offset]);
        }
        let kind = if composite == FwdKind::Union { kind::UNION } else { kind::STRUCT };
        let flag = if has_bit_fields { FLAG } else { 0 };
        self.record(text(name), kind, flag | len(members.len())?, bytes, &tail)
    }

    fn values(
        &mut self,
        name: &Option<Name>,
        bytes: u32,
        sign: Signedness,
        wide: bool,
        values: &[(Name, i64)],
    ) -> Result<TypeId, WriteError> {
        let mut tail = Vec::new();
        for (name, value) in values {
            let (low, high) = (*value as u32, (*value >> 32) as u32);
            tail.extend([self.string(name.as_str())?, low]);
            tail.extend(wide.then_some(high));
        }
        let kind = if wide { kind::ENUM64 } else { kind::ENUM };
        let flag = if sign == Signedness::Signed { FLAG } else { 0 };
        self.record(text(name), kind, flag | len(values.len())?, bytes, &tail)
    }

    fn name(&mut self, name: &Option<Name>) -> Result<u32, WriteError> {
        self.string(text(name))
    }
}

fn text(name: &Option<Name>) -> &str {
    name.as_ref().map_or("", Name::as_str)
}

fn check(id: TypeId, limit: u32) -> Result<(), WriteError> {
    if id.0 <= limit { Ok(()) } else { Err(WriteError::Dangling("a type")) }
}

fn len(elements: usize) -> Result<u32, WriteError> {
    if elements <= MAX_ELEMENTS { small(elements) } else { Err(WriteError::TooLarge) }
}

/// Writes the common start of the headers of `.BTF` and `.BTF.ext`: magic number, version, flags, size.
pub(super) fn header(out: &mut Vec<u8>, bytes: u32) {
    out.extend_from_slice(&[0x9f, 0xeb, 1, 0]);
    words(out, &[bytes]);
}

/// Appends 32-bit numbers, little-endian.
pub(super) fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}
