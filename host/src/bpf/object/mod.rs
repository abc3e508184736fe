//! The plugin's BPF object: opened when first needed, loaded once.

mod variables;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::Side;
use ks_compiler::object::table::ProgramType;
use ks_wit::object::{PID_NAMESPACE, PINNED_LAYOUT, lost_variable, timer_map};
use libbpf_rs::{MapCore as _, MapMut, MapType, ObjectBuilder, OpenObject};
use nix::errno::Errno;

pub(super) use self::variables::is_section_map;
use self::variables::{Changed, Written};
use super::attach::Supervisor;
use super::charge;
use super::error::{BpfError, Lack, LoadError};
use super::feature;
use super::globals::{self, Variable};
use super::image::WithImages;
use super::layout::{self, Layout, Subject};
use super::link::Link;
use super::look;
use super::losses::{self, LossCounter};
use super::map::{Map, possible_cpus};
use super::members;
use super::occupant::OccupantFinder;
use super::pid_namespace;
use super::pin::Pins;
use super::print;
use super::program::{LoadedType, Program};
use super::ring::Ring;
use super::selection::{self, Selection};
use super::statistics::RunTime;
use super::sys::{self, Refusal};
use super::verifier_log::VerifierLog;
use crate::host_bytes::HostBytes;
use crate::policy::{self, Admitted, Class, Policy, Readmission};

/// Size in bytes of the verifier log buffer of one program. At log level 1 a program near the limit of a
/// million verified instructions logs more; kernels since 6.4 then keep the end, which contains the reason.
const LOG_BYTES: usize = 4 << 20;

/// Upper limit of load attempts while other plugins pin the same maps.
const PIN_RACES: usize = 8;

/// A plugin's BPF object that a policy admitted.
#[derive(Debug)]
pub struct Object {
    admitted: Admitted,
    /// The ELF file for libbpf, generated from the model. The plugin's own bytes never reach libbpf.
    elf: Vec<u8>,
    variables: BTreeMap<String, Variable>,
    pins: Pins,
    stage: Stage,
    changed: Changed,
    /// The error of a failed load of all programs, which is not repeated.
    failure: Option<BpfError>,
    /// The errors of programs that were loaded alone, which are not repeated.
    failures: BTreeMap<String, BpfError>,
    supervisor: Option<Arc<Supervisor>>,
    occupants: Option<OccupantFinder>,
}

/// A size of a map that can be set before it is created.
#[derive(Debug, Clone, Copy)]
pub enum MapSize {
    /// Maximum number of entries; for a ring buffer its size in bytes.
    Entries(u32),
    /// Size of a value in bytes.
    ValueBytes(u32),
}

#[derive(Debug)]
enum Stage {
    Open(OpenObject),
    Loaded(Loaded),
    /// Between two stages, and permanently if the object could not be opened again.
    Closed,
}

#[derive(Debug)]
struct Loaded {
    maps: BTreeMap<String, Arc<Map>>,
    /// The object that created the maps.
    object: WithImages,
    /// Objects with programs that were loaded alone, on the same maps.
    more: Vec<libbpf_rs::Object>,
}

impl Loaded {
    fn objects(&self) -> impl Iterator<Item = &libbpf_rs::Object> {
        std::iter::once(&*self.object).chain(&self.more)
    }

    fn maps_mut(&mut self) -> impl Iterator<Item = MapMut<'_>> {
        self.object.maps_mut().chain(self.more.iter_mut().flat_map(libbpf_rs::Object::maps_mut))
    }

    /// The programs that are loaded.
    fn programs(&self) -> impl Iterator<Item = libbpf_rs::Program<'_>> {
        self.objects().flat_map(libbpf_rs::Object::progs).filter(sys::is_loaded)
    }

    fn has(&self, name: &str) -> bool {
        self.programs().any(|program| program.name() == name)
    }
}

