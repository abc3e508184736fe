//! The shared code of the benches. The benches are the `*.rs` files next to `Cargo.toml`, one for each path;
//! `baseline` has the code that they are compared with.
//!
//! A bench measures a number of iterations at a time, with setup outside of them, and checks their results.
//! It passes each measurement to criterion and to a [`report::Report`], which ends the run with one table:
//! the ratio between a subject and its baseline is the result. No absolute time is asserted. The bench
//! `summary`, the last of `make bench`, compares the [records](record) of all benches with the
//! [targets](target).

#![deny(unsafe_code)]

pub mod answer;
pub mod baseline;
pub mod chart;
pub mod commands;
pub mod compare;
pub mod faults;
pub mod machine;
pub mod object_pair;
pub mod plugin;
pub mod producer;
pub mod record;
pub mod report;
pub mod script;
pub mod target;
