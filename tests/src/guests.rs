//! Plugins that are not made by `ks`: built from source by the tools of their language.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{binary, finish, finish_within, repository};

/// Where cargo keeps what it makes of plugins: the next run is short.
pub fn target_folder() -> PathBuf {
    let folder = binary("ks").with_file_name("guests");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Builds a Rust plugin by `scripts/guest-cargo`: the project in this folder, with this file name. Gives the component.
///
/// `variable` is a variable of the environment and its value. Panics with what cargo says.
pub fn rust(folder: &Path, name: &str, variable: Option<(&str, &Path)>) -> Vec<u8> {
    rust_for("wasm32-unknown-unknown", folder, name, variable)
}

/// The same for another target of Rust.
///
/// Panics as [`rust`].
pub fn rust_for(triple: &str, folder: &Path, name: &str, variable: Option<(&str, &Path)>) -> Vec<u8> {
    let target = target_folder();
    let mut cargo = Command::new(repository().join("scripts/guest-cargo"));
    cargo
        .args(["build", "--release", "--target", triple])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", &target)
        .envs(variable);
    if folder.join("Cargo.lock").exists() {
        cargo.arg("--locked");
    }
    // What this build's cargo sets for its own.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // The first time the compiler is fetched, and the standard library is built.
    let outcome = finish_within(&mut cargo, Duration::from_secs(900));
    assert_eq!(outcome.code, 0, "{}: {}{}", folder.display(), outcome.stdout, outcome.stderr);
    let file = target.join(triple).join("release").join(name);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Starts a Rust plugin in this folder by `ks init rust` and returns its folder, with the dependencies that the other plugins
/// of the tests are locked to: with newer ones the compiler, which the macros contain, would be built once more.
pub fn started(folder: &Path, name: &str) -> PathBuf {
    let started = finish(crate::command("ks").current_dir(folder).args(["init", "rust", name]));
    assert_eq!((started.code, started.stderr.as_str()), (0, ""), "{started:#?}");
    let started = folder.join(name);
    let locked = repository().join("tests/guests/kernel/Cargo.lock");
    std::fs::copy(locked, started.join("Cargo.lock")).expect("readable, and writable");
    started
}

/// Runs the unit tests of a Rust plugin, which need no kernel: `cargo test` in this folder. Panics with what it says.
pub fn rust_tests(folder: &Path) {
    // By the compiler that plugins are built with: their macros, and what these need, are there then.
    let mut cargo = Command::new(repository().join("scripts/guest-cargo"));
    cargo.args(["test", "--release"]).current_dir(folder).env("CARGO_TARGET_DIR", target_folder());
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let outcome = finish_within(&mut cargo, Duration::from_secs(900));
    assert_eq!(outcome.code, 0, "{}: {}{}", folder.display(), outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("test result: ok. 1 passed"), "{outcome:#?}");
}
