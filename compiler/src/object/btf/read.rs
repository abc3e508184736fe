//! BTF reader: bytes in, typed records out. One pass at the start finds the records; all else is decoded on
//! demand.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::OnceLock;

use super::kind::{
    BtfKind, FuncLinkage, HEADER_BYTES, KIND_FLAG, LAYOUT_BYTES, LAYOUT_HEADER_BYTES, MAGIC, TYPE_BYTES,
    VERSION, VarLinkage,
};
use super::names::{EnumeratorIndex, NameIndex};
use super::table::Table;
use super::{DatasecEntry, Enumerator, FwdKind, IntEncoding, Member, Signedness, TypeId};

/// Maximum name length in bytes: the kernel's own names are below 512 (include/linux/kallsyms.h,
/// `KSYM_NAME_LEN`, v6.12). Without a limit, a hostile table of many types could make every one of them point
/// to one huge string.
const MAX_NAME_BYTES: usize = 1024;

/// Reasons for the rejection of BTF or of one of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BtfReadError {
    /// The header is not that of little-endian BTF, version 1, or its parts are outside the bytes.
    #[error("not BTF: {0}")]
    Header(&'static str),
    /// A type of a kind that is newer than this reader. The types after it can be read.
    #[error("type {} is of kind {kind}, which is not known here", id.0)]
    UnknownKind {
        /// Id of the type.
        id: TypeId,
        /// Number of its kind.
        kind: u32,
    },
    /// A type record of a kind that is neither known nor has a layout, so that those after it cannot be
    /// found.
    #[error(
        "type {} is of kind {kind}, which is not known here, and no layout in the header tells how long it \
         is",
        id.0
    )]
    NoLayout {
        /// Id of the type.
        id: TypeId,
        /// Number of its kind.
        kind: u32,
    },
    /// The layout of a known kind differs from this reader's.
    #[error(
        "the layout of kind {kind} has {found} bytes and {found_each} for each element; known are {bytes} \
         and {each}"
    )]
    OtherLayout {
        /// Number of the kind.
        kind: u32,
        /// Bytes after `struct btf_type`, from the layout.
        found: u8,
        /// Bytes for each element, from the layout.
        found_each: u8,
        /// Bytes after `struct btf_type`, in this reader.
        bytes: u8,
        /// Bytes for each element, in this reader.
        each: u8,
    },
    /// The type section ends inside a record.
    #[error("type {} is cut off", _0.0)]
    Truncated(TypeId),
    /// An id without a type.
    #[error("there is no type {}", _0.0)]
    NoSuchType(TypeId),
    /// A record with an invalid field.
    #[error("type {}: {what}", id.0)]
    Malformed {
        /// Id of the type.
        id: TypeId,
        /// The violated rule.
        what: &'static str,
    },
    /// Offset of a name that is outside the strings, too long, or not UTF-8.
    #[error("no name at string offset {0}")]
    Name(u32),
}