impl Object {
    /// Opens an object. Makes no system calls of BPF yet.
    ///
    /// # Errors
    /// [`BpfError::Unsound`] if no ELF file can be generated from it; [`BpfError::Load`] if libbpf cannot
    /// read that file.
    pub fn open(admitted: Admitted) -> Result<Object, BpfError> {
        let elf = admitted.elf().map_err(|error| BpfError::Unsound(error.to_string()))?;
        let variables = globals::variables(admitted.object().model());
        let pins = Pins::of(admitted.object(), variables.get(PINNED_LAYOUT));
        let stage = Stage::Open(open_with_libbpf(&admitted, &elf)?);
        let changed = Changed::default();
        Ok(Object {
            admitted,
            elf,
            variables,
            pins,
            stage,
            changed,
            failure: None,
            failures: BTreeMap::new(),
            supervisor: None,
            occupants: None,
        })
    }

    /// Charges copies of written pages to this account from now on.
    pub fn charge_to(&mut self, host_bytes: &HostBytes) {
        self.changed.charge = Some(host_bytes.start());
    }

    /// Starts the supervisor process for clsact filters, if the object has tc programs and this kernel has no
    /// links for them, or the plugin may choose the order of its filters, which a script does not. Without it
    /// no filter can be attached.
    ///
    /// # Errors
    /// Those of fork(2) and pipe(2).
    pub fn supervise(&mut self) -> Result<(), Errno> {
        let Stage::Open(open) = &self.stage else { return Ok(()) };
        let has_tc = open.progs().any(|one| one.prog_type() as u32 == ProgramType::SchedCls.number());
        if has_tc && (!is_script(self.model()) || feature::lacks_tcx()) {
            self.supervisor = Some(Arc::new(Supervisor::start()?));
        }
        Ok(())
    }

