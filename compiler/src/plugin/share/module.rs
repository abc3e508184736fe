//! Rewriting of a core module: adds a second memory, and replaces calls by accesses to it.

use std::collections::BTreeMap;
use std::ops::Range;

use ks_wit::section;
use ks_wit::shared::{self, Access, Width};
use wasm_encoder::{
    CodeSection, CustomSection, Encode, ExportKind, ExportSection, Function, Instruction as I, MemArg,
    MemorySection, RawSection,
};
use wasmparser::{
    CompositeInnerType, Export, ExportSectionReader, ExternalKind, FuncType, FunctionBody,
    MemorySectionReader, Operator, Parser, Payload, TypeRef, ValType,
};

use super::ShareError;

/// The parsed outline of a module.
#[derive(Default)]
pub(super) struct Module<'a> {
    /// Function types by type index; none for other types.
    types: Vec<Option<FuncType>>,
    /// Type index of each function, imported ones first.
    functions: Vec<u32>,
    imported_functions: usize,
    imported_memories: u32,
    own_memories: u32,
    exports: Vec<Export<'a>>,
    /// Accesses by function index.
    accesses: BTreeMap<u32, Access>,
}

impl<'a> Module<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Module<'a>, ShareError> {
        let mut module = Module::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        for ty in group?.into_types() {
                            module.types.push(match ty.composite_type.inner {
                                CompositeInnerType::Func(function) => Some(function),
                                _ => None,
                            });
                        }
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import?.ty {
                            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => module.functions.push(ty),
                            TypeRef::Memory(_) => module.imported_memories += 1,
                            _ => {}
                        }
                    }
                    module.imported_functions = module.functions.len();
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        module.functions.push(ty?);
                    }
                }
                Payload::MemorySection(section) => module.own_memories = section.count(),
                Payload::ExportSection(section) => module.take_exports(section)?,
                _ => {}
            }
        }
        Ok(module)
    }

    fn take_exports(&mut self, section: ExportSectionReader<'a>) -> Result<(), ShareError> {
        for export in section {
            let export = export?;
            match Access::of_export(export.name) {
                Some(access) if export.kind == ExternalKind::Func => {
                    if self.accesses.insert(export.index, access).is_some_and(|other| other != access) {
                        return Err(refused("two accesses are one function"));
                    }
                }
                _ if export.name.starts_with(shared::PREFIX) => {
                    return Err(refused(&format!(
                        "`{}` is not an access that this version knows",
                        export.name
                    )));
                }
                _ => self.exports.push(export),
            }
        }
        Ok(())
    }

    pub(super) fn has_accesses(&self) -> bool {
        !self.accesses.is_empty()
    }

    /// Returns the module with a shared memory of `pages` pages.
    pub(super) fn share(&self, bytes: &[u8], pages: u64) -> Result<Vec<u8>, ShareError> {
        self.check()?;
        let memory = self.imported_memories + self.own_memories;
        let mut module = wasm_encoder::Module::new();
        let mut code = CodeSection::new();
        let mut function = self.imported_functions as u32;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload?;
            match &payload {
                Payload::MemorySection(section) => {
                    module.section(&memories(section, pages)?);
                }
                Payload::ExportSection(_) => {
                    module.section(&self.own_exports());
                }
                Payload::CodeSectionEntry(body) => {
                    match self.accesses.get(&function) {
                        Some(access) => code.function(&defined(*access, memory)),
                        None => code.raw(&self.without_calls(bytes, body, memory)?),
                    };
                    function += 1;
                    if function as usize == self.functions.len() {
                        module.section(&code);
                    }
                }
                Payload::CodeSectionStart { .. } => {}
                // DWARF sections are dropped: their addresses refer to the original code.
                Payload::CustomSection(custom) if custom.name().starts_with(".debug_") => {}
                payload => {
                    if let Some((id, range)) = payload.as_section() {
                        module.section(&RawSection { id, data: &bytes[range] });
                    }
                }
            }
        }
        let mut record = Vec::new();
        section::push_record(&mut record, &memory.to_le_bytes());
        module.section(&CustomSection { name: section::SHARED_MEMORY.into(), data: record.into() });
        Ok(module.finish())
    }

    /// Checks that the exported functions have the signatures of their accesses, and that there is a memory
    /// section.
    fn check(&self) -> Result<(), ShareError> {
        if self.own_memories == 0 {
            return Err(refused("it defines no memory of its own"));
        }
        for (function, access) in &self.accesses {
            if (*function as usize) < self.imported_functions {
                return Err(refused("an access is an import"));
            }
            let ty = self.functions.get(*function as usize).and_then(|ty| self.types.get(*ty as usize));
            let (params, results) = signature(*access);
            let fits = |ty: &FuncType| ty.params() == params && ty.results() == results;
            if !ty.is_some_and(|ty| ty.as_ref().is_some_and(fits)) {
                return Err(refused(&format!("{access:?} has another type than the one of such an access")));
            }
        }
        Ok(())
    }

    fn own_exports(&self) -> ExportSection {
        let mut section = ExportSection::new();
        for export in &self.exports {
            let kind = match export.kind {
                ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
                ExternalKind::Table => ExportKind::Table,
                ExternalKind::Memory => ExportKind::Memory,
                ExternalKind::Global => ExportKind::Global,
                ExternalKind::Tag => ExportKind::Tag,
            };
            section.export(export.name, kind, export.index);
        }
        section
    }

    /// Returns the code of a function with calls of accesses replaced by the accesses.
    fn without_calls(
        &self,
        bytes: &[u8],
        body: &FunctionBody<'_>,
        memory: u32,
    ) -> Result<Vec<u8>, ShareError> {
        let Range { start: mut copied, end } = body.range();
        let mut code = Vec::with_capacity(end - copied);
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let (operator, start) = operators.read_with_offset()?;
            let Operator::Call { function_index } = operator else { continue };
            let Some(access) = self.accesses.get(&function_index) else { continue };
            code.extend_from_slice(&bytes[copied..start]);
            instruction(*access, memory).encode(&mut code);
            copied = operators.original_position();
        }
        code.extend_from_slice(&bytes[copied..end]);
        Ok(code)
    }
}

