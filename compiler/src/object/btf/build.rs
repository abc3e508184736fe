//! BTF writer: types in, `.BTF` out.

use super::TypeId;
use super::kind::{
    BtfKind, FuncLinkage, HEADER_BYTES, KIND_FLAG, MAGIC, MAX_NAME_OFFSET, MAX_VLEN, VERSION, VarLinkage,
};
use crate::index::FastMap;

/// Reasons for the failure to write BTF.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BtfError {
    /// A name that the format cannot hold: with a NUL byte in it, or empty where a name is required.
    #[error("{name:?} cannot be a name of BTF {what}")]
    Name {
        /// The rejected name.
        name: String,
        /// Kind of the named item.
        what: &'static str,
    },
    /// More members, parameters, enumerators or variables than the format's count field holds.
    #[error("{name:?} has {count} elements; BTF holds {MAX_VLEN} of one type")]
    TooManyElements {
        /// Name of the type.
        name: String,
        /// Number of elements.
        count: usize,
    },
    /// An integer size other than 1, 2, 4, 8 or 16 bytes.
    #[error("integer {name:?} of {bytes} bytes")]
    IntSize {
        /// Name of the type.
        name: String,
        /// Size in bytes.
        bytes: u32,
    },
    /// A declared struct was never defined.
    #[error("struct {0:?} was declared and never defined")]
    Undefined(String),
    /// An id that is not that of a declared struct without a body.
    #[error("type {} is not a declared struct without a body", _0.0)]
    NotDeclared(TypeId),
    /// A reference to a type that was never added.
    #[error("reference to type {}, which was never added", _0.0)]
    NoSuchType(TypeId),
    /// A size or offset exceeds the format's limits.
    #[error("the type information is too large")]
    TooLarge,
}

/// Interpretation of an integer's bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntEncoding {
    /// An unsigned number.
    Unsigned,
    /// A signed number.
    Signed,
    /// A character (`BTF_INT_CHAR`).
    Char,
    /// A bool (`BTF_INT_BOOL`).
    Bool,
}

/// Whether an enum's values are signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signedness {
    /// Values are zero or positive.
    Unsigned,
    /// Values are in two's complement.
    Signed,
}

/// Keyword of a forward declaration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FwdKind {
    /// `struct name;`
    Struct,
    /// `union name;`
    Union,
}

/// A member of a struct or union.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    /// Name; empty for an anonymous struct or union.
    pub name: &'a str,
    /// Type of the member.
    pub ty: TypeId,
    /// Offset in bits from the start of the struct.
    pub bit_offset: u32,
    /// Width of a bitfield; 0 if the member is none.
    pub bitfield_bits: u8,
}

impl<'a> Member<'a> {
    /// Creates a member that is not a bitfield, at a byte offset.
    #[must_use]
    pub const fn at(name: &'a str, ty: TypeId, byte_offset: u32) -> Self {
        Member { name, ty, bit_offset: byte_offset.saturating_mul(8), bitfield_bits: 0 }
    }
}

/// A name and value of an enum. Values above `i64::MAX` are passed as their two's complement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enumerator<'a> {
    /// Name of the enumerator.
    pub name: &'a str,
    /// Value, in two's complement.
    pub value: i64,
}

/// Position of a variable in its section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatasecEntry {
    /// The `VAR` (or, in `.ksyms`, the `FUNC`).
    pub var: TypeId,
    /// Offset in bytes from the section's start.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Builder of `.BTF`: collects types and strings.
///
/// Equal types get equal ids. A method whose argument the format cannot hold records the first error and
/// returns `void`; [`BtfBuilder::finish`] reports it. The code generator therefore need not handle an error
/// at every type.
#[derive(Clone, Debug)]
pub struct BtfBuilder {
    /// Encoded records; type 1 is the first.
    types: Vec<Vec<u8>>,
    interned: FastMap<Vec<u8>, TypeId>,
    /// Declared structs that have no body yet.
    declared: Vec<(TypeId, String)>,
    strings: Vec<u8>,
    string_offsets: FastMap<String, u32>,
    /// The largest id that any record refers to.
    largest_reference: TypeId,
    error: Option<BtfError>,
}

