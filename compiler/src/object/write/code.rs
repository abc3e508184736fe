//! Programs and subprograms: their sections, bytes and relocations.

use std::collections::HashMap;

use super::super::model::{Body, Callee, Instruction, KsymId, Object, Wide};
use super::{KernelFunctionIds, WriteError, small};
use crate::bpf::{self, CallTarget, Imm64, Insn, SLOT_BYTES};

/// Code sections and the positions of functions in them.
pub(super) struct CodeSections {
    pub sections: Vec<CodeSection>,
    by_name: HashMap<String, usize>,
    /// Position of each program, and of each subprogram.
    pub programs: Vec<FunctionPlacement>,
    pub subprograms: Vec<FunctionPlacement>,
}

/// A section of instructions.
pub(super) struct CodeSection {
    pub name: String,
    pub bytes: Vec<u8>,
    /// Offset in bytes of each relocated instruction, and its operand.
    pub relocations: References,
}

/// Offsets in bytes and operands.
type References = Vec<(u32, Reference)>;

/// Position of a function.
#[derive(Clone, Copy)]
pub(super) struct FunctionPlacement {
    /// Index of the section.
    pub section: usize,
    /// Offset from the section's start, and size, in bytes.
    pub offset: u32,
    pub bytes: u32,
}

/// Target of a relocation.
#[derive(Clone, Copy)]
pub(super) enum Reference {
    Map(usize),
    /// The start of a section of variables; the offset is in the instruction.
    Data(usize),
    /// A called function of the object.
    Subprogram(usize),
    /// `.text`; the offset of a callback is in the instruction.
    Text,
    Ksym(usize),
    Kconfig(usize),
    /// A called kernel function.
    Kfunc(usize),
}

impl Reference {
    /// Returns whether it belongs to a call.
    pub(super) fn is_call(self) -> bool {
        matches!(self, Reference::Subprogram(_) | Reference::Kfunc(_))
    }
}

const TEXT: &str = ".text";
/// `BPF_PSEUDO_CALL` in the upper half of the registers.
const PSEUDO_CALL: u8 = 1 << 4;
/// Constant of a relocated call: -1, so that the loader's "target + constant + 1" is the target.
const CALL_PLACEHOLDER: i32 = -1;

/// Lays out all functions: first the programs by section, then `.text`.
pub(super) fn lay_out(object: &Object, functions: &KernelFunctionIds) -> Result<CodeSections, WriteError> {
    let (sections, by_name) = (Vec::new(), HashMap::new());
    let mut code = CodeSections { sections, by_name, programs: Vec::new(), subprograms: Vec::new() };
    let programs = object.programs.iter().map(|one| (one.section.to_string(), &one.body));
    let subprograms = object.subprograms.iter().map(|one| (TEXT.to_owned(), &one.body));
    let placements: Vec<_> = programs
        .chain(subprograms)
        .map(|(name, body)| code.placement(name, body))
        .collect::<Result<_, _>>()?;
    let (programs, subprograms) = placements.split_at_checked(object.programs.len()).unwrap_or_default();
    (code.programs, code.subprograms) = (programs.to_vec(), subprograms.to_vec());
    let programs = object.programs.iter().map(|one| (one.name.as_str(), &one.body));
    let subprograms = object.subprograms.iter().map(|one| (one.name.as_str(), &one.body));
    for ((name, body), placement) in programs.chain(subprograms).zip(placements) {
        let (bytes, relocations) = code.encode((object, functions), name, body, placement)?;
        let section = code.sections.get_mut(placement.section).ok_or(WriteError::Dangling("a section"))?;
        let start = placement.offset as usize;
        let part = section.bytes.get_mut(start..start + bytes.len()).ok_or(WriteError::TooLarge)?;
        part.copy_from_slice(&bytes);
        section.relocations.extend(relocations);
    }
    Ok(code)
}

impl CodeSections {
    fn placement(&mut self, name: String, body: &Body) -> Result<FunctionPlacement, WriteError> {
        let section = match self.by_name.get(&name) {
            Some(known) => *known,
            None => {
                self.by_name.insert(name.clone(), self.sections.len());
                self.sections.push(CodeSection { name, bytes: Vec::new(), relocations: Vec::new() });
                self.sections.len() - 1
            }
        };
        let slots = body.code.iter().map(|one| one.slots() as usize).sum::<usize>();
        if slots == 0 {
            return Err(WriteError::Dangling("instructions of a function"));
        }
        let bytes = slots * SLOT_BYTES;
        let found = self.sections.get_mut(section).ok_or(WriteError::Dangling("a section"))?;
        let offset = found.bytes.len();
        found.bytes.resize(offset + bytes, 0);
        Ok(FunctionPlacement { section, offset: small(offset)?, bytes: small(bytes)? })
    }