    /// The descriptor by which the supervisor process is notified; none if it was not started.
    pub fn supervisor(&self) -> Option<BorrowedFd<'_>> {
        self.supervisor.as_ref().map(|supervisor| supervisor.as_fd())
    }

    /// Starts the thread that identifies the owner of an interface's xdp program, if the object has xdp
    /// programs. It keeps the capabilities that the calling thread has now. Without it, errors do not name
    /// the owner.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn find_occupants(&mut self) -> Result<(), Errno> {
        let Stage::Open(open) = &self.stage else { return Ok(()) };
        if open.progs().any(|one| one.prog_type() as u32 == ProgramType::Xdp.number()) {
            self.occupants = Some(OccupantFinder::start()?);
        }
        Ok(())
    }

    /// Returns the policy class of a program. Does not load anything.
    ///
    /// # Errors
    /// [`BpfError::NotFound`].
    pub fn class_of(&self, program: &str) -> Result<Class, BpfError> {
        let object = self.admitted.object();
        let class = object.model().program(program).map(|(_, one)| policy::class_of(object, one));
        class.ok_or_else(|| {
            let known = self.model().programs.iter().map(|one| one.name.as_str().to_owned());
            not_found("program", program, known.collect())
        })
    }

    /// Returns name, type and target of each program. Does not load anything.
    pub fn programs(&self) -> impl Iterator<Item = (String, ProgramType, String)> {
        self.model().programs.iter().map(|one| {
            let target = one.section.target.to_string();
            (one.name.as_str().to_owned(), one.section.kind.program, target)
        })
    }

    /// Returns the number of descriptors that the loaded object takes: one for each program and map.
    pub fn descriptors(&self) -> usize {
        self.model().programs.len() + self.model().maps.len()
    }

    /// Returns the names of the maps. Does not load anything.
    pub fn map_names(&self) -> impl Iterator<Item = String> {
        self.model().maps.iter().map(|map| map.name.as_str().to_owned())
    }

    /// Returns the names of the variables. Does not load anything.
    pub fn variable_names(&self) -> impl Iterator<Item = String> {
        self.variables.keys().cloned()
    }

    /// Gives a map that does not exist yet another shape, if the policy admits the object with it.
    ///
    /// # Errors
    /// [`BpfError::NotFound`]; [`BpfError::Created`]; [`BpfError::Unsound`] for a shape that the kind cannot
    /// have; [`BpfError::OverLimits`] with the policy's limits.
    pub fn resize(&mut self, policy: &Policy, map: &str, size: MapSize) -> Result<(), BpfError> {
        let known = || self.map_names().collect();
        let position = self.model().maps.iter().position(|one| one.name.as_str() == map);
        let position = position.ok_or_else(|| not_found("map", map, known()))?;
        let Stage::Open(open) = &self.stage else { return Err(BpfError::Created { name: map.to_owned() }) };
        let written = self.written(open);
        let mut model = self.model().clone();
        let shape = &mut model.maps[position].shape;
        match size {
            MapSize::Entries(entries) => shape.entries = entries,
            MapSize::ValueBytes(_) if matches!(shape.value, Side::Typed { .. }) => {
                return Err(BpfError::Unsound(format!("the values of `{map}` have a type, and its size")));
            }
            MapSize::ValueBytes(bytes) => shape.value = Side::Bytes(bytes),
        }
        let admitted = policy.admit_again(&self.admitted, model, possible_cpus()?);
        let admitted = admitted.map_err(|refused| match refused {
            Readmission::Unsound(reason) => BpfError::Unsound(reason),
            // The object needs the same as before, so only limits can be exceeded.
            Readmission::Denied(reasons) => BpfError::OverLimits(reasons),
        })?;
        self.elf = admitted.elf().map_err(|error| BpfError::Unsound(error.to_string()))?;
        self.admitted = admitted;
        self.failure = None;
        self.stage = self.reopen(&written).map_or(Stage::Closed, Stage::Open);
        Ok(())
    }

    /// Returns whether a program may hide hits of its tracepoint from other counters. Does not load anything.
    pub fn may_filter_events(&self, program: &str) -> bool {
        let model = self.model();
        model.program(program).is_some_and(|(id, _)| model.may_filter_events(id))
    }

    fn model(&self) -> &Model {
        self.admitted.object().model()
    }

    /// Creates the maps, and loads all programs if the kernel accepts all. A repeated call returns the first
    /// result.
    ///
    /// # Errors
    /// [`BpfError::Load`]; [`BpfError::PidNamespace`]; [`BpfError::LastLook`]; [`BpfError::OverLimits`] if the
    /// kernel charges more for its maps than was foreseen; [`BpfError::Unsound`] if its pins keep changing;
    /// [`BpfError::NoBpffs`], [`BpfError::PinShape`] and [`BpfError::Kernel`] for its pins.
    pub fn load(&mut self) -> Result<(), BpfError> {
        self.load_or(Selection::Maps)
    }

    /// Loads all programs, or, if the kernel refuses one of several, this selection.
    fn load_or(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        if let Stage::Loaded(_) = self.stage {
            return Ok(());
        }
        if self.failure.is_none() {
            let loaded = self.load_selected(Selection::All);
            let Err(error) = loaded else { return Ok(()) };
            self.failure = Some(error);
        }
        match &self.failure {
            Some(BpfError::Load(_)) if self.model().programs.len() > 1 => self.load_selected(selection),
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    fn load_selected(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Open(open) => self.load_open(open, selection),
            loaded => {
                self.stage = loaded;
                Ok(())
            }
        }
    }

    /// Loads a program: with all others, or alone if the kernel refuses one of them.
    fn load_program(&mut self, name: &str) -> Result<(), BpfError> {
        if let Some(failure) = self.failures.get(name) {
            return Err(failure.clone());
        }
        let loaded = self.load_or(Selection::One(name)).and_then(|()| match &self.stage {
            Stage::Loaded(loaded) if !loaded.has(name) => self.load_more(Selection::One(name)),
            _ => Ok(()),
        });
        if let (Err(error), Some(_)) = (&loaded, &self.failure) {
            self.failures.insert(name.to_owned(), error.clone());
        }
        loaded
    }

    /// Loads programs in an object of their own, on the maps of the loaded one.
    fn load_more(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        let failed = |errno, libbpf| load_error(&self.admitted, errno, None, libbpf);
        let mut open = open_with_libbpf(&self.admitted, &self.elf)?;
        selection
            .apply(&mut open, self.model())
            .and_then(|()| selection::share_maps(&mut open, &loaded.object))
            .map_err(|errno| failed(errno, Vec::new()))?;
        let (prepared, libbpf) = print::collect(|| sys::prepare(&mut open));
        prepared.map_err(|errno| failed(errno, libbpf))?;
        look::look(&open, self.model()).map_err(BpfError::LastLook)?;
        let (result, libbpf) = print::collect(|| sys::load(open, LOG_BYTES));
        let object = result.map_err(|refusal| {
            load_error(&self.admitted, refusal.errno, verifier_log(refusal.logs), libbpf)
        })?;
        if let Stage::Loaded(loaded) = &mut self.stage {
            loaded.more.push(object);
        }
        Ok(())
    }

    /// Returns whether programs read task ids and this process is not in the initial PID namespace.
    pub fn numbers_tasks_inside(&self) -> bool {
        self.variables.contains_key(PID_NAMESPACE) && pid_namespace::number().is_some()
    }

    fn load_open(&mut self, mut open: OpenObject, selection: Selection<'_>) -> Result<(), BpfError> {
        self.show_modules(&mut open);
        if let Err(error) = self.show_namespace(&mut open) {
            self.stage = Stage::Open(open);
            return Err(error);
        }
        let written = self.written(&open);
        for _ in 0..PIN_RACES {
            let reused = match self.pins.reuse(&mut open) {
                Ok(reused) => reused,
                Err(error) => {
                    self.stage = Stage::Open(open);
                    return Err(error);
                }
            };
            let selected = selection.apply(&mut open, self.model());
            let (prepared, libbpf) = print::collect(|| selected.and_then(|()| sys::prepare(&mut open)));
            if let Err(errno) = prepared {
                return Err(self.refused(Refusal { errno, logs: Vec::new() }, libbpf, &written));
            }
            look::look(&open, self.model()).map_err(BpfError::LastLook)?;
            let (loaded, libbpf) = print::collect(|| sys::load(open, LOG_BYTES));
            let object = match loaded {
                Ok(object) => object,
                Err(refusal) => return Err(self.refused(refusal, libbpf, &written)),
            };
            if let Err(over) = charge::check(&object, &self.admitted) {
                drop(object);
                self.stage = self.reopen(&written).map_or(Stage::Closed, Stage::Open);
                return Err(over);
            }
            if self.pins.create(&object, &reused)? {
                Pins::show_variables(&object, &reused)?;
                let maps = maps(&object)?;
                self.changed = Changed::default();
                let object = WithImages::of(object);
                self.stage = Stage::Loaded(Loaded { maps, object, more: Vec::new() });
                return Ok(());
            }
            // Another plugin pinned its maps first; use those.
            drop(object);
            open = self.reopen(&written).ok_or(BpfError::NoObject)?;
        }
        Err(BpfError::Unsound("its pins come and go while it is loaded".into()))
    }

    /// Builds the error of a failed load and reopens the object: the plugin may continue without BPF, and its
    /// variables keep their values.
    fn refused(&mut self, refusal: Refusal, libbpf: Vec<String>, written: &[Written]) -> BpfError {
        self.stage = self.reopen(written).map_or(Stage::Closed, Stage::Open);
        load_error(&self.admitted, refusal.errno, verifier_log(refusal.logs), libbpf)
    }

    /// Opens the object again and restores the written content of its sections.
    fn reopen(&self, written: &[Written]) -> Option<OpenObject> {
        let mut open = open_with_libbpf(&self.admitted, &self.elf).ok()?;
        for mut map in open.maps_mut() {
            let name = map.name().as_encoded_bytes().to_vec();
            let Some(image) = map.initial_value_mut() else { continue };
            written.iter().for_each(|one| one.restore(&name, image));
        }
        self.show_modules(&mut open);
        self.show_namespace(&mut open).ok()?;
        Some(open)
    }

    /// Returns a program by name. Loads it if necessary, with the object's other programs if the kernel accepts
    /// all of them.
    ///
    /// # Errors
    /// [`BpfError::NotFound`], without loading anything; as [`Object::load`].
    pub fn program(&mut self, name: &str) -> Result<Program<'_>, BpfError> {
        self.class_of(name)?;
        self.load_program(name)?;
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        // What the object does not load by default, and was loaded alone, is in a later object.
        let inner = loaded.programs().find(|program| program.name() == name).ok_or(BpfError::NoObject)?;
        let timer = loaded.maps.get(&timer_map(name));
        let (supervisor, occupants) = (self.supervisor.as_ref(), self.occupants.as_ref());
        Ok(Program { inner, supervisor, occupants, timer })
    }

    /// Registers the kernel struct (struct_ops) that the object defines under this name. Loads the object if
    /// necessary. Dropping the link unregisters it.
    ///
    /// Source: kernel/bpf/bpf_struct_ops.c, `bpf_struct_ops_link_create`, v6.18.
    ///
    /// # Errors
    /// [`BpfError::NotFound`]; [`BpfError::Registered`]; [`BpfError::Kernel`]; as [`Object::load`].
    pub fn register(&mut self, name: &str) -> Result<Link, BpfError> {
        let known = || self.model().struct_ops.iter().map(|one| one.name.as_str().to_owned());
        if !known().any(|known| known == name) {
            let known = known().collect();
            self.load()?;
            return Err(not_found("struct to register", name, known));
        }
        self.load_structs()?;
        let Stage::Loaded(loaded) = &mut self.stage else { return Err(BpfError::NoObject) };
        let mut maps = loaded.maps_mut().filter(|map| is_kernel_struct(map));
        let mut map = maps.find(|map| map.name() == name).ok_or(BpfError::NoObject)?;
        let (linked, _) = print::collect(|| {
            // libbpf sets errno on every failure; libbpf-rs keeps it only in its error text.
            map.attach_struct_ops().map_err(|_| Errno::last())
        });
        let tried = || format!("register `{name}`");
        let linked = linked.map_err(|errno| {
            let (tried, call) = (tried(), "bpf(BPF_LINK_CREATE)");
            match errno {
                Errno::EEXIST | Errno::EBUSY => BpfError::Registered { tried, call, errno },
                errno => BpfError::Kernel { tried, call, errno },
            }
        })?;
        let fd = linked.as_fd().try_clone_to_owned();
        fd.map(Link::new).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            BpfError::Kernel { tried: tried(), call: "fcntl(F_DUPFD_CLOEXEC)", errno }
        })
    }

    /// Loads the members of the object's kernel structs, with all other programs if the kernel accepts them.
    fn load_structs(&mut self) -> Result<(), BpfError> {
        self.load_or(Selection::Structs)?;
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        let has_structs = loaded.objects().any(|object| object.maps().any(|map| is_kernel_struct(&map)));
        if has_structs { Ok(()) } else { self.load_more(Selection::Structs) }
    }

    /// Returns a map by name. Loads the object if necessary.
    ///
    /// # Errors
    /// [`BpfError::NotFound`]; as [`Object::load`].
    pub fn map(&mut self, name: &str) -> Result<Arc<Map>, BpfError> {
        self.load()?;
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        loaded
            .maps
            .get(name)
            .cloned()
            .ok_or_else(|| not_found("map", name, loaded.maps.keys().cloned().collect()))
    }

    /// Returns a perf event array by name. Loads the object if necessary.
    ///
    /// # Errors
    /// [`BpfError::NotFound`]; [`BpfError::NotOfEvents`]; as [`Object::load`].
    pub fn event_array(&mut self, name: &str) -> Result<Arc<Map>, BpfError> {
        let map = self.map(name)?;
        if map.shape().ty != u32::from(MapType::PerfEventArray) {
            return Err(BpfError::NotOfEvents { name: name.into() });
        }
        Ok(map)
    }

    /// Creates the consumer of a ring buffer. Loads the object if necessary. A ring should have only one
    /// consumer: two would take records from each other.
    ///
    /// # Errors
    /// [`BpfError::NotFound`]; [`BpfError::Kernel`]; as [`Object::load`].
    pub fn ring(&mut self, name: &str) -> Result<Ring, BpfError> {
        self.load()?;
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        let rings = || loaded.object.maps().filter(|map| map.map_type() == MapType::RingBuf);
        match rings().find(|map| map.name() == name) {
            Some(map) => Ring::of(&map),
            None => {
                let known = rings().map(|map| map.name().to_string_lossy().into_owned()).collect();
                Err(not_found("ring buffer", name, known))
            }
        }
    }

    /// Returns the table that describes the records of printed lines ([`ks_wit::object::PRINTS_SECTION`]).
    /// None if the object prints nothing.
    pub fn print_table(&self) -> Option<&[u8]> {
        self.model().print_table.as_deref()
    }

    /// Returns whether the object is loaded.
    pub fn is_loaded(&self) -> bool {
        matches!(self.stage, Stage::Loaded(_))
    }

    /// Returns the names of the loaded programs and maps. None before the load.
    pub fn loaded(&self) -> Option<(Vec<String>, Vec<String>)> {
        let Stage::Loaded(loaded) = &self.stage else { return None };
        let programs = loaded.programs().map(|program| program.name().to_string_lossy().into_owned());
        let maps = loaded.object.maps().map(|map| map.name().to_string_lossy().into_owned());
        Some((programs.collect(), maps.collect()))
    }

    /// Returns the accumulated run time of each program since the load, as far as the kernel measured it
    /// ([`super::statistics::Statistics`]). Empty before the load; programs without kernel information are
    /// left out.
    pub fn run_times(&self) -> Vec<RunTime> {
        let Stage::Loaded(loaded) = &self.stage else { return Vec::new() };
        let time = |program: libbpf_rs::Program<'_>| {
            let info = sys::program_info(program.as_fd()).ok()?;
            Some(RunTime {
                program: program.name().to_string_lossy().into_owned(),
                kind: LoadedType::from(info.type_),
                nanoseconds: info.run_time_ns,
            })
        };
        loaded.programs().filter_map(time).collect()
    }

    /// Returns how often programs lost data because the ring buffer or map of this name was full. None if the
    /// object does not count that.
    pub fn lost(&self, name: &str) -> Option<u64> {
        let variable = self.variables.get(&lost_variable(name))?;
        self.get(variable).ok()
    }

    /// Returns the loss counters of the programs. Empty before the load.
    ///
    /// # Errors
    /// Those of mmap(2): no memory or address space.
    pub fn loss_counters(&self) -> Result<Vec<LossCounter>, Errno> {
        match &self.stage {
            Stage::Loaded(loaded) => losses::counters(&loaded.object, &self.variables),
            Stage::Open(_) | Stage::Closed => Ok(Vec::new()),
        }
    }

    /// Returns a global variable by name. Does not load anything.
    ///
    /// # Errors
    /// [`BpfError::NotFound`].
    pub fn variable(&self, name: &str) -> Result<Variable, BpfError> {
        self.variables
            .get(name)
            .cloned()
            .ok_or_else(|| not_found("variable", name, self.variables.keys().cloned().collect()))
    }

    /// Returns the memory layout of a type from the object's BTF; none if it is not there. Does not load
    /// anything.
    pub fn layout(&self, subject: Subject<'_>) -> Option<Layout> {
        layout::of(&self.elf, subject)
    }
}

