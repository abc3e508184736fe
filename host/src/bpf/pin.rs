//! Pins: maps that outlive a plugin, in the BPF file system, in a directory named after the project.
//!
//! An existing pin with the declared shape is used by both halves; a missing one is created once the object
//! is loaded. Pinned variables form the section `.data.pinned`, whose map is pinned like any other. The
//! policy limits the number of pins (`Limit::Pins`) before the plugin starts. Their paths lead through no link and
//! through no folder of another user.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::MapShape as ModelShape;
use ks_wit::object::PINNED_SECTION;
use libbpf_rs::{MapCore, MapHandle, MapType};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, mkdirat};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::geteuid;

use super::delivered::LoadedMap;
use super::error::BpfError;
use super::globals::Variable;
use super::sys;
use crate::opener;
use crate::policy::PluginObject;

/// Required mount point of the BPF file system.
const BPFFS: &str = "/sys/fs/bpf";

/// The maps of an object that are to be pinned.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// Paths in the BPF file system by map name. Pinned variables have the name of their section.
    wanted: BTreeMap<String, String>,
    /// The variable in the pinned section that holds a digest of the section's layout.
    layout: Option<Variable>,
}

impl Pins {
    /// Collects the pins of an object. `layout` is the variable that describes the pinned section's layout.
    pub(super) fn of(object: &PluginObject, layout: Option<&Variable>) -> Pins {
        let wanted = object.pins().map(|pin| (pin.map, pin.path)).collect();
        Pins { wanted, layout: layout.cloned() }
    }

    /// Whether no map is pinned.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Finds the existing pinned maps, which are used instead of new ones. `layout` reads the digest of the pinned
    /// variables that the object declares.
    ///
    /// # Errors
    /// [`BpfError::NoBpffs`]; [`BpfError::PinShape`]; [`BpfError::Kernel`].
    pub(super) fn reuse(
        &self,
        model: &Model,
        layout: impl Fn(&Variable) -> Option<u64>,
    ) -> Result<Vec<(String, MapHandle)>, BpfError> {
        let mut reused = Vec::new();
        if self.wanted.is_empty() {
            return Ok(reused);
        }
        let root = root()?;
        for (name, path) in self.wanted.iter().map(|(name, path)| (name, root.join(path))) {
            let Some(declared) = Shape::declared(model, name) else { continue };
            let Some(pinned) = opener::pinned(&path)? else { continue };
            check_shape(name, &path, &declared, &pinned)?;
            if name == PINNED_SECTION {
                self.check_layout(self.layout.as_ref().and_then(&layout), &path, &pinned)?;
            }
            reused.push((name.clone(), pinned));
        }
        Ok(reused)
    }

