//! Shared by the test suites of the compiler and of whole programs: the front end over files in memory, each
//! back end alone, interpreters for MIR and for core modules, `bpftool`, and random well-typed scripts.
#![expect(missing_docs, reason = "a library of tests, which no user sees")]

pub mod bits;
pub mod bpffs;
pub mod checked;
pub mod front;
pub mod interp;
pub mod kernel_half;
pub mod loaded;
pub mod machine;
pub mod random;
pub mod script;
pub mod shrink;
pub mod user_half;
