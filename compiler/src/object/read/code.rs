//! Instructions: resolves the operand of each call and each wide load.
//!
//! Source: tools/lib/bpf/libbpf.c, `bpf_program__record_reloc`, `bpf_object__reloc_code` and
//! `bpf_object__relocate_data`, v1.7; Documentation/bpf/llvm_reloc.rst, v6.18.

use super::super::error::{ReadError, Reason};
use super::super::model::{
    Body, Callee, DataId, FunctionNote, Helper, Instruction, KconfigId, KsymId, KsymKind, Line, MapId,
    PlainInsn, SubprogramId, Wide,
};
use super::btf::select::Selection;
use super::btf::{RawType, RawTypes};
use super::core;
use super::elf::{Elf, RelocationKind, Role, SymbolSection};
use super::functions::{Functions, RawFunction};
use crate::bpf::{self, DecodeError, Imm64, Insn, InsnIndex, SLOT_BYTES};
use crate::object::btf::{CoreRelo, TypeId};

/// Lookup of operands: maps file positions to parts of the object.
pub(super) struct SymbolResolver<'n, 'a> {
    pub elf: &'n Elf<'a>,
    pub functions: &'n Functions<'a>,
    /// Returns the map at a section and offset.
    pub map: &'n dyn Fn(usize, u64) -> Option<MapId>,
    /// Returns the id and the size of a section of variables.
    pub data: &'n dyn Fn(usize) -> Option<(DataId, u32)>,
    /// Returns the kernel symbol or setting of an ELF symbol.
    pub external: &'n dyn Fn(usize) -> Option<External>,
}

/// A kernel symbol or setting.
#[derive(Clone, Copy)]
pub(super) enum External {
    Ksym(KsymId, KsymKind),
    Kconfig(KconfigId),
}

/// A function with resolved instructions. Functions of the object are still identified by their positions in
/// the file.
pub(super) struct ResolvedCode {
    pub instructions: Vec<Instruction>,
    lines: Vec<Line>,
    core: Vec<CoreRelo>,
}

impl SymbolResolver<'_, '_> {
    /// Resolves the instructions of a function.
    pub(super) fn resolve(
        &self,
        function: &RawFunction<'_>,
        types: Option<&RawTypes<'_>>,
    ) -> Result<ResolvedCode, ReadError> {
        let section = self.elf.section(function.section).map_or("", |section| section.name);
        let error = |slot: usize, reason| {
            ReadError::section(section, function.start + (slot * SLOT_BYTES) as u64, reason)
        };
        let (slots, _) = function.bytes.as_chunks::<SLOT_BYTES>();
        let mut slots = slots.to_vec();
        // Instructions with symbolic operands are kept here, and replaced in the slots by a plain form that
        // decodes.
        let mut named: Vec<(usize, Instruction)> = Vec::new();
        let mut at = 0;
        while let Some(slot) = slots.get(at).copied().map(RawInsn::new) {
            let relocation =
                self.elf.relocations.at(function.section, function.start + (at * SLOT_BYTES) as u64);
            let symbol = match relocation {
                None => None,
                Some(found) if slot.relocation() == Some(found.kind) => Some(found.symbol),
                Some(_) => return Err(error(at, Reason::Relocation("not of the kind of its instruction"))),
            };
            match slot.opcode {
                WIDE => {
                    let second = slots.get(at + 1).copied().map(RawInsn::new);
                    let second = second.ok_or_else(|| error(at, truncated(at)))?;
                    if self
                        .elf
                        .relocations
                        .at(function.section, function.start + ((at + 1) * SLOT_BYTES) as u64)
                        .is_some()
                    {
                        return Err(error(at + 1, Reason::Relocation("in the middle of an instruction")));
                    }
                    if let Some(found) =
                        self.wide(&slot, &second, symbol).map_err(|reason| error(at, reason))?
                    {
                        named.push((at, found));
                        plain(&mut slots, at, slot.with_immediate(0));
                    }
                    at += 2;
                }
                CALL => {
                    let callee =
                        self.callee(function, at, &slot, symbol).map_err(|reason| error(at, reason))?;
                    named.push((at, Instruction::Call(callee)));
                    plain(&mut slots, at, ANY_CALL);
                    at += 1;
                }
                _ => at += 1,
            }
        }
        let insns =
            bpf::decode(slots.as_flattened()).map_err(|fault| error(slot_of(&fault), fault.into()))?;
        assemble(function, &insns, named, types, &error)
    }

