//! What the benches share. The benches are the `*.rs` files beside `Cargo.toml`, one for each path; `baseline` has what
//! they are held against.
//!
//! A bench measures so many turns at a time, outside of which it sets up, and checks what the turns answered. It hands
//! each measurement to criterion and to a [`report::Report`], which ends the run with one table: the ratio between a
//! subject and its baseline is the result. No absolute time is asserted. What all benches [leave](record) is held
//! against what is [promised](target) by the bench `summary`, the last of `make bench`.

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
