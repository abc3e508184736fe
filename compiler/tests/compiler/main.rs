//! The compiler as a library and as the command `ks`. Tests named `root_` need root: they load compiled
//! programs.
//!
//! Scripts that are cases by themselves are in the suite `cases`.

mod agree;
mod bpf_round_trip;
mod btf_round_trip;
mod conformance;
mod explain;
mod front_end;
mod kernel;
mod kernel_types;
mod lsp;
mod mir;
mod object;
mod random;
mod report;
mod static_command;
mod trees;
mod user;
