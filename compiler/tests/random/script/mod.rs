//! Random well-typed scripts: the productions of all statement and expression forms, and what they draw from.
//!
//! A new form is a function in `exprs.rs`, `stmts.rs` or `forms.rs` and a line in a table there.

mod exprs;
pub mod forms;
pub mod items;
pub mod numbers;
mod places;
mod scope;
mod stmts;
pub mod tree;
pub mod types;
