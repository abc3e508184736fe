//! Parsing of the symbol table.

use super::super::super::error::{ReadError, Reason, at_most};
use super::super::super::limits::MAX_SYMBOLS;
use super::super::bytes::{string_at, u8_at, u16_at, u32_at, u64_at};
use super::section::ReadErrorAt as _;
use super::{FIRST_RESERVED, Role, Section};

/// Size in bytes of `Elf64_Sym`.
pub(super) const SYMBOL_BYTES: usize = 24;

/// An entry of the symbol table.
#[derive(Clone, Copy)]
pub(in super::super) struct Symbol<'a> {
    /// Name, not validated: labels and files may have any.
    pub name: &'a [u8],
    pub kind: SymbolKind,
    pub binding: Binding,
    /// Hidden from other objects: libbpf treats hidden functions and variables as static.
    pub is_hidden: bool,
    pub section: SymbolSection,
    pub value: u64,
    pub size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum SymbolKind {
    /// A label, or a symbol of the kernel.
    None,
    Variable,
    Function,
    Section,
    File,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Binding {
    Local,
    Global,
    Weak,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum SymbolSection {
    /// A symbol of the kernel.
    Undefined,
    /// Absolute: the name of a source file.
    Absolute,
    Section(usize),
}

/// `SHN_ABS`
const ABSOLUTE: u16 = 0xfff1;

/// Parses the symbols; also returns the index of their section.
pub(super) fn read<'a>(sections: &[Section<'a>]) -> Result<(usize, Vec<Symbol<'a>>), ReadError> {
    let mut tables = sections.iter().enumerate().filter(|(_, section)| section.role == Role::Symbols);
    let Some((at, table)) = tables.next() else { return Ok((0, Vec::new())) };
    if let Some((_, second)) = tables.next() {
        return Err(second.error(0, Reason::Section("a second table of symbols")));
    }
    let (entries, rest) = table.bytes.as_chunks::<SYMBOL_BYTES>();
    if table.entry_bytes != SYMBOL_BYTES as u64 || !rest.is_empty() {
        return Err(table.error(0, Reason::Section("its entries are not symbols")));
    }
    at_most("symbols", entries.len(), MAX_SYMBOLS).map_err(|reason| table.error(0, reason))?;
    let strings = sections.get(table.link).filter(|strings| strings.role == Role::Strings);
    let strings = strings.ok_or_else(|| table.error(0, Reason::Section("its string table is malformed")))?;
    let mut symbols = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let symbol = symbol(entry, index, strings.bytes, sections).map_err(|reason| {
            let reason = Reason::Symbol { index: index as u64, reason };
            table.error((index * SYMBOL_BYTES) as u64, reason)
        })?;
        symbols.push(symbol);
    }
    Ok((at, symbols))
}

fn symbol<'a>(
    entry: &[u8; SYMBOL_BYTES],
    index: usize,
    strings: &'a [u8],
    sections: &[Section<'_>],
) -> Result<Symbol<'a>, &'static str> {
    const SHORT: &str = "is cut off";
    let name =
        u32_at(entry, 0).and_then(|name| string_at(strings, name)).ok_or("has no name in the strings")?;
    let info = u8_at(entry, 4).ok_or(SHORT)?;
    let other = u8_at(entry, 5).ok_or(SHORT)?;
    let number = u16_at(entry, 6).ok_or(SHORT)?;
    let value = u64_at(entry, 8).ok_or(SHORT)?;
    let size = u64_at(entry, 16).ok_or(SHORT)?;
    let kind = match info & 0xf {
        0 => SymbolKind::None,
        1 => SymbolKind::Variable,
        2 => SymbolKind::Function,
        3 => SymbolKind::Section,
        4 => SymbolKind::File,
        _ => return Err("is of a kind that no BPF object has"),
    };
    let binding = match info >> 4 {
        0 => Binding::Local,
        1 => Binding::Global,
        2 => Binding::Weak,
        _ => return Err("has a binding that no BPF object has"),
    };
    let is_hidden = match other {
        0 => false,
        // STV_INTERNAL and STV_HIDDEN; STV_PROTECTED differs from the default in shared libraries only.
        1 | 2 => true,
        3 => false,
        _ => return Err("has a visibility that no BPF object has"),
    };
    let section = match number {
        0 => SymbolSection::Undefined,
        ABSOLUTE if kind == SymbolKind::File => SymbolSection::Absolute,
        number if number >= FIRST_RESERVED => return Err("is in no section"),
        number => SymbolSection::Section(number.into()),
    };
    if let SymbolSection::Section(section) = section {
        let section = sections.get(section).ok_or("is in a section that does not exist")?;
        let end = value.checked_add(size).ok_or("ends behind the last address")?;
        if end > section.size && !matches!(section.role, Role::Ignored) {
            return Err("lies outside of its section");
        }
        if kind == SymbolKind::Section && (value, size) != (0, 0) {
            return Err("is a section, but does not stand for its start");
        }
    } else if size != 0 || value != 0 {
        return Err("has a value and is nowhere");
    }
    let is_null = index == 0;
    if is_null && (!name.is_empty() || kind != SymbolKind::None || section != SymbolSection::Undefined) {
        return Err("is the first one and must be empty");
    }
    Ok(Symbol { name, kind, binding, is_hidden, section, value, size })
}
