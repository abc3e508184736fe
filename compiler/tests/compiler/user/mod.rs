//! The userspace half: scripts become valid components that compute the results of the language.
//!
//! The core module runs in an interpreter; its output is taken from the arguments of `console.print`.
//! Features that need the kernel are tested with the real host, in the crate `tests`.

mod components;
mod leaving;
mod maps;
mod memory;
mod outside;
mod programs;
