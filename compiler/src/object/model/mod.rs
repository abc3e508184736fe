//! Object model: closed types for all content that a loader reads.
//!
//! The model has no text or number that libbpf or the kernel would interpret on its own. Kinds are enums with
//! tables ([`super::table`]), names have a closed set of characters, calls and addresses name a part of the
//! object or one symbol of the kernel. Content outside the model cannot be written.

mod data;
mod externs;
mod filters;
mod ids;
mod map;
mod memory;
mod program;
mod struct_ops;
mod types;
mod uses;

pub use data::{DataContent, DataKind, DataSection, Linkage, Variable};
pub use externs::{Kconfig, KconfigType, Ksym, KsymKind, Presence};
pub use ids::{DataId, KconfigId, KsymId, MapId, ProgramId, SubprogramId};
pub use map::{Map, MapInitSlot, MapShape, Pinning, Side};
pub use memory::Memory;
pub use program::{
    Body, Callee, FunctionNote, Helper, Instruction, Line, PlainInsn, Program, Section, Subprogram, Wide,
};
pub use struct_ops::{StructOps, StructOpsMember, StructOpsValue};
pub use types::{Member, Modifier, Type, TypeNote, Types};
pub use uses::Uses;

/// A validated BPF object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    /// Licence, which determines the helpers that programs may call; none if the object has none.
    pub license: Option<String>,
    /// Maps, except those of variables.
    pub maps: Vec<Map>,
    /// Sections of variables; the loader creates a map from each.
    pub data: Vec<DataSection>,
    /// struct_ops variables.
    pub struct_ops: Vec<StructOps>,
    /// Kernel settings that the loader looks up, sorted by name.
    pub kconfig: Vec<Kconfig>,
    /// Kernel functions and variables, sorted by name.
    pub ksyms: Vec<Ksym>,
    /// Programs; those of one section are adjacent.
    pub programs: Vec<Program>,
    /// Functions that programs call, directly or indirectly. No other function is kept.
    pub subprograms: Vec<Subprogram>,
    /// Types that the other parts refer to.
    pub types: Types,
    /// Format of the records of printed lines (`ks_wit::object::PRINTS_SECTION`), parsed by the host.
    pub print_table: Option<Vec<u8>>,
}

impl Object {
    /// Returns the program with this name.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<(ProgramId, &Program)> {
        let at = self.programs.iter().position(|program| program.name.as_str() == name)?;
        Some((ProgramId(u32::try_from(at).ok()?), self.programs.get(at)?))
    }

    /// Returns whether the kernel requires CAP_PERFMON to load the programs.
    #[must_use]
    pub fn needs_perfmon(&self) -> bool {
        self.programs.iter().any(|program| program.section.kind.program.needs_perfmon())
    }

    /// Returns whether the kernel requires CAP_NET_ADMIN to load and attach the programs, or for the maps.
    #[must_use]
    pub fn needs_net_admin(&self) -> bool {
        self.programs.iter().any(|program| program.section.kind.program.needs_net_admin())
            || self.maps.iter().any(|map| map.shape.kind.needs_net_admin())
    }

    /// Returns whether loading the object reads addresses of the kernel that only CAP_SYSLOG shows: those of variables
    /// whose type the object declares.
    #[must_use]
    pub fn needs_syslog(&self) -> bool {
        self.ksyms.iter().any(|ksym| ksym.kind == KsymKind::Address)
    }

    /// Returns the map with this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|map| map.name.as_str() == name)
    }

    /// Returns the variable with this name, and its section.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(&DataSection, &Variable)> {
        let all =
            self.data.iter().flat_map(|section| section.variables.iter().map(move |one| (section, one)));
        all.into_iter().find(|(_, variable)| variable.name.as_str() == name)
    }
}
