//! The last look: verifies that the instructions a loader is about to load into the kernel are those of the
//! object.
//!
//! ```text
//! Object -> write -> ELF -> loader (relocates) -> instructions
//!     -> last_look (compared with the Object) -> kernel
//! ```
//!
//! The loader and [`super::read`] read different files; this module compares their results. Each instruction
//! must be the object's own. Each map, variable and function must be the one that the object names.
//! Instructions adjusted to the running kernel must be exactly those that the object marks.
//!
//! Sources: tools/lib/bpf/libbpf.c, `bpf_object__relocate`, `bpf_object__relocate_data`,
//! `bpf_object__sanitize_prog`; tools/lib/bpf/relo_core.c, `bpf_core_patch_insn`; all v1.7.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::model::{
    Body, Callee, DataId, Instruction, Kconfig, KconfigId, KconfigType, KsymId, KsymKind, MapId, Object,
    ProgramId, SubprogramId, Wide,
};
use super::write::WriteError;
use crate::bpf::{self, Imm64, Insn, SLOT_BYTES};

/// An instruction slot as passed to the kernel.
pub type SlotBytes = [u8; SLOT_BYTES];

/// File descriptors of the maps that the loader created; none for maps that it did not create.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptors {
    /// Descriptors of [`Object::maps`], by position.
    pub maps: Vec<Option<i32>>,
    /// Descriptors of the maps of [`Object::data`], by position.
    pub data: Vec<Option<i32>>,
    /// Descriptor of the map of [`Object::kconfig`].
    pub kconfig: Option<i32>,
}

/// Kernel symbols that the loader resolved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResolvedKsyms {
    /// Type of each typed [`Object::ksyms`], by how instructions use it.
    pub types: BTreeMap<(KsymId, KsymUse), KernelType>,
    /// Address of each ksym without a type; 0 if the kernel has no such symbol.
    pub addresses: BTreeMap<KsymId, u64>,
}

/// How an instruction refers to a typed symbol of the kernel. Both forms number the BTF of modules, each in its
/// own way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KsymUse {
    /// By a call. The number is the position in the loader's list of modules.
    Call,
    /// By the load of an address. The number is the descriptor of the module's BTF.
    Load,
}

/// A type of the kernel or of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelType {
    /// Type id. Those of modules come after those of the kernel.
    pub id: u32,
    /// The loader's number of the module's BTF; 0 for the kernel itself.
    pub module: i32,
}

/// An instruction that differs from the object's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("instruction {slot} of program `{program}`: {what}")]
pub struct LookError {
    /// Name of the program.
    pub program: String,
    /// Index of the slot, from the program's start.
    pub slot: usize,
    /// The difference.
    pub what: &'static str,
}

/// Compares the instructions of a loaded program, followed by the functions that it calls, with the object's.
///
/// # Errors
/// [`LookError`] for the first instruction that differs.
pub fn last_look(
    object: &Object,
    program: ProgramId,
    slots: &[SlotBytes],
    descriptors: &Descriptors,
    found: &mut ResolvedKsyms,
) -> Result<(), LookError> {
    let Some(one) = object.programs.get(program.index()) else {
        return Err(LookError { program: String::new(), slot: 0, what: "the object has no such program" });
    };
    let layout = Layout::of(object, &one.body);
    let mut look = Look { object, slots, descriptors, found, layout: &layout };
    look.program(&one.body).map_err(|(slot, what)| LookError {
        program: one.name.as_str().to_owned(),
        slot,
        what,
    })
}

/// Positions of the functions of a program: the loader appends each function when it meets the first
/// reference to it.
#[derive(Default)]
struct Layout {
    starts: HashMap<SubprogramId, usize>,
    order: Vec<SubprogramId>,
    slots: usize,
}

impl Layout {
    fn of(object: &Object, program: &Body) -> Layout {
        let mut layout = Layout { slots: slots(program), ..Layout::default() };
        // Depth first: a function's own references come before the functions after it. The explicit stack of
        // pending instructions avoids recursion on long call chains.
        let mut pending = vec![program.code.iter()];
        while let Some(instructions) = pending.last_mut() {
            let Some(instruction) = instructions.next() else {
                pending.pop();
                continue;
            };
            let Some(id) = callee(instruction) else { continue };
            let Some(callee) = object.subprograms.get(id.index()) else { continue };
            if layout.starts.contains_key(&id) {
                continue;
            }
            layout.starts.insert(id, layout.slots);
            layout.order.push(id);
            layout.slots += slots(&callee.body);
            pending.push(callee.body.code.iter());
        }
        layout
    }
}

