//! The conformance table of the language reference (chapter 12), as far as the front end decides it.
//!
//! One test per row, `lf_NNN_what_it_says`, in files by chapter. What a row says about a running program is tested where
//! programs run; [`rows`] lists those rows with the reason. the suite `cases` holds whole scripts against the front end.

mod builtins;
mod control;
mod grammar;
mod lexical;
mod memory;
mod modules;
mod names;
mod perf;
mod programs;
mod rows;
mod scripts;
mod types;
