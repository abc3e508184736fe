//! Addresses to functions, through blazesym: the kernel's by kallsyms, a process's by the symbol tables of the files that
//! it has mapped.

use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Reason, Sym, Symbolized, Symbolizer};
use blazesym::{Error, ErrorKind, MaybeDefault, Pid};

/// Farthest that an address may lie from the start of the kernel's symbol below it. kallsyms knows no sizes, so that the
/// last symbol before a gap would seem to go on to its end; no function of the kernel is as long as this.
const LONGEST: usize = 1 << 20;

/// Where the addresses of the kernel begin, on x86-64 and aarch64: in the upper half. What kallsyms has below are offsets
/// into the memory of a CPU, and absolute values.
const KERNEL_START: u64 = 1 << 63;

/// Why addresses have no names here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SymbolError {
    /// kallsyms has zeros for addresses.
    #[error(
        "cannot name functions of the kernel: /proc/kallsyms hides their addresses from this user; give ks-host \
         CAP_SYSLOG, and see sysctl kernel.kptr_restrict, which must not be 2"
    )]
    Hidden,
    /// The maps of a process may not be read.
    #[error(
        "cannot name functions of task {0}: permission denied; give ks-host CAP_SYS_PTRACE to look at tasks of others"
    )]
    Denied(i32),
    /// Reading failed.
    #[error("cannot name functions of {whose}: {source:#}")]
    Failed {
        /// The kernel or a task.
        whose: String,
        source: Error,
    },
}

/// What was read to name addresses; nothing until the first one is asked for.
#[derive(Default)]
pub(crate) struct Symbols {
    symbolizer: Option<Symbolizer>,
}

impl Symbols {
    /// The function at an address of a process, or of the kernel, and the bytes from its start. None if nothing is known
    /// there: no such task, nothing mapped, or a file without symbols.
    ///
    /// # Errors
    /// If it may not, or cannot, be looked up.
    pub(crate) fn name(&mut self, process: Option<i32>, address: u64) -> Result<Option<String>, SymbolError> {
        let symbolizer = self.symbolizer.get_or_insert_with(Symbolizer::new);
        let input = Input::AbsAddr(address);
        let found = match process {
            None if address < KERNEL_START => return Ok(None),
            None => symbolizer.symbolize_single(&kernel(), input),
            Some(pid) => {
                let Some(pid) = u32::try_from(pid).ok().and_then(NonZeroU32::new) else { return Ok(None) };
                match symbolizer.symbolize_single(&task(pid, true), input) {
                    Err(error) if error.kind() == ErrorKind::PermissionDenied && has_our_files(pid) => {
                        symbolizer.symbolize_single(&task(pid, false), input)
                    }
                    found => found,
                }
            }
        };
        match found {
            Ok(Symbolized::Sym(symbol)) if process.is_none() && symbol.offset > LONGEST => Ok(None),
            Ok(Symbolized::Sym(symbol)) => Ok(Some(format!("{}+{:#x}", symbol.name, symbol.offset))),
            Ok(Symbolized::Unknown(Reason::MissingSyms)) if process.is_none() => Err(SymbolError::Hidden),
            Ok(Symbolized::Unknown(_)) => Ok(None),
            Err(source) => refusal(process, source),
        }
    }
}

/// What is known of addresses of the kernel, in their order.
///
/// # Errors
/// If they may not, or cannot, be looked up.
pub(crate) fn kernel_frames<'s>(
    symbolizer: &'s Symbolizer,
    addresses: &[u64],
) -> Result<Vec<Symbolized<'s>>, SymbolError> {
    let found = symbolizer.symbolize(&kernel(), Input::AbsAddr(addresses));
    found.or_else(|source| refusal(None, source).map(|_| Vec::new()))
}

