//! BTF of the running kernel, opened once per process: an image of a cache, else 5 MB, which sysfs returns page by page.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ks_compiler::object::btf::{Btf, SplitBtf, Type, TypeId};

/// The file of the running kernel's types.
pub const PATH: &str = "/sys/kernel/btf/vmlinux";

static TYPES: OnceLock<Btf> = OnceLock::new();
static WERE_READ: AtomicBool = AtomicBool::new(false);

/// What opens an image of the running kernel's types; none if there is no image.
type OpenImage = Box<dyn Fn() -> Option<Btf> + Send>;

static IMAGE: Mutex<Option<OpenImage>> = Mutex::new(None);

/// Offers an image of the running kernel's types, which is opened when an object is there that needs types.
pub(crate) fn offer(open: impl Fn() -> Option<Btf> + Send + 'static) {
    *IMAGE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(open));
}

/// Returns the kernel's own types if they are open, or if there is an image of them. A thread that is confined may open no
/// image.
pub(super) fn opened() -> Option<&'static Btf> {
    if let Some(types) = TYPES.get() {
        return Some(types);
    }
    let image = IMAGE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|open| open())?;
    Some(TYPES.get_or_init(|| image))
}

/// Returns whether this process read the kernel's types because no image was offered.
#[must_use]
pub fn were_read() -> bool {
    WERE_READ.load(Ordering::Relaxed)
}

/// Returns the kernel's own types, without those of its modules.
///
/// # Errors
/// The reason why they cannot be read, as text.
pub(crate) fn running() -> Result<&'static Btf, String> {
    if let Some(types) = opened() {
        return Ok(types);
    }
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot read {PATH}: {error}");
    let bytes = fs::read(PATH).map_err(|error| unreadable(&error))?;
    let types = Btf::parse(bytes).map_err(|error| unreadable(&error))?;
    WERE_READ.store(true, Ordering::Relaxed);
    Ok(TYPES.get_or_init(|| types))
}

const FOLDER: &str = "/sys/kernel/btf";

/// Returns the name and the own types of each loaded module that has some.
///
/// # Errors
/// The reason why they cannot be read, as text.
pub(super) fn modules() -> Result<Vec<(String, SplitBtf<'static>)>, String> {
    let base = running()?;
    let entries = fs::read_dir(FOLDER).map_err(|error| format!("cannot read {FOLDER}: {error}"))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut modules = Vec::new();
    for name in names.filter(|name| name != "vmlinux") {
        // A module may be unloaded meanwhile; then nothing of it is found.
        let Ok(bytes) = fs::read(format!("{FOLDER}/{name}")) else { continue };
        let types = SplitBtf::parse(bytes, base).map_err(|error| format!("{FOLDER}/{name}: {error}"))?;
        modules.push((name, types));
    }
    Ok(modules)
}

/// Whether a function, variable or name of a type with this id has a wanted name: in the kernel, or in one of its
/// modules, whose ids come after the kernel's.
///
/// # Errors
/// As [`modules`].
pub(super) fn any_named(id: TypeId, is_wanted: impl Fn(&str) -> bool) -> Result<bool, String> {
    let base = running()?;
    if id.0 <= base.len() {
        let name = match base.get(id) {
            Ok(Type::Func { name, .. } | Type::Typedef { name, .. }) => name,
            _ => return Ok(false),
        };
        return Ok(is_wanted(name));
    }
    let named = |(_, types): &(String, SplitBtf<'static>)| {
        types.name_and_kind(id).is_some_and(|(name, _)| is_wanted(name))
    };
    Ok(modules()?.iter().any(named))
}
