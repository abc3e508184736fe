//! Runs plugins in a sandbox and connects them to perf events and BPF objects.
//!
//! ```text
//! plugin file -> plugin (sections, engine, instance) -> world (the WIT imports) -> perf -> kernel
//!                                                                               -> bpf  -> kernel
//! ```
//!
//! `perf`, `bpf` and `plugin` do not know each other; `world` is where they meet, `policy` says what a plugin may do,
//! `explain` has the words for what the kernel refused, and [`Host`] puts all of it together:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ks_host::{Host, RunOptions, plugin::Plugin};
//!
//! let plugin = Plugin::from_file("group.wasm".as_ref())?;
//! let outcome = Host::new()?.prepare(&plugin)?.run(RunOptions::new("group.wasm"));
//! std::process::exit(outcome.exit_code().into());
//! # }
//! ```
#![deny(unsafe_code)]

#[cfg(feature = "plugins")]
pub mod bpf;
#[cfg(feature = "plugins")]
pub mod command;
#[cfg(feature = "plugins")]
pub mod confine;
pub mod explain;
mod files;
mod near;
#[cfg(feature = "plugins")]
mod options;
pub mod perf;
#[cfg(feature = "plugins")]
pub mod plugin;
#[cfg(feature = "plugins")]
pub mod policy;
#[cfg(feature = "plugins")]
mod run;
#[cfg(feature = "plugins")]
pub mod stacks;
#[cfg(feature = "plugins")]
mod symbols;
#[cfg(feature = "plugins")]
mod tasks;
pub mod tracefs;
#[cfg(feature = "plugins")]
pub mod world;

#[cfg(feature = "plugins")]
pub use options::RunOptions;
#[cfg(feature = "plugins")]
pub use run::{Host, PreparedPlugin, needs};
