//! Predeclared items of the language, with their documentation in an editor.

pub mod attributes;
pub mod builtins;
pub mod keywords;
pub mod maps;

/// The structs and enums that are predeclared in every script, written in the language itself.
pub const PRELUDE: &str = include_str!("prelude.kh");
