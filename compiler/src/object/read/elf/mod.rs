//! The ELF file: header, and sections, symbols and relocations on demand.
//!
//! Strict where libbpf and libelf are not: everything is inside the file, nothing overlaps, no section name
//! occurs twice, and sections that no compiler of BPF objects writes are rejected.
//!
//! Source: the ELF specification (gABI, chapter 4); include/uapi/linux/elf.h, v6.18;
//! Documentation/bpf/llvm_reloc.rst, v6.18.

mod relocation;
mod section;
mod symbol;

pub(super) use relocation::{Relocation, RelocationKind, Relocations};
pub(super) use section::{Role, Section};
pub(super) use symbol::{Binding, Symbol, SymbolKind, SymbolSection};

use std::collections::HashMap;

use super::super::error::{ReadError, Reason, at_most};
use super::super::limits::{MAX_FILE_BYTES, MAX_SECTIONS};
use super::bytes::{slice, u8_at, u16_at, u32_at, u64_at};

/// Size in bytes of `Elf64_Ehdr`.
const HEADER_BYTES: u64 = 64;
/// Size in bytes of `Elf64_Shdr`.
const SECTION_BYTES: u64 = 64;
/// `ET_REL`
const RELOCATABLE: u16 = 1;
/// `EM_BPF`
const BPF: u16 = 247;
/// `SHN_LORESERVE`: larger numbers are not section indices.
const FIRST_RESERVED: u16 = 0xff00;

/// A checked ELF file.
pub(super) struct Elf<'a> {
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol<'a>>,
    /// Index of the symbol table; 0 if there is none.
    symbol_section: usize,
    pub relocations: Relocations,
    /// Symbol indices by section.
    by_section: HashMap<usize, Vec<usize>>,
    /// Section index of `.BTF`.
    types: Option<usize>,
}

impl<'a> Elf<'a> {
    pub(super) fn parse(file: &'a [u8]) -> Result<Elf<'a>, ReadError> {
        let header = Header::read(file).map_err(|reason| ReadError::file(0, reason))?;
        let sections = section::read(file, &header)?;
        let (symbol_section, symbols) = symbol::read(&sections)?;
        let mut by_section: HashMap<_, Vec<_>> = HashMap::new();
        for (index, symbol) in symbols.iter().enumerate() {
            if let SymbolSection::Section(section) = symbol.section {
                by_section.entry(section).or_default().push(index);
            }
        }
        let types = sections.iter().position(|section| section.role == Role::Types);
        let relocations = Relocations::default();
        let mut elf = Elf { sections, symbols, symbol_section, relocations, by_section, types };
        elf.relocations = relocation::read(&elf)?;
        Ok(elf)
    }

    /// Returns the only section with a role, if there is one.
    pub(super) fn find(&self, role: &Role) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.role == *role)
    }

    /// Returns the symbols of a section, with their indices.
    pub(super) fn symbols_of(&self, section: usize) -> impl Iterator<Item = (usize, &Symbol<'a>)> {
        let found = self.by_section.get(&section).into_iter().flatten();
        found.filter_map(|&index| Some((index, self.symbols.get(index)?)))
    }

    /// Returns the relocation at an offset of `.BTF`.
    pub(super) fn type_relocation(&self, offset: u64) -> Option<Relocation> {
        self.relocations.at(self.types?, offset)
    }

    /// Returns the section with an index.
    pub(super) fn section(&self, index: usize) -> Option<&Section<'a>> {
        self.sections.get(index)
    }

    /// Creates an error in the symbol table.
    pub(super) fn symbol_error(&self, index: usize, reason: &'static str) -> ReadError {
        let name = self.section(self.symbol_section).map_or("", |section| section.name);
        let offset = index as u64 * symbol::SYMBOL_BYTES as u64;
        ReadError::section(name, offset, Reason::Symbol { index: index as u64, reason })
    }
}

/// Fields of the ELF header that the reader needs.
pub(super) struct Header {
    /// File offset of the section header table.
    table: u64,
    /// Number of sections, including the empty first one.
    sections: usize,
    /// Index of the section of section names.
    names: usize,
}

impl Header {
    fn read(file: &[u8]) -> Result<Header, Reason> {
        at_most("bytes of an object", file.len(), MAX_FILE_BYTES)?;
        if slice(file, 0, 7) != Some(b"\x7fELF\x02\x01\x01") {
            return Err(Reason::NotBpf("it does not begin as a little-endian ELF file of 64 bits"));
        }
        let outside = Reason::Outside("the ELF header");
        let half = |at: usize| u16_at(file, at).ok_or(outside.clone());
        if u8_at(file, 7) != Some(0) || half(16)? != RELOCATABLE || half(18)? != BPF {
            return Err(Reason::NotBpf("its kind, machine or system is another"));
        }
        let entry = u64_at(file, 24).ok_or(outside.clone())?;
        let segments = u64_at(file, 32).ok_or(outside.clone())?;
        if u32_at(file, 20) != Some(1) || entry != 0 || segments != 0 || half(56)? != 0 {
            return Err(Reason::NotBpf("it has an entry or segments, or an unknown version"));
        }
        if u64::from(half(52)?) != HEADER_BYTES || u64::from(half(58)?) != SECTION_BYTES {
            return Err(Reason::NotBpf("its headers have other sizes"));
        }
        let table = u64_at(file, 40).ok_or(outside.clone())?;
        let (sections, names) = (half(60)?, half(62)?);
        if sections == 0 || sections >= FIRST_RESERVED || names == 0 || names >= sections {
            return Err(Reason::NotBpf("it has no table of sections with names"));
        }
        at_most("sections", sections.into(), MAX_SECTIONS)?;
        let header = Header { table, sections: sections.into(), names: names.into() };
        let is_inside = table >= HEADER_BYTES && slice(file, table, header.table_bytes()).is_some();
        if is_inside { Ok(header) } else { Err(Reason::Outside("the table of sections")) }
    }

    fn table_bytes(&self) -> u64 {
        self.sections as u64 * SECTION_BYTES
    }
}
