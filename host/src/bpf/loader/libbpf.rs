//! The loader itself: libbpf, in the process that runs this.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapType, Object, ObjectBuilder, OpenObject};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::kernel_part::{ProgramTracepoint, TRACEPOINT_SECTION};
use super::{
    ChosenPrograms, KernelPart, Named, NotLoaded, Order, Prepared, PreparedMap, PreparedModule,
    PreparedProgram, Product, ProgramLog, Refused,
};
use crate::bpf::object::{is_data_map, is_section_map};
use crate::bpf::{print, sys};

/// Size in bytes of the verifier log buffer of one program. At log level 1 a program near the limit of a
/// million verified instructions logs more; kernels since 6.4 then keep the end, which contains the reason.
const LOG_BYTES: usize = 4 << 20;

/// Loads objects with libbpf.
#[derive(Debug, Default)]
pub(in crate::bpf) struct LibbpfLoader {
    /// Objects with structs that can be registered: only libbpf has the form of a struct that the kernel takes.
    with_structs: Vec<Object>,
    /// An object that was opened ahead, with its file.
    ahead: Option<(Vec<u8>, OpenObject)>,
    /// An object that was prepared ahead, with what was asked for.
    prepared: Option<Box<(Order, OpenObject)>>,
    /// None: libbpf reads all types of the kernel if it needs some.
    part: Option<PartInUse>,
}

/// What libbpf needs of the kernel's types.
#[derive(Debug)]
struct PartInUse {
    /// None if no relocation asks for types.
    types: Option<TypesFile>,
    tracepoints: Vec<ProgramTracepoint>,
}

impl LibbpfLoader {
    /// Makes the loader of this process, which needs no more of the kernel's types than this.
    ///
    /// # Errors
    /// Of memfd_create(2) and write(2), and of libbpf.
    pub(in crate::bpf) fn of_part(part: KernelPart) -> io::Result<LibbpfLoader> {
        let KernelPart { types, tracepoints } = part;
        let types = if types.is_empty() { None } else { Some(TypesFile::of(&types)?) };
        if !tracepoints.is_empty() {
            // The section, with a name or without.
            sys::name_tracepoints(&CString::new(format!("{TRACEPOINT_SECTION}+"))?)?;
        }
        Ok(LibbpfLoader { part: Some(PartInUse { types, tracepoints }), ..LibbpfLoader::default() })
    }

