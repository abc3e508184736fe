//! Functions of the file and their positions.

use std::collections::{BTreeMap, HashSet};

use super::super::error::{ReadError, Reason, at_most};
use super::super::limits::{MAX_ITEMS, MAX_SLOTS};
use super::super::model::{Line, Section};
use super::super::name::{Name, visible};
use super::elf::{Binding, Elf, Role, Symbol, SymbolKind, SymbolSection};
use crate::bpf::SLOT_BYTES;
use crate::object::btf::{CoreReloKind, TypeId};

/// A function of the file, before its instructions are resolved.
pub(super) struct RawFunction<'a> {
    pub name: Name,
    /// Index of its section.
    pub section: usize,
    /// Offset in bytes from the section's start.
    pub start: u64,
    pub bytes: &'a [u8],
    pub binding: Binding,
    pub is_hidden: bool,
    /// Id of its `FUNC` record; none if the object has no BTF of it.
    pub func: Option<TypeId>,
    /// Source lines; their instruction index is a slot index.
    pub lines: Vec<Line>,
    pub core: Vec<RawCore>,
}

/// An unchecked CO-RE record.
pub(super) struct RawCore {
    /// Slot of the instruction.
    pub slot: u32,
    /// Root type, with its id in the file.
    pub root: TypeId,
    pub path: Vec<u32>,
    pub kind: CoreReloKind,
}

/// Functions, sorted by section and offset.
pub(super) struct Functions<'a> {
    pub list: Vec<RawFunction<'a>>,
    by_offset: BTreeMap<(usize, u64), usize>,
}

impl<'a> Functions<'a> {
    /// Finds the functions. Source: tools/lib/bpf/libbpf.c, `bpf_object__add_programs`, v1.7.
    pub(super) fn find(elf: &Elf<'a>) -> Result<Functions<'a>, ReadError> {
        let mut functions = Functions { list: Vec::new(), by_offset: BTreeMap::new() };
        let mut slots = 0;
        for (index, symbol) in elf.symbols.iter().enumerate() {
            let SymbolSection::Section(section) = symbol.section else { continue };
            let is_code = elf.section(section).is_some_and(|one| is_code(&one.role));
            match symbol.kind {
                SymbolKind::Function if is_code => {
                    let function = function(elf, index, section, symbol)?;
                    slots += function.bytes.len() / SLOT_BYTES;
                    functions.list.push(function);
                }
                SymbolKind::Function => return Err(elf.symbol_error(index, "is a function outside of code")),
                SymbolKind::Variable if is_code => {
                    return Err(elf.symbol_error(index, "is a variable inside of code"));
                }
                _ => {}
            }
        }
        functions.list.sort_by_key(|function| (function.section, function.start));
        let limits = || {
            at_most("functions", functions.list.len(), MAX_ITEMS)?;
            at_most("slots of instructions", slots, MAX_SLOTS)
        };
        limits().map_err(|reason| ReadError::file(0, reason))?;
        functions.check(elf)?;
        let indexed = functions.list.iter().enumerate();
        functions.by_offset = indexed.map(|(at, one)| ((one.section, one.start), at)).collect();
        Ok(functions)
    }

    /// Checks that functions do not overlap and have unique names.
    fn check(&self, elf: &Elf<'_>) -> Result<(), ReadError> {
        let mut names = HashSet::new();
        let mut end = (0, 0);
        for function in &self.list {
            let section = elf.section(function.section).map_or("", |section| section.name);
            let error = |reason| ReadError::section(section, function.start, reason);
            if (function.section, function.start) < end {
                let reason = "it shares instructions with another function";
                return Err(error(Reason::Function { name: function.name.to_string(), reason }));
            }
            end = (function.section, function.start + function.bytes.len() as u64);
            if !names.insert(&function.name) {
                return Err(error(Reason::NameTwice(function.name.to_string())));
            }
        }
        Ok(())
    }

    /// Returns the function that starts at an offset.
    pub(super) fn starting_at(&self, section: usize, offset: u64) -> Option<usize> {
        self.by_offset.get(&(section, offset)).copied()
    }

    /// Returns the function that contains an offset, and the offset within it.
    pub(super) fn around(&self, section: usize, offset: u64) -> Option<(usize, u64)> {
        let (&(of, start), &at) = self.by_offset.range(..=(section, offset)).next_back()?;
        let inside = offset.checked_sub(start)?;
        let size = self.list.get(at)?.bytes.len() as u64;
        (of == section && inside < size).then_some((at, inside))
    }
}

/// Returns whether a section has instructions.
pub(super) fn is_code(role: &Role) -> bool {
    matches!(role, Role::Subprograms | Role::Programs { .. })
}

/// Returns the program type and attach point of a section's functions; none for subprograms.
pub(super) fn program_section(role: &Role) -> Option<Section> {
    match role {
        Role::Programs { kind, target, autoload } => {
            Some(Section { kind, target: target.clone(), autoload: *autoload })
        }
        _ => None,
    }
}

fn function<'a>(
    elf: &Elf<'a>,
    index: usize,
    at: usize,
    symbol: &Symbol<'a>,
) -> Result<RawFunction<'a>, ReadError> {
    let error = |reason| elf.symbol_error(index, reason);
    let section = elf.section(at).ok_or_else(|| error("is in a section that does not exist"))?;
    let is_program = matches!(section.role, Role::Programs { .. });
    let named = |reason| ReadError::section(section.name, symbol.value, Reason::Name(reason));
    let name = if is_program { Name::from_bytes(symbol.name) } else { Name::sanitised(symbol.name) };
    let name = name.map_err(named)?;
    if is_program && symbol.binding == Binding::Local {
        let reason = "it is a program and static, which libbpf refuses";
        let reason = Reason::Function { name: visible(name.as_str()), reason };
        return Err(ReadError::section(section.name, symbol.value, reason));
    }
    let unit = SLOT_BYTES as u64;
    if symbol.size == 0 || !symbol.value.is_multiple_of(unit) || !symbol.size.is_multiple_of(unit) {
        return Err(error("is a function that is not made of whole instructions"));
    }
    let bytes = super::bytes::slice(section.bytes, symbol.value, symbol.size);
    Ok(RawFunction {
        name,
        section: at,
        start: symbol.value,
        bytes: bytes.ok_or_else(|| error("lies outside of its section"))?,
        binding: symbol.binding,
        is_hidden: symbol.is_hidden,
        func: None,
        lines: Vec::new(),
        core: Vec::new(),
    })
}
