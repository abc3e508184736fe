//! `ks-guest` as a plugin's author uses it, without a kernel.

mod kernel;
mod misuse;
mod probe;
mod testing;
