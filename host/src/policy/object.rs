//! The BPF objects of a plugin, from their bytes to the one that may be loaded.
//!
//! ```text
//! BpfRecords -> ObjectSet -> Request (with what they need) -> Policy::admit -> Admitted -> bpf::Object
//! ```
//!
//! Nothing else reads what a plugin file has as its objects, and nothing is loaded but what an [`Admitted`] has, which
//! only [`super::Policy::admit`] makes.

use std::sync::Arc;

use ks_compiler::object::model::{DataSection, Ksym, KsymKind, Memory, Pinning, Presence, Program};
use ks_compiler::object::table::ProgramType;
use ks_compiler::object::{self, Object, ReadError, WriteError};
use ks_wit::object::{PINNED_SECTION, timer_map};
use ks_wit::section::{Arch, BpfRecord};

/// Longest name of an object: it names a folder of pins.
const MAX_NAME_BYTES: usize = 255;

/// Most programs of an object. Guards the memory that the verifier's logs reserve.
const MAX_PROGRAMS: usize = 256;

/// Longest name that the loader is given: the kernel's names of maps have 15 bytes, and begin with it.
const MAX_LOADED_NAME_BYTES: usize = 15;

/// Why the objects of a plugin are refused before a policy is asked.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A name that no file can have.
    #[error(
        "{name:?} cannot name it: a name has 1 to {MAX_NAME_BYTES} bytes, no `/` and no control characters, and is not `.` or `..`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The strict reader does not take it.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A map that is named as only those of sections are.
    #[error("map `{name}` has a dot in its name, as only the maps of variables have")]
    MapName {
        /// The map.
        name: String,
    },
    /// More programs than the loader has room for the verifier's logs of.
    #[error("it has {found} programs; the limit is {MAX_PROGRAMS}")]
    Programs {
        /// How many it has.
        found: usize,
    },
    /// A struct of the kernel that nothing would take back.
    #[error(
        "`{name}` would stay registered when the host is gone: it belongs into the section `.struct_ops.link`"
    )]
    NoLink {
        /// The struct.
        name: String,
    },
    /// No file can be made of what was read.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// An object for another machine that does more than the first one.
    #[error(
        "the object for {arch} needs {needed}, which the first object of the file does not: they are judged together"
    )]
    NeedsMore {
        /// Its architecture.
        arch: Arch,
        /// The class and target, as in a policy.
        needed: String,
    },
}

/// A BPF object of a plugin file, as the strict reader understood it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginObject {
    name: String,
    arch: Arch,
    /// Each run of a plugin has it anew.
    model: Arc<Object>,
}

impl PluginObject {
    /// Reads the object of a record.
    ///
    /// # Errors
    /// [`ObjectError::Read`], whatever the bytes are; as [`PluginObject::new`].
    pub fn read(record: &BpfRecord) -> Result<PluginObject, ObjectError> {
        PluginObject::new(&record.name, record.arch, object::read(&record.elf)?)
    }

    /// An object of this name.
    ///
    /// # Errors
    /// [`ObjectError::Name`]; [`ObjectError::Programs`]; [`ObjectError::MapName`]; [`ObjectError::NoLink`].
    pub fn new(name: &str, arch: Arch, model: Object) -> Result<PluginObject, ObjectError> {
        let is_file_name = (1..=MAX_NAME_BYTES).contains(&name.len())
            && !matches!(name, "." | "..")
            && !name.contains(|char: char| char == '/' || char.is_control());
        if !is_file_name {
            return Err(ObjectError::Name { name: name.into() });
        }
        if model.programs.len() > MAX_PROGRAMS {
            return Err(ObjectError::Programs { found: model.programs.len() });
        }
        if let Some(map) = model.maps.iter().find(|map| map.name.as_str().contains('.')) {
            return Err(ObjectError::MapName { name: map.name.as_str().to_owned() });
        }
        if let Some(one) = model.struct_ops.iter().find(|one| !one.by_link) {
            return Err(ObjectError::NoLink { name: one.name.as_str().to_owned() });
        }
        Ok(PluginObject { name: name.into(), arch, model: Arc::new(model) })
    }

    /// Its name: that of its folder of pins.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machines that it is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// What it is.
    pub fn model(&self) -> &Object {
        &self.model
    }

    /// Whether a program runs again and again: a timer that the object has for it starts it.
    pub fn is_timer(&self, program: &Program) -> bool {
        program.section.kind.program == ProgramType::SocketFilter
            && self.model.map(&timer_map(program.name.as_str())).is_some()
    }