fn slots(body: &Body) -> usize {
    body.code.iter().map(|one| one.slots() as usize).sum()
}

/// Returns the function of the object that an instruction calls or takes the address of.
fn callee(instruction: &Instruction) -> Option<SubprogramId> {
    match *instruction {
        Instruction::Call(Callee::Subprogram(id))
        | Instruction::LoadWide { value: Wide::Subprogram(id), .. } => Some(id),
        _ => None,
    }
}

/// Slot and description of a difference.
type Mismatch = (usize, &'static str);

struct Look<'a> {
    object: &'a Object,
    slots: &'a [SlotBytes],
    descriptors: &'a Descriptors,
    found: &'a mut ResolvedKsyms,
    layout: &'a Layout,
}

impl Look<'_> {
    fn program(&mut self, body: &Body) -> Result<(), Mismatch> {
        if self.slots.len() != self.layout.slots {
            return Err((self.slots.len().min(self.layout.slots), "the program has another length"));
        }
        self.function(body, 0)?;
        for id in &self.layout.order {
            let start = self.layout.starts.get(id).copied().unwrap_or_default();
            if let Some(function) = self.object.subprograms.get(id.index()) {
                self.function(&function.body, start)?;
            }
        }
        Ok(())
    }

    fn function(&mut self, body: &Body, start: usize) -> Result<(), Mismatch> {
        let own = own_slots(body).map_err(|_| (start, "a function has no encoding"))?;
        let adjusted: BTreeSet<usize> = body.core.iter().map(|one| one.at.0 as usize).collect();
        let mut at = start;
        for (index, instruction) in body.code.iter().enumerate() {
            let own = own.get(at - start..).unwrap_or_default();
            let is_adjusted = adjusted.contains(&index);
            self.instruction(instruction, own, at, is_adjusted).map_err(|what| (at, what))?;
            at += instruction.slots() as usize;
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        instruction: &Instruction,
        own: &[SlotBytes],
        at: usize,
        is_adjusted: bool,
    ) -> Result<(), &'static str> {
        let (Some(slot), Some(own_slot)) = (self.slot(at), own.first()) else { return Err("it is missing") };
        match *instruction {
            Instruction::Plain(_) if is_adjusted => is_adjustment(own_slot, slot),
            Instruction::Plain(_) => same(own_slot, slot),
            Instruction::Call(Callee::Helper(helper)) => {
                let number = slot.constant;
                let allowed = number == helper.number() || before_5_5(helper.number()) == Some(number);
                if slot.head == (op::CALL, 0, 0) && allowed { Ok(()) } else { Err("it calls another helper") }
            }
            Instruction::Call(Callee::Subprogram(id)) => {
                self.refers_to(id, at, slot, (op::CALL, op::PSEUDO_CALL << 4, 0))
            }
            Instruction::Call(Callee::Kfunc(id)) => self.kfunc(id, slot),
            Instruction::LoadWide { dst, value } => {
                let Some(second) = self.slot(at + 1) else { return Err("its second half is missing") };
                self.wide(dst.number(), value, [slot, second], at, is_adjusted)
            }
        }
    }

    fn wide(
        &mut self,
        dst: u8,
        value: Wide,
        [first, second]: [Parts; 2],
        at: usize,
        is_adjusted: bool,
    ) -> Result<(), &'static str> {
        if is_adjusted && first == op::IMPOSSIBLE && second == op::IMPOSSIBLE {
            return Ok(());
        }
        if second.head != (0, 0, 0) {
            return Err("its second half is not part of it");
        }
        let loads = |source: u8| first.head == (op::LOAD_WIDE, source << 4 | dst, 0);
        let number = u64::from(second.constant) << 32 | u64::from(first.constant);
        let of_map =
            |descriptor: Option<i32>| descriptor.is_some_and(|fd| fd.cast_unsigned() == first.constant);
        match value {
            Wide::Constant(own) if loads(0) && (is_adjusted || own == number) => Ok(()),
            Wide::Constant(_) => Err("it loads another number"),
            Wide::Map(MapId(id)) => {
                let map = self.descriptors.maps.get(id as usize).copied().flatten();
                let is_this = loads(op::PSEUDO_MAP_FD) && of_map(map) && second.constant == 0;
                if is_this { Ok(()) } else { Err("it names another map") }
            }
            Wide::Data { section: DataId(id), offset } => {
                let map = self.descriptors.data.get(id as usize).copied().flatten();
                let is_this = loads(op::PSEUDO_MAP_VALUE) && of_map(map) && second.constant == offset;
                if is_this { Ok(()) } else { Err("it names another variable") }
            }
            Wide::Kconfig(id) => {
                let is_fact = loads(op::PSEUDO_MAP_VALUE) && of_map(self.descriptors.kconfig);
                let is_this = is_fact && kconfig_offset(self.object, id) == Some(second.constant);
                if is_this { Ok(()) } else { Err("it names another fact about the kernel") }
            }
            Wide::Subprogram(id) => {
                let is_this = second.constant == 0;
                self.refers_to(id, at, first, (op::LOAD_WIDE, op::PSEUDO_FUNC << 4 | dst, 0))?;
                if is_this { Ok(()) } else { Err("it names another function") }
            }
            Wide::Ksym(id) => match self.object.ksyms.get(id.index()).map(|ksym| ksym.kind) {
                Some(KsymKind::Address) if loads(0) => self.note_address(id, number),
                // A symbol that the kernel does not have.
                Some(KsymKind::Function(_) | KsymKind::Variable(_)) if loads(0) && number == 0 => Ok(()),
                Some(KsymKind::Function(_) | KsymKind::Variable(_)) if loads(op::PSEUDO_BTF_ID) => {
                    let found = KernelType { id: first.constant, module: second.constant.cast_signed() };
                    self.note_type(id, KsymUse::Load, found)
                }
                _ => Err("it names nothing of the kernel"),
            },
        }
    }

    fn kfunc(&mut self, id: KsymId, slot: Parts) -> Result<(), &'static str> {
        let (code, registers, module) = slot.head;
        match (code, registers) {
            (op::CALL, op::KFUNC_CALL) => {
                let found = KernelType { id: slot.constant, module: module.into() };
                self.note_type(id, KsymUse::Call, found)
            }
            (op::CALL, 0) if module == 0 && op::NO_KFUNC.contains(&slot.constant) => Ok(()),
            _ => Err("it calls no function of the kernel"),
        }
    }

    fn note_address(&mut self, id: KsymId, address: u64) -> Result<(), &'static str> {
        match self.found.addresses.insert(id, address) {
            Some(before) if before != address => Err("it is another address of the kernel"),
            _ => Ok(()),
        }
    }

    /// Records the type of a ksym. One name has one type everywhere, and two names are never the same function or
    /// variable.
    fn note_type(&mut self, id: KsymId, used: KsymUse, ty: KernelType) -> Result<(), &'static str> {
        for ((other, other_use), known) in &self.found.types {
            // The numbers of modules in different uses are not comparable; that of the kernel is.
            let is_comparable = *other_use == used || (ty.module == 0) || (known.module == 0);
            let is_same = ty.id == known.id && (ty.module == known.module || !is_comparable);
            if *other == id && !is_same {
                return Err("it is another function or variable of the kernel");
            }
            if *other != id && is_same && is_comparable {
                return Err("it is what another name of the object stands for");
            }
        }
        self.found.types.insert((id, used), ty);
        Ok(())
    }

    /// Checks that an instruction with this head refers to the start of a function.
    fn refers_to(&self, id: SubprogramId, at: usize, slot: Parts, head: Head) -> Result<(), &'static str> {
        let start = self.layout.starts.get(&id).and_then(|start| i64::try_from(*start).ok());
        let next = i64::try_from(at).ok().and_then(|at| at.checked_add(1));
        let target = next.and_then(|next| next.checked_add(slot.constant.cast_signed().into()));
        if slot.head == head && target.is_some() && target == start {
            Ok(())
        } else {
            Err("it refers to another function")
        }
    }

    fn slot(&self, at: usize) -> Option<Parts> {
        self.slots.get(at).map(Parts::of)
    }
}

