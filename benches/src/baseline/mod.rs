//! The baselines of the benches: the bare system calls, without a host.

pub mod alone;
pub mod crate_group;
pub mod hash;
pub mod map;
pub mod perf;
