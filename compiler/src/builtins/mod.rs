//! Tables of predeclared items of the language.

pub mod context;
pub mod context_members;
pub mod perf;
pub mod programs;
