//! The ELF file: sections, symbols and relocations.

use std::collections::BTreeMap;

use object::SectionKind;
use object::write::{SectionId, SymbolId};

use super::super::elf::{Extent, File, Operand};
use super::super::model::{DataContent, DataKind, Linkage, MapInitSlot, Object, StructOpsValue};
use super::code::{CodeSections, FunctionPlacement, Reference};
use super::parts::{Layout, STRUCT_ALIGN};
use super::{KernelFunctionIds, WriteError};

/// Section alignment in bytes: instructions and pointers have eight bytes; variables are aligned in their
/// sections.
const ALIGN: u64 = 8;
/// Alignment of `.BTF` in bytes: its fields have four.
const TYPE_ALIGN: u64 = 4;

/// Writes the ELF file.
pub(super) fn write(
    object: &Object,
    functions: &KernelFunctionIds,
    layout: &Layout,
    code: &CodeSections,
    types: &[u8],
    ext: &[u8],
) -> Result<Vec<u8>, WriteError> {
    let mut writer =
        Writer { file: File::new(), code: Vec::new(), programs: Vec::new(), subprograms: Vec::new() };
    writer.add_code(object, code);
    let data = writer.add_data(object);
    let maps = writer.add_maps(object, layout)?;
    writer.add_structs(object, layout)?;
    let ksyms = object.ksyms_but(functions);
    let ksyms = ksyms.map(|(at, one)| (at, writer.file.external(one.name.as_str(), one.presence))).collect();
    let facts: Vec<_> =
        object.kconfig.iter().map(|one| writer.file.external(one.name.as_str(), one.presence)).collect();
    if let Some(table) = &object.print_table {
        writer.file.section(ks_wit::object::PRINTS_SECTION, SectionKind::Other, table, 1);
    }
    if let Some(license) = &object.license {
        let text = [license.as_bytes(), b"\0"].concat();
        writer.file.section("license", SectionKind::Data, &text, 1);
    }
    writer.file.section(".BTF", SectionKind::Other, types, TYPE_ALIGN);
    if !ext.is_empty() {
        writer.file.section(".BTF.ext", SectionKind::Other, ext, TYPE_ALIGN);
    }
    let symbols = Symbols { data, maps, ksyms, facts };
    writer.relocate(code, &symbols)?;
    writer.file.finish().map_err(WriteError::Elf)
}

struct Writer {
    file: File,
    code: Vec<SectionId>,
    programs: Vec<SymbolId>,
    subprograms: Vec<SymbolId>,
}

/// Symbols that relocations refer to, in the order of the object.
struct Symbols {
    data: Vec<SymbolId>,
    maps: Vec<SymbolId>,
    ksyms: BTreeMap<usize, SymbolId>,
    facts: Vec<SymbolId>,
}

impl Writer {
    fn add_code(&mut self, object: &Object, code: &CodeSections) {
        for section in &code.sections {
            let id = self.file.section(&section.name, SectionKind::Text, &section.bytes, ALIGN);
            self.code.push(id);
        }
        for (program, placement) in object.programs.iter().zip(&code.programs) {
            let symbol = self.function(program.name.as_str(), *placement, Linkage::Global);
            self.programs.push(symbol);
        }
        for (one, placement) in object.subprograms.iter().zip(&code.subprograms) {
            let symbol = self.function(one.name.as_str(), *placement, one.linkage);
            self.subprograms.push(symbol);
        }
    }

    fn function(&mut self, name: &str, placement: FunctionPlacement, linkage: Linkage) -> SymbolId {
        let section = self.code.get(placement.section).copied();
        let extent = Extent { section, offset: placement.offset, bytes: placement.bytes };
        self.file.function(name, extent, linkage)
    }

    /// Adds the sections of variables; returns their symbols.
    fn add_data(&mut self, object: &Object) -> Vec<SymbolId> {
        let mut symbols = Vec::with_capacity(object.data.len());
        for section in &object.data {
            let kind = match section.kind {
                DataKind::Data => SectionKind::Data,
                DataKind::Rodata => SectionKind::ReadOnlyData,
                DataKind::Bss => SectionKind::UninitializedData,
            };
            let name = section.name();
            let id = match &section.content {
                DataContent::Bytes(bytes) => self.file.section(&name, kind, bytes, ALIGN),
                DataContent::Zeros(bytes) => self.file.zeros(&name, *bytes, ALIGN),
            };
            for one in &section.variables {
                let extent = Extent { section: Some(id), offset: one.offset, bytes: one.bytes };
                self.file.variable(one.name.as_str(), extent, one.linkage);
            }
            symbols.push(self.file.start_of(id));
        }
        symbols
    }

