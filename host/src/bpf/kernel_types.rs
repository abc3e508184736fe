//! BTF of the running kernel, read once per process: 5 MB, which sysfs returns page by page.

use std::fs;
use std::sync::OnceLock;

use ks_compiler::object::btf::Btf;

const PATH: &str = "/sys/kernel/btf/vmlinux";

/// Returns the kernel's own types, without those of its modules.
///
/// # Errors
/// The reason why they cannot be read, as text.
pub(super) fn running() -> Result<&'static Btf, String> {
    static TYPES: OnceLock<Btf> = OnceLock::new();
    if let Some(types) = TYPES.get() {
        return Ok(types);
    }
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot read {PATH}: {error}");
    let bytes = fs::read(PATH).map_err(|error| unreadable(&error))?;
    let types = Btf::parse(bytes).map_err(|error| unreadable(&error))?;
    Ok(TYPES.get_or_init(|| types))
}