    fn wide(
        &self,
        slot: &RawInsn,
        second: &RawInsn,
        symbol: Option<usize>,
    ) -> Result<Option<Instruction>, Reason> {
        if slot.source != 0 {
            return Err(Reason::Instruction(
                "it names a map, a variable of the kernel or a function by a number",
            ));
        }
        let Some(symbol) = symbol else { return Ok(None) };
        if second.immediate != 0 {
            return Err(Reason::Instruction("a relocated wide load has a constant in its second half"));
        }
        let value = self.address(symbol, slot.immediate)?;
        // The decoder rejects registers that do not exist.
        let dst =
            bpf::Reg::new(slot.destination).ok_or(Reason::Instruction("it has a register above r10"))?;
        Ok(Some(Instruction::LoadWide { dst, value }))
    }

    /// Returns the operand at a symbol plus `addend` bytes.
    fn address(&self, index: usize, addend: i32) -> Result<Wide, Reason> {
        let symbol =
            self.elf.symbols.get(index).ok_or(Reason::Relocation("of a symbol that does not exist"))?;
        let section = match symbol.section {
            SymbolSection::Undefined if addend != 0 => {
                return Err(Reason::Relocation("of something of the kernel, with an offset"));
            }
            SymbolSection::Undefined => {
                return match (self.external)(index).ok_or(UNKNOWN_EXTERN)? {
                    External::Ksym(id, _) => Ok(Wide::Ksym(id)),
                    External::Kconfig(id) => Ok(Wide::Kconfig(id)),
                };
            }
            SymbolSection::Absolute => return Err(Reason::Relocation("of a file's name")),
            SymbolSection::Section(section) => section,
        };
        let offset = i64::try_from(symbol.value).ok().and_then(|value| value.checked_add(addend.into()));
        let offset = offset.and_then(|offset| u64::try_from(offset).ok()).ok_or(OUTSIDE)?;
        match self.elf.section(section).map(|section| &section.role) {
            Some(Role::Maps | Role::LegacyMaps) => match (self.map)(section, offset) {
                Some(map) if addend == 0 => Ok(Wide::Map(map)),
                _ => Err(Reason::Relocation("into the middle of the definition of a map")),
            },
            Some(Role::Data(_)) => {
                let (id, bytes) = (self.data)(section).ok_or(OUTSIDE)?;
                let offset = u32::try_from(offset).ok().filter(|&offset| offset < bytes).ok_or(OUTSIDE)?;
                Ok(Wide::Data { section: id, offset })
            }
            Some(Role::Subprograms) => {
                let found = self.functions.starting_at(section, offset).ok_or(NO_FUNCTION)?;
                Ok(Wide::Subprogram(position(found)))
            }
            _ => Err(Reason::Relocation("of a section whose addresses programs do not have")),
        }
    }

    fn callee(
        &self,
        function: &RawFunction<'_>,
        at: usize,
        slot: &RawInsn,
        symbol: Option<usize>,
    ) -> Result<Callee, Reason> {
        if slot.destination != 0 || slot.offset != 0 {
            return Err(Reason::Instruction("a call with fields that must be zero"));
        }
        match (slot.source, symbol) {
            (0, None) => {
                let number = slot.immediate.cast_unsigned();
                let helper = Helper::new(number);
                helper
                    .map(Callee::Helper)
                    .ok_or(Reason::Instruction("a call of a helper that Linux 6.18 does not have"))
            }
            (0, Some(_)) => Err(Reason::Instruction("a call of a helper has a relocation")),
            (PSEUDO_CALL, None) => {
                let is_text =
                    self.elf.section(function.section).is_some_and(|one| one.role == Role::Subprograms);
                if !is_text {
                    return Err(Reason::Instruction(
                        "a call of a function of a section of programs: libbpf takes functions of `.text` \
                         only",
                    ));
                }
                let next = function.start / SLOT_BYTES as u64 + at as u64 + 1;
                self.subprogram(function.section, next, slot.immediate)
            }
            (PSEUDO_CALL, Some(symbol)) => self.called_symbol(symbol, slot.immediate),
            _ => Err(Reason::Instruction("a call of a function of the kernel by a number")),
        }
    }

