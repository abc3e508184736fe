//! Symbolises addresses: those of the kernel by kallsyms, through blazesym; those of processes by the naming
//! process ([`crate::naming`]).

use std::collections::HashMap;

use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Reason, Sym, Symbolized, Symbolizer};
use blazesym::{Error, ErrorKind, MaybeDefault};
use nix::errno::Errno;

use crate::naming::{self, MAX_TEXT_BYTES, NamedLocations, Naming, WantedLocation, WantedLocations};
use crate::perf::{MappingRecorder, RecordedProcess};
use crate::tasks;
use crate::text::visible;

/// Limit on the distance in bytes between an address and the kernel symbol below it. kallsyms has no sizes,
/// so the last symbol before a gap would seem to cover the gap; no kernel function is as long as this.
const LONGEST: usize = 1 << 20;

/// Start of the kernel's addresses, on x86-64 and aarch64: the upper half. Lower values in kallsyms are
/// offsets into per-CPU memory, and absolute values.
const KERNEL_START: u64 = 1 << 63;

/// Why addresses cannot be symbolised.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SymbolError {
    /// kallsyms shows zeros as addresses.
    #[error(
        "cannot name functions of the kernel: /proc/kallsyms hides their addresses from this user; give \
         ks-host CAP_SYSLOG, and see sysctl kernel.kptr_restrict, which must not be 2"
    )]
    Hidden,
    /// The maps of a process are not readable.
    #[error(
        "cannot name functions of task {0}: permission denied; give ks-host CAP_SYS_PTRACE to look at tasks \
         of others"
    )]
    Denied(i32),
    /// Reading the kernel's symbols failed.
    #[error("cannot name functions of the kernel: {0:#}")]
    Kernel(Error),
    /// No naming process is configured.
    #[error(
        "functions of processes have no names: this program starts no naming process; see \
         `RunOptions::naming` of ks-host's library"
    )]
    NoProcess,
    /// A process has ended, and the mappings of processes are not recorded.
    #[error(
        "cannot name functions of processes that have ended: what processes map cannot be recorded ({0}); give \
         ks-host CAP_PERFMON"
    )]
    NotRecorded(Errno),
    /// The naming process is blocked on a file.
    #[error("cannot name functions of task {0}: a file system on which it has files does not answer")]
    Silent(u32),
    /// A file of a process could not be read.
    #[error("{0}")]
    File(String),
}

/// Limit of the addresses whose symbols are kept, of the kernel and of processes.
const MAX_KEPT: usize = 16 << 10;

/// Symbolises addresses; reads nothing until the first one.
#[derive(Default)]
pub(crate) struct Symbols {
    kernel: Option<Symbolizer>,
    /// Symbols of the kernel by address: they are read once.
    kept: HashMap<u64, Option<Symbol>>,
    /// Functions of stacks of processes, by the process and the address.
    of_processes: HashMap<(u32, u64), Option<String>>,
    /// Symbolises addresses of processes; none if there is no naming process.
    naming: Option<Naming>,
    /// Records what processes map, for those that have ended, or why it does not; none if the plugin does not
    /// ask for it.
    mappings: Option<Result<MappingRecorder, Errno>>,
    /// A file system with files of a process does not respond.
    is_stuck: bool,
}

/// A function, and the byte offset into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The function's name; all of its characters are visible.
    pub(crate) function: String,
    /// Bytes from the start of the function.
    pub(crate) offset: u64,
}

impl Symbols {
    pub(crate) fn new(naming: Option<Naming>, mappings: Option<Result<MappingRecorder, Errno>>) -> Symbols {
        Symbols { naming, mappings, ..Symbols::default() }
    }

    /// Returns the function at an address of a process, or of the kernel. None if nothing is known about the
    /// address: no such task, nothing mapped, or a file without symbols.
    ///
    /// # Errors
    /// If symbols are not permitted or not readable.
    pub(crate) fn find(&mut self, process: Option<i32>, address: u64) -> Result<Option<Symbol>, SymbolError> {
        match process {
            None if address < KERNEL_START => Ok(None),
            None => self.kept_of_kernel(address),
            Some(pid) => match u32::try_from(pid) {
                Ok(id) if id > 0 => self.of_process(id, pid, address),
                _ => Ok(None),
            },
        }
    }

    /// As [`Symbols::of_kernel`], which takes 80 us, once for each address.
    fn kept_of_kernel(&mut self, address: u64) -> Result<Option<Symbol>, SymbolError> {
        if let Some(kept) = self.kept.get(&address) {
            return Ok(kept.clone());
        }
        let found = self.of_kernel(address)?;
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        self.kept.insert(address, found.clone());
        Ok(found)
    }

