//! BPF objects of a plugin, from their bytes to the object that may be loaded.
//!
//! ```text
//! BpfRecords -> ObjectSet -> Request (with what they need) -> Policy::admit -> Admitted -> bpf::Object
//! ```
//!
//! Nothing else parses the objects of a plugin file, and nothing is loaded except an [`Admitted`], which only
//! [`super::Policy::admit`] creates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ks_compiler::object::model::{DataSection, Ksym, KsymKind, Memory, Pinning, Presence, Program};
use ks_compiler::object::table::ProgramType;
use ks_compiler::object::{self, KernelFunctionIds, Object, ReadError, WriteError};
use ks_wit::object::{DisplayForm, PINNED_SECTION, Print, loss_variable, timer_map};
use ks_wit::section::{Arch, BpfRecord};

use super::limits::MapLimits;
use crate::text::{MOST_BYTES, visible};

/// Upper limit of the bytes of an object's name, which is also the name of a directory of pins.
const MAX_NAME_BYTES: usize = 255;

/// Upper limit of programs in an object. Guards the memory reserved for the verifier's logs.
const MAX_PROGRAMS: usize = 256;

/// Upper limit of variables that count losses of programs and loops. Each is looked at while the plugin runs.
const MAX_LOSS_COUNTERS: usize = 16_384;

/// Upper limit of the bytes of the name passed to libbpf: the kernel's names of maps have 15 bytes and begin
/// with it.
const MAX_LOADED_NAME_BYTES: usize = 15;

/// Reason to reject the objects of a plugin before a policy is consulted.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A name that cannot be the name of a file.
    #[error(
        "`{}` cannot name it: a name has 1 to {MAX_NAME_BYTES} bytes, no `/` and no control characters, \
         and is not `.` or `..`",
        visible(.name, MOST_BYTES)
    )]
    Name {
        /// The name as written.
        name: String,
    },
    /// The strict reader rejected the object.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// A map with a name that is reserved for the maps of sections.
    #[error("map `{name}` has a dot in its name, as only the maps of variables have")]
    MapName {
        /// Name of the map.
        name: String,
    },
    /// More programs than the loader reserves verifier logs for.
    #[error("it has {found} programs; the limit is {MAX_PROGRAMS}")]
    Programs {
        /// Number of programs in the object.
        found: usize,
    },
    /// More loss counters than the host looks at while the plugin runs.
    #[error("it has {found} variables that count losses; the limit is {MAX_LOSS_COUNTERS}")]
    LossCounters {
        /// Number of such variables in the object.
        found: usize,
    },
    /// A kernel struct (struct_ops) that would stay registered after the host has ended.
    #[error(
        "`{name}` would stay registered when the host is gone: it belongs into the section `.struct_ops.link`"
    )]
    NoLink {
        /// Name of the struct.
        name: String,
    },
    /// No ELF file can be generated from the parsed object.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// An object for another machine with needs that the first object does not have.
    #[error(
        "the object for {arch} needs {needed}, which the first object of the file does not: they are judged \
         together"
    )]
    NeedsMore {
        /// Architecture of the object.
        arch: Arch,
        /// The additional class and target, as in a policy.
        needed: String,
    },
}

/// A BPF object of a plugin file, as parsed by the strict reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginObject {
    name: String,
    arch: Arch,
    /// Shared by all runs of the plugin.
    model: Arc<Object>,
}

/// Returns a name as a file of the BPF file system, which refuses dots in names: they are `%2e` there, so
/// that different names stay different.
///
/// Source: `bpf_lookup` in kernel/bpf/inode.c, v6.18.
fn bpffs_name(name: &str) -> String {
    name.replace('%', "%25").replace('.', "%2e")
}

impl PluginObject {
    /// Parses the object of a record.
    ///
    /// # Errors
    /// [`ObjectError::Read`] for any malformed bytes; as [`PluginObject::new`].
    pub fn read(record: &BpfRecord) -> Result<PluginObject, ObjectError> {
        PluginObject::new(&record.name, record.arch, object::read(&record.elf)?)
    }

