//! Objects written by hand: their shape as another ELF reader sees it, what the builder refuses, and (tests named `root_`)
//! what the real loader and verifier make of them.

mod root;
mod sample;
mod shape;