/// A decoded type. Lists are decoded when iterated.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    /// The type with id 0.
    Void,
    /// An integer, bool or char.
    Int {
        /// C name of the type.
        name: &'a str,
        /// Size in memory, in bytes.
        bytes: u32,
        /// Interpretation of the bits.
        encoding: IntEncoding,
    },
    /// A pointer to another type.
    Ptr(TypeId),
    /// An array of a fixed length.
    Array {
        /// Type of the elements.
        element: TypeId,
        /// Number of elements.
        len: u32,
    },
    /// A struct with its members.
    Struct {
        /// Name; empty if anonymous.
        name: &'a str,
        /// Size in bytes.
        bytes: u32,
        /// Members, in the order of the record.
        members: Members<'a>,
    },
    /// A union with its members.
    Union {
        /// Name; empty if anonymous.
        name: &'a str,
        /// Size in bytes.
        bytes: u32,
        /// Members, in the order of the record.
        members: Members<'a>,
    },
    /// An enum, of 32 or 64 bits.
    Enum {
        /// Name; empty if anonymous.
        name: &'a str,
        /// Size in bytes.
        bytes: u32,
        /// Whether the values are signed.
        sign: Signedness,
        /// Names and values of the enumerators.
        values: Enumerators<'a>,
    },
    /// A struct or union without its body.
    Fwd {
        /// Name of the declared type.
        name: &'a str,
        /// Struct or union.
        kind: FwdKind,
    },
    /// An alias of a type.
    Typedef {
        /// Name of the alias.
        name: &'a str,
        /// The aliased type.
        ty: TypeId,
    },
    /// `const`, `volatile`, `restrict` or an attribute, which this reader does not distinguish.
    Modifier(TypeId),
    /// A function with its linkage.
    Func {
        /// Name of the function.
        name: &'a str,
        /// Id of its signature, a `FUNC_PROTO`.
        proto: TypeId,
        /// Visibility of the function.
        linkage: FuncLinkage,
    },
    /// A function's signature.
    FuncProto {
        /// Type of the result.
        result: TypeId,
        /// Names and types of the parameters.
        params: Params<'a>,
    },
    /// A variable with its linkage.
    Var {
        /// Name of the variable.
        name: &'a str,
        /// Type of the variable.
        ty: TypeId,
        /// Visibility of the variable.
        linkage: VarLinkage,
    },
    /// The variables of a section.
    Datasec {
        /// Name of the section.
        name: &'a str,
        /// Size of the section in bytes.
        bytes: u32,
        /// Variables with their offsets.
        entries: DatasecEntries<'a>,
    },
    /// A floating-point number.
    Float {
        /// C name of the type.
        name: &'a str,
        /// Size in bytes.
        bytes: u32,
    },
    /// An attribute of a declaration.
    DeclTag {
        /// Text of the attribute.
        name: &'a str,
        /// The annotated type, variable or function.
        ty: TypeId,
        /// Position of the annotated member or parameter; none for the whole.
        component: Option<u32>,
    },
}

/// Parsed BTF of a kernel or object.
///
/// ```no_run
/// let bytes = std::fs::read("/sys/kernel/btf/vmlinux")?;
/// let kernel = ks_compiler::object::btf::Btf::parse(bytes)?;
/// if let Some(task) = kernel.find_struct("task_struct") {
///     println!("{:?}", kernel.field(task, "tgid")?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Btf {
    /// The BTF; of an image, its tables follow.
    bytes: Bytes,
    /// Length of the BTF.
    btf_len: usize,
    types: Range<usize>,
    strings: Range<usize>,
    layouts: Layouts,
    /// Start of each type's record in `types`; that of type 1 is first.
    pub(super) records: Table,
    pub(super) names: OnceLock<NameIndex>,
    pub(super) enumerators: OnceLock<EnumeratorIndex>,
}

/// Bytes in memory, or of a mapped file.
pub(super) struct Bytes(Box<dyn AsRef<[u8]> + Send + Sync>);

