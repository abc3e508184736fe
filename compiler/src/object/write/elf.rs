//! The ELF file: sections, symbols and relocations.

use object::write::{Object as File, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use super::super::model::{DataContent, DataKind, Linkage, MapInitSlot, Object, Presence, StructOpsValue};
use super::code::{CodeSections, FunctionPlacement, Reference};
use super::parts::{Layout, STRUCT_ALIGN};
use super::{WriteError, small};

/// Section alignment in bytes: instructions and pointers have eight bytes; variables are aligned in their
/// sections.
const ALIGN: u64 = 8;
/// Alignment of `.BTF` in bytes: its fields have four.
const TYPE_ALIGN: u64 = 4;
/// An address of eight bytes in data. Source: Documentation/bpf/llvm_reloc.rst, v6.18.
const R_BPF_64_ABS64: u32 = 2;

/// Writes the ELF file.
pub(super) fn write(
    object: &Object,
    layout: &Layout,
    code: &CodeSections,
    types: &[u8],
    ext: &[u8],
) -> Result<Vec<u8>, WriteError> {
    let file = File::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let mut writer = Writer { file, code: Vec::new(), programs: Vec::new(), subprograms: Vec::new() };
    writer.add_code(object, code);
    let data = writer.add_data(object);
    let maps = writer.add_maps(object, layout)?;
    writer.add_structs(object, layout)?;
    let ksyms: Vec<_> =
        object.ksyms.iter().map(|one| writer.external(one.name.as_str(), one.presence)).collect();
    let facts: Vec<_> =
        object.kconfig.iter().map(|one| writer.external(one.name.as_str(), one.presence)).collect();
    if let Some(table) = &object.print_table {
        writer.section(ks_wit::object::PRINTS_SECTION, SectionKind::Other, table, 1);
    }
    if let Some(license) = &object.license {
        let text = [license.as_bytes(), b"\0"].concat();
        writer.section("license", SectionKind::Data, &text, 1);
    }
    writer.section(".BTF", SectionKind::Other, types, TYPE_ALIGN);
    if !ext.is_empty() {
        writer.section(".BTF.ext", SectionKind::Other, ext, TYPE_ALIGN);
    }
    let symbols = Symbols { data, maps, ksyms, facts };
    writer.relocate(code, &symbols)?;
    writer.file.write().map_err(WriteError::Elf)
}

struct Writer {
    file: File<'static>,
    code: Vec<SectionId>,
    programs: Vec<SymbolId>,
    subprograms: Vec<SymbolId>,
}

/// Symbols that relocations refer to, in the order of the object.
struct Symbols {
    data: Vec<SymbolId>,
    maps: Vec<SymbolId>,
    ksyms: Vec<SymbolId>,
    facts: Vec<SymbolId>,
}

impl Writer {
    fn section(&mut self, name: &str, kind: SectionKind, content: &[u8], align: u64) -> SectionId {
        let section = self.file.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.file.append_section_data(section, content, align);
        section
    }

    fn add_code(&mut self, object: &Object, code: &CodeSections) {
        for section in &code.sections {
            let id = self.section(&section.name, SectionKind::Text, &section.bytes, ALIGN);
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
        self.symbol(name, SymbolKind::Text, section, placement.offset, placement.bytes, linkage)
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
                DataContent::Bytes(bytes) => self.section(&name, kind, bytes, ALIGN),
                DataContent::Zeros(bytes) => {
                    let id = self.file.add_section(Vec::new(), name.into_bytes(), kind);
                    self.file.append_section_bss(id, (*bytes).into(), ALIGN);
                    id
                }
            };
            for one in &section.variables {
                self.symbol(
                    one.name.as_str(),
                    SymbolKind::Data,
                    Some(id),
                    one.offset,
                    one.bytes,
                    one.linkage,
                );
            }
            symbols.push(self.file.section_symbol(id));
        }
        symbols
    }

    fn add_maps(&mut self, object: &Object, layout: &Layout) -> Result<Vec<SymbolId>, WriteError> {
        if object.maps.is_empty() {
            return Ok(Vec::new());
        }
        let section = self.section(".maps", SectionKind::Data, &vec![0; layout.maps_bytes as usize], ALIGN);
        let maps = object.maps.iter().zip(&layout.maps);
        let symbols: Vec<_> = maps
            .map(|(map, &(offset, bytes))| {
                self.symbol(
                    map.name.as_str(),
                    SymbolKind::Data,
                    Some(section),
                    offset,
                    bytes,
                    Linkage::Global,
                )
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
                self.address(section, initializer, symbol)?;
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
            let id = self.section(section.name, SectionKind::Data, &content, STRUCT_ALIGN.into());
            for &(at, offset, bytes) in &section.placements {
                let name = object.struct_ops.get(at).map_or("", |one| one.name.as_str());
                self.symbol(name, SymbolKind::Data, Some(id), offset, bytes, Linkage::Global);
            }
            for (offset, program) in programs {
                let symbol = self.programs.get(program.index());
                let symbol = *symbol.ok_or(WriteError::Dangling("a program"))?;
                self.address(id, offset.into(), symbol)?;
            }
        }
        Ok(())
    }

    fn symbol(
        &mut self,
        name: &str,
        kind: SymbolKind,
        section: Option<SectionId>,
        offset: u32,
        bytes: u32,
        linkage: Linkage,
    ) -> SymbolId {
        self.file.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: offset.into(),
            size: bytes.into(),
            kind,
            scope: match linkage {
                Linkage::Static => SymbolScope::Compilation,
                Linkage::Global => SymbolScope::Dynamic,
            },
            weak: false,
            section: section.map_or(SymbolSection::Undefined, SymbolSection::Section),
            flags: SymbolFlags::None,
        })
    }

    /// Adds an undefined symbol, resolved by the kernel.
    fn external(&mut self, name: &str, presence: Presence) -> SymbolId {
        self.file.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: 0,
            size: 0,
            kind: SymbolKind::Unknown,
            scope: SymbolScope::Unknown,
            weak: presence == Presence::Optional,
            section: SymbolSection::Undefined,
            flags: SymbolFlags::None,
        })
    }

    /// Adds a relocation for the address of a program or map in data.
    fn address(&mut self, section: SectionId, offset: u64, symbol: SymbolId) -> Result<(), WriteError> {
        self.relocation(section, offset, symbol, R_BPF_64_ABS64)
    }

    fn relocate(&mut self, code: &CodeSections, symbols: &Symbols) -> Result<(), WriteError> {
        for (section, id) in code.sections.iter().zip(self.code.clone()) {
            for &(offset, reference) in &section.relocations {
                let symbol = self.find(code, symbols, reference).ok_or(WriteError::Dangling("a symbol"))?;
                let kind = if reference.is_call() { elf::R_BPF_64_32 } else { elf::R_BPF_64_64 };
                self.relocation(id, offset, symbol, kind)?;
            }
        }
        Ok(())
    }

    fn find(&mut self, code: &CodeSections, symbols: &Symbols, reference: Reference) -> Option<SymbolId> {
        let (list, at) = match reference {
            Reference::Map(at) => (&symbols.maps, at),
            Reference::Data(at) => (&symbols.data, at),
            Reference::Ksym(at) | Reference::Kfunc(at) => (&symbols.ksyms, at),
            Reference::Kconfig(at) => (&symbols.facts, at),
            Reference::Subprogram(at) => (&self.subprograms, at),
            // libbpf takes the address of a static function only as `.text` and an offset.
            Reference::Text => {
                let text = code.subprograms.first()?.section;
                return Some(self.file.section_symbol(*self.code.get(text)?));
            }
        };
        list.get(at).copied()
    }

    /// Adds a relocation. The addends are in the instructions already, where libbpf reads them.
    fn relocation(
        &mut self,
        section: SectionId,
        offset: u64,
        symbol: SymbolId,
        r_type: u32,
    ) -> Result<(), WriteError> {
        small(usize::try_from(offset).unwrap_or(usize::MAX))?;
        let flags = RelocationFlags::Elf { r_type };
        let relocation = Relocation { offset, symbol, addend: 0, flags };
        self.file.add_relocation(section, relocation).map_err(WriteError::Elf)
    }
}
