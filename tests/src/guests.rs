//! Plugins that are not made by `ks`: built from source by the tools of their language.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ks_wit::section::{self, BpfRecord};

use crate::{binary, finish_within, repository};

/// Builds a Rust plugin by `scripts/guest-cargo`: the project in this folder of the repository. Gives the component.
///
/// What cargo keeps lies in the target folder of this build, so that the next run is short. Panics with what cargo says.
pub fn rust(project: &str, name: &str) -> Vec<u8> {
    let folder = repository().join(project);
    let target = binary("ks").with_file_name("guests");
    let mut cargo = Command::new(repository().join("scripts/guest-cargo"));
    cargo.args(["build", "--release", "--locked"]).current_dir(&folder).env("CARGO_TARGET_DIR", &target);
    // What this build's cargo sets for its own.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // The first time the compiler is fetched, and the standard library is built.
    let outcome = finish_within(&mut cargo, Duration::from_secs(900));
    assert_eq!(outcome.code, 0, "{project}: {}{}", outcome.stdout, outcome.stderr);
    let file: PathBuf = target.join("wasm32-unknown-unknown/release").join(name);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Puts BPF objects into a component, as a plugin file has them.
pub fn with_objects(mut component: Vec<u8>, objects: &[BpfRecord]) -> Vec<u8> {
    let mut data = Vec::new();
    objects.iter().for_each(|object| section::push_record(&mut data, &object.to_bytes()));
    let mut body = Vec::new();
    push_leb(&mut body, section::BPF.len());
    body.extend_from_slice(section::BPF.as_bytes());
    body.extend(data);
    component.push(0);
    push_leb(&mut component, body.len());
    component.extend(body);
    component
}

/// An unsigned number as Wasm writes it.
fn push_leb(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
