//! The KernelScript compiler: text in, plugin bytes out.
//!
//! ```text
//! text -> tokens -> AST -> typed HIR -> split -> kernel MIR -> BPF instructions + BTF -> ELF object  \
//!                                             \-> core module -> component  --------------------------- plugin file
//! ```
//!
//! Pure: no files, no clock, no environment, no kernel, no unsafe code. Same source, same bytes.

#![forbid(unsafe_code)]

pub mod ast;
pub mod bpf;
pub mod btf;
pub mod builtins;
pub mod check;
pub mod diag;
pub mod elf;
#[cfg(feature = "command")]
pub mod facts;
#[cfg(feature = "command")]
pub mod fmt;
pub mod headers;
pub mod hir;
pub mod index;
#[cfg(feature = "command")]
pub mod init;
pub mod kernel;
pub mod kernel_types;
pub mod kernel_version;
pub mod kmod;
pub mod lex;
#[cfg(feature = "command")]
pub mod lsp;
pub mod object;
pub mod options;
pub mod parse;
pub mod pipeline;
pub mod plugin;
pub mod refused;
pub mod resolve;
pub mod safety;
pub mod source;
pub mod split;
pub mod types;
pub mod user;