impl Bytes {
    pub(super) fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        Bytes(Box::new(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Btf {
    /// Parses the header and finds the records.
    ///
    /// # Errors
    /// Bytes that are not little-endian BTF of version 1, or records whose ends cannot be found.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Btf, BtfReadError> {
        Btf::read(bytes.into(), false)
    }

    /// Parses types whose strings and ids continue others, which their records refer to.
    pub(super) fn parse_split(bytes: Vec<u8>) -> Result<Btf, BtfReadError> {
        Btf::read(bytes, true)
    }

    fn read(bytes: Vec<u8>, is_split: bool) -> Result<Btf, BtfReadError> {
        let Sections { types, strings, layouts } = sections(&bytes, is_split)?;
        let layouts = Layouts::read(bytes.get(layouts).unwrap_or_default())?;
        let records = Table::Own(find_records(bytes.get(types.clone()).unwrap_or_default(), &layouts)?);
        let (btf_len, bytes) = (bytes.len(), Bytes::new(bytes));
        let (names, enumerators) = (OnceLock::new(), OnceLock::new());
        Ok(Btf { bytes, btf_len, types, strings, layouts, records, names, enumerators })
    }

    /// Parses the header of the BTF at the begin of an image, whose tables are these.
    pub(super) fn with_tables(
        bytes: Bytes,
        btf_len: usize,
        records: Table,
        names: OnceLock<NameIndex>,
        enumerators: OnceLock<EnumeratorIndex>,
    ) -> Result<Btf, BtfReadError> {
        let btf = bytes.get(..btf_len).ok_or(BtfReadError::Header("too short"))?;
        let Sections { types, strings, layouts } = sections(btf, false)?;
        let layouts = Layouts::read(btf.get(layouts).unwrap_or_default())?;
        Ok(Btf { bytes, btf_len, types, strings, layouts, records, names, enumerators })
    }

    /// Returns the bytes that the tables of an image lie in.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the BTF without the tables of an image.
    pub(super) fn btf_bytes(&self) -> &[u8] {
        self.bytes.get(..self.btf_len).unwrap_or_default()
    }

    /// Returns the number of types, without `void`; ids go from 1 to this number.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether there is no type except `void`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// Returns the type with this id.
    ///
    /// # Errors
    /// No type with this id, or an invalid record.
    pub fn get(&self, id: TypeId) -> Result<Type<'_>, BtfReadError> {
        if id == TypeId::VOID {
            return Ok(Type::Void);
        }
        let record = self.record(id).ok_or(BtfReadError::NoSuchType(id))?;
        self.decode(id, &record)
    }

    /// Returns the name at an offset.
    pub(super) fn string(&self, offset: u32) -> Result<&str, BtfReadError> {
        let error = BtfReadError::Name(offset);
        let rest = self.string_bytes(offset).ok_or(error)?;
        let end = rest.iter().take(MAX_NAME_BYTES).position(|&byte| byte == 0).ok_or(error)?;
        rest.get(..end).and_then(|name| std::str::from_utf8(name).ok()).ok_or(error)
    }

    /// Returns the names' offsets, from the last type to the first; 0 for types without a name.
    pub(super) fn name_offsets_from_last(&self) -> impl Iterator<Item = (TypeId, u32)> {
        let types = self.bytes.get(self.types.clone()).unwrap_or_default();
        let bytes = self.bytes();
        (1..=self.len()).rev().map(|id| {
            let start = self.records.get(bytes, id as usize - 1);
            let record = start.and_then(|start| types.get(start as usize..));
            (TypeId(id), record.and_then(|record| word(record, 0)).unwrap_or(0))
        })
    }

    /// Returns the size of the string table in bytes.
    #[must_use]
    pub fn string_len(&self) -> u32 {
        u32::try_from(self.strings.len()).unwrap_or(u32::MAX)
    }

    /// Returns the string table from an offset on.
    pub(super) fn string_bytes(&self, offset: u32) -> Option<&[u8]> {
        self.bytes.get(self.strings.clone())?.get(offset as usize..)
    }

    pub(super) fn record(&self, id: TypeId) -> Option<Record<'_>> {
        Record::read(self.record_bytes(id)?, &self.layouts)
    }

    /// Returns the offset of a type's name and its kind, without decoding the rest of its record.
    pub(super) fn name_and_kind(&self, id: TypeId) -> Option<(u32, Option<BtfKind>)> {
        let record = self.record_bytes(id)?;
        Some((word(record, 0)?, BtfKind::from_number(kind_number(word(record, 1)?))))
    }

    fn record_bytes(&self, id: TypeId) -> Option<&[u8]> {
        let index = usize::try_from(id.0.checked_sub(1)?).ok()?;
        let bytes = self.bytes();
        bytes.get(self.types.clone())?.get(self.records.get(bytes, index)? as usize..)
    }