    fn of_kernel(&mut self, address: u64) -> Result<Option<Symbol>, SymbolError> {
        let symbolizer = self.kernel.get_or_insert_with(Symbolizer::new);
        symbol(symbolizer.symbolize_single(&kernel(), Input::AbsAddr(address)).map_err(refusal)?)
    }

    /// Symbolises those of some addresses that are not kept yet, all at once.
    fn keep_kernel_functions(&mut self, addresses: &[u64]) -> Result<(), SymbolError> {
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        let is_missing = |address: &u64| *address >= KERNEL_START && !self.kept.contains_key(address);
        let missing: Vec<u64> = addresses.iter().copied().filter(is_missing).collect();
        let symbolizer = self.kernel.get_or_insert_with(Symbolizer::new);
        let found: Vec<_> = kernel_frames(symbolizer, &missing)?.into_iter().map(symbol).collect();
        for (address, symbol) in missing.into_iter().zip(found) {
            self.kept.insert(address, symbol?);
        }
        Ok(())
    }

    fn of_process(&mut self, id: u32, pid: i32, address: u64) -> Result<Option<Symbol>, SymbolError> {
        let named = self.ask(id, pid, &[address])?;
        if let Some(warning) = named.warnings.into_iter().next() {
            return Err(SymbolError::File(warning));
        }
        let frame =
            named.locations.into_iter().next().and_then(|location| location.frames.into_iter().next());
        Ok(frame.map(|frame| Symbol { function: frame.function, offset: frame.offset.unwrap_or_default() }))
    }

    /// Returns the functions of a stack, from the innermost address on; none where nothing is known; and why names are
    /// missing, if that can be told.
    pub(crate) fn stack(
        &mut self,
        process: Option<i32>,
        addresses: &[u64],
    ) -> (Vec<Option<String>>, Option<SymbolError>) {
        // All but the innermost are return addresses, behind the call.
        let inside: Vec<u64> =
            addresses.iter().enumerate().map(|(at, one)| one.wrapping_sub(u64::from(at > 0))).collect();
        match process.map(|pid| (u32::try_from(pid).unwrap_or_default(), pid)) {
            None => {
                let error = self.keep_kernel_functions(&inside).err();
                let function =
                    |address: &u64| self.kept.get(address)?.as_ref().map(|one| one.function.clone());
                (inside.iter().map(function).collect(), error)
            }
            Some((0, _)) => (vec![None; addresses.len()], None),
            Some((id, pid)) => {
                let error = self.keep_functions(id, pid, &inside);
                let named =
                    inside.iter().map(|address| self.of_processes.get(&(id, *address)).cloned().flatten());
                (named.collect(), error)
            }
        }
    }

    /// Asks for the functions at those addresses of a process that were not asked for yet: stacks have most of their
    /// addresses in common. Returns why names are missing.
    fn keep_functions(&mut self, id: u32, pid: i32, addresses: &[u64]) -> Option<SymbolError> {
        if self.of_processes.len() >= MAX_KEPT {
            self.of_processes.clear();
        }
        let missing =
            addresses.iter().copied().filter(|address| !self.of_processes.contains_key(&(id, *address)));
        let missing: Vec<u64> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        let named = match self.ask(id, pid, &missing) {
            Ok(named) => named,
            Err(error) => return Some(error),
        };
        for (address, location) in missing.into_iter().zip(named.locations) {
            let function = location.frames.into_iter().next().map(|frame| frame.function);
            self.of_processes.insert((id, address), function);
        }
        named.warnings.into_iter().next().map(SymbolError::File)
    }

    /// Asks the naming process for the functions at addresses of a process.
    fn ask(&mut self, id: u32, pid: i32, addresses: &[u64]) -> Result<NamedLocations, SymbolError> {
        let naming = self.naming.as_ref().ok_or(SymbolError::NoProcess)?;
        if self.is_stuck {
            return Err(SymbolError::Silent(id));
        }
        if let Some(Err(errno)) = &self.mappings
            && tasks::comm_of(pid).is_none()
        {
            return Err(SymbolError::NotRecorded(*errno));
        }
        let recorded = |address: &u64| match &self.mappings {
            Some(Ok(mappings)) => mappings.process_at(pid, *address).unwrap_or_default(),
            Some(Err(_)) | None => RecordedProcess::default(),
        };
        let recorded: Vec<_> = addresses.iter().map(recorded).collect();
        let wanted = WantedLocations {
            pid: id,
            lives: !recorded.iter().any(|one| one.has_ended),
            began: recorded.first().and_then(|one| one.began),
            locations: addresses
                .iter()
                .zip(recorded)
                .map(|(address, one)| WantedLocation { address: *address, recorded: one.mapping })
                .collect(),
            in_detail: false,
            until: None,
        };
        let Some(named) = naming.name(wanted) else {
            self.is_stuck = true;
            return Err(SymbolError::Silent(id));
        };
        if named.denied {
            return Err(SymbolError::Denied(pid));
        }
        Ok(named)
    }
}

