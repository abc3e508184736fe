//! Hosts whose plugins are compiled in processes of their own, and those processes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ks_host::Host;
use ks_host::plugin::{Compiler, compiler};

/// This program, also if its file was replaced or removed meanwhile.
const SELF: &str = "/proc/self/exe";

/// A host that takes so much time and memory to compile a plugin.
pub(crate) fn host(time: Duration, memory: u64) -> anyhow::Result<Host> {
    let compiler = Compiler::new(PathBuf::from(SELF));
    Ok(Host::new()?.with_compile_time(time).with_compiler(compiler, memory))
}

/// Compiles for a host, if the words of this process say that it was started for that; the exit code then.
pub(crate) fn serve(words: &[OsString]) -> Option<u8> {
    let (word, rest) = words.get(1..)?.split_first()?;
    (word == compiler::WORD).then(|| u8::from(compiler::serve(rest).is_err()))
}
