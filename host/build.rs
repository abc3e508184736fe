//! The list of the tools inside the command `ks-host`, and its linker options. It is linked statically, but for an address
//! that differs at each start, where the libraries are there for that: loading four shared ones takes a tenth of a start.
//! Relative relocations are packed as a bit map (`DT_RELR`), which takes a hundredth of the usual table: there are 30,000 of
//! them in what `make dist` builds, and every start applies all. On x86-64 the command then begins with lines of its own (`src/bin/ks-host/sys.rs`),
//! which make the pages of these addresses at once.
//!
//! Whether both work is tried, with a program that needs all of what the command links: distributions have `libelf.a` with
//! other needs, and a C library that does not know `DT_RELR` (glibc before 2.36) leaves it to the loader.

#[path = "../compiler/build/static_libraries.rs"]
mod static_libraries;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use static_libraries::LAST_ARGUMENTS;

/// Packs relative relocations.
const PACKED: &str = "-Wl,-z,pack-relative-relocs";

/// Uses what libbpf uses, so that both libraries are linked whole.
const PROGRAM: &str = "unsigned elf_version(unsigned); int main(void) { return elf_version(1) == 0; }";
const LIBRARIES: [&str; 4] = ["-Wl,--whole-archive", "-lelf", "-Wl,--no-whole-archive", "-lz"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(own_start)");
    list_tools();
    println!("cargo::rerun-if-changed=../compiler/build/static_libraries.rs");
    // A program for another machine cannot be tried, and may meet another C library.
    if env::var_os("TARGET") != env::var_os("HOST") || env::var_os("CARGO_FEATURE_PLUGINS").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let argument = |argument: &str| println!("cargo::rustc-link-arg-bin=ks-host={argument}");
    let is_static = [&["-static-pie"][..], &LIBRARIES].concat();
    if let Some(folder) =
        static_libraries::folder(&out, &["libelf.a", "libz.a"]).filter(|_| works(&out, &is_static))
    {
        argument(&format!("-L{}", folder.display()));
        argument("-static-pie");
        LAST_ARGUMENTS.into_iter().for_each(argument);
        argument(PACKED);
        if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "x86_64") {
            println!("cargo::rustc-cfg=own_start");
            argument("-Wl,-e,ks_host_start");
        }
    } else if works(&out, &["-pie", "-lelf", "-lz"]) {
        argument(PACKED);
    }
}

/// Writes the list of the scripts of `tools/`, with their texts, which the command contains.
fn list_tools() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let folder = root.join("../tools");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("the folder of the tools can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "ks"));
    paths.sort();
    let entry = |path: &PathBuf| {
        let name = path.file_stem().expect("it has an ending").to_string_lossy();
        format!("({name:?}, include_str!({:?})),", path.display().to_string())
    };
    let list: String = paths.iter().map(entry).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("tools.rs"), format!("&[{list}]")).expect("the output folder can be written");
}

/// Whether a program with packed relocations is linked with these arguments, and runs.
fn works(out: &Path, arguments: &[&str]) -> bool {
    let Some(compiler) = static_libraries::c_compiler() else { return false };
    let (source, program) = (out.join("program.c"), out.join("program"));
    fs::write(&source, PROGRAM).expect("the output folder can be written");
    let linked = Command::new(compiler)
        .arg("-fPIE")
        .arg(&source)
        .args(arguments)
        .arg(PACKED)
        .arg("-o")
        .arg(&program)
        .output();
    linked.is_ok_and(|linked| linked.status.success())
        && Command::new(&program).output().is_ok_and(|ran| ran.status.success())
}
