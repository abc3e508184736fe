//! The world `kernelscript:host/plugin` as wit-bindgen puts it into Rust: the contract, call by call.
//!
//! What stands here is generated from `wit/`, whose documentation it carries. Plugins rarely need it: the rest of the crate
//! is made of it. On Wasm the functions are the host's; elsewhere the crate builds, and calling one panics.

#![allow(missing_docs, reason = "generated; the documentation is that of the WIT files")]

wit_bindgen::generate!({
    path: "../wit",
    world: "plugin",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "ks_guest::bindings",
});
