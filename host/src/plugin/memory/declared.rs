//! Finds the memory that a plugin declares to be shared, and checks that sharing it is safe.
//!
//! Host code writes results to addresses that a guest chose, in memories that canonical options name. A
//! read-only or unmapped page there would end the whole process, not the guest. So the memory must not be
//! reachable for canonical options (its module does not export it) nor for instructions that the engine
//! executes in host code (`memory.fill`, `.copy`, `.init`).

use ks_wit::section;
use wasmparser::{
    DataKind, Encoding, ExternalKind, FunctionBody, MemoryType, Operator, Parser, Payload, TypeRef,
};

use super::REGION;
use crate::plugin::PluginError;

/// Facts about one core module.
#[derive(Default)]
struct Module<'a> {
    imported: u32,
    memories: Vec<MemoryType>,
    exported: Vec<u32>,
    filled: Vec<u32>,
    bodies: Vec<FunctionBody<'a>>,
    marked: Vec<u32>,
}

/// Returns the bytes of a plugin's shared memory; none if no module declares one.
///
/// # Errors
/// [`PluginError::SharedMemory`] for a declaration that is not sound; [`PluginError::Malformed`].
pub(in crate::plugin) fn declared(bytes: &[u8]) -> Result<Option<usize>, PluginError> {
    let modules = modules(bytes)?;
    let mut marked =
        modules.iter().flat_map(|module| module.marked.iter().map(move |index| (module, *index)));
    let Some((module, index)) = marked.next() else { return Ok(None) };
    if marked.next().is_some() {
        return Err(unsound("it is declared twice"));
    }
    let memory = module.check(index)?;
    let same = |other: &&MemoryType| other.initial == memory.initial && other.maximum == memory.maximum;
    if modules.iter().flat_map(|module| &module.memories).filter(same).count() != 1 {
        return Err(unsound("another memory has the same limits"));
    }
    let bytes = usize::try_from(memory.initial).ok().and_then(|pages| pages.checked_mul(REGION));
    bytes.map(Some).ok_or_else(|| unsound("it is too large"))
}

fn modules(bytes: &[u8]) -> Result<Vec<Module<'_>>, PluginError> {
    let mut done = Vec::new();
    // Modules and components that are open, the innermost last; none stands for a component.
    let mut open: Vec<Option<Module<'_>>> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        match payload {
            Payload::Version { encoding, .. } => {
                open.push((encoding == Encoding::Module).then(Module::default));
            }
            Payload::End(_) => done.extend(open.pop().flatten()),
            payload => {
                if let Some(Some(module)) = open.last_mut() {
                    module.take(payload)?;
                }
            }
        }
    }
    Ok(done)
}

impl<'a> Module<'a> {
    fn take(&mut self, payload: Payload<'a>) -> Result<(), PluginError> {
        match payload {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if matches!(import.map_err(malformed)?.ty, TypeRef::Memory(_)) {
                        self.imported += 1;
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    self.memories.push(memory.map_err(malformed)?);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(malformed)?;
                    if export.kind == ExternalKind::Memory {
                        self.exported.push(export.index);
                    }
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    if let DataKind::Active { memory_index, .. } = data.map_err(malformed)?.kind {
                        self.filled.push(memory_index);
                    }
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body),
            Payload::CustomSection(custom) if custom.name() == section::SHARED_MEMORY => {
                let section = section::SHARED_MEMORY;
                let records = section::records(custom.data())
                    .map_err(|source| PluginError::Section { section, source })?;
                for record in records {
                    let index =
                        record.try_into().map_err(|_| unsound("its index does not have four bytes"))?;
                    self.marked.push(u32::from_le_bytes(index));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the type of the memory with this index, if it can be shared.
    fn check(&self, index: u32) -> Result<MemoryType, PluginError> {
        let memory =
            index.checked_sub(self.imported).and_then(|own| self.memories.get(own as usize)).copied();
        let Some(memory) = memory else { return Err(unsound("its module does not define it")) };
        if memory.memory64 || memory.shared || memory.page_size_log2.is_some() {
            return Err(unsound("it is not a plain memory of 32-bit addresses"));
        }
        if memory.maximum != Some(memory.initial) {
            return Err(unsound("its size is not fixed"));
        }
        if self.exported.contains(&index) {
            return Err(unsound("its module exports it"));
        }
        if self.filled.contains(&index) {
            return Err(unsound("a data segment fills it"));
        }
        for body in &self.bodies {
            let mut operators = body.get_operators_reader().map_err(malformed)?;
            while !operators.eof() {
                if by_host(&operators.read().map_err(malformed)?, index) {
                    return Err(unsound("an instruction other than a load or a store names it"));
                }
            }
        }
        Ok(memory)
    }
}

/// Whether the engine may execute this instruction in host code that accesses the memory.
fn by_host(operator: &Operator<'_>, memory: u32) -> bool {
    match operator {
        Operator::MemoryFill { mem } | Operator::MemoryInit { mem, .. } | Operator::MemoryDiscard { mem } => {
            *mem == memory
        }
        Operator::MemoryCopy { dst_mem, src_mem } => *dst_mem == memory || *src_mem == memory,
        Operator::MemoryAtomicNotify { memarg }
        | Operator::MemoryAtomicWait32 { memarg }
        | Operator::MemoryAtomicWait64 { memarg } => memarg.memory == memory,
        _ => false,
    }
}

fn unsound(what: &str) -> PluginError {
    PluginError::SharedMemory(what.to_owned())
}

fn malformed(error: wasmparser::BinaryReaderError) -> PluginError {
    PluginError::Malformed(error.to_string())
}
