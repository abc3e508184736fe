//! Tables of what the language predeclares.

pub mod context;
pub mod perf;
