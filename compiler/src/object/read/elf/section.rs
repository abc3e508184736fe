//! Sections: each has a role of a closed list, or the object is rejected.

use std::collections::HashMap;

use super::super::super::error::{ReadError, Reason};
use super::super::super::limits::MAX_NAME_BYTES;
use super::super::super::model::DataKind;
use super::super::super::name::visible;
use super::super::super::table::{ProgramRow, Target, program_row};
use super::super::bytes::{slice, string_at, u32_at, u64_at};
use super::{HEADER_BYTES, Header, SECTION_BYTES};

/// A section with its role.
pub(in super::super) struct Section<'a> {
    pub name: &'a str,
    pub role: Role,
    /// Content; empty if it has none in the file.
    pub bytes: &'a [u8],
    /// Size in bytes; the size in memory if it has no content.
    pub size: u64,
    pub link: usize,
    pub info: usize,
    pub entry_bytes: u64,
}

/// Purpose of a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum Role {
    /// The null section at index 0.
    None,
    Symbols,
    Strings,
    Relocations,
    /// Functions that programs call: `.text`.
    Subprograms,
    Programs {
        kind: &'static ProgramRow,
        target: Target,
        autoload: bool,
    },
    /// `.maps`: BTF-typed map definitions.
    Maps,
    /// `maps`: definitions of five to seven numbers, as Aya writes them.
    LegacyMaps,
    Data(DataKind),
    StructOps {
        by_link: bool,
        autocreate: bool,
    },
    License,
    Types,
    TypesOfCode,
    PrintTable,
    /// Content that no loader reads: debug information, notes, the version that old kernels compared.
    Ignored,
}

impl ReadErrorAt for Section<'_> {
    fn error(&self, offset: u64, reason: Reason) -> ReadError {
        ReadError::section(self.name, offset, reason)
    }
}

/// Conversion of errors to ones that name a section.
pub(in super::super) trait ReadErrorAt {
    fn error(&self, offset: u64, reason: Reason) -> ReadError;
}

/// `SHT_*`. Source: include/uapi/linux/elf.h, v6.18; llvm/BinaryFormat/ELF.h for `SHT_LLVM_ADDRSIG`, LLVM 19.
mod ty {
    pub const NULL: u32 = 0;
    pub const PROGBITS: u32 = 1;
    pub const SYMTAB: u32 = 2;
    pub const STRTAB: u32 = 3;
    pub const NOTE: u32 = 7;
    pub const NOBITS: u32 = 8;
    pub const REL: u32 = 9;
    pub const LLVM_ADDRSIG: u32 = 0x6fff_4c03;
}

/// `SHF_WRITE | SHF_ALLOC | SHF_EXECINSTR | SHF_MERGE | SHF_STRINGS | SHF_INFO_LINK`, and `SHF_GNU_RETAIN` of
/// Rust's `#[used]`.
const KNOWN_FLAGS: u64 = 1 | 2 | 4 | 0x10 | 0x20 | 0x40 | 0x20_0000;
/// `SHF_EXECINSTR`
const CODE: u64 = 4;
/// Largest alignment in bytes: a page.
const MAX_ALIGN: u64 = 4096;

pub(super) fn read<'a>(file: &'a [u8], header: &Header) -> Result<Vec<Section<'a>>, ReadError> {
    let names = Raw::read(file, header, header.names)
        .filter(|names| names.ty == ty::STRTAB)
        .and_then(|names| slice(file, names.offset, names.size))
        .ok_or_else(|| ReadError::file(0, Reason::NotBpf("it has no names of sections")))?;
    let mut sections = Vec::with_capacity(header.sections);
    let mut ranges = vec![(0, HEADER_BYTES, ""), (header.table, header.table + header.table_bytes(), "")];
    for index in 0..header.sections {
        let header_offset = header.table + index as u64 * SECTION_BYTES;
        let raw = Raw::read(file, header, index)
            .ok_or_else(|| ReadError::file(header_offset, Reason::Outside("the header of a section")))?;
        let name = string_at(names, raw.name)
            .filter(|name| name.len() <= MAX_NAME_BYTES.max(super::super::super::limits::MAX_TARGET_BYTES))
            .and_then(|name| std::str::from_utf8(name).ok())
            .ok_or_else(|| ReadError::file(header_offset, Reason::Section("its name is not a short text")))?;
        let section = raw.check(file, index, name).map_err(|reason| ReadError::section(name, 0, reason))?;
        if !section.bytes.is_empty() {
            ranges.push((raw.offset, raw.offset + raw.size, name));
        }
        sections.push(section);
    }
    check_overlaps(ranges)?;
    check_names(&sections)?;
    Ok(sections)
}

/// `Elf64_Shdr`
struct Raw {
    name: u32,
    ty: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_bytes: u64,
}

impl Raw {
    fn read(file: &[u8], header: &Header, index: usize) -> Option<Raw> {
        let start = header.table.checked_add(index as u64 * SECTION_BYTES)?;
        let bytes = slice(file, start, SECTION_BYTES)?;
        Some(Raw {
            name: u32_at(bytes, 0)?,
            ty: u32_at(bytes, 4)?,
            flags: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            offset: u64_at(bytes, 24)?,
            size: u64_at(bytes, 32)?,
            link: u32_at(bytes, 40)?,
            info: u32_at(bytes, 44)?,
            align: u64_at(bytes, 48)?,
            entry_bytes: u64_at(bytes, 56)?,
        })
    }