    fn decode<'a>(&'a self, id: TypeId, record: &Record<'a>) -> Result<Type<'a>, BtfReadError> {
        let unknown = BtfReadError::UnknownKind { id, kind: record.kind_number() };
        let kind = record.kind().ok_or(unknown)?;
        let name = self.string(record.name)?;
        let Record { size_or_type, .. } = *record;
        let (bytes, ty) = (size_or_type, TypeId(size_or_type));
        let list = List { btf: self, rest: record.tail, wide: kind == BtfKind::Enum64, flag: record.flag() };
        let extra = |index: usize| word(record.tail, index).ok_or(BtfReadError::Truncated(id));
        Ok(match kind {
            BtfKind::Int => Type::Int { name, bytes, encoding: int_encoding(id, extra(0)?)? },
            BtfKind::Ptr => Type::Ptr(ty),
            BtfKind::Array => Type::Array { element: TypeId(extra(0)?), len: extra(2)? },
            BtfKind::Struct => Type::Struct { name, bytes, members: Members(list) },
            BtfKind::Union => Type::Union { name, bytes, members: Members(list) },
            BtfKind::Enum | BtfKind::Enum64 => {
                let sign = if record.flag() { Signedness::Signed } else { Signedness::Unsigned };
                Type::Enum { name, bytes, sign, values: Enumerators(list) }
            }
            BtfKind::Fwd => {
                let kind = if record.flag() { FwdKind::Union } else { FwdKind::Struct };
                Type::Fwd { name, kind }
            }
            BtfKind::Typedef => Type::Typedef { name, ty },
            BtfKind::Volatile | BtfKind::Const | BtfKind::Restrict | BtfKind::TypeTag => Type::Modifier(ty),
            BtfKind::Func => {
                let linkage = FuncLinkage::from_number(record.vlen());
                let linkage = linkage.ok_or(BtfReadError::Malformed { id, what: "unknown linkage" })?;
                Type::Func { name, proto: ty, linkage }
            }
            BtfKind::FuncProto => Type::FuncProto { result: ty, params: Params(list) },
            BtfKind::Var => {
                let linkage = VarLinkage::from_number(extra(0)?);
                let linkage = linkage.ok_or(BtfReadError::Malformed { id, what: "unknown linkage" })?;
                Type::Var { name, ty, linkage }
            }
            BtfKind::Datasec => Type::Datasec { name, bytes, entries: DatasecEntries(list) },
            BtfKind::Float => Type::Float { name, bytes },
            BtfKind::DeclTag => {
                let component = extra(0)?;
                Type::DeclTag { name, ty, component: (component != u32::MAX).then_some(component) }
            }
        })
    }
}

/// `struct btf_type` and its data, up to the next record.
pub(super) struct Record<'a> {
    pub name: u32,
    info: u32,
    size_or_type: u32,
    tail: &'a [u8],
}

impl<'a> Record<'a> {
    fn read(bytes: &'a [u8], layouts: &Layouts) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<TYPE_BYTES>()?;
        let (name, info, size_or_type) = (word(head, 0)?, word(head, 1)?, word(head, 2)?);
        let mut record = Record { name, info, size_or_type, tail: &[] };
        let len = record.vlen() as usize;
        let tail = match record.kind() {
            Some(kind) => kind.tail_bytes(len),
            None => layouts.tail_bytes(record.kind_number(), len)?,
        };
        record.tail = rest.get(..tail)?;
        Some(record)
    }

    pub(super) fn kind(&self) -> Option<BtfKind> {
        BtfKind::from_number(self.kind_number())
    }

    fn kind_number(&self) -> u32 {
        kind_number(self.info)
    }

    fn vlen(&self) -> u32 {
        // Before Linux 7.1 the upper 8 of these bits are 0.
        self.info & 0x00ff_ffff
    }

    fn flag(&self) -> bool {
        self.info & KIND_FLAG != 0
    }
}

/// Encoded elements of a type.
#[derive(Clone, Copy, Debug)]
struct List<'a> {
    btf: &'a Btf,
    rest: &'a [u8],
    /// Whether enumerators have 64 bits.
    wide: bool,
    /// Kind flag of the type's record.
    flag: bool,
}

impl<'a> List<'a> {
    /// Returns the words of the next element.
    fn next<const WORDS: usize>(&mut self) -> Option<[u32; WORDS]> {
        let (element, rest) = self.rest.split_at_checked(WORDS * 4)?;
        self.rest = rest;
        let mut words = [0; WORDS];
        for (index, value) in words.iter_mut().enumerate() {
            *value = word(element, index)?;
        }
        Some(words)
    }
}

