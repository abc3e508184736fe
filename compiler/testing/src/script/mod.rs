//! Random well-typed scripts: the productions of all statement and expression forms, and their inputs.
//!
//! A new form is a function in `exprs.rs`, `stmts.rs` or a module of related forms, and a line in the table
//! of `exprs.rs` or `stmts.rs`. A new program type is an entry of `kinds.rs`.

mod calls;
pub mod compared;
mod constants;
mod exprs;
pub mod forms;
pub mod items;
mod kernel_memory;
mod kinds;
mod locks;
mod lvalues;
pub mod reached;
pub mod rng;
mod scope;
mod state;
mod stmts;
mod texts;
pub mod tree;
pub mod types;

pub use scope::Halves;