fn open_with_libbpf(admitted: &Admitted, elf: &[u8]) -> Result<OpenObject, BpfError> {
    let (open, libbpf) = print::collect(|| {
        let name = admitted.loaded_name();
        let opened = ObjectBuilder::default().name(&name).and_then(|builder| builder.open_memory(elf));
        // libbpf sets errno on every failure; libbpf-rs keeps it only in its error text.
        opened.map_err(|_| Errno::last())
    });
    let mut open = open.map_err(|errno| load_error(admitted, errno, None, libbpf))?;
    for mut map in open.maps_mut() {
        if is_data_map(map.name().as_encoded_bytes()) {
            // libbpf sets this flag itself only if the section has a variable of global linkage; since 5.5.
            let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
            map.set_map_flags(flags).map_err(|_| load_error(admitted, Errno::last(), None, Vec::new()))?;
        }
        // `Pins` pins the maps; libbpf would use other paths.
        sys::forget_pin_path(&mut map);
    }
    Ok(open)
}

/// Whether a map is a kernel struct that its object has created.
fn is_kernel_struct(map: &libbpf_rs::Map<'_>) -> bool {
    map.map_type() == MapType::StructOps && sys::is_created(map)
}

fn maps(object: &libbpf_rs::Object) -> Result<BTreeMap<String, Arc<Map>>, BpfError> {
    object
        .maps()
        .filter(|map| map.map_type() != MapType::StructOps)
        .filter(|map| !is_data_map(map.name().as_encoded_bytes()))
        .map(|map| Ok((map.name().to_string_lossy().into_owned(), Arc::new(Map::of(&map)?))))
        .collect()
}

