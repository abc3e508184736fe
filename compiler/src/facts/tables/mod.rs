//! Predeclared items of the language, with their documentation in an editor.

pub mod attributes;
pub mod keywords;
pub mod maps;

pub use crate::check::builtin_table as builtins;

/// The structs and enums that are predeclared in every script, written in the language itself.
pub const PRELUDE: &str = include_str!("prelude.kh");
