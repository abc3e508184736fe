//! Static libraries for one command of a build whose other commands are linked dynamically. With cargo, either a whole
//! build is linked statically or nothing is (`-C target-feature=+crt-static`).
//!
//! So the linker finds, in a folder that it searches before its own, static libraries under the names by which rustc asks
//! for shared ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Libraries that rustc links for the standard library, each with the static library that replaces it.
const LIBRARIES: [(&str, &str); 7] = [
    ("libgcc_s.a", "libgcc_eh.a"),
    ("libutil.a", "libutil.a"),
    ("librt.a", "librt.a"),
    ("libpthread.a", "libpthread.a"),
    ("libm.a", "libm.a"),
    ("libdl.a", "libdl.a"),
    ("libc.a", "libc.a"),
];

/// The last linker arguments: without a dynamic linker no symbol may stay unresolved, and a linker that searches libraries
/// in order must find the compiler's libraries after the C library, which calls them.
pub const LAST_ARGUMENTS: [&str; 4] = ["-Wl,--no-dynamic-linker", "-lgcc_eh", "-lgcc", "-lc"];

/// Makes the folder below `out`, with `more` libraries. None if rustc links no shared libraries of a GNU system, or a
/// static one is missing.
pub fn folder(out: &Path, more: &[&'static str]) -> Option<PathBuf> {
    let compiler = c_compiler().filter(|_| is_shared())?;
    let all = LIBRARIES.into_iter().chain(more.iter().map(|name| (*name, *name)));
    let libraries: Option<Vec<_>> = all.map(|(name, of)| Some((name, library(&compiler, of)?))).collect();
    let folder = out.join("libraries");
    fill(&folder, &libraries?).expect("the output folder can be written");
    Some(folder)
}

/// Whether rustc links shared libraries of a GNU system.
fn is_shared() -> bool {
    let says = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    says("OS") == "linux" && says("ENV") == "gnu" && says("FEATURE").split(',').all(|one| one != "crt-static")
}

/// Returns the C compiler that links for the target: from cargo's variable if it is set, else the usual one
/// of this machine.
pub fn c_compiler() -> Option<PathBuf> {
    let named = env::var_os("RUSTC_LINKER").map(PathBuf::from);
    named.or_else(|| (env::var_os("TARGET") == env::var_os("HOST")).then(|| "cc".into()))
}

/// Asks the compiler for the path of a library; none if it does not have it (it then prints the bare name).
fn library(compiler: &Path, name: &str) -> Option<PathBuf> {
    let output = Command::new(compiler).arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    (output.status.success() && path.is_absolute()).then_some(path)
}

/// Creates the folder anew, with a linker script for each name that refers to the library. The old folder is
/// removed first: a file in it could be a link, and writing to it would overwrite the link's target.
fn fill(folder: &Path, libraries: &[(&str, PathBuf)]) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    let lead = |(name, path): &(&str, PathBuf)| {
        fs::write(folder.join(name), format!("INPUT(\"{}\")\n", path.display()))
    };
    libraries.iter().try_for_each(lead)
}
