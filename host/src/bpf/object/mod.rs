//! The plugin's BPF object: judged, then loaded once, when it is first needed.

mod file;
mod unloaded;
mod variables;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::{DataKind, Side};
use ks_compiler::object::table::{ARGUMENTS_OF_C, ARGUMENTS_OF_GO, ProgramType};
use ks_wit::object::{PID_NAMESPACE, PINNED_LAYOUT, lost_variable, timer_map};
use libbpf_rs::MapType;
use nix::errno::Errno;

pub(crate) use self::file::ObjectFile;
use self::unloaded::Unloaded;
pub(super) use self::variables::is_section_map;
use super::attach::Supervisor;
use super::charge;
use super::delivered::{Delivered, LoadedMap, LoadedProgram, Tags};
use super::error::{BpfError, Lack, LoadError};
use super::feature;
use super::globals::{self, Variable};
use super::image::SectionPages;
use super::inner_maps::{InnerBudget, InnerMaps};
use super::layout::{self, Layout, Subject};
use super::link::Link;
use super::loader::{
    self, KernelPart, LibbpfLoader, Loader, LoaderProcess, NotLoaded, Order, Prepared, Refused, Selection,
    Written,
};
use super::look;
use super::losses::{self, LossCounter};
use super::map::{Map, possible_cpus};
use super::members;
use super::occupant::OccupantFinder;
use super::pid_namespace;
use super::pin::Pins;
use super::program::{LoadedType, Program};
use super::ring::Ring;
use super::statistics::RunTime;
use super::sys;
use crate::host_bytes::HostBytes;
use crate::policy::{self, Admitted, Class, ObjectError, Policy, Readmission};
use crate::probed::Convention;
use crate::text::{MOST_BYTES, visible};

/// Upper limit of load attempts while other plugins pin the same maps.
const PIN_RACES: usize = 8;

/// A plugin's BPF object that a policy admitted.
#[derive(Debug)]
pub struct Object {
    admitted: Admitted,
    /// The ELF file for libbpf, generated from the model. The plugin's own bytes never reach libbpf.
    file: ObjectFile,
    variables: BTreeMap<String, Variable>,
    pins: Pins,
    /// Values of variables before the load.
    unloaded: Unloaded,
    /// What the object asks about this machine, with the answers, once they are known.
    surroundings: Option<Vec<Written>>,
    stage: Stage,
    /// None once it has loaded all that it can.
    loader: Option<Loader>,
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
    Open,
    Loaded(Loaded),
}

/// What the loader delivered.
#[derive(Debug)]
struct Loaded {
    /// Maps that plugins use, by name.
    maps: BTreeMap<String, Arc<Map>>,
    sections: Vec<SectionMap>,
    /// Whether the kernel structs (struct_ops) can be registered.
    has_structs: bool,
    programs: Vec<LoadedProgram>,
    /// Names of all maps, in the object's order.
    map_names: Vec<String>,
}

/// The map of a section of variables.
#[derive(Debug)]
struct SectionMap {
    map: Map,
    pages: Arc<SectionPages>,
}

impl SectionMap {
    fn is_of(&self, section: &str) -> bool {
        is_section_map(self.map.name().as_bytes(), section)
    }
}

impl Loaded {
    /// Takes over what was loaded, and maps the pages of the sections of variables.
    ///
    /// # Errors
    /// [`BpfError::Kernel`].
    fn take_over(delivered: Delivered, admitted: &Admitted) -> Result<Loaded, BpfError> {
        let model = admitted.object().model();
        let budget = InnerBudget::new(admitted.clone())?;
        let map_names = delivered.maps.iter().map(|map| map.name.clone()).collect();
        let mut loaded = Loaded {
            maps: BTreeMap::new(),
            sections: Vec::new(),
            has_structs: delivered.has_structs(),
            programs: delivered.programs,
            map_names,
        };
        for map in delivered.maps.into_iter().filter(|map| !map.is_struct()) {
            if is_data_map(map.name.as_bytes()) {
                loaded.sections.extend(section_map(map, model)?);
            } else {
                let declared = model.maps.iter().find(|one| one.name.as_str() == map.name);
                let name = map.name.clone();
                let map = match declared.and_then(|declared| InnerMaps::of(declared, &budget)) {
                    Some(inner) => Map::of_maps(map, inner)?,
                    None => Map::of(map)?,
                };
                loaded.maps.insert(name, Arc::new(map));
            }
        }
        Ok(loaded)
    }

