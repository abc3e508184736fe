//! Functions: their positions in the code sections, and the relocations for their symbolic operands.

use super::{BuildError, CodeSection, FunctionBody, FunctionDecl, GlobalDef, ObjectFunction, to_u32};
use crate::bpf::{
    self, CallTarget, FunctionRef, GlobalRef, Imm64, Insn, InsnIndex, KernelVariableRef, KfuncRef, MapRef,
    Operand, SLOT_BYTES, Symbol, slot_offsets,
};
use crate::object::btf::{BtfBuilder, CoreReloKind, FuncLinkage, Line, TypeId, ext};

/// The final code sections, in the order of first use.
pub(super) struct CodeLayout {
    pub sections: Vec<Section>,
    /// For each function, its section's index, and its offset and size in bytes.
    pub placements: Vec<FunctionPlacement>,
    pub ext: Vec<ext::Section>,
}

pub(super) struct Section {
    pub name: String,
    pub bytes: Vec<u8>,
    pub relocations: Vec<Relocation>,
}

#[derive(Clone, Copy)]
pub(super) struct FunctionPlacement {
    pub section: usize,
    pub offset: u32,
    pub bytes: u32,
}

/// A relocation of an instruction.
pub(super) struct Relocation {
    /// Offset in bytes of the instruction from the section's start.
    pub offset: u32,
    pub target: Target,
}

/// Target of a relocation.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Map(MapRef),
    Global(GlobalRef),
    /// A called function of the object.
    Function(FunctionRef),
    /// A function whose address is taken.
    Callback(FunctionRef),
    Kfunc(KfuncRef),
    KernelVariable(KernelVariableRef),
}

const TEXT: &str = ".text";

pub(super) fn lay_out(
    btf: &mut BtfBuilder,
    functions: &[ObjectFunction],
    globals: &[GlobalDef],
) -> Result<CodeLayout, BuildError> {
    check_line_tables(functions)?;
    let mut code = placement(functions)?;
    for (function, placement) in functions.iter().zip(code.placements.clone()) {
        let FunctionDecl { name, proto, linkage, .. } = &function.decl;
        let body = body(function)?;
        let func = btf.func(name, *proto, *linkage);
        for attribute in &function.attributes {
            btf.decl_tag(attribute, func, None);
        }
        let lowering = Lowering { name, placement, code: &code, functions, globals };
        let (bytes, relocations) = lowering.lower(&body.code)?;
        if let (Some(section), Some(ext)) =
            (code.sections.get_mut(placement.section), code.ext.get_mut(placement.section))
        {
            describe(ext, name, placement, func, body)?;
            section.bytes.extend_from_slice(&bytes);
            section.relocations.extend(relocations);
        }
    }
    Ok(code)
}

fn body(function: &ObjectFunction) -> Result<&FunctionBody, BuildError> {
    let error = |reason| BuildError::Function { name: function.decl.name.clone(), reason };
    match &function.body {
        None => Err(error("was declared and has no body")),
        Some(body) if body.code.is_empty() => Err(error("has no instructions")),
        Some(body) => Ok(body),
    }
}

/// Checks that all functions of a program have line information at their start, or none has
/// (kernel/bpf/verifier.c, `check_btf_line`, v6.12).
fn check_line_tables(functions: &[ObjectFunction]) -> Result<(), BuildError> {
    let lines = |function: &ObjectFunction| function.body.as_ref().is_some_and(|body| !body.lines.is_empty());
    if !functions.iter().any(lines) {
        return Ok(());
    }
    match functions.iter().find(|function| !lines(function)) {
        None => Ok(()),
        Some(function) => Err(BuildError::Function {
            name: function.decl.name.clone(),
            reason: "has no lines, but other functions have",
        }),
    }
}

/// Assigns a position to every function; the sections are still empty.
fn placement(functions: &[ObjectFunction]) -> Result<CodeLayout, BuildError> {
    let mut code =
        CodeLayout { sections: Vec::new(), placements: Vec::with_capacity(functions.len()), ext: Vec::new() };
    let mut ends: Vec<u32> = Vec::new();
    for function in functions {
        let name = section_name(&function.decl)?;
        let section = match code.sections.iter().position(|section| section.name == name) {
            Some(index) => index,
            None => {
                code.sections.push(Section {
                    name: name.to_owned(),
                    bytes: Vec::new(),
                    relocations: Vec::new(),
                });
                code.ext.push(ext::Section { name: name.to_owned(), ..ext::Section::default() });
                ends.push(0);
                ends.len() - 1
            }
        };
        let slots: u32 = body(function)?
            .code
            .iter()
            .try_fold(0u32, |sum, insn| sum.checked_add(insn.slots()))
            .ok_or(BuildError::TooLarge)?;
        let bytes = slots.checked_mul(to_u32(SLOT_BYTES)?).ok_or(BuildError::TooLarge)?;
        let offset = ends.get(section).copied().unwrap_or_default();
        let end = offset.checked_add(bytes).ok_or(BuildError::TooLarge)?;
        if let Some(last) = ends.get_mut(section) {
            *last = end;
        }
        code.placements.push(FunctionPlacement { section, offset, bytes });
    }
    Ok(code)
}

