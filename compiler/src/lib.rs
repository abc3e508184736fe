//! The KernelScript compiler: text in, plugin bytes out.
//!
//! ```text
//! text -> tokens -> AST -> typed HIR -> split
//!     |-> kernel MIR -> BPF instructions + BTF -> ELF object -\
//!     \-> core module -> component -----------------------------> plugin file
//! ```
//!
//! Pure: no files, no clock, no environment, no kernel, no unsafe code. Same source, same bytes.

#![forbid(unsafe_code)]
// The print macros panic where a stream is full or closed, and a panic there ends the whole process.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "language")]
pub mod ast;
pub mod bpf;
#[cfg(feature = "language")]
pub mod builtins;
#[cfg(feature = "language")]
pub mod check;
#[cfg(feature = "language")]
pub mod defect;
#[cfg(feature = "language")]
pub mod diag;
#[cfg(feature = "command")]
pub mod facts;
#[cfg(feature = "command")]
pub mod fmt;
#[cfg(feature = "language")]
pub mod headers;
#[cfg(feature = "language")]
pub mod hir;
#[cfg(feature = "language")]
pub mod implicit_main;
pub mod index;
#[cfg(feature = "command")]
pub mod init;
#[cfg(feature = "language")]
pub mod kernel;
#[cfg(feature = "language")]
pub mod kernel_types;
#[cfg(feature = "language")]
pub mod kernel_version;
#[cfg(feature = "language")]
pub mod kmod;
#[cfg(feature = "language")]
pub mod lex;
#[cfg(feature = "command")]
pub mod lsp;
pub mod object;
#[cfg(feature = "language")]
pub mod options;
#[cfg(feature = "language")]
pub mod parse;
#[cfg(feature = "language")]
pub mod pipeline;
#[cfg(feature = "language")]
pub mod plugin;
#[cfg(feature = "language")]
pub mod refused;
#[cfg(feature = "language")]
pub mod resolve;
#[cfg(feature = "language")]
pub mod safety;
#[cfg(feature = "language")]
pub mod source;
#[cfg(feature = "language")]
mod spelling;
#[cfg(feature = "language")]
pub mod split;
#[cfg(feature = "language")]
pub mod types;
#[cfg(feature = "language")]
pub mod user;