    fn program(&self, name: &str) -> Option<&LoadedProgram> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// All maps that another object can use, with their names.
    fn descriptors(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let of_sections = self.sections.iter().map(|section| &section.map);
        self.maps.values().map(|map| &**map).chain(of_sections).map(|map| (map.name(), map.descriptor()))
    }
}

/// Maps the pages of a section; none if the object has no variables there.
fn section_map(map: LoadedMap, model: &Model) -> Result<Option<SectionMap>, BpfError> {
    let section = model.data.iter().find(|section| is_section_map(map.name.as_bytes(), &section.name()));
    let Some(section) = section else { return Ok(None) };
    let map = Map::of(map)?;
    let is_writable = section.kind != DataKind::Rodata;
    let pages = SectionPages::map(map.descriptor(), map.shape().value_size as usize, is_writable);
    let pages = pages.map_err(|errno| BpfError::Kernel {
        tried: format!("show the variables of `{}`", map.name()),
        call: "mmap",
        errno,
    })?;
    Ok(Some(SectionMap { map, pages: Arc::new(pages) }))
}

impl Object {
    /// Opens an object. Makes no system calls of BPF yet.
    ///
    /// # Errors
    /// [`BpfError::Unsound`] if no ELF file can be generated from it.
    pub fn open(admitted: Admitted) -> Result<Object, BpfError> {
        let file = ObjectFile::of(admitted.object()).map_err(unsound)?;
        Ok(Object::with_file(admitted, file))
    }

    /// Opens an object, whose file may be written already.
    ///
    /// # Errors
    /// As [`Object::open`].
    pub(crate) fn open_written(admitted: Admitted, file: Option<&ObjectFile>) -> Result<Object, BpfError> {
        match file.filter(|file| file.is_of(admitted.object())) {
            Some(file) => Ok(Object::with_file(admitted, file.clone())),
            None => Object::open(admitted),
        }
    }

    fn with_file(admitted: Admitted, file: ObjectFile) -> Object {
        let variables = globals::variables(admitted.object().model());
        let pins = Pins::of(admitted.object(), variables.get(PINNED_LAYOUT));
        Object {
            admitted,
            file,
            variables,
            pins,
            unloaded: Unloaded::default(),
            surroundings: None,
            stage: Stage::Open,
            loader: Some(Loader::Here(LibbpfLoader::default())),
            failure: None,
            failures: BTreeMap::new(),
            supervisor: None,
            occupants: None,
        }
    }

    /// Has libbpf parse the object, without loading anything: for tests of what reaches libbpf.
    ///
    /// # Errors
    /// [`BpfError::Load`].
    #[doc(hidden)]
    pub fn parse(&self) -> Result<(), BpfError> {
        loader::parse(&self.admitted.loaded_name(), &self.file.elf)
            .map_err(|refused| load_error(&self.admitted, refused))
    }

    /// Charges copies of written pages to this account from now on.
    pub fn charge_to(&mut self, host_bytes: &HostBytes) {
        self.unloaded.charge = Some(host_bytes.start());
    }