    fn called_symbol(&self, index: usize, distance: i32) -> Result<Callee, Reason> {
        let symbol =
            self.elf.symbols.get(index).ok_or(Reason::Relocation("of a symbol that does not exist"))?;
        match symbol.section {
            SymbolSection::Undefined if distance != -1 => {
                Err(Reason::Relocation("of something of the kernel, with an offset"))
            }
            SymbolSection::Undefined => match (self.external)(index).ok_or(UNKNOWN_EXTERN)? {
                External::Ksym(id, KsymKind::Function(_)) => Ok(Callee::Kfunc(id)),
                External::Ksym(..) | External::Kconfig(_) => {
                    Err(Reason::Instruction("a call of something of the kernel that is not a function"))
                }
            },
            SymbolSection::Section(section) => {
                let is_text = self.elf.section(section).is_some_and(|one| one.role == Role::Subprograms);
                if !is_text || !symbol.value.is_multiple_of(SLOT_BYTES as u64) {
                    return Err(NO_FUNCTION);
                }
                self.subprogram(section, symbol.value / SLOT_BYTES as u64 + 1, distance)
            }
            SymbolSection::Absolute => Err(Reason::Relocation("of a file's name")),
        }
    }

    /// Returns the function that starts `distance` slots after another slot.
    fn subprogram(&self, section: usize, slot: u64, distance: i32) -> Result<Callee, Reason> {
        let target = i64::try_from(slot).ok().and_then(|slot| slot.checked_add(distance.into()));
        let target = target.and_then(|slot| u64::try_from(slot).ok()?.checked_mul(SLOT_BYTES as u64));
        let found =
            target.and_then(|target| self.functions.starting_at(section, target)).ok_or(NO_FUNCTION)?;
        Ok(Callee::Subprogram(position(found)))
    }
}

const NO_FUNCTION: Reason = Reason::Instruction("no function of `.text` starts where it leads");
const OUTSIDE: Reason = Reason::Instruction("it leads outside of the section of variables");
const UNKNOWN_EXTERN: Reason = Reason::Relocation("of something of the kernel that has no types");

/// Encodes a function's position in the file, until the called functions are numbered.
fn position(found: usize) -> SubprogramId {
    SubprogramId(u32::try_from(found).unwrap_or(u32::MAX))
}

/// `BPF_LD | BPF_IMM | BPF_DW`
const WIDE: u8 = 0x18;
/// `BPF_JMP | BPF_CALL`
const CALL: u8 = 0x85;
/// `BPF_PSEUDO_CALL`
const PSEUDO_CALL: u8 = 1;
/// A helper call, as placeholder for any call.
const ANY_CALL: [u8; SLOT_BYTES] = [CALL, 0, 0, 0, 1, 0, 0, 0];

/// `struct bpf_insn`
struct RawInsn {
    bytes: [u8; SLOT_BYTES],
    opcode: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

impl RawInsn {
    fn new(bytes: [u8; SLOT_BYTES]) -> RawInsn {
        let [opcode, registers, low, high, immediate @ ..] = bytes;
        RawInsn {
            bytes,
            opcode,
            destination: registers & 0xf,
            source: registers >> 4,
            offset: i16::from_le_bytes([low, high]),
            immediate: i32::from_le_bytes(immediate),
        }
    }

    /// Returns the kind of relocation that the instruction may have.
    fn relocation(&self) -> Option<RelocationKind> {
        match self.opcode {
            WIDE => Some(RelocationKind::Wide),
            CALL => Some(RelocationKind::Call),
            _ => None,
        }
    }

