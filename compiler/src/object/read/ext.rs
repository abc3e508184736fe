//! `.BTF.ext`: functions, source lines and CO-RE records of the instructions.
//!
//! Source: Documentation/bpf/btf.rst, ".BTF.ext section", v6.18; tools/lib/bpf/btf.c,
//! `btf_ext_parse_sec_info`, v1.7.

use std::collections::{HashMap, HashSet};

use super::super::error::{ReadError, Reason, at_most};
use super::super::limits::{MAX_CORE_PATH, MAX_CORE_RECORDS};
use super::super::model::Line;
use super::btf::{RawType, RawTypes};
use super::bytes::{slice, u8_at, u16_at, u32_at};
use super::elf::{Elf, RelocationKind, Role, Section, SymbolSection};
use super::functions::{Functions, RawCore, is_code};
use crate::bpf::{InsnIndex, SLOT_BYTES};
use crate::object::btf::{CoreReloKind, TypeId};

/// Size of the header in bytes, without CO-RE records and with them.
const HEADER_BYTES: [u32; 2] = [24, 32];
/// A line number has 22 bits, a column 10.
const COLUMN_BITS: u32 = 10;

/// Parses the section, and adds its records to the functions.
pub(super) fn read<'a>(
    elf: &Elf<'a>,
    types: &mut RawTypes<'a>,
    functions: &mut Functions<'a>,
) -> Result<(), ReadError> {
    let Some(at) = elf.sections.iter().position(|section| section.role == Role::TypesOfCode) else {
        return Ok(());
    };
    let Some(section) = elf.section(at) else { return Ok(()) };
    let tables = header(section.bytes).map_err(|reason| ReadError::section(section.name, 0, reason))?;
    let code = elf.sections.iter().enumerate().filter(|(_, section)| is_code(&section.role));
    let code = code.map(|(at, section)| (section.name.as_bytes(), at)).collect();
    let mut reader = Reader { elf, at, section, types, functions, code, used: HashSet::new(), cores: 0 };
    for ((table, record_bytes), (start, len)) in TABLES.into_iter().zip(tables) {
        reader.table(table, record_bytes, start, len)?;
    }
    let used = reader.used;
    match elf.relocations.of(at).find(|(offset, _)| !used.contains(offset)) {
        Some((offset, _)) => Err(ReadError::section(
            section.name,
            offset,
            Reason::Relocation("of something other than the offset of an instruction"),
        )),
        None => Ok(()),
    }
}

/// Tables in the order of the header, with the size of their records in bytes.
const TABLES: [(Table, u32); 3] = [(Table::Functions, 8), (Table::Lines, 16), (Table::Core, 16)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Functions,
    Lines,
    Core,
}

/// Returns start and length of each table, in bytes from the section's start.
fn header(bytes: &[u8]) -> Result<[(u32, u32); 3], Reason> {
    let is_known =
        u16_at(bytes, 0) == Some(0xeb9f) && u8_at(bytes, 2) == Some(1) && u8_at(bytes, 3) == Some(0);
    if !is_known {
        return Err(Reason::TypeHeader("the magic number, version or flags are others"));
    }
    let field = |at: usize| u32_at(bytes, at).ok_or(Reason::TypeHeader("the header is cut off"));
    let header_bytes = field(4)?;
    if !HEADER_BYTES.contains(&header_bytes) {
        return Err(Reason::TypeHeader("the header has another size"));
    }
    let mut tables = [(0, 0); 3];
    let mut end = header_bytes;
    for (index, table) in tables.iter_mut().enumerate() {
        let at = 8 + 8 * index;
        if at >= header_bytes as usize {
            break;
        }
        let (offset, len) = (field(at)?, field(at + 4)?);
        // The tables are contiguous, so that none shares bytes with another.
        let start = offset.checked_add(header_bytes).filter(|&start| len == 0 || start == end);
        let start = start.ok_or(Reason::TypeHeader("the tables do not follow each other"))?;
        if slice(bytes, start.into(), len.into()).is_none() || !len.is_multiple_of(4) {
            return Err(Reason::Outside("a table"));
        }
        *table = (start, len);
        end = end.checked_add(len).ok_or(Reason::Outside("a table"))?;
    }
    if end as usize != bytes.len() {
        return Err(Reason::TypeHeader("bytes follow the tables"));
    }
    Ok(tables)
}

