//! The contract's calls, answered by the host of the test: the same names and types as `bindings`, interface
//! by interface.

pub(crate) mod args;
pub(crate) mod bpf;
pub(crate) mod clock;
pub(crate) mod console;
pub(crate) mod display;
pub(crate) mod globals;
pub(crate) mod layouts;
pub(crate) mod losses;
pub(crate) mod maps;
pub(crate) mod perf;
pub(crate) mod programs;
pub(crate) mod ring;
pub(crate) mod symbols;
pub(crate) mod system;

pub(crate) use crate::bindings::kernelscript::host::types;
