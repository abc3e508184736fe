//! The world `kernelscript:host/plugin` as wit-bindgen generates it for Rust: the contract, call by call.
//!
//! This module is generated from `wit/`, and contains its documentation. Plugins rarely need it: the rest of
//! the crate is built on it. On Wasm the host implements the functions; on other targets calling one panics.

#![allow(missing_docs, reason = "generated; the documentation is that of the WIT files")]

wit_bindgen::generate!({
    path: "../wit",
    world: "plugin",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "ks_guest::bindings",
});
