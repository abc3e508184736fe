//! Build script: generates the contract tables and decides how the command `ks` is linked.

#[cfg(feature = "language")]
mod contract;
mod link;
mod static_libraries;

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    #[cfg(feature = "language")]
    contract::write(&folder);
    link::command(&folder);
}