/// Iterator over the members of a struct or union.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a>(List<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, BtfReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let [name, ty, offset] = self.0.next()?;
        let (bit_offset, bitfield_bits) = if self.0.flag {
            // Only eight bits remain above the offset's 24.
            let [_, _, _, bits] = offset.to_le_bytes();
            (offset & 0x00ff_ffff, bits)
        } else {
            (offset, 0)
        };
        let name = self.0.btf.string(name);
        Some(name.map(|name| Member { name, ty: TypeId(ty), bit_offset, bitfield_bits }))
    }
}

/// Iterator over the names and values of an enum.
#[derive(Clone, Copy, Debug)]
pub struct Enumerators<'a>(List<'a>);

impl Enumerators<'_> {
    /// Returns the offset of each name instead of the name.
    pub(super) fn with_name_offsets(mut self) -> impl Iterator<Item = (u32, i64)> {
        std::iter::from_fn(move || self.next_words())
    }

    /// Returns the offset of the next name, and the value.
    fn next_words(&mut self) -> Option<(u32, i64)> {
        if self.0.wide {
            let [name, low, high] = self.0.next()?;
            return Some((name, (u64::from(high) << 32 | u64::from(low)).cast_signed()));
        }
        let [name, value] = self.0.next()?;
        Some((name, if self.0.flag { i64::from(value.cast_signed()) } else { i64::from(value) }))
    }
}

impl<'a> Iterator for Enumerators<'a> {
    type Item = Result<Enumerator<'a>, BtfReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.next_words()?;
        Some(self.0.btf.string(name).map(|name| Enumerator { name, value }))
    }
}

/// Iterator over the parameters of a signature: name and type. A final `...` has no name and type `void`.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a>(List<'a>);

impl<'a> Iterator for Params<'a> {
    type Item = Result<(&'a str, TypeId), BtfReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let [name, ty] = self.0.next()?;
        Some(self.0.btf.string(name).map(|name| (name, TypeId(ty))))
    }
}

/// Iterator over the variables of a section.
#[derive(Clone, Copy, Debug)]
pub struct DatasecEntries<'a>(List<'a>);

impl Iterator for DatasecEntries<'_> {
    type Item = DatasecEntry;

    fn next(&mut self) -> Option<Self::Item> {
        let [var, offset, size] = self.0.next()?;
        Some(DatasecEntry { var: TypeId(var), offset, size })
    }
}

/// Byte ranges of the parts of BTF.
struct Sections {
    types: Range<usize>,
    strings: Range<usize>,
    /// Empty before Linux 7.1.
    layouts: Range<usize>,
}

fn sections(bytes: &[u8], is_split: bool) -> Result<Sections, BtfReadError> {
    let (Some(start), Some(header_bytes)) = (word(bytes, 0), word(bytes, 1)) else {
        return Err(BtfReadError::Header("too short"));
    };
    if start & 0xffff != u32::from(MAGIC) {
        return Err(BtfReadError::Header("the magic number is missing, or that of another byte order"));
    }
    if start >> 16 != u32::from(VERSION) {
        return Err(BtfReadError::Header("unknown version or flags"));
    }
    if header_bytes < HEADER_BYTES {
        return Err(BtfReadError::Header("the header is too short"));
    }
    let section = |index: usize| {
        let start = (header_bytes as usize).checked_add(word(bytes, index)? as usize)?;
        let end = start.checked_add(word(bytes, index + 1)? as usize)?;
        bytes.get(start..end).map(|content| (start..end, content))
    };
    let (types, _) = section(2).ok_or(BtfReadError::Header("the types lie outside"))?;
    let (strings, content) = section(4).ok_or(BtfReadError::Header("the strings lie outside"))?;
    // The empty name is the first of those that split BTF continues.
    let begins = is_split || content.first() == Some(&0);
    if !begins || content.last().is_some_and(|last| *last != 0) {
        return Err(BtfReadError::Header("the strings do not begin and end with NUL"));
    }
    let layouts = if header_bytes >= LAYOUT_HEADER_BYTES {
        section(6).ok_or(BtfReadError::Header("the layouts lie outside"))?.0
    } else {
        0..0
    };
    Ok(Sections { types, strings, layouts })
}

