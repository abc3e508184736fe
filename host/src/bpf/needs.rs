//! What an object asks the kernel for: program types, helpers, kernel functions, members of structs and instructions by
//! program, kinds of maps. Nothing is loaded.

use std::collections::{BTreeMap, BTreeSet};

use ks_compiler::bpf::{AluOp, AtomicOp, ByteOrder, Insn};
use ks_compiler::object::model::{Body, Instruction, KsymId, Presence, ProgramId};
use serde::{Deserialize, Serialize};

use super::members::{self, MemberPath, MemberUse};
use crate::policy::PluginObject;

/// What an object asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Its programs, in the order of its symbols.
    pub programs: Vec<ProgramNeeds>,
    /// Its maps but those of its variables and of the structs that it registers.
    pub maps: Vec<MapNeeds>,
}

/// What a program and the functions that it calls ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramNeeds {
    /// Its symbol.
    pub name: String,
    /// Its section, which tells its type and often its target.
    pub section: String,
    /// The helpers by number (`enum bpf_func_id`).
    pub helpers: BTreeSet<u32>,
    /// The functions of the kernel by name, and whether the object can do without (it refers to them weakly).
    pub kfuncs: BTreeMap<String, bool>,
    /// The members of the kernel's structs that it reads, in the order of their names.
    pub members: Vec<(MemberPath, MemberUse)>,
    /// What it has of instructions that not every kernel with BPF has.
    pub instructions: BTreeSet<InstructionGroup>,
}

/// Instructions that came to the kernel together, after those of version 3 of the instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstructionGroup {
    /// Atomic operations but an addition whose result nobody takes.
    Atomics,
    /// Signed division, sign extension, byte swaps and long jumps: version 4.
    V4,
    /// The jump that bounds a loop.
    MayGoto,
}

impl InstructionGroup {
    /// The group of an instruction; none of what is older.
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

/// The groups that the instructions of a function are of.
fn groups(body: &Body) -> impl Iterator<Item = InstructionGroup> {
    body.code.iter().filter_map(|instruction| match instruction {
        Instruction::Plain(plain) => InstructionGroup::of(plain.insn()),
        Instruction::Call(_) | Instruction::LoadWide { .. } => None,
    })
}

/// A map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapNeeds {
    /// Its name.
    pub name: String,
    /// Its kind, a number of `enum bpf_map_type`.
    pub kind: u32,
}

impl Needs {
    /// Of an object.
    pub fn of(object: &PluginObject) -> Needs {
        let model = object.model();
        let programs = (0..).zip(&model.programs).map(|(id, program)| {
            let uses = model.uses(ProgramId(id));
            let kfunc = |id: &KsymId| {
                let ksym = model.ksyms.get(id.index())?;
                Some((ksym.name.as_str().to_owned(), ksym.presence == Presence::Optional))
            };
            let called = uses.subprograms.iter().filter_map(|id| model.subprograms.get(id.index()));
            let bodies = std::iter::once(&program.body).chain(called.map(|one| &one.body));
            ProgramNeeds {
                name: program.name.as_str().to_owned(),
                section: program.section.to_string(),
                helpers: uses.helpers.iter().map(|helper| helper.number()).collect(),
                kfuncs: uses.kfuncs.iter().filter_map(kfunc).collect(),
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
