//! Build script of the unit tests: generates the tables of the contract.

#[path = "../compiler/build/contract.rs"]
mod contract;

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=../compiler/build");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    contract::write(&folder);
}
