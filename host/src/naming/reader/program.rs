//! Functions of an ELF file, from its symbol tables and from debug information in it or in debug files.

use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use object::Endianness;

use super::super::protocol::{DebugFile, MAX_FRAMES, NamedFrame};
use super::data::Data;
use super::demangle::Demangled;
use super::elf::Elf;

/// Limit of a file's debug information, in bytes. If it has more, names come from the symbol table.
const MAX_DEBUG_BYTES: u64 = 384 << 20;

/// The sections that functions and lines need. Those about variables, which are as large, are not read.
const NEEDED: [gimli::SectionId; 10] = [
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugAranges,
    gimli::SectionId::DebugInfo,
    gimli::SectionId::DebugLine,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugRanges,
    gimli::SectionId::DebugRngLists,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugStrOffsets,
];

type Debug = addr2line::Context<EndianSlice<'static, RunTimeEndian>>;

/// An ELF file, and its debug information once it is needed.
pub(super) struct Program {
    elf: Elf,
    debug: DebugState,
}

/// The state of a program's debug information.
enum DebugState {
    /// Not requested yet.
    Unread,
    /// A debug file was requested from the host.
    Waiting(Waiting),
    /// It was read; None if there is none.
    Read(Option<Box<Debug>>),
}

/// The data that is needed once the requested debug file arrives.
enum Waiting {
    /// The program's own debug file, and the checksum in its `.gnu_debuglink`.
    Separate(DebugFile, Option<u32>),
    /// The supplementary file of dwz (`.gnu_debugaltlink`) for the debug information in this ELF file.
    Shared(Box<Elf>, DebugFile),
}

impl Program {
    /// Parses a file; None if it is not a supported ELF file.
    pub(super) fn read(data: &'static Data) -> Option<Program> {
        Some(Program { elf: Elf::read(data)?, debug: DebugState::Unread })
    }

    pub(super) fn build_id(&self) -> &[u8] {
        &self.elf.build_id
    }

    /// Returns the debug file that is needed before lines are known.
    pub(super) fn needs(&mut self) -> Option<DebugFile> {
        if matches!(self.debug, DebugState::Unread) {
            self.debug = debug_state(&self.elf);
        }
        match &self.debug {
            DebugState::Waiting(Waiting::Separate(file, _) | Waiting::Shared(_, file)) => Some(file.clone()),
            _ => None,
        }
    }

    /// Accepts the requested debug file; None if there is none.
    pub(super) fn take(&mut self, file: Option<&'static Data>) {
        let found = file.and_then(Elf::read);
        let state = std::mem::replace(&mut self.debug, DebugState::Read(None));
        let DebugState::Waiting(waiting) = state else {
            self.debug = state;
            return;
        };
        self.debug = match (waiting, found) {
            (Waiting::Separate(_, crc), Some(found)) if is_debug_of(&found, &self.elf.build_id, crc) => {
                match found.shared.clone() {
                    Some(shared) => DebugState::Waiting(Waiting::Shared(Box::new(found), shared)),
                    None => DebugState::Read(debug(&found, None)),
                }
            }
            (Waiting::Separate(..), _) => DebugState::Read(None),
            (Waiting::Shared(own, wanted), shared) => {
                let shared = shared.filter(|shared| shared.build_id == wanted.build_id);
                DebugState::Read(debug(&own, shared.as_ref()))
            }
        };
    }

    /// Returns the frames at an offset in the file, the outermost first.
    pub(super) fn frames(&self, offset: u64, lines: bool, demangled: &mut Demangled) -> Vec<NamedFrame> {
        let Some(address) = self.elf.address(offset) else { return Vec::new() };
        let debug = match &self.debug {
            DebugState::Read(Some(debug)) if lines => debug_frames(debug, address, demangled),
            _ => Vec::new(),
        };
        if debug.first().is_some_and(|outer| !outer.function.is_empty()) {
            return debug;
        }
        let Some((name, from_start)) = self.elf.symbol(address) else { return Vec::new() };
        let function = demangled.of(&name);
        if function.is_empty() {
            return Vec::new();
        }
        // If the debug information has no function there, its line is still useful.
        let NamedFrame { file, line, .. } = debug.into_iter().next().unwrap_or_default();
        vec![NamedFrame { function, offset: Some(from_start), file, line, inlined: false }]
    }
}

fn debug_frames(debug: &Debug, address: u64, demangled: &mut Demangled) -> Vec<NamedFrame> {
    // Split debug information is in other files, which are never requested.
    let Ok(mut found) = debug.find_frames(address).skip_all_loads() else { return Vec::new() };
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = found.next() {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        let location = frame.location.as_ref();
        frames.push(NamedFrame {
            function: name.map(|name| demangled.of(&name)).unwrap_or_default(),
            offset: None,
            file: location.and_then(|location| location.file).map(str::to_owned),
            line: location.and_then(|location| location.line),
            inlined: true,
        });
        if frames.len() == MAX_FRAMES {
            break;
        }
    }
    frames.reverse();
    if let Some(outer) = frames.first_mut() {
        outer.inlined = false;
    }
    frames
}

/// Returns the state of debug information before any debug file was requested.
fn debug_state(elf: &Elf) -> DebugState {
    if elf.has_debug() {
        return match (&elf.shared, elf.again()) {
            // The debug information is in this file, but parts of it are in the shared file.
            (Some(shared), Some(own)) => DebugState::Waiting(Waiting::Shared(Box::new(own), shared.clone())),
            _ => DebugState::Read(debug(elf, None)),
        };
    }
    if elf.build_id.is_empty() && elf.link.is_none() {
        return DebugState::Read(None);
    }
    let (name, crc) = elf.link.clone().unzip();
    let file = DebugFile { shared: false, build_id: elf.build_id.clone(), name: name.unwrap_or_default() };
    DebugState::Waiting(Waiting::Separate(file, crc))
}

/// Whether a file has the debug information of a program: it has the same build id or, if the program has
/// none, the checksum in the program's `.gnu_debuglink`.
fn is_debug_of(file: &Elf, build_id: &[u8], crc: Option<u32>) -> bool {
    match build_id {
        [] => crc.is_some_and(|crc| file.checksum() == Some(crc)),
        build_id => file.build_id == build_id,
    }
}

/// Reads debug information. None if it is malformed or too long.
fn debug(elf: &Elf, shared: Option<&Elf>) -> Option<Box<Debug>> {
    // Tools that merge debug information make many units share abbreviations, which are then parsed only
    // once.
    let shared_units = gimli::AbbreviationsCacheStrategy::Duplicates;
    let mut left = MAX_DEBUG_BYTES;
    let mut dwarf = gimli::Dwarf::load(|id| section(elf, id, &mut left)).ok()?;
    if let Some(shared) = shared {
        let mut shared = gimli::Dwarf::load(|id| section(shared, id, &mut left)).ok()?;
        shared.populate_abbreviations_cache(shared_units);
        dwarf.set_sup(shared);
    }
    dwarf.populate_abbreviations_cache(shared_units);
    addr2line::Context::from_dwarf(dwarf).ok().map(Box::new)
}

fn section(
    elf: &Elf,
    id: gimli::SectionId,
    left: &mut u64,
) -> Result<EndianSlice<'static, RunTimeEndian>, ()> {
    let endian = match elf.endian {
        Endianness::Little => RunTimeEndian::Little,
        Endianness::Big => RunTimeEndian::Big,
    };
    let bytes = if NEEDED.contains(&id) { elf.debug_section(id.name(), *left)? } else { &[] };
    *left -= bytes.len() as u64;
    Ok(EndianSlice::new(bytes, endian))
}
