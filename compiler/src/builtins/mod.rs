//! Tables of what the language predeclares.

pub mod context;
pub mod context_members;
pub mod helpers;
pub mod perf;
