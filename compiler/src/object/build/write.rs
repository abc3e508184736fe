//! The ELF file: sections, symbols and relocations.

use object::write::{Object, Relocation, SectionId, Symbol as ElfSymbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use super::code::{CodeLayout, Target};
use super::data::Data;
use super::map::Maps;
use super::struct_ops::{self, StructOps};
use super::{BuildError, DataSection, FunctionDecl, KfuncPresence, ObjectBuilder};
use crate::bpf::{FunctionRef, Symbol};
use crate::object::btf::{FuncLinkage, ext};

/// The licence that lets programs call every helper. Source: include/linux/license.h,
/// `license_is_gpl_compatible`.
const LICENSE: &[u8] = b"GPL\0";

/// Alignment in bytes of instructions and pointers.
const SLOT_ALIGN: u64 = 8;
/// An address of eight bytes in data. Source: Documentation/bpf/llvm_reloc.rst.
const R_BPF_64_ABS64: u32 = 2;
/// Alignment in bytes of the fields of BTF.
const BTF_ALIGN: u64 = 4;

/// All laid-out parts of an object.
pub(super) struct Parts {
    pub data: Data,
    pub maps: Maps,
    pub struct_ops: StructOps,
    pub code: CodeLayout,
}

pub(super) fn write(mut builder: ObjectBuilder, parts: &Parts) -> Result<Vec<u8>, BuildError> {
    let Parts { data, maps, struct_ops, code } = parts;
    // The strings of .BTF.ext are in .BTF.
    let btf_ext = ext::write(&mut builder.btf, &code.ext)?;
    let btf = builder.btf.finish()?;

    let mut file = File::new();
    file.add_code(&builder, code);
    file.add_data(&builder, data);
    file.add_maps(&builder, maps)?;
    file.add_struct_ops(&builder, struct_ops)?;
    file.add_kfuncs(&builder);
    for (name, content) in &builder.sections {
        file.append(name, SectionKind::Other, content, 1);
    }
    file.append("license", SectionKind::Data, LICENSE, 1);
    file.append(".BTF", SectionKind::Other, &btf, BTF_ALIGN);
    if !code.sections.is_empty() {
        file.append(".BTF.ext", SectionKind::Other, &btf_ext, BTF_ALIGN);
    }
    file.relocate(code)?;
    file.object.write().map_err(BuildError::Write)
}

struct File {
    object: Object<'static>,
    code_sections: Vec<SectionId>,
    functions: Vec<SymbolId>,
    globals: Vec<SymbolId>,
    maps: Vec<SymbolId>,
    kfuncs: Vec<SymbolId>,
}

impl File {
    fn new() -> Self {
        File {
            object: Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little),
            code_sections: Vec::new(),
            functions: Vec::new(),
            globals: Vec::new(),
            maps: Vec::new(),
            kfuncs: Vec::new(),
        }
    }

    fn append(&mut self, name: &str, kind: SectionKind, content: &[u8], align: u64) -> SectionId {
        let section = self.object.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.object.append_section_data(section, content, align);
        section
    }

    fn add_code(&mut self, builder: &ObjectBuilder, code: &CodeLayout) {
        for section in &code.sections {
            let id = self.append(&section.name, SectionKind::Text, &section.bytes, SLOT_ALIGN);
            self.code_sections.push(id);
        }
        for (function, placement) in builder.functions.iter().zip(&code.placements) {
            let FunctionDecl { name, linkage, .. } = &function.decl;
            let section = self.code_sections.get(placement.section).copied();
            let symbol = self.object.add_symbol(ElfSymbol {
                name: name.as_bytes().to_vec(),
                value: placement.offset.into(),
                size: placement.bytes.into(),
                kind: SymbolKind::Text,
                scope: match linkage {
                    FuncLinkage::Static => SymbolScope::Compilation,
                    FuncLinkage::Global | FuncLinkage::Extern => SymbolScope::Dynamic,
                },
                weak: false,
                section: section.map_or(SymbolSection::Undefined, SymbolSection::Section),
                flags: SymbolFlags::None,
            });
            self.functions.push(symbol);
        }
    }

    fn add_data(&mut self, builder: &ObjectBuilder, data: &Data) {
        let mut ids = Vec::with_capacity(data.sections.len());
        for (&kind, section) in &data.sections {
            let section_kind = match kind {
                DataSection::Data | DataSection::Pinned => SectionKind::Data,
                DataSection::Bss => SectionKind::UninitializedData,
                DataSection::Rodata => SectionKind::ReadOnlyData,
            };
            let id = self.object.add_section(Vec::new(), kind.name().as_bytes().to_vec(), section_kind);
            if kind == DataSection::Bss {
                self.object.append_section_bss(id, section.bytes.into(), section.align.into());
            } else {
                self.object.append_section_data(id, &section.initial, section.align.into());
            }
            ids.push((kind, id));
        }
        for (global, &offset) in builder.globals.iter().zip(&data.offsets) {
            let section = ids.iter().find(|(kind, _)| *kind == global.section).map(|(_, id)| *id);
            let symbol = self.add_variable(&global.name, section, offset, global.bytes);
            self.globals.push(symbol);
        }
    }

    fn add_maps(&mut self, builder: &ObjectBuilder, maps: &Maps) -> Result<(), BuildError> {
        if builder.maps.is_empty() {
            return Ok(());
        }
        let content = vec![0; maps.bytes as usize];
        let section = self.append(".maps", SectionKind::Data, &content, SLOT_ALIGN);
        for (map, &(offset, bytes)) in builder.maps.iter().zip(&maps.placements) {
            let symbol = self.add_variable(&map.name, Some(section), offset, bytes);
            self.maps.push(symbol);
            let filled = map.programs.len() as u64 * SLOT_ALIGN;
            for (index, program) in (0u64..).zip(&map.programs) {
                let offset = u64::from(offset + bytes) - filled + index * SLOT_ALIGN;
                self.add_address(section, offset, *program)?;
            }
        }
        Ok(())
    }

    fn add_struct_ops(&mut self, builder: &ObjectBuilder, struct_ops: &StructOps) -> Result<(), BuildError> {
        if builder.struct_ops.is_empty() {
            return Ok(());
        }
        let align = struct_ops::ALIGN.into();
        let section = self.append(struct_ops::SECTION, SectionKind::Data, &struct_ops.content, align);
        for (def, &(offset, bytes)) in builder.struct_ops.iter().zip(&struct_ops.placements) {
            self.add_variable(&def.name, Some(section), offset, bytes);
        }
        for &(offset, program) in &struct_ops.programs {
            self.add_address(section, offset.into(), program)?;
        }
        Ok(())
    }

    /// Adds a relocation for the address of a program in data.
    fn add_address(
        &mut self,
        section: SectionId,
        offset: u64,
        program: FunctionRef,
    ) -> Result<(), BuildError> {
        let found = self.functions.get(program.0 as usize).copied();
        let symbol = found.ok_or(BuildError::Foreign(Symbol::Function(program)))?;
        let flags = RelocationFlags::Elf { r_type: R_BPF_64_ABS64 };
        let relocation = Relocation { offset, symbol, addend: 0, flags };
        self.object.add_relocation(section, relocation).map_err(BuildError::Write)
    }

    fn add_kfuncs(&mut self, builder: &ObjectBuilder) {
        for kfunc in &builder.kfuncs {
            let symbol = self.object.add_symbol(ElfSymbol {
                name: kfunc.name.as_bytes().to_vec(),
                value: 0,
                size: 0,
                kind: SymbolKind::Unknown,
                scope: SymbolScope::Unknown,
                weak: kfunc.presence == KfuncPresence::Optional,
                section: SymbolSection::Undefined,
                flags: SymbolFlags::None,
            });
            self.kfuncs.push(symbol);
        }
    }

    fn add_variable(&mut self, name: &str, section: Option<SectionId>, offset: u32, bytes: u32) -> SymbolId {
        self.object.add_symbol(ElfSymbol {
            name: name.as_bytes().to_vec(),
            value: offset.into(),
            size: bytes.into(),
            kind: SymbolKind::Data,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: section.map_or(SymbolSection::Undefined, SymbolSection::Section),
            flags: SymbolFlags::None,
        })
    }

    /// Adds the relocations. The addends are in the instructions already, in the form that libbpf reads.
    fn relocate(&mut self, code: &CodeLayout) -> Result<(), BuildError> {
        for (section, &id) in code.sections.iter().zip(&self.code_sections.clone()) {
            for relocation in &section.relocations {
                let (symbol, r_type) = self.resolve(code, relocation.target)?;
                let relocation = Relocation {
                    offset: relocation.offset.into(),
                    symbol,
                    addend: 0,
                    flags: RelocationFlags::Elf { r_type },
                };
                self.object.add_relocation(id, relocation).map_err(BuildError::Write)?;
            }
        }
        Ok(())
    }

    /// Returns the symbol and type of a relocation.
    fn resolve(&mut self, code: &CodeLayout, target: Target) -> Result<(SymbolId, u32), BuildError> {
        let symbol = |ids: &[SymbolId], index: u32| ids.get(index as usize).copied();
        let (found, r_type, named) = match target {
            Target::Map(map) => (symbol(&self.maps, map.0), elf::R_BPF_64_64, Symbol::Map(map)),
            Target::Global(global) => {
                (symbol(&self.globals, global.0), elf::R_BPF_64_64, Symbol::Global(global))
            }
            Target::Function(function) => {
                (symbol(&self.functions, function.0), elf::R_BPF_64_32, Symbol::Function(function))
            }
            // libbpf takes the address of a static function only as .text plus an offset.
            Target::Callback(function) => {
                let placement = code.placements.get(function.0 as usize);
                let section =
                    placement.and_then(|placement| self.code_sections.get(placement.section).copied());
                let found = section.map(|id| self.object.section_symbol(id));
                (found, elf::R_BPF_64_64, Symbol::Function(function))
            }
            Target::Kfunc(kfunc) => (symbol(&self.kfuncs, kfunc.0), elf::R_BPF_64_32, Symbol::Kfunc(kfunc)),
        };
        Ok((found.ok_or(BuildError::Foreign(named))?, r_type))
    }
}