fn section_name(decl: &FunctionDecl) -> Result<&str, BuildError> {
    let reason = match (&decl.section, decl.linkage) {
        (_, FuncLinkage::Extern) => "has a body and extern linkage",
        (CodeSection::Text, _) => return Ok(TEXT),
        (CodeSection::Program(_), FuncLinkage::Static) => "is a static program, which libbpf refuses",
        (CodeSection::Program(name), _) if name.is_empty() || name.starts_with('.') => {
            "is a program in a section that is none of programs"
        }
        (CodeSection::Program(name), _) if name.contains('\0') => "is in a section with a NUL in its name",
        (CodeSection::Program(name), FuncLinkage::Global) => return Ok(name),
    };
    Err(BuildError::Function { name: decl.name.clone(), reason })
}

/// Lowers one function's symbolic operands to relocations.
struct Lowering<'a> {
    name: &'a str,
    placement: FunctionPlacement,
    code: &'a CodeLayout,
    functions: &'a [ObjectFunction],
    globals: &'a [GlobalDef],
}

/// Constant of a relocated call: -1, so that the loader's "target + constant + 1" is the target.
const CALL_PLACEHOLDER: i32 = -1;

impl Lowering<'_> {
    fn lower(&self, insns: &[Insn]) -> Result<(Vec<u8>, Vec<Relocation>), BuildError> {
        let encode_error = |source| BuildError::Encode { name: self.name.to_owned(), source };
        let slots = slot_offsets(insns).map_err(encode_error)?;
        let mut plain = Vec::with_capacity(insns.len());
        let mut calls = Vec::new();
        let mut relocations = Vec::new();
        for ((index, insn), &slot) in (0u32..).zip(insns).zip(&slots) {
            let (insn, target) = self.replace(InsnIndex(index), insn)?;
            plain.push(insn);
            let Some(target) = target else { continue };
            if matches!(target, Target::Function(_) | Target::Kfunc(_)) {
                calls.push(slot as usize);
            }
            relocations.push(Relocation { offset: self.placement.offset + byte_offset(slot), target });
        }
        let mut bytes = bpf::encode(&plain).map_err(encode_error)?;
        for slot in calls {
            mark_call(&mut bytes, slot);
        }
        Ok((bytes, relocations))
    }

    /// Returns the instruction without its symbolic operand, and the operand.
    fn replace(&self, at: InsnIndex, insn: &Insn) -> Result<(Insn, Option<Target>), BuildError> {
        match *insn {
            Insn::LoadImm64 { dst, value } => {
                let (addend, target) = match value {
                    Imm64::Value(_) => return Ok((*insn, None)),
                    Imm64::Map(map) => (0, Target::Map(map)),
                    Imm64::Global { global, offset } => {
                        (self.offset_in(at, global, offset)?, Target::Global(global))
                    }
                    Imm64::Function(function) => (self.callback(at, function)?, Target::Callback(function)),
                    Imm64::KernelVariable(variable) => (0, Target::KernelVariable(variable)),
                    Imm64::MapFd(_) | Imm64::MapValueFd { .. } | Imm64::FunctionAt(_) => {
                        return Err(self.insn_error(at, LOADED_FORM));
                    }
                };
                Ok((Insn::load_imm64(dst, Imm64::Value(addend.into())), Some(target)))
            }
            Insn::Call { target } => {
                let target = match target {
                    CallTarget::Helper(_) => return Ok((*insn, None)),
                    CallTarget::Function(function) => self.callee(at, function)?,
                    CallTarget::Kfunc(kfunc) => Target::Kfunc(kfunc),
                    CallTarget::FunctionAt(_) | CallTarget::KfuncId { .. } => {
                        return Err(self.insn_error(at, LOADED_FORM));
                    }
                };
                Ok((Insn::call_helper(0), Some(target)))
            }
            _ => Ok((*insn, None)),
        }
    }

    fn callee(&self, at: InsnIndex, function: FunctionRef) -> Result<Target, BuildError> {
        let (decl, _) = self.function(function)?;
        match decl.section {
            CodeSection::Text => Ok(Target::Function(function)),
            CodeSection::Program(_) => Err(self.insn_error(at, "calls a program; only .text can be called")),
        }
    }

    /// Returns `offset` if it is inside the variable.
    fn offset_in(&self, at: InsnIndex, global: GlobalRef, offset: u32) -> Result<u32, BuildError> {
        match self.globals.get(global.0 as usize) {
            None => Err(BuildError::Foreign(Symbol::Global(global))),
            Some(def) if offset < def.bytes => Ok(offset),
            Some(_) => Err(self.insn_error(at, "takes an address outside its variable")),
        }
    }

    /// Returns the offset of a callback in `.text`.
    fn callback(&self, at: InsnIndex, function: FunctionRef) -> Result<u32, BuildError> {
        let (decl, placement) = self.function(function)?;
        match (&decl.section, decl.linkage) {
            (CodeSection::Text, FuncLinkage::Static) => Ok(placement.offset),
            _ => Err(self.insn_error(at, "takes the address of a function that is not static in .text")),
        }
    }

    fn function(&self, function: FunctionRef) -> Result<(&FunctionDecl, FunctionPlacement), BuildError> {
        let index = function.0 as usize;
        match (self.functions.get(index), self.code.placements.get(index)) {
            (Some(function), Some(&placement)) => Ok((&function.decl, placement)),
            _ => Err(BuildError::Foreign(Symbol::Function(function))),
        }
    }

    fn insn_error(&self, at: InsnIndex, reason: &'static str) -> BuildError {
        BuildError::Insn { name: self.name.to_owned(), at, reason }
    }
}

