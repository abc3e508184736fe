//! The programs of an object that are loaded together.
//!
//! ```text
//! first program asked for: all programs, in one pass
//!     \- refused: that program alone; each later one alone, in an object of its own that shares the maps
//! ```
//!
//! An object may contain forms of one program for different kernels, of which a kernel takes only some. libbpf
//! loads all programs of an object or none.

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::MapInitSlot;
use ks_compiler::object::table::ProgramType;

use super::{ChosenPrograms, OnlyPrograms};

/// A choice of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bpf) enum Selection<'a> {
    /// Those that the object loads by default.
    All,
    /// The program of this name, and those that tables of programs contain from the start.
    One(&'a str),
    /// The members of kernel structs (struct_ops).
    Structs,
    /// None: only the maps are created.
    Maps,
}

impl Selection<'_> {
    /// Returns the chosen programs of an object.
    pub(in crate::bpf) fn of(self, model: &Model) -> ChosenPrograms {
        if self == Selection::All {
            return ChosenPrograms::Default;
        }
        let names = model.programs.iter().map(|program| program.name.as_str());
        let names = names.filter(|name| self.includes(name, model)).map(str::to_owned).collect();
        ChosenPrograms::Only(OnlyPrograms { names, structs: self == Selection::Structs })
    }

    fn includes(self, name: &str, model: &Model) -> bool {
        let Some((id, program)) = model.program(name) else { return false };
        let is_member = program.section.kind.program == ProgramType::StructOps;
        match self {
            Selection::All => true,
            Selection::One(chosen) => {
                let mut slots = model.maps.iter().flat_map(|map| map.slots.values());
                name == chosen || slots.any(|slot| *slot == MapInitSlot::Program(id))
            }
            Selection::Structs => is_member,
            Selection::Maps => false,
        }
    }
}
