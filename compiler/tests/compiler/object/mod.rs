//! Handwritten objects: their form as another ELF reader sees it, the builder's errors, and (tests named
//! `root_`) their acceptance by the real loader and verifier.

mod root;
mod sample;
mod shape;