/// Returns the offset of a kernel setting in the loader's map of settings. Source: tools/lib/bpf/libbpf.c,
/// `cmp_externs` and `bpf_object__collect_externs`, v1.7.
fn kconfig_offset(object: &Object, wanted: KconfigId) -> Option<u32> {
    let mut settings: Vec<(KconfigId, &Kconfig)> = (0..).map(KconfigId).zip(&object.kconfig).collect();
    let key = |(_, one): &(KconfigId, &Kconfig)| {
        let (bytes, align) = size_and_alignment(one.ty);
        (Reverse(align), bytes, one.name.as_str().to_owned())
    };
    settings.sort_by_cached_key(key);
    let mut end = 0_u32;
    for (id, one) in settings {
        let (bytes, align) = size_and_alignment(one.ty);
        let start = end.checked_next_multiple_of(align)?;
        if id == wanted {
            return Some(start);
        }
        end = start.checked_add(bytes)?;
    }
    None
}

fn size_and_alignment(ty: KconfigType) -> (u32, u32) {
    match ty {
        KconfigType::Bool | KconfigType::Char { .. } => (1, 1),
        KconfigType::Tristate => (4, 4),
        KconfigType::Int { bytes, .. } => (bytes, bytes),
        KconfigType::Text { bytes } => (bytes, 1),
    }
}

