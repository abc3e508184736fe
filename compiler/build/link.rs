//! Links the command `ks` statically and at a fixed address, where the C compiler has the static libraries
//! for that.
//!
//! A small script compiles in less than a millisecond. Loading shared libraries and relocating 300 kB of
//! addresses took as long again. Where a static library is missing, the command is linked dynamically.

use std::env;
use std::path::Path;

use crate::static_libraries::{self, LAST_ARGUMENTS};

/// Prints the instructions to cargo for linking the command, if it is built. With the configuration
/// `static_command` it is static.
pub fn command(out: &Path) {
    println!("cargo::rustc-check-cfg=cfg(static_command)");
    if env::var_os("CARGO_FEATURE_COMMAND").is_none() {
        return;
    }
    let Some(folder) = static_libraries::folder(out, &[]) else { return };
    println!("cargo::rustc-cfg=static_command");
    println!("cargo::rustc-link-arg-bin=ks=-L{}", folder.display());
    for argument in ["-static", "-no-pie"].iter().chain(&LAST_ARGUMENTS) {
        println!("cargo::rustc-link-arg-bin=ks={argument}");
    }
}