    /// Creates an object with this name from a parsed model.
    ///
    /// # Errors
    /// [`ObjectError::Name`]; [`ObjectError::Programs`]; [`ObjectError::LossCounters`];
    /// [`ObjectError::MapName`]; [`ObjectError::NoLink`].
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
        let variables = model.data.iter().flat_map(|section| &section.variables);
        let counters = variables.filter(|one| loss_variable(one.name.as_str()).is_some()).count();
        if counters > MAX_LOSS_COUNTERS {
            return Err(ObjectError::LossCounters { found: counters });
        }
        if let Some(map) = model.maps.iter().find(|map| map.name.as_str().contains('.')) {
            return Err(ObjectError::MapName { name: map.name.as_str().to_owned() });
        }
        if let Some(one) = model.struct_ops.iter().find(|one| !one.by_link) {
            return Err(ObjectError::NoLink { name: one.name.as_str().to_owned() });
        }
        Ok(PluginObject { name: name.into(), arch, model: Arc::new(model) })
    }

    /// Whether its programs print a text of such a form, which the host makes.
    pub(crate) fn displays(&self, is_wanted: impl Fn(&DisplayForm) -> bool) -> bool {
        let prints = self.model.print_table.as_deref().and_then(Print::table).unwrap_or_default();
        prints.iter().any(|print| print.displays(&is_wanted))
    }

    /// Whether its programs print names of functions, of the kernel or of processes.
    pub fn names_functions(&self) -> bool {
        self.displays(|form| {
            matches!(
                form,
                DisplayForm::KernelFunction
                    | DisplayForm::ProcessFunction
                    | DisplayForm::KernelStack(_)
                    | DisplayForm::ProcessStack(_)
            )
        })
    }

    /// Returns the name. The directory of its pins has the same name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the architecture that the object is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Returns the parsed object.
    pub fn model(&self) -> &Object {
        &self.model
    }

    /// Returns whether both were read as one.
    pub(crate) fn is_same(&self, other: &PluginObject) -> bool {
        Arc::ptr_eq(&self.model, &other.model)
    }

    /// Generates the ELF file for libbpf from the parsed model alone, with calls of these functions of the kernel by their
    /// ids.
    ///
    /// # Errors
    /// [`ObjectError::Write`].
    pub(crate) fn elf(&self, functions: &KernelFunctionIds) -> Result<Vec<u8>, ObjectError> {
        Ok(object::write_for(&self.model, functions)?)
    }

    /// Returns whether a program runs periodically: the object has a timer that starts it.
    pub fn is_timer(&self, program: &Program) -> bool {
        program.section.kind.program == ProgramType::SocketFilter
            && self.model.map(&timer_map(program.name.as_str())).is_some()
    }

    /// Returns the maps that outlive the object. All pinned variables are one map, that of their section.
    pub fn pins(&self) -> impl Iterator<Item = PinnedMap> {
        let maps = self.model.maps.iter().filter(|map| map.pinning == Pinning::ByName);
        let folder = bpffs_name(&self.name);
        let path = format!("{folder}/globals/pinned_globals");
        let maps = maps.map(move |map| PinnedMap {
            map: map.name.as_str().to_owned(),
            path: format!("{folder}/maps/{}", bpffs_name(map.name.as_str())),
        });
        let sections = self.model.data.iter().map(DataSection::name).filter(|name| name == PINNED_SECTION);
        maps.chain(sections.map(move |map| PinnedMap { map, path: path.clone() }))
    }

    /// Returns the names of the kernel functions that the object cannot be loaded without.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let needed =
            |ksym: &&Ksym| matches!(ksym.kind, KsymKind::Function(_)) && ksym.presence == Presence::Required;
        self.model.ksyms.iter().filter(needed).map(|ksym| ksym.name.as_str())
    }

    /// Returns the memory that the kernel charges for the maps on this machine.
    pub fn memory(&self, cpus: usize) -> Memory {
        self.model.memory(u32::try_from(cpus).unwrap_or(u32::MAX))
    }
}

/// A map that outlives its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedMap {
    /// Name of the map. Pinned variables have the name of their section.
    pub map: String,
    /// Path relative to the root of the BPF file system.
    pub path: String,
}

/// All objects of a plugin file, with the indices of those for this machine. A policy judges them together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSet {
    objects: Vec<PluginObject>,
    /// Indices of the objects for this machine; the one to load comes first.
    own: Vec<usize>,
}

impl ObjectSet {
    /// Parses all objects of a file. Those at `own` are for this machine, each for kernels with other
    /// features.
    ///
    /// # Errors
    /// [`ObjectError`] of the first rejected object.
    pub fn read(
        records: &[BpfRecord],
        own: impl IntoIterator<Item = usize>,
    ) -> Result<ObjectSet, ObjectError> {
        let objects = records.iter().map(PluginObject::read).collect::<Result<Vec<_>, _>>()?;
        ObjectSet::new(objects, own)
    }

    /// Creates a set of objects. Those at `own` are for this machine, each for kernels with other features.
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

    /// Returns all objects, in the order of the file.
    pub fn objects(&self) -> &[PluginObject] {
        &self.objects
    }

    /// Returns the object to load on this machine, if there is one.
    pub fn own(&self) -> Option<&PluginObject> {
        self.candidates().next()
    }