    fn with_immediate(&self, immediate: i32) -> [u8; SLOT_BYTES] {
        let [opcode, registers, low, high, ..] = self.bytes;
        let [a, b, c, d] = immediate.to_le_bytes();
        [opcode, registers, low, high, a, b, c, d]
    }
}

fn plain(slots: &mut [[u8; SLOT_BYTES]], at: usize, form: [u8; SLOT_BYTES]) {
    if let Some(slot) = slots.get_mut(at) {
        *slot = form;
    }
}

fn truncated(at: usize) -> Reason {
    DecodeError::Truncated { slot: u32::try_from(at).unwrap_or(u32::MAX) }.into()
}

fn slot_of(fault: &DecodeError) -> usize {
    match fault {
        DecodeError::Length(_) => 0,
        DecodeError::Unknown { slot, .. }
        | DecodeError::Register { slot, .. }
        | DecodeError::Truncated { slot }
        | DecodeError::Target { slot, .. } => *slot as usize,
    }
}

/// Combines decoded instructions with their operands, lines and CO-RE records.
fn assemble(
    function: &RawFunction<'_>,
    insns: &[Insn],
    named: Vec<(usize, Instruction)>,
    types: Option<&RawTypes<'_>>,
    error: &dyn Fn(usize, Reason) -> ReadError,
) -> Result<ResolvedCode, ReadError> {
    let mut code =
        ResolvedCode { instructions: Vec::with_capacity(insns.len()), lines: Vec::new(), core: Vec::new() };
    let mut named = named.into_iter().peekable();
    let mut lines = function.lines.iter().peekable();
    let mut records: Vec<_> = function.core.iter().collect();
    records.sort_by_key(|record| record.slot);
    let mut records = records.into_iter().peekable();
    let mut slot = 0u32;
    for (index, insn) in (0u32..).map(InsnIndex).zip(insns) {
        let at = slot as usize;
        if let Some(line) = lines.next_if(|line| line.at.0 == slot) {
            code.lines.push(Line { at: index, ..line.clone() });
        }
        let mut insn = *insn;
        let found = named.next_if(|(named, _)| *named == at).map(|(_, found)| found);
        if let Some(record) = records.next_if(|record| record.slot == slot) {
            let types = types.ok_or_else(|| error(at, Reason::Core("the object has no types")))?;
            core::check(types, record).map_err(|reason| error(at, reason))?;
            if found.is_some() {
                return Err(error(at, Reason::SecondRelocation));
            }
            insn = core::instruction(record.kind, insn).map_err(|reason| error(at, reason))?;
            let (root, path, kind) = (record.root, record.path.clone(), record.kind);
            code.core.push(CoreRelo { at: index, root, path, kind });
        }
        code.instructions.push(match (found, insn) {
            (Some(found), _) => found,
            (None, Insn::LoadImm64 { dst, value: Imm64::Value(value) }) => {
                Instruction::LoadWide { dst, value: Wide::Constant(value) }
            }
            (None, insn) => {
                let plain = PlainInsn::new(insn)
                    .ok_or_else(|| error(at, Reason::Instruction("a call that was not resolved")))?;
                Instruction::Plain(plain)
            }
        });
        slot += insn.slots();
    }
    // A remaining record is about the second half of a wide load, or a second one about the same instruction.
    if let Some(line) = lines.next() {
        return Err(error(
            line.at.0 as usize,
            Reason::TypeHeader("a source line begins inside of an instruction"),
        ));
    }
    match records.next() {
        Some(record) => Err(error(record.slot as usize, Reason::SecondRelocation)),
        None => Ok(code),
    }
}

impl ResolvedCode {
    /// Returns the functions of the file that the code refers to.
    pub(super) fn named_functions(&self) -> impl Iterator<Item = usize> {
        self.instructions.iter().filter_map(|instruction| match instruction {
            Instruction::Call(Callee::Subprogram(id))
            | Instruction::LoadWide { value: Wide::Subprogram(id), .. } => Some(id.index()),
            _ => None,
        })
    }

    /// Converts to a body with the object's numbering of functions and types.
    pub(super) fn into_body(
        self,
        func: Option<TypeId>,
        numbers: &dyn Fn(SubprogramId) -> SubprogramId,
        types: Option<&RawTypes<'_>>,
        selection: &mut Selection<'_, '_>,
    ) -> Body {
        let found = func.zip(types).and_then(|(func, types)| match types.get(func)? {
            RawType::Func { signature, .. } => Some((*signature, types.notes(func))),
            _ => None,
        });
        let (signature, notes) = found.unzip();
        let signature = signature.map(|signature| selection.keep(signature));
        let note = |(param, attribute)| FunctionNote { param, attribute };
        let code = self.instructions.into_iter().map(|instruction| match instruction {
            Instruction::Call(Callee::Subprogram(id)) => Instruction::Call(Callee::Subprogram(numbers(id))),
            Instruction::LoadWide { dst, value: Wide::Subprogram(id) } => {
                Instruction::LoadWide { dst, value: Wide::Subprogram(numbers(id)) }
            }
            other => other,
        });
        let core = self.core.into_iter().map(|relo| CoreRelo { root: selection.keep(relo.root), ..relo });
        Body {
            signature,
            notes: notes.unwrap_or_default().into_iter().map(note).collect(),
            code: code.collect(),
            lines: self.lines,
            core: core.collect(),
        }
    }
}