    fn check<'a>(&self, file: &'a [u8], index: usize, name: &'a str) -> Result<Section<'a>, Reason> {
        let role = self.role(index, name)?;
        let has_content = !matches!(self.ty, ty::NULL | ty::NOBITS) && self.size > 0;
        let bytes = if has_content {
            slice(file, self.offset, self.size).ok_or(Reason::Outside("the section"))?
        } else {
            &[]
        };
        let align = self.align.max(1);
        let is_aligned = align.is_power_of_two() && align <= MAX_ALIGN && self.offset.is_multiple_of(align);
        if has_content && !is_aligned {
            return Err(Reason::Section("its alignment is not a power of two up to a page, or is violated"));
        }
        if !matches!(role, Role::Ignored | Role::None)
            && (self.flags & !KNOWN_FLAGS != 0 || self.address != 0)
        {
            return Err(Reason::Section("it has an address or flags that no compiler sets"));
        }
        Ok(Section {
            name,
            role,
            bytes,
            size: self.size,
            link: self.link as usize,
            info: self.info as usize,
            entry_bytes: self.entry_bytes,
        })
    }

    fn role(&self, index: usize, name: &str) -> Result<Role, Reason> {
        if (index == 0) != (self.ty == ty::NULL) {
            return Err(Reason::Section("only the first section is none"));
        }
        match self.ty {
            ty::NULL if self.size == 0 && self.offset == 0 => Ok(Role::None),
            ty::NULL => Err(Reason::Section("the first section has content")),
            ty::SYMTAB => Ok(Role::Symbols),
            ty::STRTAB => Ok(Role::Strings),
            ty::REL => Ok(Role::Relocations),
            ty::NOTE | ty::LLVM_ADDRSIG => Ok(Role::Ignored),
            ty::PROGBITS if self.flags & CODE != 0 => code(name, self.size),
            ty::PROGBITS => content(name, self.size),
            ty::NOBITS if self.flags & CODE == 0 && belongs_to(name, ".bss") => Ok(Role::Data(DataKind::Bss)),
            _ => Err(Reason::Section("its type is none of a BPF object, or not one of this name")),
        }
    }
}

/// Returns the role of a section with instructions.
fn code(name: &str, size: u64) -> Result<Role, Reason> {
    if name == ".text" {
        return Ok(Role::Subprograms);
    }
    if size == 0 {
        return Ok(Role::Ignored);
    }
    let (kind, autoload) = match name.strip_prefix('?') {
        Some(kind) => (kind, false),
        None => (name, true),
    };
    let (kind, target) = program_row(kind).ok_or(Reason::Section(
        "its name is none of a kind of program that a plugin may have, with a target",
    ))?;
    Ok(Role::Programs { kind, target, autoload })
}

/// Returns the role of a section with other content.
fn content(name: &str, size: u64) -> Result<Role, Reason> {
    const IGNORED: [&str; 5] = [".debug_", ".comment", ".eh_frame", ".note", "version"];
    Ok(match name {
        ".maps" => Role::Maps,
        "maps" => Role::LegacyMaps,
        "license" => Role::License,
        ".BTF" => Role::Types,
        ".BTF.ext" => Role::TypesOfCode,
        ks_wit::object::PRINTS_SECTION => Role::PrintTable,
        ".struct_ops" | "?.struct_ops" | ".struct_ops.link" | "?.struct_ops.link" => {
            Role::StructOps { by_link: name.ends_with(".link"), autocreate: !name.starts_with('?') }
        }
        _ if belongs_to(name, ".data") => Role::Data(DataKind::Data),
        _ if belongs_to(name, ".rodata") => Role::Data(DataKind::Rodata),
        _ if IGNORED.iter().any(|ignored| name.starts_with(ignored)) => Role::Ignored,
        _ if size == 0 => Role::Ignored,
        ".addr_space.1" | ".arena.1" => {
            return Err(Reason::Section("variables of an arena: arenas are refused"));
        }
        ".jumptables" => return Err(Reason::Section("jump tables: indirect jumps are refused")),
        _ => return Err(Reason::Section("a BPF object has no section of this name")),
    })
}

/// Returns whether a name is a kind of section, or begins with it and a dot.
fn belongs_to(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn check_overlaps(mut ranges: Vec<(u64, u64, &str)>) -> Result<(), ReadError> {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if let [(_, end, one), (start, _, other)] = pair
            && start < end
        {
            let reason = if one.is_empty() { "the headers".to_owned() } else { visible(one) };
            return Err(ReadError::section(other, 0, Reason::Overlap(reason)));
        }
    }
    Ok(())
}

/// Checks that no two sections that are not ignored have the same name.
fn check_names(sections: &[Section<'_>]) -> Result<(), ReadError> {
    let counts = |section: &&Section<'_>| !matches!(section.role, Role::None | Role::Ignored);
    let mut seen = HashMap::new();
    for section in sections.iter().filter(counts) {
        if seen.insert(section.name, ()).is_some() {
            return Err(section.error(0, Reason::SecondSection));
        }
    }
    Ok(())
}
