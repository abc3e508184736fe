//! The ELF file of an object, for both writers: sections, symbols, relocations.

use object::write::{Error, Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use super::model::{Linkage, Presence};

/// An address of eight bytes in data. Source: Documentation/bpf/llvm_reloc.rst, v6.18.
const R_BPF_64_ABS64: u32 = 2;

/// Operand of an instruction that a relocation fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// The 64-bit immediate of a wide load.
    Wide,
    /// The callee of a call.
    Callee,
}

/// Part of a section that a symbol names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// None if the symbol is defined nowhere.
    pub section: Option<SectionId>,
    /// Bytes from the section's start.
    pub offset: u32,
    pub bytes: u32,
}

/// An ELF file that is being written.
pub(super) struct File(Object<'static>);

impl File {
    pub fn new() -> File {
        File(Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little))
    }

    pub fn section(&mut self, name: &str, kind: SectionKind, content: &[u8], align: u64) -> SectionId {
        let section = self.0.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.0.append_section_data(section, content, align);
        section
    }

    /// Adds a section of zeros that takes no room in the file.
    pub fn zeros(&mut self, name: &str, bytes: u32, align: u64) -> SectionId {
        let name = name.as_bytes().to_vec();
        let section = self.0.add_section(Vec::new(), name, SectionKind::UninitializedData);
        self.0.append_section_bss(section, bytes.into(), align);
        section
    }

    pub fn function(&mut self, name: &str, extent: Extent, linkage: Linkage) -> SymbolId {
        self.symbol(name, SymbolKind::Text, extent, linkage)
    }

    pub fn variable(&mut self, name: &str, extent: Extent, linkage: Linkage) -> SymbolId {
        self.symbol(name, SymbolKind::Data, extent, linkage)
    }

    /// Adds an undefined symbol, which the kernel resolves.
    pub fn external(&mut self, name: &str, presence: Presence) -> SymbolId {
        self.0.add_symbol(Symbol {
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

    /// Returns the symbol of a section.
    pub fn start_of(&mut self, section: SectionId) -> SymbolId {
        self.0.section_symbol(section)
    }

    /// Adds a relocation of an instruction. The addend is in the instruction already, where libbpf reads it.
    ///
    /// # Errors
    /// That of the library.
    pub fn relocate(
        &mut self,
        section: SectionId,
        offset: u32,
        symbol: SymbolId,
        operand: Operand,
    ) -> Result<(), Error> {
        let r_type = match operand {
            Operand::Wide => elf::R_BPF_64_64,
            Operand::Callee => elf::R_BPF_64_32,
        };
        self.relocation(section, offset, symbol, r_type)
    }

    /// Adds a relocation for the address of a program or map in data.
    ///
    /// # Errors
    /// That of the library.
    pub fn address(&mut self, section: SectionId, offset: u32, symbol: SymbolId) -> Result<(), Error> {
        self.relocation(section, offset, symbol, R_BPF_64_ABS64)
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// That of the library.
    pub fn finish(&self) -> Result<Vec<u8>, Error> {
        self.0.write()
    }

    fn symbol(&mut self, name: &str, kind: SymbolKind, extent: Extent, linkage: Linkage) -> SymbolId {
        self.0.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: extent.offset.into(),
            size: extent.bytes.into(),
            kind,
            scope: match linkage {
                Linkage::Static => SymbolScope::Compilation,
                Linkage::Global => SymbolScope::Dynamic,
            },
            weak: false,
            section: extent.section.map_or(SymbolSection::Undefined, SymbolSection::Section),
            flags: SymbolFlags::None,
        })
    }

    fn relocation(
        &mut self,
        section: SectionId,
        offset: u32,
        symbol: SymbolId,
        r_type: u32,
    ) -> Result<(), Error> {
        let flags = RelocationFlags::Elf { r_type };
        let relocation = Relocation { offset: offset.into(), symbol, addend: 0, flags };
        self.0.add_relocation(section, relocation)
    }
}
