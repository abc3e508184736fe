//! Parts of an object that a program reaches, through all functions that it calls or passes to the kernel as
//! callbacks.

use std::collections::BTreeSet;

use super::{
    Body, Callee, DataId, Helper, Instruction, KconfigId, KsymId, MapId, Object, ProgramId, SubprogramId,
    Wide,
};
use crate::bpf::Insn;

/// Parts of an object that a program reaches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Called helpers.
    pub helpers: BTreeSet<Helper>,
    /// Called kernel functions.
    pub kfuncs: BTreeSet<KsymId>,
    /// Kernel symbols whose addresses are taken.
    pub addresses: BTreeSet<KsymId>,
    /// Kernel settings that are read.
    pub kconfig: BTreeSet<KconfigId>,
    /// Maps whose addresses are taken.
    pub maps: BTreeSet<MapId>,
    /// Sections of accessed variables.
    pub data: BTreeSet<DataId>,
    /// Functions of the object that are called or passed as callbacks.
    pub subprograms: BTreeSet<SubprogramId>,
    /// Whether it has a `may_goto`, which leaves a loop that runs too long.
    pub has_may_goto: bool,
}

impl Object {
    /// Returns the parts that a program reaches. Programs reached by tail calls depend on map contents and
    /// are not included.
    #[must_use]
    pub fn uses(&self, program: ProgramId) -> Uses {
        let mut uses = Uses::default();
        let mut pending: Vec<&Body> =
            self.programs.get(program.index()).map(|one| &one.body).into_iter().collect();
        while let Some(body) = pending.pop() {
            for id in body.code.iter().filter_map(|instruction| uses.add(instruction)) {
                pending.extend(self.subprograms.get(id.index()).map(|one| &one.body));
            }
        }
        uses
    }

    /// Returns the parts that any program reaches.
    #[must_use]
    pub fn all_uses(&self) -> Uses {
        let mut uses = Uses::default();
        let bodies = self.programs.iter().map(|one| &one.body);
        for body in bodies.chain(self.subprograms.iter().map(|one| &one.body)) {
            body.code.iter().for_each(|instruction| _ = uses.add(instruction));
        }
        uses
    }
}

impl Uses {
    /// Records the operands of an instruction; returns a function of the object that was not recorded before.
    fn add(&mut self, instruction: &Instruction) -> Option<SubprogramId> {
        match *instruction {
            Instruction::Plain(plain) => self.has_may_goto |= matches!(plain.insn(), Insn::MayGoto { .. }),
            Instruction::Call(Callee::Helper(helper)) => _ = self.helpers.insert(helper),
            Instruction::Call(Callee::Kfunc(ksym)) => _ = self.kfuncs.insert(ksym),
            Instruction::Call(Callee::Subprogram(id)) => return self.subprograms.insert(id).then_some(id),
            Instruction::LoadWide { value, .. } => match value {
                Wide::Constant(_) => {}
                Wide::Map(map) => _ = self.maps.insert(map),
                Wide::Data { section, .. } => _ = self.data.insert(section),
                Wide::Subprogram(id) => return self.subprograms.insert(id).then_some(id),
                Wide::Ksym(ksym) => _ = self.addresses.insert(ksym),
                Wide::Kconfig(fact) => _ = self.kconfig.insert(fact),
            },
        }
        None
    }
}
