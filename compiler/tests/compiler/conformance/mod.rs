//! The conformance table of the language reference (chapter 12), as far as the front end decides it.
//!
//! One test per row, `lf_NNN_description`, in files by chapter. Rows about a running program are tested where
//! programs run; [`rows`] lists those rows with the reason. The suite `cases` checks whole scripts with the
//! front end.

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
