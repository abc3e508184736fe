//! Plugins that other compilers than `ks` build from source.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{binary, finish, finish_within, repository};

/// Returns cargo's target folder for plugins. It is kept, so that the next run is short.
pub fn target_folder() -> PathBuf {
    let folder = binary("ks").with_file_name("guests");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Builds a Rust plugin by `scripts/guest-cargo`: the project in this folder, with this file name. Returns
/// the component.
///
/// `variable` is an environment variable and its value. Panics with cargo's output on failure.
pub fn rust(folder: &Path, name: &str, variable: Option<(&str, &Path)>) -> Vec<u8> {
    rust_for("wasm32-unknown-unknown", folder, name, variable)
}

/// Builds a Rust plugin like [`rust`], for another Rust target.
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
    // These variables are set by the cargo that runs the tests.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // The first build fetches the compiler and builds the standard library.
    let outcome = finish_within(&mut cargo, Duration::from_secs(900));
    assert_eq!(outcome.code, 0, "{}: {}{}", folder.display(), outcome.stdout, outcome.stderr);
    let file = target.join(triple).join("release").join(name);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Creates a Rust plugin in this folder by `ks init rust` and returns its folder. Its dependencies are locked
/// to those of the other plugins of the tests: newer ones would build the compiler, which the macros contain,
/// once more.
pub fn started(folder: &Path, name: &str) -> PathBuf {
    let started = finish(crate::command("ks").current_dir(folder).args(["init", "rust", name]));
    assert_eq!((started.code, started.stderr.as_str()), (0, ""), "{started:#?}");
    let started = folder.join(name);
    let locked = repository().join("tests/guests/kernel/Cargo.lock");
    std::fs::copy(locked, started.join("Cargo.lock")).expect("readable, and writable");
    started
}

/// Runs `cargo test` of a Rust plugin in this folder; its unit tests need no kernel. Panics with the output
/// on failure.
pub fn rust_tests(folder: &Path) {
    // Uses the compiler that builds plugins, because it has already built their macros and the macros'
    // dependencies.
    let mut cargo = Command::new(repository().join("scripts/guest-cargo"));
    cargo.args(["test", "--release"]).current_dir(folder).env("CARGO_TARGET_DIR", target_folder());
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let outcome = finish_within(&mut cargo, Duration::from_secs(900));
    assert_eq!(outcome.code, 0, "{}: {}{}", folder.display(), outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("test result: ok. 1 passed"), "{outcome:#?}");
}
