//! Scripts through the kernel back end: what is made of them, and (tests named `root_`) what the real loader, verifier and
//! kernel make of that.

mod machine;
mod members;
mod run;
mod text;
