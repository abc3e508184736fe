//! Kernel features that an object requires: program types, helpers, kernel functions, struct members and
//! instructions per program, and map kinds. Loads nothing.

use std::collections::{BTreeMap, BTreeSet};

use ks_compiler::bpf::{AluOp, AtomicOp, ByteOrder, Insn};
use ks_compiler::object::model::{Body, Instruction, KsymId, KsymKind, Presence, ProgramId};
use serde::{Deserialize, Serialize};

use super::members::{self, MemberPath, MemberUse};
use crate::policy::PluginObject;

/// Kernel features that an object requires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// The programs, in the order of the object's symbols.
    pub programs: Vec<ProgramNeeds>,
    /// The maps, without those of global data and of struct_ops.
    pub maps: Vec<MapNeeds>,
}

/// Requirements of a program, including the functions that it calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramNeeds {
    /// Symbol of the program.
    pub name: String,
    /// Section of the program; it determines the type and often the target.
    pub section: String,
    /// Tracepoints that it is attached to besides that of its section, as `category/event`.
    pub also: Vec<String>,
    /// Whether it is left out where one is missing.
    pub optional: bool,
    /// Helpers by number (`enum bpf_func_id`).
    pub helpers: BTreeSet<u32>,
    /// Kernel functions by name; true if the reference is weak, so that the object loads without the
    /// function.
    pub kfuncs: BTreeMap<String, bool>,
    /// Variables of the kernel by name, without which the object cannot be loaded.
    pub variables: BTreeSet<String>,
    /// Members of kernel structs that the program reads, sorted by name.
    pub members: Vec<(MemberPath, MemberUse)>,
    /// Groups of instructions that not every kernel with BPF supports.
    pub instructions: BTreeSet<InstructionGroup>,
}

/// Instructions that were added to the kernel together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstructionGroup {
    /// Atomic operations other than an addition without a result.
    Atomics,
    /// Instructions of ISA version 4: signed division, sign extension, byte swaps and long jumps.
    V4,
    /// `may_goto`, the jump that bounds a loop.
    MayGoto,
}

impl InstructionGroup {
    /// Returns the group of an instruction; none if all kernels with BPF support it.
    fn of(instruction: Insn) -> Option<InstructionGroup> {
        match instruction {
            Insn::Atomic { op, .. } if op != AtomicOp::Add => Some(InstructionGroup::Atomics),
            Insn::Alu { op: AluOp::Sdiv | AluOp::Smod, .. }
            | Insn::MovSx { .. }
            | Insn::LoadSx { .. }
            | Insn::Endian { order: ByteOrder::Swap, .. }
            | Insn::JumpLong { .. } => Some(InstructionGroup::V4),
            Insn::MayGoto { .. } => Some(InstructionGroup::MayGoto),
            _ => None,
        }
    }
}

/// Returns the groups of a function's instructions.
fn groups(body: &Body) -> impl Iterator<Item = InstructionGroup> {
    body.code.iter().filter_map(|instruction| match instruction {
        Instruction::Plain(plain) => InstructionGroup::of(plain.insn()),
        Instruction::Call(_) | Instruction::LoadWide { .. } => None,
    })
}

/// Requirements of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapNeeds {
    /// Name of the map in the object.
    pub name: String,
    /// Kind, a number of `enum bpf_map_type`.
    pub kind: u32,
}

impl Needs {
    /// Collects the requirements of an object.
    pub fn of(object: &PluginObject) -> Needs {
        let model = object.model();
        let programs = (0..).zip(&model.programs).map(|(id, program)| {
            let uses = model.uses(ProgramId(id));
            let kfunc = |id: &KsymId| {
                let ksym = model.ksyms.get(id.index())?;
                Some((ksym.name.as_str().to_owned(), ksym.presence == Presence::Optional))
            };
            let variable = |id: &KsymId| {
                let ksym = model.ksyms.get(id.index())?;
                let is_variable = !matches!(ksym.kind, KsymKind::Function(_));
                let is_needed = is_variable && ksym.presence == Presence::Required;
                is_needed.then(|| ksym.name.as_str().to_owned())
            };
            let called = uses.subprograms.iter().filter_map(|id| model.subprograms.get(id.index()));
            let bodies = std::iter::once(&program.body).chain(called.map(|one| &one.body));
            ProgramNeeds {
                name: program.name.as_str().to_owned(),
                section: program.section.to_string(),
                also: program.targets().skip(1).map(|target| target.to_string()).collect(),
                optional: program.is_optional(),
                helpers: uses.helpers.iter().map(|helper| helper.number()).collect(),
                kfuncs: uses.kfuncs.iter().filter_map(kfunc).collect(),
                variables: uses.addresses.iter().filter_map(variable).collect(),
                members: members::of_program(model, ProgramId(id)).into_iter().collect(),
                instructions: bodies.flat_map(groups).collect(),
            }
        });
        let maps = model
            .maps
            .iter()
            .map(|map| MapNeeds { name: map.name.as_str().to_owned(), kind: map.shape.kind.number() });
        Needs { programs: programs.collect(), maps: maps.collect() }
    }
}