    /// The maps that outlive it.
    pub fn pins(&self) -> impl Iterator<Item = PinnedMap> {
        let maps = self.model.maps.iter().filter(|map| map.pinning == Pinning::ByName);
        let maps = maps.map(|map| PinnedMap {
            map: map.name.as_str().to_owned(),
            path: format!("{}/maps/{}", self.name, map.name.as_str()),
        });
        let sections = self.model.data.iter().map(DataSection::name).filter(|name| name == PINNED_SECTION);
        let path = format!("{}/globals/pinned_globals", self.name);
        maps.chain(sections.map(move |map| PinnedMap { map, path: path.clone() }))
    }

    /// The functions of the kernel that it cannot do without.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let needed =
            |ksym: &&Ksym| matches!(ksym.kind, KsymKind::Function(_)) && ksym.presence == Presence::Required;
        self.model.ksyms.iter().filter(needed).map(|ksym| ksym.name.as_str())
    }

    /// What the kernel charges for its maps on this machine.
    pub fn memory(&self, cpus: usize) -> Memory {
        self.model.memory(u32::try_from(cpus).unwrap_or(u32::MAX))
    }
}

/// A map that outlives its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedMap {
    /// Its name; of the map of pinned variables, their section's.
    pub map: String,
    /// Where it is, in the BPF file system.
    pub path: String,
}

/// All objects of a plugin file, and which of them are for this machine. They are judged together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSet {
    objects: Vec<PluginObject>,
    /// Those for this machine, the one that is loaded first.
    own: Vec<usize>,
}

impl ObjectSet {
    /// Reads all objects of a file; those at `own` are for this machine, each for kernels with other features.
    ///
    /// # Errors
    /// [`ObjectError`] of the first that is refused.
    pub fn read(
        records: &[BpfRecord],
        own: impl IntoIterator<Item = usize>,
    ) -> Result<ObjectSet, ObjectError> {
        let objects = records.iter().map(PluginObject::read).collect::<Result<Vec<_>, _>>()?;
        ObjectSet::new(objects, own)
    }

    /// A set of objects, of which those at `own` are for this machine, each for kernels with other features.
    ///
    /// # Errors
    /// [`ObjectError::NeedsMore`].
    pub fn new(
        objects: Vec<PluginObject>,
        own: impl IntoIterator<Item = usize>,
    ) -> Result<ObjectSet, ObjectError> {
        super::needs::judge_together(&objects)?;
        let own = own.into_iter().filter(|own| *own < objects.len()).collect();
        Ok(ObjectSet { own, objects })
    }

    /// All of them, in the order of the file.
    pub fn objects(&self) -> &[PluginObject] {
        &self.objects
    }

    /// The one for this machine.
    pub fn own(&self) -> Option<&PluginObject> {
        self.candidates().next()
    }

    /// Those for this machine, each for kernels with other features.
    pub fn candidates(&self) -> impl Iterator<Item = &PluginObject> {
        self.own.iter().filter_map(|own| self.objects.get(*own))
    }

    /// Takes the first one for this machine whose functions of the kernel are all there; the first of all if none is such.
    pub fn choose(&mut self, has_function: impl Fn(&str) -> bool) {
        let fits = |object: &PluginObject| object.functions().all(&has_function);
        if self.own.len() > 1 {
            let chosen = self.candidates().position(fits).unwrap_or(0);
            self.own.swap(0, chosen);
        }
    }

    /// What the kernel charges at most for the maps of one of them on a machine with so many CPUs.
    pub fn memory(&self, cpus: usize) -> Memory {
        self.objects.iter().map(|object| object.memory(cpus)).fold(Memory::default(), |most, one| Memory {
            maps: most.maps.max(one.maps),
            map_bytes: most.map_bytes.max(one.map_bytes),
            ring_bytes: most.ring_bytes.max(one.ring_bytes),
        })
    }

    /// The one for this machine, for a policy that lets it through.
    pub(super) fn into_admitted(mut self) -> Option<Admitted> {
        let own = self.own.first().copied().filter(|own| *own < self.objects.len())?;
        Some(Admitted(self.objects.swap_remove(own)))
    }
}

/// An object that a policy let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted(PluginObject);

impl Admitted {
    /// The object.
    pub fn object(&self) -> &PluginObject {
        &self.0
    }

    /// The file that the loader reads, made of the model alone.
    ///
    /// # Errors
    /// [`ObjectError::Write`].
    pub fn elf(&self) -> Result<Vec<u8>, ObjectError> {
        Ok(object::write(&self.0.model)?)
    }

    /// The name that the loader is given: made of letters, digits and `_`.
    pub fn loaded_name(&self) -> String {
        let plain = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
        self.0.name.chars().take(MAX_LOADED_NAME_BYTES).map(plain).collect()
    }
}
