//! Runs plugins in a sandbox and connects them to perf events and BPF objects.
//!
//! ```text
//! plugin file -> plugin (sections, engine, instance) -> world (the WIT imports) -> perf -> kernel
//!                                                                               -> bpf  -> kernel
//! ```
//!
//! `perf`, `bpf` and `plugin` are independent of each other; `world` connects them, `policy` defines what a
//! plugin may do, `explain` explains refusals of the kernel, and [`Host`] combines them:
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
//!
//! A program with other tasks starts the plugin on a thread of its own and receives its output through a
//! channel (`host/examples/web.rs`, a web service).
//!
//! ```no_run
//! # fn listen(prepared: std::sync::Arc<ks_host::PreparedPlugin>) -> std::io::Result<()> {
//! use std::time::Duration;
//!
//! use ks_host::{Message, RunOptions};
//!
//! let mut running = prepared.start(RunOptions::new("group.wasm"))?;
//! while let Some(message) = running.next(Duration::from_secs(10)) {
//!     match message {
//!         Message::Line(line) => println!("{}", String::from_utf8_lossy(&line)),
//!         Message::Warning(line) => eprintln!("{}", String::from_utf8_lossy(&line)),
//!         Message::Ended(outcome) => eprintln!("it has ended: {outcome:?}"),
//!     }
//! }
//! # Ok(()) }
//! ```
#![deny(unsafe_code)]
// The print macros panic if the stream is full or closed, and a panic there ends the whole process.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "plugins")]
pub mod apart;
#[cfg(feature = "plugins")]
pub mod bpf;
#[cfg(feature = "plugins")]
pub mod command;
#[cfg(feature = "plugins")]
pub mod confine;
#[cfg(feature = "plugins")]
mod display;
pub mod explain;
mod files;
#[cfg(feature = "plugins")]
pub mod host_bytes;
mod killed;
mod maps;
#[cfg(feature = "plugins")]
pub mod naming;
pub mod near;
mod opener;
#[cfg(feature = "plugins")]
mod options;
mod pattern;
pub mod perf;
#[cfg(feature = "plugins")]
pub mod plugin;
#[cfg(feature = "plugins")]
pub mod policy;
mod probed;
#[cfg(feature = "plugins")]
mod processes;
pub mod procfs;
#[cfg(feature = "plugins")]
pub mod quantity;
#[cfg(feature = "plugins")]
pub mod record;
#[cfg(feature = "plugins")]
mod run;
#[cfg(feature = "plugins")]
mod running;
mod sorted;
#[cfg(feature = "plugins")]
pub mod stacks;
#[cfg(feature = "plugins")]
mod symbols;
#[cfg(feature = "plugins")]
mod tasks;
pub mod tracefs;
#[cfg(feature = "plugins")]
pub mod worker;
#[cfg(feature = "plugins")]
pub mod world;
#[cfg(feature = "plugins")]
mod writer;

#[cfg(feature = "plugins")]
pub use command::ExecStatus;
pub use ks_wit::text;
#[cfg(feature = "plugins")]
pub use options::RunOptions;
#[cfg(feature = "plugins")]
pub use run::{Host, Offer, PreparedPlugin, request};
#[cfg(feature = "plugins")]
pub use running::{MAX_WAITING, MAX_WAITING_BYTES, Message, Running};
#[cfg(feature = "plugins")]
pub use writer::Writer;
