//! The userspace half: scripts become valid components that compute what the language says.
//!
//! The core module runs in an interpreter; what it prints is taken from the arguments of `console.print`. Whatever
//! needs the kernel is tested with the real host, in the crate `tests`.

mod components;
mod leaving;
mod maps;
mod memory;
mod outside;
mod programs;
