//! `.BTF.ext`: metadata of single instructions.
//!
//! Source: Documentation/bpf/btf.rst, section "The .BTF.ext section"; libbpf v1.7 libbpf_internal.h, `struct
//! btf_ext_header`, `struct bpf_func_info_min`, `struct bpf_line_info_min`, `struct bpf_core_relo`.

use super::build::{BtfBuilder, header, put};
use super::{BtfError, TypeId};
use crate::bpf::InsnIndex;

/// Source position of an instruction and of those after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// First instruction at this position.
    pub at: InsnIndex,
    /// Name of the file for display.
    pub file: String,
    /// Line number, from 1; at most 4194303.
    pub line: u32,
    /// Column, from 1; the format holds up to 1023, a larger one is written as 1023.
    pub column: u32,
    /// Text of the line.
    pub text: String,
}

/// Question of a CO-RE relocation about the running kernel's types.
///
/// Source: include/uapi/linux/bpf.h, `enum bpf_core_relo_kind`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CoreReloKind {
    /// The member's offset in bytes.
    #[doc(alias = "BPF_CORE_FIELD_BYTE_OFFSET")]
    FieldByteOffset = 0,
    /// The member's size in bytes.
    #[doc(alias = "BPF_CORE_FIELD_BYTE_SIZE")]
    FieldByteSize = 1,
    /// 1 if the member exists, else 0.
    #[doc(alias = "BPF_CORE_FIELD_EXISTS")]
    FieldExists = 2,
    /// 1 if the member is signed, else 0.
    #[doc(alias = "BPF_CORE_FIELD_SIGNED")]
    FieldSigned = 3,
    /// Left shift, in bits, of a loaded bitfield.
    #[doc(alias = "BPF_CORE_FIELD_LSHIFT_U64")]
    FieldLshift = 4,
    /// Right shift, in bits, that follows the left shift.
    #[doc(alias = "BPF_CORE_FIELD_RSHIFT_U64")]
    FieldRshift = 5,
    /// The type's id in our own BTF.
    #[doc(alias = "BPF_CORE_TYPE_ID_LOCAL")]
    TypeIdLocal = 6,
    /// The type's id in the kernel's BTF.
    #[doc(alias = "BPF_CORE_TYPE_ID_TARGET")]
    TypeIdTarget = 7,
    /// 1 if the type exists, else 0.
    #[doc(alias = "BPF_CORE_TYPE_EXISTS")]
    TypeExists = 8,
    /// The type's size in bytes.
    #[doc(alias = "BPF_CORE_TYPE_SIZE")]
    TypeSize = 9,
    /// 1 if the enumerator exists, else 0.
    #[doc(alias = "BPF_CORE_ENUMVAL_EXISTS")]
    EnumeratorExists = 10,
    /// The enumerator's value in the kernel.
    #[doc(alias = "BPF_CORE_ENUMVAL_VALUE")]
    EnumeratorValue = 11,
    /// 1 if the kernel's type has the same shape, else 0.
    #[doc(alias = "BPF_CORE_TYPE_MATCHES")]
    TypeMatches = 12,
}

/// A CO-RE relocation: an instruction that the loader adjusts to the running kernel's types.
///
/// The instruction must already hold the value that is right for the types in our own BTF (loaders check it):
/// the offset field of a load or store, the constant of arithmetic or a move, the value of `ld_imm64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreRelo {
    /// Index of the instruction.
    pub at: InsnIndex,
    /// Type at the start of the access, in our own BTF.
    pub root: TypeId,
    /// Indices of members from the root, `0` first (`[0, 3, 1]` is `root[0].member3.member1`); one index for
    /// an enumerator; `[0]` for a type.
    pub path: Vec<u32>,
    /// Question about the kernel's type.
    pub kind: CoreReloKind,
}

/// Metadata of one ELF section; instruction offsets are in bytes from the section's start.
#[derive(Default)]
pub(crate) struct Section {
    pub name: String,
    /// Instruction offset and `FUNC` of each function.
    pub funcs: Vec<(u32, TypeId)>,
    pub lines: Vec<(u32, Line)>,
    pub relos: Vec<(u32, CoreRelo)>,
}

const HEADER_BYTES: u32 = 32;
const FUNC_BYTES: u32 = 8;
const LINE_BYTES: u32 = 16;
const RELO_BYTES: u32 = 16;

/// A line number has 22 bits, a column 10.
pub(crate) const MAX_LINE: u32 = 0x003f_ffff;
const MAX_COLUMN: u32 = 0x3ff;

/// Returns the content of `.BTF.ext`. It adds strings to the table of `btf`, so call it before writing
/// `.BTF`.
///
/// # Errors
/// [`BtfError::TooLarge`].
pub(crate) fn write(btf: &mut BtfBuilder, sections: &[Section]) -> Result<Vec<u8>, BtfError> {
    let mut funcs = Part::new(FUNC_BYTES);
    let mut lines = Part::new(LINE_BYTES);
    let mut relos = Part::new(RELO_BYTES);
    for section in sections {
        let name = btf.string(&section.name);
        funcs.section(name, &section.funcs, |&(offset, func)| [offset, func.0]);
        lines.section(name, &section.lines, |(offset, line)| line_record(btf, *offset, line));
        relos.section(name, &section.relos, |(offset, relo)| relo_record(btf, *offset, relo));
    }
    let mut out = header(HEADER_BYTES);
    let mut offset = 0u32;
    for part in [&funcs, &lines, &relos] {
        let bytes = u32::try_from(part.content().len()).map_err(|_| BtfError::TooLarge)?;
        put(&mut out, offset);
        put(&mut out, bytes);
        offset = offset.checked_add(bytes).ok_or(BtfError::TooLarge)?;
    }
    for part in [&funcs, &lines, &relos] {
        out.extend_from_slice(part.content());
    }
    Ok(out)
}

/// One of the three tables: the size of a record, then per section its name, count and records.
struct Part {
    bytes: Vec<u8>,
}

impl Part {
    fn new(record_bytes: u32) -> Self {
        Part { bytes: record_bytes.to_le_bytes().to_vec() }
    }

    fn section<T, const FIELDS: usize>(
        &mut self,
        name: u32,
        items: &[T],
        mut record: impl FnMut(&T) -> [u32; FIELDS],
    ) {
        let Ok(count @ 1..) = u32::try_from(items.len()) else {
            return;
        };
        put(&mut self.bytes, name);
        put(&mut self.bytes, count);
        for field in items.iter().flat_map(&mut record) {
            put(&mut self.bytes, field);
        }
    }

    /// Returns the bytes of the table. libbpf rejects a table with a record size and no section, so an empty
    /// table has none.
    fn content(&self) -> &[u8] {
        if self.bytes.len() > 4 { &self.bytes } else { &[] }
    }
}

fn line_record(btf: &mut BtfBuilder, offset: u32, line: &Line) -> [u32; 4] {
    let line_col = line.line.min(MAX_LINE) << 10 | line.column.min(MAX_COLUMN);
    [offset, btf.string(&line.file), btf.string(&line.text), line_col]
}

fn relo_record(btf: &mut BtfBuilder, offset: u32, relo: &CoreRelo) -> [u32; 4] {
    let path: Vec<String> = relo.path.iter().map(u32::to_string).collect();
    [offset, relo.root.0, btf.string(&path.join(":")), relo.kind as u32]
}
