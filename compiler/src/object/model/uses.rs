//! What a program reaches, through all functions that it calls or hands to the kernel as callbacks.

use std::collections::BTreeSet;

use super::{
    Body, Callee, DataId, Helper, Instruction, KconfigId, KsymId, MapId, Object, ProgramId, SubprogramId,
    Wide,
};
use crate::bpf::Insn;

/// What a program reaches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Helpers that it calls.
    pub helpers: BTreeSet<Helper>,
    /// Functions of the kernel that it calls.
    pub kfuncs: BTreeSet<KsymId>,
    /// Things of the kernel whose addresses it takes.
    pub addresses: BTreeSet<KsymId>,
    /// Facts about the kernel.
    pub kconfig: BTreeSet<KconfigId>,
    /// Maps.
    pub maps: BTreeSet<MapId>,
    /// Sections of variables.
    pub data: BTreeSet<DataId>,
    /// Functions of the object.
    pub subprograms: BTreeSet<SubprogramId>,
    /// Whether it has a `may_goto`, which leaves a loop that takes too long.
    pub has_may_goto: bool,
}

impl Object {
    /// What a program reaches. What programs it reaches by tail calls depends on the content of its maps.
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

    /// What all programs reach.
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
    /// Notes what an instruction names; returns a function of the object that was not noted before.
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
