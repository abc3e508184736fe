//! Tests that need no kernel of their own: the commands, the contract, policies, documents. The names of the
//! few that need root begin with `root_`.

mod builds;
mod cache;
mod cli;
mod commands;
mod compiling;
mod confine;
mod contract;
mod documents;
mod embedding;
mod fuzzed;
mod growth;
mod histograms;
mod host_faults;
mod limits;
mod names;
mod objects;
mod other_tools;
mod plugins;
mod policy_objects;
mod policy_rules;
mod running;
mod settings;
mod signatures;
mod streams;
mod tables;
mod testing;
mod texts;
mod traps;
mod unread;
mod wasi;