    fn encode(
        &self,
        of: (&Object, &KernelFunctionIds),
        name: &str,
        body: &Body,
        placement: FunctionPlacement,
    ) -> Result<(Vec<u8>, References), WriteError> {
        let mut insns = Vec::with_capacity(body.code.len());
        let mut references = Vec::new();
        let mut slot = 0;
        for instruction in &body.code {
            let (insn, reference) = self.plain(of, instruction)?;
            references.extend(reference.map(|reference| (slot, reference)));
            slot += instruction.slots() as usize;
            insns.push(insn);
        }
        let encoded = bpf::encode(&insns);
        let mut bytes = encoded.map_err(|source| WriteError::Encode { name: name.to_owned(), source })?;
        let (slots, _) = bytes.as_chunks_mut::<SLOT_BYTES>();
        for (at, _) in references.iter().filter(|(_, reference)| reference.is_call()) {
            if let Some([opcode, _, _, _, ..]) = slots.get(*at).copied()
                && let Some(slot) = slots.get_mut(*at)
            {
                let [a, b, c, d] = CALL_PLACEHOLDER.to_le_bytes();
                *slot = [opcode, PSEUDO_CALL, 0, 0, a, b, c, d];
            }
        }
        let relocations = references.into_iter().map(|(slot, reference)| {
            let offset = placement.offset.checked_add(small(slot * SLOT_BYTES)?);
            Ok((offset.ok_or(WriteError::TooLarge)?, reference))
        });
        Ok((bytes, relocations.collect::<Result<_, WriteError>>()?))
    }

    /// Returns the instruction without its symbolic operand, and the operand.
    fn plain(
        &self,
        (object, functions): (&Object, &KernelFunctionIds),
        instruction: &Instruction,
    ) -> Result<(Insn, Option<Reference>), WriteError> {
        let find = |exists: bool, what| if exists { Ok(()) } else { Err(WriteError::Dangling(what)) };
        match *instruction {
            Instruction::Plain(plain) => Ok((plain.insn(), None)),
            Instruction::Call(Callee::Helper(helper)) => Ok((Insn::call_helper(helper.number()), None)),
            Instruction::Call(Callee::Subprogram(id)) => {
                find(id.index() < object.subprograms.len(), "a function")?;
                Ok((Insn::call_helper(0), Some(Reference::Subprogram(id.index()))))
            }
            Instruction::Call(Callee::Kfunc(id)) if let Some(btf_id) = functions.get(&id) => {
                let target = CallTarget::KfuncId { btf_id: *btf_id, module: 0 };
                Ok((Insn::Call { target }, None))
            }
            Instruction::Call(Callee::Kfunc(KsymId(id))) => {
                find((id as usize) < object.ksyms.len(), "a function of the kernel")?;
                Ok((Insn::call_helper(0), Some(Reference::Kfunc(id as usize))))
            }
            Instruction::LoadWide { dst, value } => {
                let (number, reference) = match value {
                    Wide::Constant(number) => (number, None),
                    Wide::Map(id) => {
                        find(id.index() < object.maps.len(), "a map")?;
                        (0, Some(Reference::Map(id.index())))
                    }
                    Wide::Data { section, offset } => {
                        let found = object.data.get(section.index());
                        find(found.is_some_and(|one| offset < one.content.bytes()), "a variable")?;
                        (offset.into(), Some(Reference::Data(section.index())))
                    }
                    Wide::Subprogram(id) => {
                        let placement =
                            self.subprograms.get(id.index()).ok_or(WriteError::Dangling("a function"))?;
                        (placement.offset.into(), Some(Reference::Text))
                    }
                    Wide::Ksym(id) => {
                        find(id.index() < object.ksyms.len(), "something of the kernel")?;
                        (0, Some(Reference::Ksym(id.index())))
                    }
                    Wide::Kconfig(id) => {
                        find(id.index() < object.kconfig.len(), "a fact about the kernel")?;
                        (0, Some(Reference::Kconfig(id.index())))
                    }
                };
                Ok((Insn::load_imm64(dst, Imm64::Value(number)), reference))
            }
        }
    }
}