    /// Loads an object on these maps, once `look` has found nothing wrong in what was prepared.
    ///
    /// # Errors
    /// [`NotLoaded`].
    pub(in crate::bpf) fn load(
        &mut self,
        order: &Order,
        reused: &[BorrowedFd<'_>],
        look: impl FnOnce(Prepared) -> Result<(), String>,
    ) -> Result<Product, NotLoaded> {
        // What differs goes away first: its maps take memory.
        let ahead = self.prepared.take().map(|ahead| *ahead);
        let open = match ahead.filter(|(expected, _)| expected == order) {
            Some((_, open)) => open,
            None => {
                let ahead = self.ahead.take().filter(|(elf, _)| *elf == order.elf).map(|(_, open)| open);
                let part = self.part.as_ref();
                let (open, libbpf) = print::collect(|| prepared(order, reused, ahead, part));
                open.map_err(|errno| NotLoaded::Refused(Refused::new(errno, None, libbpf)))?
            }
        };
        look(Prepared::of(&open).map_err(NotLoaded::Different)?).map_err(NotLoaded::Different)?;
        let (loaded, libbpf) = print::collect(|| sys::load(open, LOG_BYTES));
        let object = loaded.map_err(|sys::Refusal { errno, logs }| {
            NotLoaded::Refused(Refused::new(errno, first_log(logs), libbpf))
        })?;
        let product = Product::of(&object)
            .map_err(|errno| NotLoaded::Refused(Refused::new(errno, None, Vec::new())))?;
        if object.maps().any(|map| is_struct(&map)) {
            self.with_structs.push(object);
        }
        Ok(product)
    }

    /// Opens the object that is loaded first. libbpf reserves descriptors for its maps now and replaces them when it is
    /// loaded: on a thread that may not replace what was an output when it was confined, whoever has closed that since. If
    /// it fails, the load says why.
    pub(in crate::bpf) fn open_ahead(&mut self, name: &str, elf: &[u8]) {
        let (open, _) = print::collect(|| opened(name, elf, None));
        self.ahead = open.ok().map(|open| (elf.to_vec(), open));
    }

    /// Prepares an object that reuses no maps, for a load that asks for the same. If it fails, the load says why.
    pub(super) fn prepare_ahead(&mut self, order: Order) {
        let part = self.part.as_ref();
        let (open, _) = print::collect(|| prepared(&order, &[], None, part));
        self.prepared = open.ok().map(|open| Box::new((order, open)));
    }

    /// Registers the kernel struct of this name. It is registered until the descriptor is closed.
    ///
    /// # Errors
    /// Of bpf(2), BPF_LINK_CREATE; ENOENT if there is none.
    pub(in crate::bpf) fn register(&mut self, name: &str) -> Result<OwnedFd, Errno> {
        let maps = self.with_structs.iter_mut().flat_map(Object::maps_mut);
        let mut structs = maps.filter(|map| is_struct(map) && map.name() == name);
        let mut map = structs.next().ok_or(Errno::ENOENT)?;
        // libbpf sets errno on every failure; libbpf-rs keeps it only in its error text.
        let (link, _) = print::collect(|| map.attach_struct_ops().map_err(|_| Errno::last()));
        duplicate(link?.as_fd())
    }
}

/// Has libbpf parse an object, and nothing else.
///
/// # Errors
/// [`Refused`].
pub(in crate::bpf) fn parse(name: &str, elf: &[u8]) -> Result<(), Refused> {
    let (open, libbpf) = print::collect(|| opened(name, elf, None));
    open.map(drop).map_err(|errno| Refused::new(errno, None, libbpf))
}

/// Opens an object. With `types` its relocations ask that file instead of all types of the kernel.
fn opened(name: &str, elf: &[u8], types: Option<&Path>) -> Result<OpenObject, Errno> {
    let mut builder = ObjectBuilder::default();
    let set = builder.name(name).and_then(|builder| match types {
        Some(types) => builder.btf_custom_path(types),
        None => Ok(builder),
    });
    // libbpf sets errno on every failure; libbpf-rs keeps it only in its error text.
    set.and_then(|builder| builder.open_memory(elf)).map_err(|_| Errno::last())
}

/// A file of types that libbpf reads by its path.
#[derive(Debug)]
struct TypesFile(File);

impl TypesFile {
    fn of(types: &[u8]) -> io::Result<TypesFile> {
        let mut file = File::from(memfd_create(c"kernel types", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(types)?;
        Ok(TypesFile(file))
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Opens an object, makes it what the order says, creates its maps and relocates its instructions.
fn prepared(
    order: &Order,
    reused: &[BorrowedFd<'_>],
    ahead: Option<OpenObject>,
    part: Option<&PartInUse>,
) -> Result<OpenObject, Errno> {
    let types = part.and_then(|part| part.types.as_ref()).map(TypesFile::path);
    let mut open = ahead.map_or_else(|| opened(&order.name, &order.elf, types.as_deref()), Ok)?;
    for mut map in open.maps_mut() {
        if is_data_map(map.name().as_bytes()) {
            // libbpf sets this flag itself only if the section has a variable of global linkage; since 5.5.
            let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
            map.set_map_flags(flags).map_err(|_| Errno::last())?;
        }
        // `Pins` pins the maps; libbpf would use other paths.
        sys::forget_pin_path(&mut map);
        fill(&mut map, order);
        let at = order.reused.iter().position(|name| map.name() == name.as_str());
        if let Some(descriptor) = at.and_then(|at| reused.get(at)) {
            map.reuse_fd(*descriptor).map_err(|_| Errno::last())?;
        }
    }
    choose(&mut open, &order.programs)?;
    for attached in part.iter().flat_map(|part| &part.tracepoints) {
        if let Some(mut program) =
            open.progs_mut().find(|program| program.name() == attached.program.as_str())
        {
            sys::set_tracepoint(&mut program, attached.id)?;
        }
    }
    sys::prepare(&mut open)?;
    Ok(open)
}

/// Puts written values into the image of their section. Only of sections: a map of a struct may have a section's
/// name, but contains pointers of libbpf.
fn fill(map: &mut libbpf_rs::OpenMapMut<'_>, order: &Order) {
    if map.map_type() != MapType::Array {
        return;
    }
    let name = map.name().as_bytes().to_vec();
    let Some(image) = map.initial_value_mut() else { return };
    for written in order.written.iter().filter(|written| is_section_map(&name, &written.section)) {
        let target = usize::try_from(written.offset).ok().and_then(|offset| image.get_mut(offset..));
        // What lies beyond is padding of the last page.
        target.into_iter().flatten().zip(&written.bytes).for_each(|(to, from)| *to = *from);
    }
}

/// Applies the choice of programs.
fn choose(open: &mut OpenObject, programs: &ChosenPrograms) -> Result<(), Errno> {
    let ChosenPrograms::Only(only) = programs else { return Ok(()) };
    for mut program in open.progs_mut() {
        let is_chosen = only.names.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(is_chosen);
    }
    if !only.structs {
        for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
            map.set_autocreate(false).map_err(|_| Errno::last())?;
        }
    }
    Ok(())
}

impl Prepared {
    /// Describes a prepared object.
    ///
    /// # Errors
    /// A message, if the kernel does not say of which module types are.
    pub(in crate::bpf) fn of(open: &OpenObject) -> Result<Prepared, String> {
        let mut prepared = Prepared { programs: Vec::new(), maps: Vec::new(), modules: Vec::new() };
        for program in open.progs().filter(|program| program.autoload()) {
            let instructions = program.insns();
            let code = instructions.iter().flat_map(sys::slot_bytes).collect();
            prepared
                .programs
                .push(PreparedProgram { name: program.name().to_string_lossy().into_owned(), code });
            for descriptor in modules(instructions) {
                if prepared.modules.iter().all(|module| module.descriptor != descriptor) {
                    let name = sys::btf_name(descriptor)
                        .map_err(|errno| format!("cannot ask for the types at {descriptor}: {errno}"))?;
                    prepared.modules.push(PreparedModule { descriptor, name });
                }
            }
        }
        prepared.maps.extend(open.maps().map(|map| PreparedMap {
            name: map.name().to_string_lossy().into_owned(),
            descriptor: sys::map_descriptor(&map),
        }));
        Ok(prepared)
    }
}

/// Returns the descriptors of types of modules in these instructions.
///
/// Source: include/uapi/linux/bpf.h, `BPF_PSEUDO_BTF_ID`, v6.18: the second slot has the descriptor, 0 for the kernel.
fn modules(instructions: &[libbpf_sys::bpf_insn]) -> impl Iterator<Item = i32> {
    const LOAD_WIDE: u8 = 0x18;
    let pairs = instructions.windows(2).filter_map(|pair| match pair {
        [first, second] => Some((first, second)),
        _ => None,
    });
    let typed = pairs.filter(|(first, _)| {
        first.code == LOAD_WIDE && u32::from(first.src_reg()) == libbpf_sys::BPF_PSEUDO_BTF_ID
    });
    typed.map(|(_, second)| second.imm).filter(|descriptor| *descriptor != 0)
}

impl Product {
    fn of(object: &Object) -> Result<Product, Errno> {
        let named = |name: &OsStr, descriptor: BorrowedFd<'_>| {
            Ok(Named { name: name.to_string_lossy().into_owned(), descriptor: duplicate(descriptor)? })
        };
        let maps = object.maps().filter(sys::is_created).map(|map| named(map.name(), map.as_fd()));
        let programs =
            object.progs().filter(sys::is_loaded).map(|program| named(program.name(), program.as_fd()));
        Ok(Product {
            maps: maps.collect::<Result<_, Errno>>()?,
            programs: programs.collect::<Result<_, Errno>>()?,
        })
    }
}

/// Whether a map is a kernel struct that its object has created.
fn is_struct(map: &libbpf_rs::Map<'_>) -> bool {
    map.map_type() == MapType::StructOps && sys::is_created(map)
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let refused = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    descriptor.try_clone_to_owned().map_err(refused)
}

/// Returns the first log that says something.
fn first_log(logs: Vec<(String, Vec<u8>)>) -> Option<ProgramLog> {
    logs.into_iter().find_map(|(program, mut text)| {
        let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        text.truncate(len);
        let says = text.iter().any(|byte| !byte.is_ascii_whitespace());
        says.then_some(ProgramLog { program, text })
    })
}
