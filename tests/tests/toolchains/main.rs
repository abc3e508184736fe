//! Plugins that other languages' tools build: they need those tools (`make test-packages`), and root.

mod attaching;
mod documented_errors;
mod documents;
mod foreign_objects;
mod guest_rust;
mod guest_std;
mod languages;
mod mutants;
mod outputs;
mod random_members;
mod shared_rust;
mod transpiled;