impl Default for BtfBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BtfBuilder {
    /// Creates an empty table: only `void` and the empty string.
    #[must_use]
    pub fn new() -> Self {
        BtfBuilder {
            types: Vec::new(),
            interned: FastMap::default(),
            declared: Vec::new(),
            strings: vec![0],
            string_offsets: FastMap::from_iter([(String::new(), 0)]),
            largest_reference: TypeId::VOID,
            error: None,
        }
    }

    /// Adds an integer of 1, 2, 4, 8 or 16 bytes.
    pub fn int(&mut self, name: &str, bytes: u32, encoding: IntEncoding) -> TypeId {
        if !matches!(bytes, 1 | 2 | 4 | 8 | 16) {
            return self.fail(BtfError::IntSize { name: name.to_owned(), bytes });
        }
        let encoding: u32 = match encoding {
            IntEncoding::Unsigned => 0,
            IntEncoding::Signed => 1,
            IntEncoding::Char => 2,
            IntEncoding::Bool => 4,
        };
        let mut record = self.named(name, BtfKind::Int, 0, bytes);
        put(&mut record, (encoding << 24) | (bytes * 8));
        self.intern(record)
    }

    /// Adds a pointer; to `void` with [`TypeId::VOID`].
    pub fn ptr(&mut self, to: TypeId) -> TypeId {
        self.reference("", BtfKind::Ptr, to)
    }

    /// Adds an array of `len` elements.
    pub fn array(&mut self, element: TypeId, len: u32) -> TypeId {
        let index = self.int("__ARRAY_SIZE_TYPE__", 4, IntEncoding::Unsigned);
        self.refer(element);
        let mut record = self.named("", BtfKind::Array, 0, 0);
        for field in [element.0, index.0, len] {
            put(&mut record, field);
        }
        self.intern(record)
    }