    fn add_maps(&mut self, object: &Object, layout: &Layout) -> Result<Vec<SymbolId>, WriteError> {
        if object.maps.is_empty() {
            return Ok(Vec::new());
        }
        let section =
            self.file.section(".maps", SectionKind::Data, &vec![0; layout.maps_bytes as usize], ALIGN);
        let maps = object.maps.iter().zip(&layout.maps);
        let symbols: Vec<_> = maps
            .map(|(map, &(offset, bytes))| {
                let extent = Extent { section: Some(section), offset, bytes };
                self.file.variable(map.name.as_str(), extent, Linkage::Global)
            })
            .collect();
        for ((map, &(offset, _)), &values) in object.maps.iter().zip(&layout.maps).zip(&layout.values) {
            for (&key, slot) in &map.slots {
                let symbol = match *slot {
                    MapInitSlot::Program(id) => self.programs.get(id.index()),
                    MapInitSlot::Map(id) => symbols.get(id.index()),
                };
                let symbol = *symbol.ok_or(WriteError::Dangling("a program or map"))?;
                let initializer = u64::from(offset) + u64::from(values) + u64::from(key) * ALIGN;
                let initializer = u32::try_from(initializer).map_err(|_| WriteError::TooLarge)?;
                self.file.address(section, initializer, symbol).map_err(WriteError::Elf)?;
            }
        }
        Ok(symbols)
    }

    fn add_structs(&mut self, object: &Object, layout: &Layout) -> Result<(), WriteError> {
        for section in &layout.structs {
            let mut content = vec![0; section.bytes as usize];
            let mut programs = Vec::new();
            for &(at, start, _) in &section.placements {
                let one = object.struct_ops.get(at).ok_or(WriteError::Dangling("a struct of the kernel"))?;
                for member in &one.members {
                    let offset = start.checked_add(member.offset).ok_or(WriteError::TooLarge)?;
                    match &member.value {
                        StructOpsValue::Program(program) => programs.push((offset, *program)),
                        StructOpsValue::Bytes(bytes) => {
                            let destination = content
                                .get_mut(offset as usize..)
                                .and_then(|rest| rest.get_mut(..bytes.len()));
                            destination.ok_or(WriteError::TooLarge)?.copy_from_slice(bytes);
                        }
                    }
                }
            }
            let id = self.file.section(section.name, SectionKind::Data, &content, STRUCT_ALIGN.into());
            for &(at, offset, bytes) in &section.placements {
                let name = object.struct_ops.get(at).map_or("", |one| one.name.as_str());
                self.file.variable(name, Extent { section: Some(id), offset, bytes }, Linkage::Global);
            }
            for (offset, program) in programs {
                let symbol = self.programs.get(program.index());
                let symbol = *symbol.ok_or(WriteError::Dangling("a program"))?;
                self.file.address(id, offset, symbol).map_err(WriteError::Elf)?;
            }
        }
        Ok(())
    }

    fn relocate(&mut self, code: &CodeSections, symbols: &Symbols) -> Result<(), WriteError> {
        for (section, id) in code.sections.iter().zip(self.code.clone()) {
            for &(offset, reference) in &section.relocations {
                let symbol = self.find(code, symbols, reference).ok_or(WriteError::Dangling("a symbol"))?;
                let operand = if reference.is_call() { Operand::Callee } else { Operand::Wide };
                self.file.relocate(id, offset, symbol, operand).map_err(WriteError::Elf)?;
            }
        }
        Ok(())
    }

    fn find(&mut self, code: &CodeSections, symbols: &Symbols, reference: Reference) -> Option<SymbolId> {
        let (list, at) = match reference {
            Reference::Map(at) => (&symbols.maps, at),
            Reference::Data(at) => (&symbols.data, at),
            Reference::Ksym(at) | Reference::Kfunc(at) => return symbols.ksyms.get(&at).copied(),
            Reference::Kconfig(at) => (&symbols.facts, at),
            Reference::Subprogram(at) => (&self.subprograms, at),
            // libbpf takes the address of a static function only as `.text` and an offset.
            Reference::Text => {
                let text = code.subprograms.first()?.section;
                return Some(self.file.start_of(*self.code.get(text)?));
            }
        };
        list.get(at).copied()
    }
}
