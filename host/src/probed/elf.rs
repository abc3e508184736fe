//! ELF files, read in pieces: header, segments, sections, symbols.
//!
//! The file's owner controls every number in it. So each number is checked before anything is read or
//! allocated for it, and memory is only allocated for pieces, whatever the file's size.
//!
//! Source: elf(5); System V ABI, "Object Files"; `include/uapi/linux/elf.h`, v6.18.

#[cfg(feature = "plugins")]
use std::io::Read as _;
use std::ops::ControlFlow;

use super::code::Machine;
use super::error::ProbePointError;
use crate::files::{FileError, RegularFile};
use crate::killed;

/// Limit of segments, that of programs which the kernel runs (`load_elf_phdrs` in `fs/binfmt_elf.c`, v6.18:
/// 64 KiB).
const MAX_SEGMENTS: usize = 65_536 / 56;

/// Limit of sections. Bounds memory; linked files have about forty.
const MAX_SECTIONS: usize = 1 << 14;

/// Limit of the table of section names, in bytes.
const MAX_NAMES_BYTES: u64 = 1 << 20;

/// Limit of a symbol table, and of its string table, in bytes. Bounds the time of a host call to half a
/// second.
pub(super) const MAX_TABLE_BYTES: u64 = 1 << 29;

/// Size of one read, in bytes.
pub(super) const PIECE_BYTES: usize = 1 << 16;

const HEADER_BYTES: usize = 64;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 1 << 11;

/// An ELF program or library.
pub(super) struct Image<'file> {
    source: Source<'file>,
    pub(super) machine: Machine,
    /// Whether addresses have 64 bits rather than 32.
    pub(super) wide: bool,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    /// The table of section names; empty if there is none, or if it is too long.
    section_names: Vec<u8>,
}

/// The bytes of an ELF file: an open file, or memory.
enum Source<'file> {
    File(&'file RegularFile),
    Memory(Vec<u8>),
}

impl Source<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Source::File(file) => file.bytes(),
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ProbePointError> {
        if killed::is_killed() {
            return Err(FileError::Ended.into());
        }
        let bytes = match self {
            Source::File(file) => return Ok(file.read_at(offset, buffer)?),
            Source::Memory(bytes) => bytes,
        };
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| bytes.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(found.ok_or(ProbePointError::Cut)?);
        Ok(())
    }
}

/// A program header: a part of the file, and its address in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

/// A section header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    link: u32,
}

/// A range of bytes, by its offset in the file and its address in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl From<&Section> for Range {
    fn from(section: &Section) -> Range {
        Range { offset: section.offset, address: section.address, bytes: section.bytes }
    }
}

/// A symbol table with its string table.
#[derive(Debug, Clone, Copy)]
pub(super) struct SymbolTable {
    symbols: Range,
    names: Range,
    /// The version table (`.gnu.version`), with 2 bytes for each symbol.
    versions: Option<Range>,
    /// The definitions of versions, and their string table.
    defined: Option<(Range, Range)>,
}

/// A symbol table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) index: u64,
    /// Offset of the name in the string table, in bytes.
    pub(super) name: u32,
    pub(super) kind: SymbolKind,
    pub(super) binding: Binding,
    /// Whether the symbol has an address in this file.
    pub(super) is_defined: bool,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolKind {
    Function,
    /// An IFUNC resolver, which selects another function when the program starts.
    Resolver,
    Label,
    Object,
    /// The source file of the local symbols that follow it.
    SourceFile,
    Other,
}

/// Ordered by preference, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    Local,
    Weak,
    Global,
}

impl<'file> Image<'file> {
    /// Reads the header, and the tables of segments and sections.
    ///
    /// # Errors
    /// [`ProbePointError::NoProgram`], [`ProbePointError::Machine`], [`ProbePointError::File`].
    pub(super) fn read(file: &'file RegularFile) -> Result<Image<'file>, ProbePointError> {
        Image::parse(Source::File(file))
    }

    /// As [`Image::read`], from the bytes of a decompressed file.
    pub(super) fn unpacked(bytes: Vec<u8>) -> Result<Image<'static>, ProbePointError> {
        Image::parse(Source::Memory(bytes))
    }