    /// Adds a struct; an anonymous one has an empty name.
    pub fn structure(&mut self, name: &str, bytes: u32, members: &[Member<'_>]) -> TypeId {
        let record = self.composite(name, BtfKind::Struct, bytes, members);
        self.intern(record)
    }

    /// Adds a union; an anonymous one has an empty name.
    pub fn union(&mut self, name: &str, bytes: u32, members: &[Member<'_>]) -> TypeId {
        let record = self.composite(name, BtfKind::Union, bytes, members);
        self.intern(record)
    }

    /// Declares a struct whose body follows with [`BtfBuilder::define_struct`], so that it can point to
    /// itself.
    pub fn declare_struct(&mut self, name: &str) -> TypeId {
        let id = self.push(Vec::new());
        self.declared.push((id, name.to_owned()));
        id
    }

    /// Defines the body of a declared struct.
    pub fn define_struct(&mut self, id: TypeId, bytes: u32, members: &[Member<'_>]) {
        let Some(position) = self.declared.iter().position(|(declared, _)| *declared == id) else {
            self.fail(BtfError::NotDeclared(id));
            return;
        };
        let (_, name) = self.declared.swap_remove(position);
        let record = self.composite(&name, BtfKind::Struct, bytes, members);
        if let Some(slot) = record_index(id).and_then(|index| self.types.get_mut(index)) {
            *slot = record;
        }
    }

    /// Adds a forward declaration of a struct or union.
    pub fn fwd(&mut self, name: &str, kind: FwdKind) -> TypeId {
        let flag = match kind {
            FwdKind::Struct => 0,
            FwdKind::Union => KIND_FLAG,
        };
        let record = self.named(name, BtfKind::Fwd, flag, 0);
        self.intern(record)
    }

    /// Adds an enum of 1, 2, 4 or 8 bytes. Values that do not fit 32 bits make it an `ENUM64` (Linux 6.0).
    pub fn enumeration(
        &mut self,
        name: &str,
        bytes: u32,
        sign: Signedness,
        values: &[Enumerator<'_>],
    ) -> TypeId {
        let vlen = self.vlen(name, values.len());
        let flag = if sign == Signedness::Signed { KIND_FLAG } else { 0 };
        let wide = bytes == 8 || values.iter().any(|e| !fits_32_bits(e.value, sign));
        let kind = if wide { BtfKind::Enum64 } else { BtfKind::Enum };
        let mut record = self.named(name, kind, flag | vlen, bytes);
        for enumerator in values {
            let offset = self.string(enumerator.name);
            put(&mut record, offset);
            let [a, b, c, d, high @ ..] = enumerator.value.to_le_bytes();
            record.extend_from_slice(&[a, b, c, d]);
            if wide {
                record.extend_from_slice(&high);
            }
        }
        self.intern(record)
    }

    /// Adds a typedef of a type.
    pub fn typedef(&mut self, name: &str, ty: TypeId) -> TypeId {
        self.reference(name, BtfKind::Typedef, ty)
    }

    /// Adds the type `const ty`.
    pub fn constant(&mut self, ty: TypeId) -> TypeId {
        self.reference("", BtfKind::Const, ty)
    }

    /// Adds the type `volatile ty`.
    pub fn volatile(&mut self, ty: TypeId) -> TypeId {
        self.reference("", BtfKind::Volatile, ty)
    }

    /// Adds a type with an attribute, for example the `kptr` of a pointer in a map's value.
    pub fn type_tag(&mut self, name: &str, ty: TypeId) -> TypeId {
        self.reference(name, BtfKind::TypeTag, ty)
    }

    /// Adds a signature. The kernel requires names for every parameter of a function with a body.
    pub fn func_proto(&mut self, result: TypeId, params: &[(&str, TypeId)]) -> TypeId {
        let vlen = self.vlen("a signature", params.len());
        self.refer(result);
        let mut record = self.named("", BtfKind::FuncProto, vlen, result.0);
        for &(name, ty) in params {
            self.refer(ty);
            let name = self.string(name);
            put(&mut record, name);
            put(&mut record, ty.0);
        }
        self.intern(record)
    }

    /// Adds a function (`FUNC`).
    pub fn func(&mut self, name: &str, proto: TypeId, linkage: FuncLinkage) -> TypeId {
        self.refer(proto);
        let record = self.named(name, BtfKind::Func, linkage.number(), proto.0);
        self.intern(record)
    }

    /// Adds a variable (`VAR`).
    pub fn var(&mut self, name: &str, ty: TypeId, linkage: VarLinkage) -> TypeId {
        self.refer(ty);
        let mut record = self.named(name, BtfKind::Var, 0, ty.0);
        put(&mut record, linkage.number());
        self.intern(record)
    }

    /// Adds the variables of a section, in the order of their offsets.
    pub fn datasec(&mut self, name: &str, bytes: u32, entries: &[DatasecEntry]) -> TypeId {
        let vlen = self.vlen(name, entries.len());
        let mut record = self.named(name, BtfKind::Datasec, vlen, bytes);
        for entry in entries {
            self.refer(entry.var);
            for field in [entry.var.0, entry.offset, entry.size] {
                put(&mut record, field);
            }
        }
        self.intern(record)
    }

    /// Adds an attribute of a type, variable or function (`component` none), or of one of its members or
    /// parameters.
    pub fn decl_tag(&mut self, name: &str, ty: TypeId, component: Option<u16>) -> TypeId {
        self.refer(ty);
        let mut record = self.named(name, BtfKind::DeclTag, 0, ty.0);
        record.extend_from_slice(&component.map_or(-1, i32::from).to_le_bytes());
        self.intern(record)
    }

    /// Returns the offset of a string in the table, added on first use.
    pub fn string(&mut self, text: &str) -> u32 {
        if let Some(&offset) = self.string_offsets.get(text) {
            return offset;
        }
        if text.contains('\0') {
            self.fail(BtfError::Name { name: text.to_owned(), what: "strings" });
            return 0;
        }
        let offset = match u32::try_from(self.strings.len()) {
            Ok(offset) if offset <= MAX_NAME_OFFSET => offset,
            _ => {
                self.fail(BtfError::TooLarge);
                return 0;
            }
        };
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.string_offsets.insert(text.to_owned(), offset);
        offset
    }

    /// Returns the content of `.BTF`.
    ///
    /// # Errors
    /// The first error of any call, a declared struct without a body, or a reference to a type that was never
    /// added.
    pub fn finish(&self) -> Result<Vec<u8>, BtfError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if let Some((_, name)) = self.declared.first() {
            return Err(BtfError::Undefined(name.clone()));
        }
        if self.largest_reference.0 as usize > self.types.len() {
            return Err(BtfError::NoSuchType(self.largest_reference));
        }
        let types = self.types.concat();
        let type_bytes = u32::try_from(types.len()).map_err(|_| BtfError::TooLarge)?;
        let string_bytes = u32::try_from(self.strings.len()).map_err(|_| BtfError::TooLarge)?;
        let mut out = header(HEADER_BYTES);
        for field in [0, type_bytes, type_bytes, string_bytes] {
            put(&mut out, field);
        }
        out.extend_from_slice(&types);
        out.extend_from_slice(&self.strings);
        Ok(out)
    }

    fn reference(&mut self, name: &str, kind: BtfKind, to: TypeId) -> TypeId {
        self.refer(to);
        let record = self.named(name, kind, 0, to.0);
        self.intern(record)
    }

    fn composite(&mut self, name: &str, kind: BtfKind, bytes: u32, members: &[Member<'_>]) -> Vec<u8> {
        let vlen = self.vlen(name, members.len());
        let bitfields = members.iter().any(|member| member.bitfield_bits != 0);
        let flag = if bitfields { KIND_FLAG } else { 0 };
        let mut record = self.named(name, kind, flag | vlen, bytes);
        for member in members {
            self.refer(member.ty);
            if bitfields && member.bit_offset > MAX_BIT_OFFSET {
                self.fail(BtfError::TooLarge);
            }
            let name = self.string(member.name);
            // Without bitfields the upper eight bits belong to the offset.
            let offset = u32::from(member.bitfield_bits) << 24 | member.bit_offset;
            for field in [name, member.ty.0, offset] {
                put(&mut record, field);
            }
        }
        record
    }

    /// Starts a record, `struct btf_type`: name, kind with flag and vlen, size or type.
    fn named(&mut self, name: &str, kind: BtfKind, flag_and_vlen: u32, size_or_type: u32) -> Vec<u8> {
        let name = self.string(name);
        let mut record = Vec::new();
        for field in [name, (kind as u32) << 24 | flag_and_vlen, size_or_type] {
            put(&mut record, field);
        }
        record
    }

    fn intern(&mut self, record: Vec<u8>) -> TypeId {
        if let Some(&id) = self.interned.get(&record) {
            return id;
        }
        let id = self.push(record.clone());
        self.interned.insert(record, id);
        id
    }

    fn push(&mut self, record: Vec<u8>) -> TypeId {
        self.types.push(record);
        match u32::try_from(self.types.len()) {
            Ok(id) => TypeId(id),
            Err(_) => self.fail(BtfError::TooLarge),
        }
    }

    fn refer(&mut self, to: TypeId) {
        self.largest_reference = self.largest_reference.max(to);
    }

    fn vlen(&mut self, name: &str, count: usize) -> u32 {
        match u32::try_from(count) {
            Ok(vlen) if count <= MAX_VLEN => vlen,
            _ => {
                self.fail(BtfError::TooManyElements { name: name.to_owned(), count });
                0
            }
        }
    }

    fn fail(&mut self, error: BtfError) -> TypeId {
        self.error.get_or_insert(error);
        TypeId::VOID
    }
}

/// Largest bit offset of a member in a struct that has bitfields.
const MAX_BIT_OFFSET: u32 = 0x00ff_ffff;

/// Returns the first eight bytes of a header.
pub(super) fn header(header_bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[VERSION, 0]);
    put(&mut out, header_bytes);
    out
}

pub(super) fn put(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn fits_32_bits(value: i64, sign: Signedness) -> bool {
    match sign {
        Signedness::Signed => i32::try_from(value).is_ok(),
        Signedness::Unsigned => u32::try_from(value).is_ok(),
    }
}

fn record_index(id: TypeId) -> Option<usize> {
    usize::try_from(id.0.checked_sub(1)?).ok()
}
