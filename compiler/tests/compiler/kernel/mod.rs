//! Scripts through the kernel back end: the generated code, and (tests named `root_`) its acceptance by the
//! real loader, verifier and kernel.

mod machine;
mod members;
mod run;
mod specialize;
mod text;
