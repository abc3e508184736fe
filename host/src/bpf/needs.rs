//! What an object asks the kernel for: program types, helpers, kernel functions and members of structs by program, kinds of
//! maps. Nothing is loaded.

use std::collections::{BTreeMap, BTreeSet};

use ks_compiler::object::model::{KsymId, Presence, ProgramId};
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
            ProgramNeeds {
                name: program.name.as_str().to_owned(),
                section: program.section.to_string(),
                helpers: uses.helpers.iter().map(|helper| helper.number()).collect(),
                kfuncs: uses.kfuncs.iter().filter_map(kfunc).collect(),
                members: members::of_program(model, ProgramId(id)).into_iter().collect(),
            }
        });
        let maps = model
            .maps
            .iter()
            .map(|map| MapNeeds { name: map.name.as_str().to_owned(), kind: map.shape.kind.number() });
        Needs { programs: programs.collect(), maps: maps.collect() }
    }
}
