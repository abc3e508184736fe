//! The ELF file: sections, symbols and relocations.

use object::SectionKind;
use object::write::{SectionId, SymbolId};

use super::code::{CodeLayout, Target};
use super::data::Data;
use super::map::Maps;
use super::struct_ops::{self, StructOps};
use super::{BuildError, DataSection, FunctionDecl, ObjectBuilder};
use crate::bpf::{FunctionRef, Symbol};
use crate::object::btf::{FuncLinkage, ext};
use crate::object::elf::{Extent, File, Operand};
use crate::object::model::{Linkage, Presence};

/// The licence that lets programs call every helper. Source: include/linux/license.h,
/// `license_is_gpl_compatible`.
const LICENSE: &[u8] = b"GPL\0";

/// Alignment in bytes of instructions and pointers.
const SLOT_ALIGN: u64 = SLOT_BYTES as u64;
/// Size of a pointer in bytes.
const SLOT_BYTES: u32 = 8;
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

    let mut file = Writer::new();
    file.add_code(&builder, code);
    file.add_data(&builder, data);
    file.add_maps(&builder, maps)?;
    file.add_struct_ops(&builder, struct_ops)?;
    file.add_ksyms(&builder);
    for (name, content) in &builder.sections {
        file.file.section(name, SectionKind::Other, content, 1);
    }
    file.file.section("license", SectionKind::Data, LICENSE, 1);
    file.file.section(".BTF", SectionKind::Other, &btf, BTF_ALIGN);
    if !code.sections.is_empty() {
        file.file.section(".BTF.ext", SectionKind::Other, &btf_ext, BTF_ALIGN);
    }
    file.relocate(code)?;
    file.file.finish().map_err(BuildError::Write)
}

struct Writer {
    file: File,
    code_sections: Vec<SectionId>,
    functions: Vec<SymbolId>,
    globals: Vec<SymbolId>,
    maps: Vec<SymbolId>,
    kfuncs: Vec<SymbolId>,
    kernel_variables: Vec<SymbolId>,
}

impl Writer {
    fn new() -> Self {
        Writer {
            file: File::new(),
            code_sections: Vec::new(),
            functions: Vec::new(),
            globals: Vec::new(),
            maps: Vec::new(),
            kfuncs: Vec::new(),
            kernel_variables: Vec::new(),
        }
    }

    fn add_code(&mut self, builder: &ObjectBuilder, code: &CodeLayout) {
        for section in &code.sections {
            let id = self.file.section(&section.name, SectionKind::Text, &section.bytes, SLOT_ALIGN);
            self.code_sections.push(id);
        }
        for (function, placement) in builder.functions.iter().zip(&code.placements) {
            let FunctionDecl { name, linkage, .. } = &function.decl;
            let section = self.code_sections.get(placement.section).copied();
            let extent = Extent { section, offset: placement.offset, bytes: placement.bytes };
            let linkage = match linkage {
                FuncLinkage::Static => Linkage::Static,
                FuncLinkage::Global | FuncLinkage::Extern => Linkage::Global,
            };
            let symbol = self.file.function(name, extent, linkage);
            self.functions.push(symbol);
        }
    }

    fn add_data(&mut self, builder: &ObjectBuilder, data: &Data) {
        let mut ids = Vec::with_capacity(data.sections.len());
        for (&kind, section) in &data.sections {
            let (name, align) = (kind.name(), section.align.into());
            let initial = &section.initial;
            let id = match kind {
                DataSection::Bss => self.file.zeros(name, section.bytes, align),
                DataSection::Rodata => self.file.section(name, SectionKind::ReadOnlyData, initial, align),
                DataSection::Data | DataSection::Pinned => {
                    self.file.section(name, SectionKind::Data, initial, align)
                }
            };
            ids.push((kind, id));
        }
        for (global, &offset) in builder.globals.iter().zip(&data.offsets) {
            let section = ids.iter().find(|(kind, _)| *kind == global.section).map(|(_, id)| *id);
            let symbol = self.variable(&global.name, section, offset, global.bytes);
            self.globals.push(symbol);
        }
    }