    fn parse(source: Source<'_>) -> Result<Image<'_>, ProbePointError> {
        if source.bytes() < HEADER_BYTES as u64 {
            return Err(ProbePointError::NoProgram("it is not an ELF file"));
        }
        let mut header = [0; HEADER_BYTES];
        source.read_at(0, &mut header)?;
        let (wide, is_little) = match header {
            [0x7f, b'E', b'L', b'F', class @ 1..=2, order, 1, ..] => (class == 2, order == 1),
            _ => return Err(ProbePointError::NoProgram("it is not an ELF file")),
        };
        let fields = Fields { bytes: &header, wide };
        let machine = fields.u16(18);
        let machine = Machine::of(machine).filter(|_| is_little).ok_or(ProbePointError::Machine(machine))?;
        if ![ET_EXEC, ET_DYN].contains(&fields.u16(16)) {
            return Err(ProbePointError::NoProgram("it is an object file that is not linked"));
        }
        let (tables, counts) = if wide { ((32, 40), 54) } else { ((28, 32), 42) };
        let [segment_bytes, segments, section_bytes, sections, names] =
            [0, 2, 4, 6, 8].map(|more| usize::from(fields.u16(counts + more)));
        let mut image =
            Image { source, machine, wide, segments: vec![], sections: vec![], section_names: vec![] };
        let row = if wide { 56 } else { 32 };
        if segments == 0 || segments > MAX_SEGMENTS || segment_bytes != row {
            return Err(ProbePointError::NoProgram("the kernel runs no file with such a table of segments"));
        }
        let table = image.rows(fields.word(tables.0), segments, row)?;
        image.segments = table.chunks_exact(row).map(|row| image.segment(row)).collect();
        image.read_sections(fields.word(tables.1), sections, section_bytes, names)?;
        Ok(image)
    }

    /// Reads the section headers; programs run without them, so they may be missing.
    fn read_sections(
        &mut self,
        at: u64,
        mut count: usize,
        bytes: usize,
        names: usize,
    ) -> Result<(), ProbePointError> {
        let row = if self.wide { 64 } else { 40 };
        if at == 0 || bytes != row {
            return Ok(());
        }
        if count == 0 {
            let first = self.rows(at, 1, row)?;
            count = usize::try_from(self.section(&first).bytes).unwrap_or(usize::MAX);
        }
        if count > MAX_SECTIONS {
            return Err(ProbePointError::TooLarge("table of sections"));
        }
        let table = self.rows(at, count, row)?;
        self.sections = table.chunks_exact(row).map(|row| self.section(row)).collect();
        let Some(names) = self.sections.get(names).filter(|names| names.bytes <= MAX_NAMES_BYTES) else {
            return Ok(());
        };
        self.section_names = self.bytes(names.offset, names.bytes)?;
        Ok(())
    }

    fn rows(&self, at: u64, count: usize, row: usize) -> Result<Vec<u8>, ProbePointError> {
        self.bytes(at, (count * row) as u64)
    }

    /// Reads `count` bytes, a number that the caller has bounded.
    pub(super) fn bytes(&self, offset: u64, count: u64) -> Result<Vec<u8>, ProbePointError> {
        // Checked before the memory is allocated.
        let is_there = offset.checked_add(count).is_some_and(|end| end <= self.source.bytes());
        let count = usize::try_from(count).ok().filter(|_| is_there).ok_or(ProbePointError::Cut)?;
        let mut bytes = vec![0; count];
        self.source.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn segment(&self, row: &[u8]) -> Segment {
        let fields = Fields { bytes: row, wide: self.wide };
        let [flags, offset, address, bytes] = if self.wide { [4, 8, 16, 32] } else { [24, 4, 8, 16] };
        Segment {
            kind: fields.u32(0),
            flags: fields.u32(flags),
            offset: fields.word(offset),
            address: fields.word(address),
            bytes: fields.word(bytes),
        }
    }

    fn section(&self, row: &[u8]) -> Section {
        let fields = Fields { bytes: row, wide: self.wide };
        let [flags, address, offset, bytes, link] =
            if self.wide { [8, 16, 24, 32, 40] } else { [8, 12, 16, 20, 24] };
        Section {
            name: fields.u32(0),
            kind: fields.u32(4),
            flags: fields.word(flags),
            address: fields.word(address),
            offset: fields.word(offset),
            bytes: fields.word(bytes),
            link: fields.u32(link),
        }
    }

    /// Returns the address at which an offset of the file is loaded as code. None if there is none, or
    /// several.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let mut found = self.code_segments().filter_map(|segment| {
            let inside = offset.checked_sub(segment.offset).filter(|inside| *inside < segment.bytes)?;
            segment.address.checked_add(inside)
        });
        let address = found.next()?;
        found.next().is_none().then_some(address)
    }

    /// Returns the code at an address, up to the end of its segment. None if there is no code.
    pub(super) fn code_at(&self, address: u64) -> Option<Range> {
        let segment = self.code_segments().find_map(|segment| segment.range_from(address))?;
        // Files of older linkers have constants in the segment of the code.
        let sections = self.sections.iter().filter(|section| section.flags & SHF_EXECINSTR != 0);
        let is_code = |section: &Section| {
            address.checked_sub(section.address).is_some_and(|inside| inside < section.bytes)
        };
        (self.sections.is_empty() || sections.clone().any(is_code)).then_some(segment)
    }

    /// Returns the loaded bytes at an address, up to the end of its segment, whether code or data.
    pub(super) fn loaded_at(&self, address: u64) -> Option<Range> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|one| one.range_from(address))
    }

    fn code_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0)
    }

    /// Whether the loader modifies the code (text relocations).
    pub(super) fn has_text_relocations(&self) -> Result<bool, ProbePointError> {
        const DT_NULL: u64 = 0;
        const DT_TEXTREL: u64 = 22;
        const DT_FLAGS: u64 = 30;
        const DF_TEXTREL: u64 = 4;
        /// Programs have about thirty entries.
        const MAX_BYTES: u64 = 1 << 16;
        let Some(segment) = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Ok(false);
        };
        let word = if self.wide { 8 } else { 4 };
        let bytes = self.bytes(segment.offset, segment.bytes.min(MAX_BYTES))?;
        let entries = bytes.chunks_exact(2 * word).map(|entry| {
            let fields = Fields { bytes: entry, wide: self.wide };
            (fields.word(0), fields.word(word))
        });
        let mut entries = entries.take_while(|(tag, _)| *tag != DT_NULL);
        Ok(entries.any(|(tag, value)| tag == DT_TEXTREL || tag == DT_FLAGS && value & DF_TEXTREL != 0))
    }

    /// Returns the range of the unwind index (PT_GNU_EH_FRAME).
    pub(super) fn frame_index(&self) -> Option<Range> {
        let segment = self.segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        Some(Range { offset: segment.offset, address: segment.address, bytes: segment.bytes })
    }

    /// Returns the first section whose name matches, unless it is compressed or has no bytes in the file.
    pub(super) fn section_named(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<&Section> {
        let is_wanted = |section: &&Section| {
            let start = usize::try_from(section.name).ok().and_then(|start| self.section_names.get(start..));
            start.and_then(|name| name.split(|byte| *byte == 0).next()).is_some_and(&is_wanted)
        };
        self.sections.iter().find(is_wanted).filter(|section| section.is_plain())
    }

    /// Returns the bytes of a section of debug information, uncompressed. None if there is no such section, if
    /// it has more than `most` bytes, or is compressed by another method than zlib.
    ///
    /// Source: System V ABI, Section Compression: `Elf64_Chdr` has 24 bytes.
    #[cfg(feature = "plugins")]
    pub(super) fn debug_section(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ProbePointError> {
        const ZLIB: u32 = 1;
        const HEADER: usize = 24;
        let is_wanted = |section: &&Section| {
            let start = usize::try_from(section.name).ok().and_then(|start| self.section_names.get(start..));
            start.and_then(|found| found.split(|byte| *byte == 0).next()) == Some(name.as_bytes())
        };
        let found = self.sections.iter().find(is_wanted);
        let Some(section) = found.filter(|one| one.kind != SHT_NOBITS && one.bytes <= most) else {
            return Ok(None);
        };
        let bytes = self.bytes(section.offset, section.bytes)?;
        if section.is_plain() {
            return Ok(Some(bytes));
        }
        let Some((header, packed)) = bytes.split_at_checked(HEADER).filter(|_| self.wide) else {
            return Ok(None);
        };
        let fields = Fields { bytes: header, wide: true };
        let size = fields.word(8);
        if fields.u32(0) != ZLIB || size > most {
            return Ok(None);
        }
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::ZlibDecoder::new(packed).take(size);
        Ok(reader.read_to_end(&mut unpacked).is_ok().then_some(unpacked))
    }

    /// Returns the symbol tables: `.symtab` and `.dynsym`.
    pub(super) fn symbol_tables(&self) -> Vec<SymbolTable> {
        let tables =
            self.sections.iter().enumerate().filter(|(_, section)| {
                [SHT_SYMTAB, SHT_DYNSYM].contains(&section.kind) && section.is_plain()
            });
        let table = |(index, section): (usize, &Section)| {
            let names = self.sections.get(usize::try_from(section.link).ok()?)?;
            let is_own = |one: &&Section| one.kind == SHT_GNU_VERSYM && one.link as usize == index;
            let versions = self.sections.iter().find(is_own).map(Range::from);
            let is_defining = |one: &&Section| versions.is_some() && one.kind == SHT_GNU_VERDEF;
            let defined = self.sections.iter().find(is_defining).and_then(|section| {
                let names = self.sections.get(usize::try_from(section.link).ok()?)?;
                Some((section.into(), names.into()))
            });
            Some(SymbolTable { symbols: section.into(), names: names.into(), versions, defined })
        };
        tables.filter_map(table).collect()
    }

    /// Calls the visitor for each symbol of a table, until it breaks.
    pub(super) fn symbols(
        &self,
        table: &SymbolTable,
        mut visit: impl FnMut(Symbol) -> ControlFlow<()>,
    ) -> Result<(), ProbePointError> {
        let row = if self.wide { 24 } else { 16 };
        if table.symbols.bytes > MAX_TABLE_BYTES {
            return Err(ProbePointError::TooLarge("table of symbols"));
        }
        let whole = table.symbols.bytes / row as u64 * row as u64;
        let mut index = 0;
        let mut done = 0;
        while done < whole {
            let piece = (whole - done).min((PIECE_BYTES / row * row) as u64);
            let bytes = self.bytes(table.symbols.offset.saturating_add(done), piece)?;
            for row in bytes.chunks_exact(row) {
                if visit(self.symbol(row, index)).is_break() {
                    return Ok(());
                }
                index += 1;
            }
            done += piece;
        }
        Ok(())
    }

    fn symbol(&self, row: &[u8], index: u64) -> Symbol {
        let fields = Fields { bytes: row, wide: self.wide };
        let [info, section, address, bytes] = if self.wide { [4, 6, 8, 16] } else { [12, 14, 4, 8] };
        let info = row.get(info).copied().unwrap_or_default();
        let section = fields.u16(section);
        Symbol {
            index,
            name: fields.u32(0),
            kind: match info & 0xf {
                0 => SymbolKind::Label,
                1 => SymbolKind::Object,
                2 => SymbolKind::Function,
                4 => SymbolKind::SourceFile,
                10 => SymbolKind::Resolver,
                _ => SymbolKind::Other,
            },
            binding: match info >> 4 {
                0 => Binding::Local,
                2 => Binding::Weak,
                _ => Binding::Global,
            },
            // SHN_UNDEF is undefined, and so is SHN_LORESERVE and above, except SHN_XINDEX.
            is_defined: section != 0 && (section < 0xff00 || section == 0xffff),
            address: fields.word(address),
            bytes: fields.word(bytes),
        }
    }

    /// Returns the number of a symbol's version, and whether new programs are linked against that version.
    /// None if the table has no versions.
    pub(super) fn version(&self, table: &SymbolTable, index: u64) -> Option<(u16, bool)> {
        const VERSYM_HIDDEN: u16 = 0x8000;
        let versions = table.versions.as_ref()?;
        let at = index.checked_mul(2).filter(|at| *at < versions.bytes);
        let at = at.and_then(|at| versions.offset.checked_add(at));
        let version = at.and_then(|at| self.bytes(at, 2).ok()).unwrap_or_default();
        let version = Fields { bytes: &version, wide: false }.u16(0);
        Some((version & !VERSYM_HIDDEN, version & VERSYM_HIDDEN == 0))
    }

    /// Returns the versions that the file defines for a table's symbols: their numbers and names.
    pub(super) fn versions(&self, table: &SymbolTable) -> Result<Vec<(u16, String)>, ProbePointError> {
        const MAX_BYTES: u64 = 1 << 20;
        const HEADER_BYTES: usize = 20;
        let Some((range, names)) = table.defined else { return Ok(Vec::new()) };
        if range.bytes > MAX_BYTES {
            return Err(ProbePointError::TooLarge("table of versions"));
        }
        let bytes = self.bytes(range.offset, range.bytes)?;
        let names = SymbolTable { names, ..*table };
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
            let fields = Fields { bytes: header, wide: false };
            let (number, first, next) = (fields.u16(4), fields.u32(12), fields.u32(16));
            // The first name is the version's; the others are its predecessors.
            let name = bytes.get(at + first as usize..).and_then(|rest| rest.get(..4));
            if let Some(name) = name.map(|name| Fields { bytes: name, wide: false }.u32(0)) {
                let name = self.name(&names, name)?;
                found.push((number, String::from_utf8_lossy(&name).into_owned()));
            }
            if (next as usize) < HEADER_BYTES {
                break;
            }
            at += next as usize;
        }
        Ok(found)
    }

    /// Returns the ranges of the PT_NOTE segments.
    pub(super) fn note_segments(&self) -> impl Iterator<Item = Range> {
        let notes = self.segments.iter().filter(|segment| segment.kind == PT_NOTE);
        notes.map(|one| Range { offset: one.offset, address: one.address, bytes: one.bytes })
    }

    /// Returns the offsets of a name in the string table, in ascending order. Includes longer names that end
    /// with it, since linkers merge common suffixes.
    pub(super) fn name_offsets(&self, table: &SymbolTable, name: &[u8]) -> Result<Vec<u32>, ProbePointError> {
        /// Bounds memory.
        const MAX_OFFSETS: usize = 1 << 20;
        if table.names.bytes > MAX_TABLE_BYTES {
            return Err(ProbePointError::TooLarge("table of names"));
        }
        let mut offsets = Vec::new();
        // The tail of the previous piece, in which the name may begin.
        let mut text: Vec<u8> = Vec::new();
        let mut done = 0;
        while done < table.names.bytes {
            let piece = (table.names.bytes - done).min(PIECE_BYTES as u64);
            text.drain(..text.len().saturating_sub(name.len()));
            let before = text.len();
            text.extend(self.bytes(table.names.offset.saturating_add(done), piece)?);
            let ends = text.iter().enumerate().skip(before).filter(|(_, byte)| **byte == 0);
            for (end, _) in ends {
                if text[..end].ends_with(name) {
                    // No truncation: the table has fewer than 2^29 bytes.
                    offsets.push((done + end as u64 - before as u64 - name.len() as u64) as u32);
                }
            }
            if offsets.len() > MAX_OFFSETS {
                return Err(ProbePointError::TooLarge("number of names that end so"));
            }
            done += piece;
        }
        Ok(offsets)
    }

    /// Returns the offsets of names that contain `begin`, and the text that follows it: at most `most`, each
    /// of bounded length.
    pub(super) fn names_beginning(
        &self,
        table: &SymbolTable,
        begin: &[u8],
        most: usize,
    ) -> Result<Vec<(u32, Vec<u8>)>, ProbePointError> {
        if table.names.bytes > MAX_TABLE_BYTES || begin.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        // The tail of the previous piece, in which a name may begin.
        let mut text: Vec<u8> = Vec::new();
        let mut done = 0;
        while done < table.names.bytes && found.len() < most {
            let piece = (table.names.bytes - done).min(PIECE_BYTES as u64);
            text.drain(..text.len().saturating_sub(begin.len() - 1));
            let before = text.len() as u64;
            text.extend(self.bytes(table.names.offset.saturating_add(done), piece)?);
            let starts = text.windows(begin.len()).enumerate().filter(|(_, window)| *window == begin);
            for (start, _) in starts.take(most - found.len()) {
                // No truncation: the table has fewer than 2^29 bytes.
                let at = (done - before + start as u64) as u32;
                let name = self.name(table, at)?;
                found.push((at, name[begin.len().min(name.len())..].to_vec()));
            }
            done += piece;
        }
        Ok(found)
    }

    /// Reads the name of a symbol, at most 4096 bytes.
    pub(super) fn name(&self, table: &SymbolTable, name: u32) -> Result<Vec<u8>, ProbePointError> {
        const MAX_NAME_BYTES: u64 = 4096;
        let rest = table.names.bytes.saturating_sub(u64::from(name)).min(MAX_NAME_BYTES);
        let mut bytes = self.bytes(table.names.offset.saturating_add(u64::from(name)), rest)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Ok(bytes)
    }
}