struct Reader<'r, 'a> {
    elf: &'r Elf<'a>,
    /// Section index of `.BTF.ext`.
    at: usize,
    section: &'r Section<'a>,
    types: &'r mut RawTypes<'a>,
    functions: &'r mut Functions<'a>,
    /// Section indices of code, by name.
    code: HashMap<&'a [u8], usize>,
    /// Offsets of relocations that belong to a record.
    used: HashSet<u64>,
    cores: usize,
}

impl Reader<'_, '_> {
    fn table(&mut self, table: Table, record_bytes: u32, start: u32, len: u32) -> Result<(), ReadError> {
        if len == 0 {
            return Ok(());
        }
        let end = u64::from(start) + u64::from(len);
        let mut at = u64::from(start);
        let error = |at: u64, reason| ReadError::section(self.section.name, at, reason);
        if self.word(at)? != record_bytes {
            return Err(error(at, Reason::TypeHeader("the records of a table have another size")));
        }
        at += 4;
        let mut seen = HashSet::new();
        while at < end {
            let name = self.word(at)?;
            let code = self.code_section(name).map_err(|reason| error(at, reason))?;
            if !seen.insert(code) {
                return Err(error(at, Reason::TypeHeader("a table has a section twice")));
            }
            let count = self.word(at + 4)?;
            at += 8;
            let bytes = u64::from(count) * u64::from(record_bytes);
            if count == 0 || bytes > end.saturating_sub(at) {
                return Err(error(at - 4, Reason::Outside("a list of records")));
            }
            let mut last = None;
            for _ in 0..count {
                last = Some(self.record(table, code, at, last)?);
                at += u64::from(record_bytes);
            }
        }
        Ok(())
    }

    /// Parses a record; returns the offset of its instruction. Offsets are ascending, except for CO-RE
    /// records.
    fn record(&mut self, table: Table, code: usize, at: u64, last: Option<u64>) -> Result<u64, ReadError> {
        let error = |reason| ReadError::section(self.section.name, at, reason);
        let fields = [self.word(at)?, self.word(at + 4)?];
        let offset = u64::from(fields[0]);
        if !offset.is_multiple_of(SLOT_BYTES as u64) {
            return Err(error(Reason::TypeHeader("a record is about no instruction")));
        }
        if table != Table::Core && last.is_some_and(|last| offset <= last) {
            return Err(error(Reason::TypeHeader("the records of a table do not rise")));
        }
        self.check_relocation(code, at)?;
        let Some((function, inside)) = self.functions.around(code, offset) else {
            let size = self.elf.section(code).map_or(0, |section| section.size);
            // The code of a weak function that the linker replaced belongs to no function.
            return if offset < size && table != Table::Functions {
                Ok(offset)
            } else {
                Err(error(Reason::TypeHeader("a record is about no instruction")))
            };
        };
        let slot = u32::try_from(inside / SLOT_BYTES as u64).unwrap_or(u32::MAX);
        match table {
            Table::Functions => self.func(function, slot, TypeId(fields[1])).map_err(error)?,
            Table::Lines => {
                let line = self.line(slot, at)?;
                self.function(function, |one| one.lines.push(line));
            }
            Table::Core => {
                let core = self.core(slot, at)?;
                self.function(function, |one| one.core.push(core));
            }
        }
        Ok(offset)
    }

    fn func(&mut self, function: usize, slot: u32, id: TypeId) -> Result<(), Reason> {
        let Some(RawType::Func { .. }) = self.types.get(id) else {
            return Err(Reason::TypeHeader("the type of a function is not a `FUNC`"));
        };
        // The name is not compared with the symbol's, which is mangled for Rust: the writer uses the
        // symbol's.
        let found = self.functions.list.get_mut(function).filter(|_| slot == 0);
        let found = found.ok_or(Reason::TypeHeader("a function does not start where its record says"))?;
        found.func = Some(id);
        Ok(())
    }