    /// Starts the supervisor process for clsact filters, if the object has tc programs and this kernel has no
    /// links for them, or the plugin may choose the order of its filters, which a script does not. Without it
    /// no filter can be attached.
    ///
    /// # Errors
    /// Those of fork(2) and pipe(2).
    pub fn supervise(&mut self) -> Result<(), Errno> {
        if self.has_programs_of(ProgramType::SchedCls) && (!is_script(self.model()) || feature::lacks_tcx()) {
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
        if self.has_programs_of(ProgramType::Xdp) {
            self.occupants = Some(OccupantFinder::start()?);
        }
        Ok(())
    }

    fn has_programs_of(&self, kind: ProgramType) -> bool {
        self.model().programs.iter().any(|program| program.section.kind.program == kind)
    }

    /// Has the loader do ahead what it can, for a plugin that then loads the object as it is.
    pub(crate) fn prepare_ahead(&mut self) {
        if let Some(Loader::Here(loader)) = &mut self.loader {
            loader.open_ahead(&self.admitted.loaded_name(), &self.file.elf);
        }
        // Maps that are pinned already are found when it is loaded. What cannot be asked now, the load says.
        if let Some(Loader::Apart(loader)) = &self.loader
            && self.pins.is_empty()
            && let Ok(surroundings) = self.surroundings()
        {
            loader.prepare_ahead(self.order(Selection::All, Vec::new(), surroundings.clone()));
            self.surroundings = Some(surroundings);
        }
    }

    /// Returns what libbpf needs of the kernel's types for the object.
    pub(crate) fn kernel_part(&self) -> Option<KernelPart> {
        self.file.kernel_part().cloned()
    }

    /// Has the object loaded in a process of its own, which has the rights for that.
    pub(crate) fn load_apart(&mut self, loader: LoaderProcess) {
        self.loader = Some(Loader::Apart(loader));
    }

    /// The socket to the process that loads the object; none if it is loaded here.
    pub(crate) fn loader(&self) -> Option<BorrowedFd<'_>> {
        if let Some(Loader::Apart(process)) = &self.loader { Some(process.socket()) } else { None }
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

    /// Returns the tracepoints that a program is for besides that of its section. Does not load anything.
    pub fn more_targets(&self, program: &str) -> Vec<String> {
        let found = self.model().program(program);
        let targets = found.into_iter().flat_map(|(_, one)| one.targets().skip(1));
        targets.map(|target| target.to_string()).collect()
    }

    /// Returns where the source of a program begins, `FILE:LINE: `, as far as the object says it. Does not load anything.
    pub fn first_line(&self, program: &str) -> String {
        let found = self.model().program(program).and_then(|(_, one)| one.body.lines.first());
        found.map(|line| format!("{}:{}: ", visible(&line.file, MOST_BYTES), line.line)).unwrap_or_default()
    }

    /// Returns whether a program is left out at targets that the kernel lacks. Does not load anything.
    pub fn is_optional(&self, program: &str) -> bool {
        self.model().program(program).is_some_and(|(_, one)| one.is_optional())
    }

    /// Returns name, type and target of each program. Does not load anything.
    pub fn programs(&self) -> impl Iterator<Item = (String, ProgramType, String)> {
        self.model().programs.iter().map(|one| {
            let target = one.section.target.to_string();
            (one.name.as_str().to_owned(), one.section.kind.program, target)
        })
    }

    /// Returns the number of descriptors that the loaded object takes: one for each program and map, also for those of
    /// sections of variables and of kernel structs, and for the inner maps that the plugin has created.
    pub fn descriptors(&self) -> usize {
        let inner = match &self.stage {
            Stage::Loaded(loaded) => loaded.maps.values().map(|map| map.inner_maps()).sum(),
            Stage::Open => 0,
        };
        let Model { programs, maps, data, struct_ops, kconfig, .. } = self.model();
        inner + programs.len() + maps.len() + data.len() + struct_ops.len() + usize::from(!kconfig.is_empty())
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
        let Stage::Open = self.stage else { return Err(BpfError::Created { name: map.to_owned() }) };
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
        self.file = ObjectFile::of(admitted.object()).map_err(unsound)?;
        self.admitted = admitted;
        self.failure = None;
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
        let loaded = self.load_or(Selection::Maps);
        self.leave_loader();
        loaded
    }

    /// Loads all programs, or, if the kernel refuses one of several, this selection.
    fn load_or(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        if let Stage::Loaded(_) = self.stage {
            return Ok(());
        }
        if self.failure.is_none() {
            let loaded = self.load_first(Selection::All);
            let Err(error) = loaded else { return Ok(()) };
            self.failure = Some(error);
        }
        match &self.failure {
            Some(BpfError::Load(_)) if self.model().programs.len() > 1 => self.load_first(selection),
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Loads a program: with all others, or alone if the kernel refuses one of them.
    fn load_program(&mut self, name: &str) -> Result<(), BpfError> {
        if let Some(failure) = self.failures.get(name) {
            return Err(failure.clone());
        }
        let loaded = self.load_or(Selection::One(name)).and_then(|()| match &self.stage {
            Stage::Loaded(loaded) if loaded.program(name).is_none() => self.load_more(Selection::One(name)),
            _ => Ok(()),
        });
        self.leave_loader();
        if let (Err(error), Some(_)) = (&loaded, &self.failure) {
            self.failures.insert(name.to_owned(), error.clone());
        }
        loaded
    }

    /// Ends the loader if it has nothing left to do.
    fn leave_loader(&mut self) {
        let model = self.admitted.object().model();
        if let Stage::Loaded(loaded) = &self.stage
            && model.struct_ops.is_empty()
            && loaded.programs.len() == model.programs.len()
        {
            self.loader = None;
        }
    }

    /// Loads programs in an object of their own, on the maps of the loaded one.
    fn load_more(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        let (names, maps): (Vec<_>, Vec<_>) = loaded.descriptors().unzip();
        let order = self.order(selection, names.into_iter().map(str::to_owned).collect(), Vec::new());
        let loader = self.loader.as_mut().ok_or(BpfError::NoObject)?;
        let delivered = load(loader, &self.admitted, order, &maps)?;
        if let Stage::Loaded(loaded) = &mut self.stage {
            loaded.has_structs |= delivered.has_structs();
            loaded.programs.extend(delivered.programs);
        }
        Ok(())
    }

    fn order(&self, selection: Selection<'_>, reused: Vec<String>, written: Vec<Written>) -> Order {
        Order {
            name: self.admitted.loaded_name(),
            elf: self.file.elf.clone(),
            written,
            reused,
            programs: selection.of(self.model()),
        }
    }

    /// Returns whether programs read task ids and this process is not in the initial PID namespace.
    pub fn numbers_tasks_inside(&self) -> bool {
        self.variables.contains_key(PID_NAMESPACE) && pid_namespace::number().is_some()
    }

    /// Loads a selection, with maps of its own but for those that are pinned already. The plugin may go on without BPF
    /// after a failure: its variables keep their values.
    fn load_first(&mut self, selection: Selection<'_>) -> Result<(), BpfError> {
        let mut written = self.unloaded.written(self.model());
        written.extend(match &self.surroundings {
            Some(known) => known.clone(),
            None => self.surroundings()?,
        });
        for _ in 0..PIN_RACES {
            let pinned = self.pins.reuse(self.model(), |variable| self.get(variable).ok())?;
            let names: Vec<String> = pinned.iter().map(|(name, _)| name.clone()).collect();
            let maps: Vec<_> = pinned.iter().map(|(_, map)| map.as_fd()).collect();
            let order = self.order(selection, names.clone(), written.clone());
            let loader = self.loader.as_mut().ok_or(BpfError::NoObject)?;
            let delivered = load(loader, &self.admitted, order, &maps)?;
            charge::check(&delivered.maps, &self.admitted)?;
            if self.pins.create(&delivered.maps, &names)? {
                self.stage = Stage::Loaded(Loaded::take_over(delivered, &self.admitted)?);
                self.unloaded = Unloaded::default();
                return Ok(());
            }
            // Another plugin pinned its maps first; use those.
        }
        Err(BpfError::Unsound("its pins come and go while it is loaded".into()))
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
        let loaded_program = loaded.program(name).ok_or(BpfError::NoObject)?;
        let timer = loaded.maps.get(&timer_map(name));
        let (supervisor, occupants) = (self.supervisor.as_ref(), self.occupants.as_ref());
        let convention = self.convention(name);
        Ok(Program { loaded: loaded_program, supervisor, occupants, timer, convention })
    }

    /// Returns the convention by which a program reads the arguments of a function, if the object tells it.
    fn convention(&self, program: &str) -> Option<Convention> {
        let (_, program) = self.model().program(program)?;
        program.body.notes.iter().find_map(|note| match note.attribute.as_str() {
            ARGUMENTS_OF_C => Some(Convention::C),
            ARGUMENTS_OF_GO => Some(Convention::Go),
            _ => None,
        })
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
        let loader = self.loader.as_mut().ok_or(BpfError::NoObject)?;
        loader.register(name).map(Link::new).map_err(|errno| {
            let (tried, call) = (format!("register `{name}`"), "bpf(BPF_LINK_CREATE)");
            match errno {
                Errno::EEXIST | Errno::EBUSY => BpfError::Registered { tried, call, errno },
                errno => BpfError::Kernel { tried, call, errno },
            }
        })
    }

    /// Loads the members of the object's kernel structs, with all other programs if the kernel accepts them.
    fn load_structs(&mut self) -> Result<(), BpfError> {
        self.load_or(Selection::Structs)?;
        let Stage::Loaded(loaded) = &self.stage else { return Err(BpfError::NoObject) };
        if loaded.has_structs { Ok(()) } else { self.load_more(Selection::Structs) }
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
        let rings = || loaded.maps.values().filter(|map| map.shape().ty == u32::from(MapType::RingBuf));
        match rings().find(|map| map.name() == name) {
            Some(map) => Ring::of(map),
            None => {
                let known = rings().map(|map| map.name().to_owned()).collect();
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
        let programs = loaded.programs.iter().map(|program| program.name.clone());
        Some((programs.collect(), loaded.map_names.clone()))
    }

    /// Returns the accumulated run time of each program since the load, as far as the kernel measured it
    /// ([`super::statistics::Statistics`]). Empty before the load; programs without kernel information are
    /// left out.
    pub fn run_times(&self) -> Vec<RunTime> {
        let Stage::Loaded(loaded) = &self.stage else { return Vec::new() };
        let time = |program: &LoadedProgram| {
            let info = sys::program_info(program.descriptor.as_fd()).ok()?;
            Some(RunTime {
                program: program.name.clone(),
                kind: LoadedType::from(info.type_),
                nanoseconds: info.run_time_ns,
            })
        };
        loaded.programs.iter().filter_map(time).collect()
    }

    /// Returns how often programs lost data because the ring buffer or map of this name was full. None if the
    /// object does not count that.
    pub fn lost(&self, name: &str) -> Option<u64> {
        let variable = self.variables.get(&lost_variable(name))?;
        self.get(variable).ok()
    }

    /// Returns the loss counters of the programs. Empty before the load.
    pub fn loss_counters(&self) -> Vec<LossCounter> {
        let Stage::Loaded(loaded) = &self.stage else { return Vec::new() };
        let maps = loaded.maps.values().map(|map| (map.name(), map.shape().ty));
        let pages = |section: &str| {
            let map = loaded.sections.iter().find(|map| map.is_of(section))?;
            Some(Arc::clone(&map.pages))
        };
        losses::counters(maps, pages, &self.variables)
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
        layout::of(&self.file.elf, subject)
    }
}

/// Has an object loaded once the last look has found nothing.
fn load(
    loader: &mut Loader,
    admitted: &Admitted,
    order: Order,
    maps: &[BorrowedFd<'_>],
) -> Result<Delivered, BpfError> {
    let model = admitted.object().model();
    let mut tags = Tags::default();
    let look = |prepared: &Prepared| {
        tags = Tags::of(prepared);
        look::look(prepared, model)
    };
    let product = loader.load(order, maps, look).map_err(|reason| match reason {
        NotLoaded::Refused(refused) => load_error(admitted, refused),
        NotLoaded::Different(difference) => BpfError::LastLook(difference),
        NotLoaded::NoLoader(reason) => BpfError::NoLoader(reason),
    })?;
    Delivered::check(product, model, &tags, maps).map_err(BpfError::LastLook)
}

/// The file that libbpf opens. The functions of the kernel that programs call have their ids in it, so that libbpf does not
/// read all of the kernel's types for them, if there is an image of the types.
fn unsound(error: ObjectError) -> BpfError {
    BpfError::Unsound(error.to_string())
}

/// Returns whether libbpf created this map for a global data section.
pub(super) fn is_data_map(map: &[u8]) -> bool {
    let named_like_section = std::str::from_utf8(map).is_ok_and(globals::is_global_data);
    named_like_section || [".data", ".bss", ".rodata"].iter().any(|section| is_section_map(map, section))
}

fn not_found(what: &'static str, name: &str, known: Vec<String>) -> BpfError {
    BpfError::NotFound { what, name: name.into(), known }
}

fn load_error(admitted: &Admitted, refused: Refused) -> BpfError {
    let (errno, verifier, libbpf) = (refused.errno(), refused.verifier(), refused.libbpf);
    let model = admitted.object().model();
    let member = verifier.as_ref().and_then(|(program, log)| {
        let unfit = log.unfit_member()?;
        let other = || format!("`{unfit}` has another type in this kernel");
        Some(Lack::Member(members::missing(model, program).unwrap_or_else(other)))
    });
    let variable = verifier.as_ref().and_then(|(_, log)| log.unlisted_variable());
    let variable = variable.map(|name| Lack::Variable(name.to_owned()));
    let missing = |line: &String| missing_function(line).or_else(|| missing_variable(line));
    let lacks = member.or(variable).or_else(|| libbpf.iter().find_map(missing));
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

/// Extracts from a line of libbpf the variable of the kernel that it did not find among its symbols or its types.
///
/// Source: libbpf v1.7, `bpf_object__resolve_externs` and `bpf_object__resolve_ksym_var_btf_id`.
fn missing_variable(line: &str) -> Option<Lack> {
    if let Some((_, name)) = line.split_once("extern (var ksym) '") {
        let (name, rest) = name.split_once('\'')?;
        return rest.starts_with(": not found").then(|| Lack::PerCpuVariable(name.to_owned()));
    }
    let (_, name) = line.split_once("extern '")?;
    let (name, rest) = name.split_once('\'')?;
    rest.starts_with(" (strong): not resolved").then(|| Lack::Variable(name.to_owned()))
}

/// Returns whether the object was compiled from a script: its line information names a `.ks` file.
fn is_script(model: &Model) -> bool {
    let programs = model.programs.iter().map(|one| &one.body);
    let mut bodies = programs.chain(model.subprograms.iter().map(|one| &one.body));
    bodies.any(|body| body.lines.iter().any(|line| line.file.ends_with(".ks")))
}
