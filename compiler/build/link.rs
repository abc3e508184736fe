//! Links the command `ks` statically and at a fixed address, where the C compiler has the static libraries
//! for that.
//!
//! A small script compiles in less than a millisecond. Loading shared libraries and relocating 300 kB of
//! addresses took as long again. With cargo, either a whole build is linked statically or nothing is (`-C
//! target-feature=+crt-static`), and ks-host needs libraries that distributions only have as shared ones.
//!
//! So the linker finds, in a folder that it searches before its own, static libraries under the names by
//! which rustc asks for shared ones. Where a static library is missing, the command is linked dynamically.

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

/// Linker arguments after those of rustc. A linker that searches libraries in order must find the compiler's
/// libraries after the C library, which calls them; without a dynamic linker no symbol may stay unresolved.
const ARGUMENTS: [&str; 6] = ["-static", "-no-pie", "-Wl,--no-dynamic-linker", "-lgcc_eh", "-lgcc", "-lc"];

/// Prints the instructions to cargo for linking the command, if it is built. With the configuration
/// `static_command` it is static.
pub fn command(out: &Path) {
    println!("cargo::rustc-check-cfg=cfg(static_command)");
    if env::var_os("CARGO_FEATURE_COMMAND").is_none() || !is_shared() {
        return;
    }
    let Some(libraries) = c_compiler().and_then(|compiler| libraries(&compiler)) else { return };
    let folder = out.join("libraries");
    fill(&folder, &libraries).expect("the output folder can be written");
    println!("cargo::rustc-cfg=static_command");
    println!("cargo::rustc-link-arg-bin=ks=-L{}", folder.display());
    ARGUMENTS.iter().for_each(|argument| println!("cargo::rustc-link-arg-bin=ks={argument}"));
}

/// Whether rustc links shared libraries of a GNU system.
fn is_shared() -> bool {
    let says = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    says("OS") == "linux" && says("ENV") == "gnu" && says("FEATURE").split(',').all(|one| one != "crt-static")
}

/// Returns the C compiler that links for the target: from cargo's variable if it is set, else the usual one
/// of this machine.
fn c_compiler() -> Option<PathBuf> {
    let named = env::var_os("RUSTC_LINKER").map(PathBuf::from);
    named.or_else(|| (env::var_os("TARGET") == env::var_os("HOST")).then(|| "cc".into()))
}

/// Returns the path of each of [`LIBRARIES`] with its name for the linker; none if one is missing.
fn libraries(compiler: &Path) -> Option<Vec<(&'static str, PathBuf)>> {
    LIBRARIES.into_iter().map(|(name, of)| Some((name, library(compiler, of)?))).collect()
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