const LOADED_FORM: &str = "names a descriptor, a BTF id or a position; an object needs a symbol";

/// Marks the call in a slot as a call of another function, whose position the loader fills in.
///
/// Source: Documentation/bpf/llvm_reloc.rst, `R_BPF_64_32`; the source register is `BPF_PSEUDO_CALL`.
fn mark_call(bytes: &mut [u8], slot: usize) {
    const PSEUDO_CALL: u8 = 1;
    let (slots, _) = bytes.as_chunks_mut::<SLOT_BYTES>();
    if let Some([_, registers, _, _, imm @ ..]) = slots.get_mut(slot) {
        *registers = PSEUDO_CALL << 4;
        *imm = CALL_PLACEHOLDER.to_le_bytes();
    }
}

/// Returns the offset of a slot. It does not overflow, because the layout was checked before.
fn byte_offset(slot: u32) -> u32 {
    slot.saturating_mul(8)
}

/// Adds a function's type, lines and CO-RE relocations to its section's `.BTF.ext` tables.
fn describe(
    ext: &mut ext::Section,
    name: &str,
    placement: FunctionPlacement,
    func: TypeId,
    body: &FunctionBody,
) -> Result<(), BuildError> {
    let slots =
        slot_offsets(&body.code).map_err(|source| BuildError::Encode { name: name.to_owned(), source })?;
    let error = |at, reason| BuildError::Insn { name: name.to_owned(), at, reason };
    let offset = |at: InsnIndex| match (body.code.get(at.0 as usize), slots.get(at.0 as usize)) {
        (Some(insn), Some(&slot)) => Ok((insn, placement.offset + byte_offset(slot))),
        _ => Err(error(at, "is named by a line or relocation and does not exist")),
    };
    ext.funcs.push((placement.offset, func));
    for line in last_at_each_instruction(&body.lines) {
        let (_, at) = offset(line.at)?;
        check_line(line, name)?;
        ext.lines.push((at, line.clone()));
    }
    check_order(body.lines.iter().map(|line| line.at)).map_err(|at| error(at, "has lines out of order"))?;
    if let Some(first) = body.lines.first().filter(|line| line.at != InsnIndex(0)) {
        return Err(error(first.at, "has the first line; instruction 0 must have one"));
    }
    check_order(body.relos.iter().map(|relo| relo.at))
        .map_err(|at| error(at, "has CO-RE relocations out of order"))?;
    for relo in &body.relos {
        let (insn, at) = offset(relo.at)?;
        if !carries_relocation(insn, relo.kind) {
            return Err(error(relo.at, "cannot carry a CO-RE relocation"));
        }
        ext.relos.push((at, relo.clone()));
    }
    Ok(())
}

fn last_at_each_instruction(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.chunk_by(|a, b| a.at == b.at).filter_map(<[Line]>::last)
}

fn check_line(line: &Line, name: &str) -> Result<(), BuildError> {
    if (1..=ext::MAX_LINE).contains(&line.line) {
        return Ok(());
    }
    Err(BuildError::Insn {
        name: name.to_owned(),
        at: line.at,
        reason: "has a line number of more than 22 bits",
    })
}

/// Returns the first index that is smaller than its predecessor as an error.
fn check_order(indices: impl Iterator<Item = InsnIndex>) -> Result<(), InsnIndex> {
    let mut last = InsnIndex(0);
    for index in indices {
        if index < last {
            return Err(index);
        }
        last = index;
    }
    Ok(())
}

/// Source: libbpf v1.7 relo_core.c, `bpf_core_patch_insn`.
fn carries_relocation(insn: &Insn, kind: CoreReloKind) -> bool {
    match insn {
        Insn::Alu { src: Operand::Imm(_), .. } | Insn::Mov { src: Operand::Imm(_), .. } => true,
        Insn::LoadImm64 { value: Imm64::Value(_), .. } => true,
        Insn::Load { .. } | Insn::LoadSx { .. } | Insn::Store { .. } | Insn::Atomic { .. } => {
            kind == CoreReloKind::FieldByteOffset
        }
        _ => false,
    }
}
