//! What a Rust author of a KernelScript plugin uses: bindings of the world `kernelscript:host/plugin`.
//!
//! On Wasm the functions of [`kernelscript::host`] are the host's; elsewhere the crate builds and calling one panics.

#![allow(missing_docs, reason = "the bindings carry the documentation of the WIT files")]

wit_bindgen::generate!({
    path: "../wit",
    world: "plugin",
    generate_all,
});
