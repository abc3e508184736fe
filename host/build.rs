//! Linker options of the command `ks-host`: relative relocations are packed as a bit map (`DT_RELR`), which
//! takes a hundredth of the usual table. There are 50,000 of them, and every start applies all.
//!
//! The loader must support the format: glibc does since 2.36, and its library declares that by a symbol
//! version. Source: https://sourceware.org/glibc/wiki/Release/2.36, "DT_RELR".

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if is_known_to_the_loader() {
        println!("cargo::rustc-link-arg-bin=ks-host=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library of this machine loads programs with `DT_RELR`. Programs built for another machine
/// may meet another library.
fn is_known_to_the_loader() -> bool {
    if env::var_os("TARGET") != env::var_os("HOST") || env::var_os("CARGO_FEATURE_PLUGINS").is_none() {
        return false;
    }
    let output = Command::new("cc").arg("-print-file-name=libc.so.6").output().ok();
    let path = output
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map(|path| PathBuf::from(path.trim_end()));
    let library = path.and_then(|path| fs::read(path).ok()).unwrap_or_default();
    let name = b"GLIBC_ABI_DT_RELR";
    library.windows(name.len()).any(|bytes| bytes == name)
}