/// Returns the existing memories and the shared one at its final size.
fn memories(section: &MemorySectionReader<'_>, pages: u64) -> Result<MemorySection, ShareError> {
    let mut memories = MemorySection::new();
    for memory in section.clone() {
        let memory = memory?;
        memories.memory(wasm_encoder::MemoryType {
            minimum: memory.initial,
            maximum: memory.maximum,
            memory64: memory.memory64,
            shared: memory.shared,
            page_size_log2: memory.page_size_log2,
        });
    }
    memories.memory(wasm_encoder::MemoryType {
        minimum: pages,
        maximum: Some(pages),
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    Ok(memories)
}

fn signature(access: Access) -> (&'static [ValType], &'static [ValType]) {
    match access {
        Access::Load(Width::W64) => (&[ValType::I32], &[ValType::I64]),
        Access::Load(_) => (&[ValType::I32], &[ValType::I32]),
        Access::Store(Width::W64) => (&[ValType::I32, ValType::I64], &[]),
        Access::Store(_) => (&[ValType::I32, ValType::I32], &[]),
    }
}

/// Returns a function that performs an access, for calls through a table.
fn defined(access: Access, memory: u32) -> Function {
    let mut function = Function::new([]);
    for param in 0..signature(access).0.len() {
        function.instruction(&I::LocalGet(param as u32));
    }
    function.instruction(&instruction(access, memory)).instruction(&I::End);
    function
}

/// Returns the instruction of an access. Atomic accesses require the exact alignment.
fn instruction(access: Access, memory_index: u32) -> I<'static> {
    let (Access::Load(width) | Access::Store(width)) = access;
    let align = match width {
        Width::W8 => 0,
        Width::W16 => 1,
        Width::W32 => 2,
        Width::W64 => 3,
    };
    let at = MemArg { offset: 0, align, memory_index };
    match access {
        Access::Load(Width::W8) => I::I32AtomicLoad8U(at),
        Access::Load(Width::W16) => I::I32AtomicLoad16U(at),
        Access::Load(Width::W32) => I::I32AtomicLoad(at),
        Access::Load(Width::W64) => I::I64AtomicLoad(at),
        Access::Store(Width::W8) => I::I32AtomicStore8(at),
        Access::Store(Width::W16) => I::I32AtomicStore16(at),
        Access::Store(Width::W32) => I::I32AtomicStore(at),
        Access::Store(Width::W64) => I::I64AtomicStore(at),
    }
}

fn refused(why: &str) -> ShareError {
    ShareError::Module(why.to_owned())
}