    fn line(&mut self, slot: u32, at: u64) -> Result<Line, ReadError> {
        let (file, text, line_col) = (self.word(at + 4)?, self.word(at + 8)?, self.word(at + 12)?);
        let strings = &mut self.types.strings;
        let mut line =
            |offset| strings.line(offset).map_err(|r| ReadError::section(self.section.name, at, r));
        let (file, text) = (line(file)?, line(text)?);
        let column = line_col & ((1 << COLUMN_BITS) - 1);
        Ok(Line { at: InsnIndex(slot), file, text, line: line_col >> COLUMN_BITS, column })
    }

    fn core(&mut self, slot: u32, at: u64) -> Result<RawCore, ReadError> {
        let error = |reason| ReadError::section(self.section.name, at, reason);
        let (root, access, kind) = (self.word(at + 4)?, self.word(at + 8)?, self.word(at + 12)?);
        self.cores += 1;
        at_most("CO-RE records", self.cores, MAX_CORE_RECORDS).map_err(error)?;
        let kind = core_kind(kind).ok_or_else(|| error(Reason::Core("a question that is not known")))?;
        let access = self.types.strings.bytes(access).map_err(error)?;
        let path = path(access)
            .ok_or_else(|| error(Reason::Core("the access string is not a list of small numbers")))?;
        Ok(RawCore { slot, root: TypeId(root), path, kind })
    }

    fn function(&mut self, index: usize, change: impl FnOnce(&mut super::functions::RawFunction<'_>)) {
        if let Some(function) = self.functions.list.get_mut(index) {
            change(function);
        }
    }

    /// Returns the code section with a name.
    fn code_section(&self, name: u32) -> Result<usize, Reason> {
        let name = self.types.strings.bytes(name)?;
        let found = self.code.get(name).copied();
        found.ok_or(Reason::TypeHeader("a table names a section that has no code"))
    }

    /// Checks the relocation that clang emits for the offset of an instruction. It is against the section, so
    /// the offset in the record is already right. libbpf skips these relocations.
    fn check_relocation(&mut self, code: usize, at: u64) -> Result<(), ReadError> {
        let Some(relocation) = self.elf.relocations.at(self.at, at) else { return Ok(()) };
        self.used.insert(at);
        let symbol = self.elf.symbols.get(relocation.symbol);
        let is_start =
            symbol.is_some_and(|symbol| symbol.section == SymbolSection::Section(code) && symbol.value == 0);
        if is_start && relocation.kind == RelocationKind::Data32 {
            Ok(())
        } else {
            let reason = Reason::Relocation("not against the start of the section that the table names");
            Err(ReadError::section(self.section.name, at, reason))
        }
    }

    fn word(&self, at: u64) -> Result<u32, ReadError> {
        let word = usize::try_from(at).ok().and_then(|at| u32_at(self.section.bytes, at));
        word.ok_or_else(|| ReadError::section(self.section.name, at, Reason::Outside("a record")))
    }
}

/// Parses an access string like `0:2:1`.
fn path(access: &[u8]) -> Option<Vec<u32>> {
    let number = |digits: &[u8]| {
        let is_plain = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        let is_canonical = digits == b"0" || digits.first() != Some(&b'0');
        (is_plain && is_canonical)
            .then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    };
    let mut numbers = access.split(|&byte| byte == b':');
    let path: Vec<u32> = numbers.by_ref().take(MAX_CORE_PATH).map(number).collect::<Option<_>>()?;
    numbers.next().is_none().then_some(path)
}

/// Source: include/uapi/linux/bpf.h, `enum bpf_core_relo_kind`, v6.18.
fn core_kind(number: u32) -> Option<CoreReloKind> {
    const KINDS: [CoreReloKind; 13] = [
        CoreReloKind::FieldByteOffset,
        CoreReloKind::FieldByteSize,
        CoreReloKind::FieldExists,
        CoreReloKind::FieldSigned,
        CoreReloKind::FieldLshift,
        CoreReloKind::FieldRshift,
        CoreReloKind::TypeIdLocal,
        CoreReloKind::TypeIdTarget,
        CoreReloKind::TypeExists,
        CoreReloKind::TypeSize,
        CoreReloKind::EnumeratorExists,
        CoreReloKind::EnumeratorValue,
        CoreReloKind::TypeMatches,
    ];
    KINDS.get(usize::try_from(number).ok()?).copied()
}
