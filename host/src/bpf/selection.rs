//! The programs of an object that are loaded together.
//!
//! ```text
//! first program asked for: all programs, in one pass
//!     \- refused: that program alone; each later one alone, in an object of its own that shares the maps
//! ```
//!
//! An object may contain forms of one program for different kernels, of which a kernel takes only some. libbpf
//! loads all programs of an object or none.

use std::os::fd::AsFd as _;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::MapInitSlot;
use ks_compiler::object::table::ProgramType;
use libbpf_rs::{MapCore as _, MapType, OpenObject};
use nix::errno::Errno;

/// A choice of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection<'a> {
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
    /// Applies the choice to an object that is not prepared yet.
    pub(super) fn apply(self, open: &mut OpenObject, model: &Model) -> Result<(), Errno> {
        if self == Selection::All {
            return Ok(());
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(self.includes(&name, model));
        }
        if self != Selection::Structs {
            for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
                map.set_autocreate(false).map_err(|_| Errno::last())?;
            }
        }
        Ok(())
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

/// Makes an object use the maps of one that is loaded.
pub(super) fn share_maps(open: &mut OpenObject, loaded: &libbpf_rs::Object) -> Result<(), Errno> {
    for mut map in open.maps_mut().filter(|map| map.map_type() != MapType::StructOps) {
        if let Some(known) = loaded.maps().find(|known| known.name() == map.name()) {
            map.reuse_fd(known.as_fd()).map_err(|_| Errno::last())?;
        }
    }
    Ok(())
}
