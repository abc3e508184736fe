//! The command `ks` is linked statically and for a fixed address, where the C compiler has what that takes.
//!
//! A small script is compiled in less than a millisecond. As long as that took it to load shared libraries, and to write
//! 300 kB of addresses for the place where the program happens to lie. With cargo a whole build is linked statically or
//! nothing is (`-C target-feature=+crt-static`), and ks-host needs libraries that distributions have as shared ones only.
//!
//! So the linker finds, in a folder that it searches before its own, static libraries under the names by which rustc
//! asks for shared ones. Where there are none, the command is linked as any other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What rustc links for the standard library, and the static library that is taken for it.
const LIBRARIES: [(&str, &str); 7] = [
    ("libgcc_s.a", "libgcc_eh.a"),
    ("libutil.a", "libutil.a"),
    ("librt.a", "librt.a"),
    ("libpthread.a", "libpthread.a"),
    ("libm.a", "libm.a"),
    ("libdl.a", "libdl.a"),
    ("libc.a", "libc.a"),
];

/// Behind what rustc says. A linker that searches libraries in their order finds those of the compiler that the C library
/// calls; without a dynamic linker nothing is left for one to do.
const ARGUMENTS: [&str; 6] = ["-static", "-no-pie", "-Wl,--no-dynamic-linker", "-lgcc_eh", "-lgcc", "-lc"];

/// Tells cargo how to link the command, if it is built. With the configuration `static_command` it is static.
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

/// Whether rustc links shared libraries, those of the GNU system.
fn is_shared() -> bool {
    let says = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    says("OS") == "linux" && says("ENV") == "gnu" && says("FEATURE").split(',').all(|one| one != "crt-static")
}

/// The C compiler that links for the target: cargo says its name unless it is the usual one of this machine.
fn c_compiler() -> Option<PathBuf> {
    let named = env::var_os("RUSTC_LINKER").map(PathBuf::from);
    named.or_else(|| (env::var_os("TARGET") == env::var_os("HOST")).then(|| "cc".into()))
}

/// Each of [`LIBRARIES`] by its name for the linker, and where it lies; none if one is missing.
fn libraries(compiler: &Path) -> Option<Vec<(&'static str, PathBuf)>> {
    LIBRARIES.into_iter().map(|(name, of)| Some((name, library(compiler, of)?))).collect()
}

/// Where the compiler has a library. It answers with the bare name if it has none.
fn library(compiler: &Path, name: &str) -> Option<PathBuf> {
    let output = Command::new(compiler).arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    (output.status.success() && path.is_absolute()).then_some(path)
}

/// Makes the folder anew, with a linker script for each name that leads to the library. A file that lay there could be a
/// link, and what is written to it would be written to what it leads to.
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