/// Returns the symbol that blazesym found at an address of the kernel; none if nothing is known there.
fn symbol(found: Symbolized<'_>) -> Result<Option<Symbol>, SymbolError> {
    match found {
        Symbolized::Sym(symbol) if is_below(&symbol) => Ok(None),
        Symbolized::Sym(symbol) => {
            let name = naming::demangled(&symbol.name);
            let name = visible(name.as_deref().unwrap_or(&symbol.name), MAX_TEXT_BYTES);
            Ok(Some(Symbol { function: name.into_owned(), offset: symbol.offset as u64 }))
        }
        Symbolized::Unknown(Reason::MissingSyms) => Err(SymbolError::Hidden),
        Symbolized::Unknown(_) => Ok(None),
    }
}

/// Symbolises kernel addresses; the results are in the order of the addresses.
///
/// # Errors
/// If symbols are not permitted or not readable.
pub(crate) fn kernel_frames<'s>(
    symbolizer: &'s Symbolizer,
    addresses: &[u64],
) -> Result<Vec<Symbolized<'s>>, SymbolError> {
    let found = symbolizer.symbolize(&kernel(), Input::AbsAddr(addresses));
    found.map_err(refusal)
}

/// Whether the kernel symbol below an address does not contain it: it is too far below, or only the bound of a section, of
/// which a kernel that lists functions only has hundreds among its data. Source: the manual of GNU ld, "Orphan Sections", and
/// include/asm-generic/sections.h.
pub(crate) fn is_below(symbol: &Sym<'_>) -> bool {
    let is_bound =
        ["__start_", "__stop_"].iter().any(|bound| symbol.name.starts_with(bound)) || symbol.name == "_etext";
    symbol.offset > LONGEST || (is_bound && symbol.offset > 0)
}

/// Files on disk that might be the kernel's are not searched: they may be of another build.
fn kernel() -> Source<'static> {
    Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() }.into()
}

/// Maps an error of blazesym to its cause.
fn refusal(error: Error) -> SymbolError {
    match error.kind() {
        ErrorKind::PermissionDenied => SymbolError::Hidden,
        _ => SymbolError::Kernel(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::NamingProcess;

    fn found(process: Option<i32>, address: u64) -> Option<Symbol> {
        let naming = Naming::start(NamingProcess::in_a_thread()).expect("threads can be started");
        Symbols::new(Some(naming), None).find(process, address).expect("it may be looked up")
    }

    #[test]
    fn a_function_of_this_process_is_named() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let address = a_function_of_this_process_is_named as fn() as usize as u64 + 3;
        let name = found(Some(own), address).expect("the test has its symbols");
        assert!(name.function.contains("a_function_of_this_process_is_named"), "{name:?}");
        assert_eq!(name.offset, 3);
    }

    #[test]
    fn unmapped_addresses_have_no_name() {
        assert_eq!([Some(0), Some(-1), Some(i32::MAX)].map(|pid| found(pid, 0x1000)), [None, None, None]);
        assert_eq!([1, 0x5000, KERNEL_START - 1].map(|address| found(None, address)), [None, None, None]);
    }

    #[test]
    fn root_bounds_of_sections_name_nothing_behind_them() {
        let kernel = std::fs::read_to_string("/proc/kallsyms").expect("it is there");
        let bound =
            kernel.lines().find(|line| line.ends_with(" __start_rodata")).expect("each kernel has it");
        let (bound, _) = bound.split_once(' ').expect("an address stands before a name");
        let bound = u64::from_str_radix(bound, 16).expect("an address");
        assert_eq!(found(None, bound).map(|symbol| symbol.offset), Some(0));
        let behind = found(None, bound + 8);
        assert!(behind.as_ref().is_none_or(|symbol| symbol.function != "__start_rodata"), "{behind:?}");
    }

    #[test]
    fn without_a_naming_process_that_is_said() {
        let error = Symbols::default().find(Some(1), 0x1000).expect_err("nobody names it");
        assert!(error.to_string().contains("starts no naming process"), "{error}");
    }
}