/// Returns whether libbpf created this map for a global data section.
fn is_data_map(map: &[u8]) -> bool {
    let named_like_section = std::str::from_utf8(map).is_ok_and(globals::is_global_data);
    named_like_section || [".data", ".bss", ".rodata"].iter().any(|section| is_section_map(map, section))
}

fn not_found(what: &'static str, name: &str, known: Vec<String>) -> BpfError {
    BpfError::NotFound { what, name: name.into(), known }
}

/// Returns the first program whose log says something, and that log.
fn verifier_log(logs: Vec<(String, Vec<u8>)>) -> Option<(String, VerifierLog)> {
    let mut said =
        logs.into_iter().filter_map(|(program, log)| Some((program, VerifierLog::from_buffer(&log)?)));
    let (program, log) = said.next()?;
    tracing::debug!(target: "verifier", "{program}:\n{}", log.text());
    Some((program, log))
}

fn load_error(
    admitted: &Admitted,
    errno: Errno,
    verifier: Option<(String, VerifierLog)>,
    libbpf: Vec<String>,
) -> BpfError {
    let model = admitted.object().model();
    let member = verifier.as_ref().and_then(|(program, log)| {
        let unfit = log.unfit_member()?;
        let other = || format!("`{unfit}` has another type in this kernel");
        Some(Lack::Member(members::missing(model, program).unwrap_or_else(other)))
    });
    let lacks = member.or_else(|| libbpf.iter().find_map(|line| missing_function(line)));
    BpfError::Load(Box::new(LoadError {
        object: admitted.object().name().to_owned(),
        is_script: is_script(model),
        registers: !model.struct_ops.is_empty(),
        needs_net_admin: model.needs_net_admin(),
        errno,
        verifier,
        libbpf,
        lacks,
    }))
}

/// Extracts from a line of libbpf the kernel function that it did not find.
///
/// Source: libbpf v1.7, `bpf_object__resolve_ksym_func_btf_id`.
fn missing_function(line: &str) -> Option<Lack> {
    let (_, name) = line.split_once("extern (func ksym) '")?;
    let (name, rest) = name.split_once('\'')?;
    rest.starts_with(": not found").then(|| Lack::Function(name.to_owned()))
}

/// Returns whether the object was compiled from a script: its line information names a `.ks` file.
fn is_script(model: &Model) -> bool {
    let programs = model.programs.iter().map(|one| &one.body);
    let mut bodies = programs.chain(model.subprograms.iter().map(|one| &one.body));
    bodies.any(|body| body.lines.iter().any(|line| line.file.ends_with(".ks")))
}
