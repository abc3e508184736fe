//! Safe Rust API for plugins, over the world `kernelscript:host/plugin`.
//!
//! A plugin is a WebAssembly component that `ks-host` runs in a sandbox. It opens perf events and reads them,
//! loads and attaches the BPF programs in its file, and reads their maps, rings and variables.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ks_guest::{Event, Group, PerfOptions, Result, clock, println};
//!
//! #[ks_guest::main]
//! fn main() -> Result<()> {
//!     let own_thread = PerfOptions::new().own_thread();
//!     let group = Group::open(&Event::named("page_faults")?, &own_thread)?;
//!     let switches = group.join(&Event::named("context_switches")?, &own_thread)?;
//!     while clock::sleep(Duration::from_secs(1)).is_ok() {
//!         println!("{} faults, {} switches", group.read()?.raw, switches.read()?.raw);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `ks init rust NAME` creates a project; it is built for `wasm32-unknown-unknown` and linked by
//! `wasm-component-ld`. [`kernel!`] compiles its kernel half with it. Unit tests are built for other targets,
//! and run on an emulated host (`testing`).
//!
//! Dropping a handle releases the kernel's object: an [`Attachment`] detaches, a [`Link`] too. Times are
//! [`core::time::Duration`] of CLOCK_MONOTONIC, except that of [`clock::boottime`]; sizes are bytes. Every
//! call that can fail returns [`Error`], with a kind for the plugin and a message for a person.
//!
//! The crate needs no `std`: without its feature `std` (on by default) a plugin brings its allocator and
//! panic handler.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;
// Generated code names the crate.
#[cfg(test)]
extern crate self as ks_guest;

pub mod args;
#[allow(unsafe_code, reason = "the generated code follows the canonical ABI")]
pub mod bindings;
pub mod clock;
#[doc(hidden)]
pub mod config;
pub mod console;
pub mod display;
mod error;
mod event;
mod global;
mod group;
mod iter;
mod layout;
pub mod losses;
mod map;
mod nested;
#[doc(hidden)]
pub mod object;
mod options;
mod perf;
pub mod plain;
mod program;
pub mod programs;
mod queue;
mod ring;
mod shared;
pub mod symbols;
pub mod system;
mod termination;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub mod testing;

pub use config::Config;
pub use error::{Error, ErrorKind, Result};
pub use event::{Access, Event};
pub use global::{Global, list_variables};
pub use group::{Group, Member};
pub use iter::{Entries, Keys};
#[cfg(feature = "kernel")]
pub use ks_guest_macros::kernel;
pub use ks_guest_macros::{Plain, main};
pub use map::{Map, PerCpuMap, list_maps, set_max_entries, set_value_size, settle};
pub use nested::Nested;
pub use options::PerfOptions;
pub use perf::{Attachment, GroupEntry, GroupReading, ListedEvent, Reading, State, list_events, read_many};
pub use plain::Plain;
pub use program::{Link, Packet, Program, ProgramDescription, ProgramInfo, ProgramKind, TestOutput, XdpMode};
pub use queue::{Bloom, Queue};
pub use ring::{Records, Ring};
pub use termination::Termination;

/// Expands to its items if the host of a test is available. For [`kernel!`].
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[doc(hidden)]
#[macro_export]
macro_rules! for_tests {
    ($($item:item)*) => { $($item)* };
}
/// Expands to nothing: the host of a test is not available.
#[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! for_tests {
    ($($item:item)*) => {};
}

/// The contract's calls, under short names: the host's on Wasm, those of the test's host elsewhere.
mod sys {
    #[cfg(not(all(feature = "std", not(target_family = "wasm"))))]
    pub(crate) use crate::bindings::kernelscript::host::{
        args, bpf, clock, console, display, globals, layouts, losses, maps, perf, programs, ring, symbols,
        system, types,
    };
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    pub(crate) use crate::testing::world::*;
}
