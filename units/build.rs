//! What the library needs before it is compiled: the contract as tables.

#[path = "../compiler/build/contract.rs"]
mod contract;

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=../compiler/build");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    contract::write(&folder);
}