    /// Returns the objects for this machine, each for kernels with other features.
    pub fn candidates(&self) -> impl Iterator<Item = &PluginObject> {
        self.own.iter().filter_map(|own| self.objects.get(*own))
    }

    /// Selects the first object for this machine whose required kernel functions all exist; without one, the
    /// first object for this machine.
    pub fn choose(&mut self, has_function: impl Fn(&str) -> bool) {
        let fits = |object: &PluginObject| object.functions().all(&has_function);
        if self.own.len() > 1 {
            let chosen = self.candidates().position(fits).unwrap_or(0);
            self.own.swap(0, chosen);
        }
    }

    /// Returns the memory that the kernel charges for the union of all objects' maps, given the number of CPUs:
    /// a map of one name counts once, with the largest of its sizes.
    pub fn memory(&self, cpus: usize) -> Memory {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        largest_of_each(self.objects.iter().flat_map(|object| object.model.map_memory(cpus)))
    }

    /// Returns what [`ObjectSet::memory`] has not: the most memory of inner maps that the plugin may create.
    pub fn inner_memory(&self, cpus: usize) -> Memory {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        largest_of_each(self.objects.iter().flat_map(|object| object.model.inner_memory(cpus)))
    }

    /// Returns the number of maps that the objects pin, each counted once.
    pub fn pins(&self) -> u64 {
        let pins: BTreeSet<String> =
            self.objects.iter().flat_map(PluginObject::pins).map(|pin| pin.path).collect();
        pins.len() as u64
    }

    /// Returns the object to load on this machine, after a policy with these limits admitted it.
    pub(super) fn into_admitted(mut self, limits: MapLimits) -> Option<Admitted> {
        let own = self.own.first().copied().filter(|own| *own < self.objects.len())?;
        Some(Admitted { object: self.objects.swap_remove(own), limits })
    }
}

/// Returns the sum of maps, of which those of one name are one map of the larger size.
fn largest_of_each(all: impl Iterator<Item = (String, Memory)>) -> Memory {
    let mut maps: BTreeMap<String, Memory> = BTreeMap::new();
    for (name, memory) in all {
        let largest = maps.entry(name).or_default();
        *largest = largest.largest(memory);
    }
    maps.into_values().fold(Memory::default(), Memory::with)
}

/// An object that a policy admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    object: PluginObject,
    limits: MapLimits,
}

impl Admitted {
    /// Returns the admitted object.
    pub fn object(&self) -> &PluginObject {
        &self.object
    }

    /// Returns the limits that the maps exceed on a machine with this number of possible CPUs, given what the
    /// kernel charges for a map, by its name. The larger of that and of our own figure counts: the kernel
    /// charges a map that grows for its entries of now, and on pages of another size it charges more than we
    /// know.
    ///
    /// # Errors
    /// The message for a person, with every limit.
    pub fn check_charges(&self, cpus: usize, charge: impl Fn(&str) -> Option<u64>) -> Result<(), String> {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let maps = self.object.model.map_memory(cpus).map(|(name, memory)| {
            let charged = charge(&name).unwrap_or_default();
            // A map of ring buffers is charged apart from the ring inside.
            let is_ring = memory.map_bytes == 0;
            let (map_bytes, ring_bytes) = if is_ring { (0, charged) } else { (charged, 0) };
            memory.largest(Memory { maps: 0, map_bytes, ring_bytes })
        });
        let reasons = self.limits.exceeded(maps.fold(Memory::default(), Memory::with));
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("\n")) }
    }

    /// Returns the limits that the maps exceed with these inner maps, which the plugin creates in maps of maps.
    ///
    /// # Errors
    /// The message for a person, with every limit.
    pub(crate) fn check_with_inner(&self, cpus: u32, inner: Memory) -> Result<(), String> {
        let reasons = self.limits.exceeded(self.object.model.memory(cpus).with(inner));
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("\n")) }
    }

    /// Returns the object with another model, to be judged again.
    pub(super) fn changed(&self, model: &Object) -> Result<ObjectSet, ObjectError> {
        let read = object::read(&object::write(model)?)?;
        ObjectSet::new(vec![PluginObject::new(&self.object.name, self.object.arch, read)?], [0])
    }

    /// Generates the ELF file for libbpf from the parsed model alone, with calls of these functions of the kernel by their
    /// ids.
    ///
    /// # Errors
    /// [`ObjectError::Write`].
    pub fn elf(&self, functions: &KernelFunctionIds) -> Result<Vec<u8>, ObjectError> {
        self.object.elf(functions)
    }

    /// Returns the name passed to libbpf: at most 15 letters, digits and `_`.
    pub fn loaded_name(&self) -> String {
        let plain = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
        self.object.name.chars().take(MAX_LOADED_NAME_BYTES).map(plain).collect()
    }
}