/// Encodes the instructions of a function without their symbolic operands.
fn own_slots(body: &Body) -> Result<Vec<SlotBytes>, WriteError> {
    let insn = |instruction: &Instruction| match *instruction {
        Instruction::Plain(plain) => plain.insn(),
        Instruction::Call(_) => Insn::call_helper(0),
        Instruction::LoadWide { dst, .. } => Insn::load_imm64(dst, Imm64::Value(0)),
    };
    let insns: Vec<Insn> = body.code.iter().map(insn).collect();
    let bytes = bpf::encode(&insns).map_err(|source| WriteError::Encode { name: String::new(), source })?;
    let (slots, _) = bytes.as_chunks::<SLOT_BYTES>();
    Ok(slots.to_vec())
}

/// Opcode, registers and offset.
type Head = (u8, u8, i16);

/// Fields of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    head: Head,
    constant: u32,
}

impl Parts {
    fn of(slot: &SlotBytes) -> Parts {
        let [code, registers, o0, o1, c0, c1, c2, c3] = *slot;
        Parts {
            head: (code, registers, i16::from_le_bytes([o0, o1])),
            constant: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

fn same(own: &SlotBytes, slot: Parts) -> Result<(), &'static str> {
    if Parts::of(own) == slot { Ok(()) } else { Err("it is another instruction") }
}

/// Checks that a loader may have produced this slot by a CO-RE adjustment: another constant, another offset
/// and size of an access, or a call that every kernel rejects.
fn is_adjustment(own: &SlotBytes, slot: Parts) -> Result<(), &'static str> {
    let own = Parts::of(own);
    let ((code, registers, offset), (own_code, own_registers, own_offset)) = (slot.head, own.head);
    let adjusts = match own_code & op::CLASS {
        op::ALU | op::ALU64 => (code, registers, offset) == (own_code, own_registers, own_offset),
        op::LDX | op::ST | op::STX => {
            (code & !op::SIZE, registers, slot.constant)
                == (own_code & !op::SIZE, own_registers, own.constant)
        }
        _ => false,
    };
    if adjusts || slot == op::IMPOSSIBLE { Ok(()) } else { Err("it is another instruction") }
}

/// Returns the helper that libbpf substitutes on kernels before 5.5, where two helpers did the work of four.
fn before_5_5(helper: u32) -> Option<u32> {
    let named = |name| bpf::helper_number(name) == Some(helper);
    if named("bpf_probe_read_kernel") || named("bpf_probe_read_user") {
        bpf::helper_number("bpf_probe_read")
    } else if named("bpf_probe_read_kernel_str") || named("bpf_probe_read_user_str") {
        bpf::helper_number("bpf_probe_read_str")
    } else {
        None
    }
}

/// Instruction opcodes and fields. Source: include/uapi/linux/bpf.h and bpf_common.h, v6.18.
mod op {
    use super::Parts;

    pub const CLASS: u8 = 0x07;
    pub const LDX: u8 = 0x01;
    pub const ST: u8 = 0x02;
    pub const STX: u8 = 0x03;
    pub const ALU: u8 = 0x04;
    pub const ALU64: u8 = 0x07;
    pub const SIZE: u8 = 0x18;
    pub const LOAD_WIDE: u8 = 0x18;
    pub const CALL: u8 = 0x85;

    pub const PSEUDO_MAP_FD: u8 = 1;
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    pub const PSEUDO_BTF_ID: u8 = 3;
    pub const PSEUDO_FUNC: u8 = 4;
    pub const PSEUDO_CALL: u8 = 1;
    /// Register byte of a call of a kernel function (kfunc).
    pub const KFUNC_CALL: u8 = 2 << 4;

    /// Replacement of an instruction that has no meaning on the running kernel. Kernels reject it where it is
    /// reachable.
    pub const IMPOSSIBLE: Parts = Parts { head: (CALL, 0, 0), constant: 195_896_080 };
    /// Helper numbers that libbpf substitutes for kfuncs that the running kernel does not have.
    pub const NO_KFUNC: std::ops::Range<u32> = 2_002_000_000..2_003_000_000;
}