    fn check_layout(&self, declared: Option<u64>, path: &Path, pinned: &MapHandle) -> Result<(), BpfError> {
        let value = pinned.lookup(&[0; 4], libbpf_rs::MapFlags::ANY).ok().flatten();
        let value = value.zip(self.layout.as_ref());
        let there = value.and_then(|(value, layout)| {
            let bytes = value.get(layout.offset..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        });
        if declared == there {
            return Ok(());
        }
        Err(BpfError::PinShape {
            what: "the pin of all variables".into(),
            path: path.into(),
            differences: "their names or types".into(),
        })
    }

    /// Pins the maps that are not pinned yet. False if another process pinned a map of this name meanwhile.
    ///
    /// # Errors
    /// [`BpfError::NoBpffs`]; [`BpfError::Kernel`].
    pub(super) fn create(&self, maps: &[LoadedMap], reused: &[String]) -> Result<bool, BpfError> {
        if self.wanted.is_empty() {
            return Ok(true);
        }
        let root = root()?;
        for map in maps.iter().filter(|map| !reused.contains(&map.name)) {
            let Some(path) = self.wanted.get(&map.name).map(|path| root.join(path)) else { continue };
            if !opener::pin(&path, map.descriptor.as_fd())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the paths of the maps that an object pins.
pub(crate) fn paths(object: &PluginObject) -> Vec<PathBuf> {
    object.pins().map(|pin| Path::new(BPFFS).join(pin.path)).collect()
}

/// Opens a pinned map on the calling thread; none if there is none.
///
/// # Errors
/// [`BpfError::Kernel`].
pub(crate) fn open_map(path: &Path) -> Result<Option<MapHandle>, BpfError> {
    let Some(location) = PinLocation::find(path)?.filter(PinLocation::is_taken) else { return Ok(None) };
    let pinned = MapHandle::from_pinned_path(location.kernel_path());
    pinned.map(Some).map_err(|_| kernel("open", path, "bpf(BPF_OBJ_GET)", Errno::last()))
}

/// Pins a map on the calling thread, in a folder that is created if it is missing. False if there is a pin of
/// this path already.
///
/// # Errors
/// [`BpfError::Kernel`].
pub(crate) fn create(path: &Path, map: BorrowedFd<'_>) -> Result<bool, BpfError> {
    match sys::pin(map, &PinLocation::make(path)?.kernel_path()) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(errno) => Err(kernel("pin a map as", path, "bpf(BPF_OBJ_PIN)", errno)),
    }
}

/// The properties that must be equal in a map and its pin.
struct Shape {
    ty: MapType,
    key: u32,
    value: u32,
    entries: u32,
}

impl Shape {
    /// Returns what an object declares of a map or of its pinned variables.
    fn declared(model: &Model, name: &str) -> Option<Shape> {
        if name == PINNED_SECTION {
            let section = model.data.iter().find(|section| section.name() == name)?;
            return Some(Shape { ty: MapType::Array, key: 4, value: section.content.bytes(), entries: 1 });
        }
        let map = model.maps.iter().find(|map| map.name.as_str() == name)?;
        let ModelShape { kind, key, value, entries, .. } = &map.shape;
        let ty = MapType::from(kind.number());
        Some(Shape { ty, key: key.bytes(), value: value.bytes(), entries: *entries })
    }
}

fn check_shape(name: &str, path: &Path, declared: &Shape, pinned: &MapHandle) -> Result<(), BpfError> {
    let mut differences = Vec::new();
    if declared.ty != pinned.map_type() {
        differences.push(format!("kind {:?}\u{2192}{:?}", pinned.map_type(), declared.ty));
    }
    let sizes = [
        ("key", pinned.key_size(), declared.key),
        ("value", pinned.value_size(), declared.value),
        ("entries", pinned.max_entries(), declared.entries),
    ];
    let differing = sizes.iter().filter(|(_, there, here)| there != here);
    differences.extend(differing.map(|(what, there, here)| format!("{what} {there}\u{2192}{here}")));
    if differences.is_empty() {
        return Ok(());
    }
    let what =
        if name == PINNED_SECTION { "the pin of all variables".into() } else { format!("pinned map {name}") };
    Err(BpfError::PinShape { what, path: path.into(), differences: differences.join(", ") })
}

/// Returns the mount point of the BPF file system. The list of mounts does not answer: it also has those that another
/// mount covers.
fn root() -> Result<&'static Path, BpfError> {
    let root = Path::new(BPFFS);
    let is_there = statfs(root).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC);
    is_there.then_some(root).ok_or(BpfError::NoBpffs)
}

/// The location of a pin: its folder, open, and its name in there. Each folder on the way is opened in the one
/// before without following links: in the BPF file system everybody may make folders and links, and the policy
/// was asked about the path as it is written.
struct PinLocation {
    folder: OwnedFd,
    path: PathBuf,
}

impl PinLocation {
    /// Opens the folder of a pin; none if it does not exist.
    fn find(path: &Path) -> Result<Option<PinLocation>, BpfError> {
        match PinLocation::open(path, |_, _| Ok(())) {
            Err(BpfError::Kernel { errno: Errno::ENOENT, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Opens the folder of a pin, and makes it if it does not exist.
    fn make(path: &Path) -> Result<PinLocation, BpfError> {
        PinLocation::open(path, |folder, name| match mkdirat(folder, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(kernel("make the folder of", path, "mkdir", errno)),
        })
    }

    fn open(
        path: &Path,
        prepare: impl Fn(&OwnedFd, &OsStr) -> Result<(), BpfError>,
    ) -> Result<PinLocation, BpfError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let failed = |errno| kernel("open the folder of", path, "openat(O_NOFOLLOW)", errno);
        let mut folder = open(BPFFS, flags, Mode::empty()).map_err(failed)?;
        let below = path.strip_prefix(BPFFS).ok().and_then(Path::parent).unwrap_or(Path::new(""));
        for name in below {
            prepare(&folder, name)?;
            folder = openat(&folder, name, flags, Mode::empty()).map_err(failed)?;
        }
        let location = PinLocation { folder, path: path.to_owned() };
        // The owner of the folder can replace what is in there at any time.
        let owner = fstat(&location.folder).map_err(failed)?.st_uid;
        if owner != 0 && owner != geteuid().as_raw() {
            let tried = format!("use a folder of another user (uid {owner}) for");
            return Err(kernel(&tried, path, "fstat", Errno::EPERM));
        }
        if location.is_link() {
            return Err(kernel("follow the link", path, "fstatat", Errno::ELOOP));
        }
        Ok(location)
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn kind(&self) -> Option<SFlag> {
        let found = fstatat(&self.folder, self.name(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some(SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT)
    }

    fn is_taken(&self) -> bool {
        self.kind().is_some()
    }

    fn is_link(&self) -> bool {
        self.kind() == Some(SFlag::S_IFLNK)
    }

    /// Returns a path by which the kernel finds the location, in system calls of this process while `self` lives.
    fn kernel_path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string()).join(self.name())
    }
}

fn kernel(verb: &str, path: &Path, call: &'static str, errno: Errno) -> BpfError {
    BpfError::Kernel { tried: format!("{verb} {}", path.display()), call, errno }
}
