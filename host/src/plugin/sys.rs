//! The only call of wasmtime that trusts its argument.
#![expect(unsafe_code, reason = "loading code that was compiled before")]

use wasmtime::component::Component;

use super::cache::TrustedCode;

/// Loads code that an equal engine compiled.
///
/// # Errors
/// If it was compiled by another version, or for another machine or configuration.
pub(super) fn load(engine: &wasmtime::Engine, code: &TrustedCode) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are what `Component::serialize` returned. A `TrustedCode` is created by
    // `Cache::load`, which checks that they were written by somebody who knows the key, and the key is
    // readable only for the user whom this process runs as; and by `TrustedCode::own`, from the output of a
    // process of this program. The engine checks its own version and configuration, which are written in the
    // bytes.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
