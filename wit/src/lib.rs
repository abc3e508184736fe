//! The contract between a plugin and `ks-host`, in Rust: the WIT package as text, the contents of the custom
//! sections of a plugin file, and the tables of the kernel's names that both sides need: events, helpers,
//! kernel functions and program kinds.
//!
//! The compiler writes these formats and the host reads them; neither depends on the other. This crate has no
//! logic about programs, events or policy: only facts, each in one place.
//!
//! [`command_output`] and [`text`] are not part of the contract: the commands `ks` and `ks-host` share them.

pub mod caller;
pub mod command_output;
pub mod event;
pub mod files;
pub mod helper;
pub mod kfunc;
pub mod lines;
pub mod manifest;
pub mod object;
pub mod program_kind;
pub mod section;
pub mod shared;
pub mod system_call;
pub mod target;
pub mod text;

/// Default limit of all memories of a plugin together, in bytes.
pub const MEMORY_BYTES: usize = 128 << 20;

/// The part of [`MEMORY_BYTES`] for a script's stack, variables and objects, in bytes; the rest is for pages
/// of maps. The compiler refuses variables that would not fit.
pub const OWN_MEMORY_BYTES: usize = MEMORY_BYTES / 2;

/// Name and version of the contract's WIT package.
pub const CONTRACT: &str = "kernelscript:host@0.2.0";

/// The files of package `kernelscript:host` as (name, text), in reading order.
pub const WIT_FILES: &[(&str, &str)] = &[
    ("types.wit", include_str!("../types.wit")),
    ("bpf.wit", include_str!("../bpf.wit")),
    ("perf.wit", include_str!("../perf.wit")),
    ("losses.wit", include_str!("../losses.wit")),
    ("maps.wit", include_str!("../maps.wit")),
    ("ring.wit", include_str!("../ring.wit")),
    ("globals.wit", include_str!("../globals.wit")),
    ("layouts.wit", include_str!("../layouts.wit")),
    ("console.wit", include_str!("../console.wit")),
    ("clock.wit", include_str!("../clock.wit")),
    ("args.wit", include_str!("../args.wit")),
    ("system.wit", include_str!("../system.wit")),
    ("programs.wit", include_str!("../programs.wit")),
    ("symbols.wit", include_str!("../symbols.wit")),
    ("display.wit", include_str!("../display.wit")),
    ("world.wit", include_str!("../world.wit")),
];