    fn add_maps(&mut self, builder: &ObjectBuilder, maps: &Maps) -> Result<(), BuildError> {
        if builder.maps.is_empty() {
            return Ok(());
        }
        let content = vec![0; maps.bytes as usize];
        let section = self.file.section(".maps", SectionKind::Data, &content, SLOT_ALIGN);
        for (map, &(offset, bytes)) in builder.maps.iter().zip(&maps.placements) {
            let symbol = self.variable(&map.name, Some(section), offset, bytes);
            self.maps.push(symbol);
            // The layout has room for them.
            let filled = map.programs.len() as u32 * SLOT_BYTES;
            for (index, program) in (0..).zip(&map.programs) {
                self.add_address(section, offset + bytes - filled + index * SLOT_BYTES, *program)?;
            }
        }
        Ok(())
    }

    fn add_struct_ops(&mut self, builder: &ObjectBuilder, struct_ops: &StructOps) -> Result<(), BuildError> {
        if builder.struct_ops.is_empty() {
            return Ok(());
        }
        let align = struct_ops::ALIGN.into();
        let section = self.file.section(struct_ops::SECTION, SectionKind::Data, &struct_ops.content, align);
        for (def, &(offset, bytes)) in builder.struct_ops.iter().zip(&struct_ops.placements) {
            self.variable(&def.name, Some(section), offset, bytes);
        }
        for &(offset, program) in &struct_ops.programs {
            self.add_address(section, offset, program)?;
        }
        Ok(())
    }

    /// Adds a relocation for the address of a program in data.
    fn add_address(
        &mut self,
        section: SectionId,
        offset: u32,
        program: FunctionRef,
    ) -> Result<(), BuildError> {
        let found = self.functions.get(program.0 as usize).copied();
        let symbol = found.ok_or(BuildError::Foreign(Symbol::Function(program)))?;
        self.file.address(section, offset, symbol).map_err(BuildError::Write)
    }

    fn add_ksyms(&mut self, builder: &ObjectBuilder) {
        for kfunc in &builder.kfuncs {
            let symbol = self.file.external(&kfunc.name, kfunc.presence);
            self.kfuncs.push(symbol);
        }
        for variable in &builder.kernel_variables {
            let symbol = self.file.external(&variable.name, Presence::Required);
            self.kernel_variables.push(symbol);
        }
    }

    fn variable(&mut self, name: &str, section: Option<SectionId>, offset: u32, bytes: u32) -> SymbolId {
        self.file.variable(name, Extent { section, offset, bytes }, Linkage::Global)
    }

    fn relocate(&mut self, code: &CodeLayout) -> Result<(), BuildError> {
        for (section, &id) in code.sections.iter().zip(&self.code_sections.clone()) {
            for relocation in &section.relocations {
                let (symbol, operand) = self.resolve(code, relocation.target)?;
                self.file.relocate(id, relocation.offset, symbol, operand).map_err(BuildError::Write)?;
            }
        }
        Ok(())
    }

    /// Returns the symbol of a relocation, and what it fills in.
    fn resolve(&mut self, code: &CodeLayout, target: Target) -> Result<(SymbolId, Operand), BuildError> {
        let symbol = |ids: &[SymbolId], index: u32| ids.get(index as usize).copied();
        let (found, operand, named) = match target {
            Target::Map(map) => (symbol(&self.maps, map.0), Operand::Wide, Symbol::Map(map)),
            Target::Global(global) => {
                (symbol(&self.globals, global.0), Operand::Wide, Symbol::Global(global))
            }
            Target::Function(function) => {
                (symbol(&self.functions, function.0), Operand::Callee, Symbol::Function(function))
            }
            // libbpf takes the address of a static function only as .text plus an offset.
            Target::Callback(function) => {
                let placement = code.placements.get(function.0 as usize);
                let section =
                    placement.and_then(|placement| self.code_sections.get(placement.section).copied());
                let found = section.map(|id| self.file.start_of(id));
                (found, Operand::Wide, Symbol::Function(function))
            }
            Target::Kfunc(kfunc) => (symbol(&self.kfuncs, kfunc.0), Operand::Callee, Symbol::Kfunc(kfunc)),
            Target::KernelVariable(variable) => {
                let found = symbol(&self.kernel_variables, variable.0);
                (found, Operand::Wide, Symbol::KernelVariable(variable))
            }
        };
        Ok((found.ok_or(BuildError::Foreign(named))?, operand))
    }
}
