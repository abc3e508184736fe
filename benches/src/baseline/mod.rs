//! What the benches hold their subjects against: the bare system call, without a host.

pub mod crate_group;
pub mod hash;
pub mod map;
pub mod perf;