/// Record lengths by kind, as the BTF itself describes them. They allow skipping records of kinds that are
/// newer than this reader.
#[derive(Debug)]
struct Layouts(Vec<Layout>);

/// `struct btf_layout`
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes after `struct btf_type`.
    bytes: u8,
    /// Bytes of each element after them.
    each: u8,
}

impl Layouts {
    fn read(section: &[u8]) -> Result<Layouts, BtfReadError> {
        let (layouts, rest) = section.as_chunks::<LAYOUT_BYTES>();
        if !rest.is_empty() {
            return Err(BtfReadError::Header("the last layout is cut off"));
        }
        // The last two bytes are flags that are not used yet.
        let layouts = Layouts(layouts.iter().map(|&[bytes, each, ..]| Layout { bytes, each }).collect());
        for (number, found) in (0u32..).zip(&layouts.0) {
            let Some(kind) = BtfKind::from_number(number) else { continue };
            let (bytes, all) = (kind.tail_bytes(0), kind.tail_bytes(1));
            let (Ok(bytes), Ok(each)) = (u8::try_from(bytes), u8::try_from(all - bytes)) else { continue };
            if (found.bytes, found.each) != (bytes, each) {
                let (found, found_each) = (found.bytes, found.each);
                return Err(BtfReadError::OtherLayout { kind: number, found, found_each, bytes, each });
            }
        }
        Ok(layouts)
    }

    /// Returns the bytes after `struct btf_type` of a record of an unknown kind. Zero is not a kind.
    fn tail_bytes(&self, kind: u32, len: usize) -> Option<usize> {
        let layout = self.0.get(usize::try_from(kind).ok()?).filter(|_| kind != 0)?;
        usize::from(layout.each).checked_mul(len)?.checked_add(layout.bytes.into())
    }
}

fn find_records(types: &[u8], layouts: &Layouts) -> Result<Vec<u32>, BtfReadError> {
    // A kernel's types take about 25 bytes each.
    let mut records = Vec::with_capacity(types.len() / 25);
    // This does not overflow: the section's length has 32 bits, and a decoded record is inside the section.
    let mut start = 0u32;
    while let Some(rest) = types.get(start as usize..).filter(|rest| !rest.is_empty()) {
        let Some(record) = Record::read(rest, layouts) else {
            return Err(unreadable(records.len(), rest, layouts));
        };
        records.push(start);
        start += (TYPE_BYTES + record.tail.len()) as u32;
    }
    Ok(records)
}

/// Returns the reason why the bytes after `records` records are not a record.
fn unreadable(records: usize, bytes: &[u8], layouts: &Layouts) -> BtfReadError {
    let id = TypeId(u32::try_from(records + 1).unwrap_or(u32::MAX));
    match word(bytes, 1).map(kind_number) {
        Some(kind) if BtfKind::from_number(kind).is_none() && layouts.tail_bytes(kind, 0).is_none() => {
            BtfReadError::NoLayout { id, kind }
        }
        _ => BtfReadError::Truncated(id),
    }
}

/// Returns the kind number in a record's second word.
fn kind_number(info: u32) -> u32 {
    // Before Linux 7.1 the upper two of these bits are 0.
    info >> 24 & 0x7f
}

/// Returns the 32-bit word at an index.
pub(super) fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let start = index.checked_mul(4)?;
    let word = bytes.get(start..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn int_encoding(id: TypeId, extra: u32) -> Result<IntEncoding, BtfReadError> {
    // Signed characters are treated as numbers.
    match extra >> 24 & 0xf {
        0 => Ok(IntEncoding::Unsigned),
        1 | 3 => Ok(IntEncoding::Signed),
        2 => Ok(IntEncoding::Char),
        4 => Ok(IntEncoding::Bool),
        _ => Err(BtfReadError::Malformed { id, what: "unknown integer encoding" }),
    }
}
