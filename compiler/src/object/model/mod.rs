//! What an object is: closed types for everything that a loader reads.
//!
//! Nothing here is text or a number of the file that libbpf or the kernel would interpret on its own: kinds are enums with
//! tables behind them ([`super::table`]), names have a closed set of characters, calls and addresses name a part of the
//! object or one thing of the kernel. What has no place here cannot be written.

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

/// A BPF object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    /// The licence, by which the kernel decides which helpers programs may call; none if there is none.
    pub license: Option<String>,
    /// The maps, but for those of variables.
    pub maps: Vec<Map>,
    /// The sections of variables; the loader makes a map of each.
    pub data: Vec<DataSection>,
    /// The structs of the kernel that are filled in.
    pub struct_ops: Vec<StructOps>,
    /// Facts about the kernel that the loader looks up, by name.
    pub kconfig: Vec<Kconfig>,
    /// Functions and variables of the kernel, by name.
    pub ksyms: Vec<Ksym>,
    /// The programs; those of one section are neighbours.
    pub programs: Vec<Program>,
    /// The functions that programs call, directly or not. No other function is kept.
    pub subprograms: Vec<Subprogram>,
    /// The types of all these.
    pub types: Types,
    /// What the records of printed lines mean (`ks_wit::object::PRINTS_SECTION`); the host parses it.
    pub print_table: Option<Vec<u8>>,
}

impl Object {
    /// The program of this name.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<(ProgramId, &Program)> {
        let at = self.programs.iter().position(|program| program.name.as_str() == name)?;
        Some((ProgramId(u32::try_from(at).ok()?), self.programs.get(at)?))
    }

    /// The map of this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|map| map.name.as_str() == name)
    }

    /// The variable of this name, with its section.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(&DataSection, &Variable)> {
        let all =
            self.data.iter().flat_map(|section| section.variables.iter().map(move |one| (section, one)));
        all.into_iter().find(|(_, variable)| variable.name.as_str() == name)
    }
}