impl Segment {
    /// Returns the range from an address in the segment to its end.
    fn range_from(&self, address: u64) -> Option<Range> {
        let inside = address.checked_sub(self.address).filter(|inside| *inside < self.bytes)?;
        Some(Range { offset: self.offset.checked_add(inside)?, address, bytes: self.bytes - inside })
    }
}

impl Section {
    /// Whether the section's bytes in the file are the same as in memory: neither compressed nor absent.
    fn is_plain(&self) -> bool {
        self.kind != SHT_NOBITS && self.flags & SHF_COMPRESSED == 0
    }
}

/// Reads little-endian numbers from a row of a table. Missing bytes are 0: callers check the row's size.
pub(super) struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether a word has 8 bytes rather than 4.
    pub(super) wide: bool,
}

impl Fields<'_> {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        let mut number = [0; 8];
        if let Some(found) = self.bytes.get(at..at + bytes) {
            number[..bytes].copy_from_slice(found);
        }
        u64::from_le_bytes(number)
    }

    pub(super) fn u8(&self, at: usize) -> u8 {
        self.number(at, 1) as u8
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        self.number(at, 2) as u16
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        self.number(at, 4) as u32
    }

    pub(super) fn word(&self, at: usize) -> u64 {
        self.number(at, if self.wide { 8 } else { 4 })
    }
}

impl Image<'_> {
    /// Truncates a computed address to the file's address size.
    pub(super) fn narrow(&self, address: u64) -> u64 {
        if self.wide { address } else { address & u64::from(u32::MAX) }
    }
}
