//! What the language predeclares, in the words an editor shows.

pub mod attributes;
pub mod builtins;
pub mod keywords;
pub mod maps;

/// The structs and enums that every script finds declared, written in the language itself.
pub const PRELUDE: &str = include_str!("prelude.kh");