/// What is known of addresses of a process, in their order; nothing if it is gone.
///
/// # Errors
/// If they may not, or cannot, be looked up.
pub(crate) fn task_frames<'s>(
    symbolizer: &'s Symbolizer,
    pid: u32,
    addresses: &[u64],
) -> Result<Vec<Symbolized<'s>>, SymbolError> {
    let Some(task) = NonZeroU32::new(pid) else { return Ok(Vec::new()) };
    let perf_map = has_own_perf_map(task);
    let look_up = |debug_syms, map_files| {
        let process = Process { debug_syms, perf_map, map_files, ..Process::new(Pid::Pid(task)) };
        symbolizer.symbolize(&process.into(), Input::AbsAddr(addresses))
    };
    let found = match look_up(true, true) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && has_our_files(task) => {
            look_up(true, false)
        }
        // What debuggers read may be of a kind that is not understood here; the symbols are there nevertheless.
        Err(error) if error.kind() != ErrorKind::NotFound => look_up(false, true),
        found => found,
    };
    found.or_else(|source| refusal(i32::try_from(pid).ok(), source).map(|_| Vec::new()))
}

/// Whether a symbol of the kernel lies too far below its address to be what is there.
pub(crate) fn is_far(symbol: &Sym<'_>) -> bool {
    symbol.offset > LONGEST
}

/// Whether the map that a just-in-time compiler leaves for this process was written by its own user, or by root: names of
/// others mean nothing.
fn has_own_perf_map(pid: NonZeroU32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let last = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().last()).and_then(|word| word.parse::<u32>().ok())
    };
    // The process's number in its own namespace, and the user as whom it acts on files.
    let (Some(inner), Some(user)) = (last("NSpid:"), last("Uid:")) else { return false };
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let map = root.join(format!("tmp/perf-{inner}.map")).metadata();
    map.is_ok_and(|map| map.is_file() && [0, user].contains(&map.uid()))
}

/// Files that might be the kernel's are not searched: they may be of another build.
fn kernel() -> Source<'static> {
    Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() }.into()
}

/// Files are looked at through `/proc/PID/map_files`, which has them also where they were deleted since, and is closed to
/// most users; else by their names. Maps that just-in-time compilers leave in /tmp may be written by anybody.
fn task(pid: NonZeroU32, map_files: bool) -> Source<'static> {
    Process { debug_syms: false, perf_map: false, map_files, ..Process::new(Pid::Pid(pid)) }.into()
}

/// What an error of blazesym means: a task or file that is gone is no failure.
fn refusal(process: Option<i32>, source: Error) -> Result<Option<String>, SymbolError> {
    match (source.kind(), process) {
        (ErrorKind::NotFound, Some(_)) => Ok(None),
        (ErrorKind::PermissionDenied, Some(pid)) => Err(SymbolError::Denied(pid)),
        (ErrorKind::PermissionDenied, None) => Err(SymbolError::Hidden),
        (_, Some(pid)) => Err(SymbolError::Failed { whose: format!("task {pid}"), source }),
        (_, None) => Err(SymbolError::Failed { whose: "the kernel".into(), source }),
    }
}

/// Whether a name means the same file to a task and to us. False if the task may not be looked at.
fn has_our_files(pid: NonZeroU32) -> bool {
    let theirs = std::fs::read_link(format!("/proc/{pid}/ns/mnt"));
    theirs.is_ok_and(|theirs| std::fs::read_link("/proc/self/ns/mnt").is_ok_and(|ours| ours == theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(process: Option<i32>, address: u64) -> Option<String> {
        Symbols::default().name(process, address).expect("it may be looked up")
    }

    #[test]
    fn a_function_of_this_process_is_named() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let address = a_function_of_this_process_is_named as fn() as usize as u64 + 3;
        let name = found(Some(own), address).expect("the test has its symbols");
        assert!(name.contains("a_function_of_this_process_is_named") && name.ends_with("+0x3"), "{name}");
    }

    #[test]
    fn what_is_nothing_has_no_name() {
        assert_eq!([Some(0), Some(-1), Some(i32::MAX)].map(|pid| found(pid, 0x1000)), [None, None, None]);
        assert_eq!([1, 0x5000, KERNEL_START - 1].map(|address| found(None, address)), [None, None, None]);
    }
}
