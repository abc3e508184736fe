//! Functions of an ELF file: by its symbol tables, and by debug information of its own or of debug files.

use std::io::Read as _;
use std::ops::Range;

use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use flate2::read::ZlibDecoder;
use object::elf;
use object::read::CompressionFormat;
use object::read::elf::{ElfFile, FileHeader, SectionHeader as _, Sym};
use object::{Endianness, FileKind, Object as _, ObjectSection as _, ObjectSegment as _, SectionKind};

use super::super::protocol::{DebugFile, MAX_FRAMES, MAX_TEXT_BYTES, NamedFrame};
use super::data::Data;
use super::demangle::Demangled;

/// Most bytes of debug information that are read of a file. With more of it, names are of the symbol table.
const MAX_DEBUG_BYTES: u64 = 384 << 20;

/// How many symbols below an address are looked at for one that reaches up to it.
const NEIGHBOURS: usize = 16;

type Debug = addr2line::Context<EndianSlice<'static, RunTimeEndian>>;

/// An ELF file.
pub(super) struct Program {
    elf: Elf,
    debug: DebugState,
}

/// Where debug information is.
enum DebugState {
    /// Nobody asked for it.
    Unread,
    /// In this file; another one has been asked for.
    Waiting(Waiting),
    /// It was read; none if there is none.
    Read(Option<Box<Debug>>),
}

/// What is known while a debug file is on its way.
enum Waiting {
    /// Of the file itself.
    Separate(DebugFile, Option<u32>),
    /// What several debug files share, for the debug information in this one.
    Shared(Box<Elf>, DebugFile),
}

/// What of an ELF file is of interest.
struct Elf {
    data: &'static Data,
    endian: Endianness,
    build_id: Vec<u8>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    /// The addresses of sections with code.
    code: Vec<Range<u64>>,
    /// By address.
    symbols: Vec<Symbol>,
    /// Where the names of both tables are: of `.symtab`, and of `.dynsym`.
    names: [Option<(u64, u64)>; 2],
    link: Option<(String, u32)>,
    shared_link: Option<DebugFile>,
}

struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

struct Section {
    name: String,
    offset: u64,
    size: u64,
    /// How many bytes it says it has when it is not compressed.
    inflated: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    /// Of two at one address the first is taken: functions before others, `.symtab` before `.dynsym`.
    rank: u8,
    size: u64,
    name: u32,
}

impl Program {
    /// None if it is no ELF file that is understood.
    pub(super) fn read(data: &'static Data) -> Option<Program> {
        Some(Program { elf: Elf::read(data)?, debug: DebugState::Unread })
    }

    pub(super) fn build_id(&self) -> &[u8] {
        &self.elf.build_id
    }

    /// The debug file that is needed before lines are known.
    pub(super) fn needs(&mut self) -> Option<DebugFile> {
        if matches!(self.debug, DebugState::Unread) {
            self.debug = self.elf.debug_state();
        }
        match &self.debug {
            DebugState::Waiting(Waiting::Separate(file, _) | Waiting::Shared(_, file)) => Some(file.clone()),
            _ => None,
        }
    }

    /// Takes the debug file that was asked for; none if there is none.
    pub(super) fn take(&mut self, file: Option<&'static Data>) {
        let found = file.and_then(Elf::read);
        let state = std::mem::replace(&mut self.debug, DebugState::Read(None));
        let DebugState::Waiting(waiting) = state else {
            self.debug = state;
            return;
        };
        self.debug = match (waiting, found) {
            (Waiting::Separate(wanted, crc), Some(found))
                if found.is_of(&self.elf.build_id, &wanted, crc) =>
            {
                match found.shared_link.clone() {
                    Some(shared) => DebugState::Waiting(Waiting::Shared(Box::new(found), shared)),
                    None => DebugState::Read(found.debug(None)),
                }
            }
            (Waiting::Separate(..), _) => DebugState::Read(None),
            (Waiting::Shared(own, wanted), shared) => {
                let shared = shared.filter(|shared| shared.build_id == wanted.build_id);
                DebugState::Read(own.debug(shared.as_ref()))
            }
        };
    }

    /// The frames at an offset into the file, the outermost first.
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
        // Of a place without a function in the debug information the line is of use nevertheless.
        let NamedFrame { file, line, .. } = debug.into_iter().next().unwrap_or_default();
        vec![NamedFrame { function, offset: Some(from_start), file, line, inlined: false }]
    }
}

fn debug_frames(debug: &Debug, address: u64, demangled: &mut Demangled) -> Vec<NamedFrame> {
    // Split debug information is in files that nobody is asked for.
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

impl Elf {
    fn read(data: &'static Data) -> Option<Elf> {
        match FileKind::parse(data).ok()? {
            FileKind::Elf64 => Elf::of(&ElfFile::<elf::FileHeader64<Endianness>, _>::parse(data).ok()?, data),
            FileKind::Elf32 => Elf::of(&ElfFile::<elf::FileHeader32<Endianness>, _>::parse(data).ok()?, data),
            _ => None,
        }
    }

    fn of<H>(file: &ElfFile<'static, H, &'static Data>, data: &'static Data) -> Option<Elf>
    where
        H: FileHeader<Endian = Endianness>,
    {
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            Segment { offset, size, address: segment.address() }
        });
        let sections = file.sections().filter_map(|section| {
            let range = section.compressed_file_range().ok()?;
            let inflated = match range.format {
                CompressionFormat::None => None,
                CompressionFormat::Zlib => Some(range.uncompressed_size),
                _ => return None,
            };
            let is_debug = section.kind() != SectionKind::UninitializedData;
            let name = section.name().ok().filter(|name| name.starts_with(".debug_") && is_debug)?.to_owned();
            Some(Section { name, offset: range.offset, size: range.compressed_size, inflated })
        });
        let mut elf = Elf {
            data,
            endian: file.endian(),
            build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
            segments: segments.collect(),
            sections: sections.collect(),
            code: Vec::new(),
            symbols: Vec::new(),
            names: [None, None],
            link: None,
            shared_link: None,
        };
        elf.link = file.gnu_debuglink().ok().flatten().map(|(name, crc)| (last_part(name), crc));
        elf.shared_link = file.gnu_debugaltlink().ok().flatten().map(|(name, build_id)| DebugFile {
            shared: true,
            build_id: build_id.to_vec(),
            name: last_part(name),
        });
        // By the numbers of sections; of others than code nothing.
        let code: Vec<Range<u64>> = file
            .elf_section_table()
            .iter()
            .map(|section| {
                let start: u64 = section.sh_addr(file.endian()).into();
                let size: u64 = section.sh_size(file.endian()).into();
                let is_code = section.sh_flags(file.endian()).into() & u64::from(elf::SHF_EXECINSTR) != 0;
                if is_code { start..start.saturating_add(size) } else { 0..0 }
            })
            .collect();
        let tables = [file.elf_symbol_table(), file.elf_dynamic_symbol_table()];
        let count = tables.iter().map(|table| table.len()).sum();
        elf.symbols.try_reserve_exact(count).ok()?;
        for (place, table) in tables.into_iter().enumerate() {
            let strings = file.elf_section_table().section(table.string_section()).ok();
            let range = strings.and_then(|section| section.file_range(file.endian()));
            elf.names[place] = range.map(|(offset, size)| (offset, offset.saturating_add(size)));
            for symbol in table.iter() {
                elf.symbols.extend(of_code(symbol, file.endian(), place, &code));
            }
        }
        elf.symbols.sort_unstable();
        elf.code = code.into_iter().filter(|code| !code.is_empty()).collect();
        Some(elf)
    }

    /// The address that a byte of the file has in memory, before the file is moved.
    fn address(&self, offset: u64) -> Option<u64> {
        let inside =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.size);
        let segment = self.segments.iter().find(inside)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// The name of the function at an address, and the bytes from its start.
    fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let above = self.symbols.partition_point(|symbol| symbol.address <= address);
        let nearest = self.symbols[..above].last()?.address;
        // Those that begin together are tried in their order, then those before them.
        let together = self.symbols[..above].partition_point(|symbol| symbol.address < nearest);
        let before = self.symbols[..together].iter().rev().take(NEIGHBOURS).filter(|symbol| symbol.size > 0);
        let covers = |symbol: &&Symbol| {
            let into = address - symbol.address;
            // A symbol without a size goes on to the next one in its section. In `.dynsym`, which lacks most, that says
            // nothing.
            let is_open = symbol.size == 0 && (into == 0 || !symbol.is_dynamic());
            into < symbol.size || is_open && self.are_together(symbol.address, address)
        };
        let candidates = self.symbols[together..above].iter().chain(before).filter(covers);
        candidates.filter_map(|symbol| Some((self.name(symbol)?, address - symbol.address))).next()
    }

    /// Whether two addresses are in one section of code.
    fn are_together(&self, one: u64, other: u64) -> bool {
        self.code.iter().any(|code| code.contains(&one) && code.contains(&other))
    }

    fn name(&self, symbol: &Symbol) -> Option<String> {
        let (start, end) = self.names[usize::from(symbol.is_dynamic())]?;
        let at = start.checked_add(symbol.name.into()).filter(|at| *at < end)?;
        let most = usize::try_from(end - at).unwrap_or(MAX_TEXT_BYTES).min(MAX_TEXT_BYTES);
        let mut bytes = self.data.some_at(at, most)?;
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn debug_state(&self) -> DebugState {
        if self.sections.iter().any(|section| section.name == ".debug_info") {
            return match &self.shared_link {
                // The file is there already: only its parts that others share are not.
                Some(shared) => match Elf::read(self.data) {
                    Some(own) => DebugState::Waiting(Waiting::Shared(Box::new(own), shared.clone())),
                    None => DebugState::Read(None),
                },
                None => DebugState::Read(self.debug(None)),
            };
        }
        if self.build_id.is_empty() && self.link.is_none() {
            return DebugState::Read(None);
        }
        let (name, crc) = self.link.clone().unzip();
        let file =
            DebugFile { shared: false, build_id: self.build_id.clone(), name: name.unwrap_or_default() };
        DebugState::Waiting(Waiting::Separate(file, crc))
    }

    /// Whether this is the debug file of a program with this build id, or with a link of this checksum.
    fn is_of(&self, build_id: &[u8], _: &DebugFile, crc: Option<u32>) -> bool {
        match build_id {
            [] => crc.is_some_and(|crc| self.checksum() == Some(crc)),
            build_id => self.build_id == build_id,
        }
    }

    /// CRC-32 of the whole file, as `.gnu_debuglink` has it.
    fn checksum(&self) -> Option<u32> {
        let mut crc = flate2::Crc::new();
        let mut at = 0;
        loop {
            let piece = self.data.some_at(at, 1 << 20)?;
            if piece.is_empty() {
                return Some(crc.sum());
            }
            crc.update(&piece);
            at += piece.len() as u64;
        }
    }

    /// Reads debug information. None if it is broken, or too long.
    fn debug(&self, shared: Option<&Elf>) -> Option<Box<Debug>> {
        let mut left = MAX_DEBUG_BYTES;
        let mut dwarf = gimli::Dwarf::load(|id| self.section(id, &mut left)).ok()?;
        if let Some(shared) = shared {
            dwarf.load_sup(|id| shared.section(id, &mut left)).ok()?;
        }
        addr2line::Context::from_dwarf(dwarf).ok().map(Box::new)
    }

    fn section(
        &self,
        id: gimli::SectionId,
        left: &mut u64,
    ) -> Result<EndianSlice<'static, RunTimeEndian>, ()> {
        let endian = match self.endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let Some(section) = self.sections.iter().find(|section| section.name == id.name()) else {
            return Ok(EndianSlice::new(&[], endian));
        };
        let bytes = section.bytes(self.data, *left)?;
        *left -= bytes.len() as u64;
        Ok(EndianSlice::new(bytes, endian))
    }
}

impl Section {
    /// At most so many bytes; more are an error. What a compressed section says of its size is not believed.
    fn bytes(&self, data: &'static Data, most: u64) -> Result<&'static [u8], ()> {
        use object::ReadRef as _;
        if self.size > most || self.inflated.is_some_and(|inflated| inflated > most) {
            return Err(());
        }
        let bytes = data.read_bytes_at(self.offset, self.size)?;
        let Some(said) = self.inflated else { return Ok(bytes) };
        let mut inflated = Vec::new();
        let read = ZlibDecoder::new(bytes).take(said).read_to_end(&mut inflated).map_err(|_| ())?;
        if read as u64 == said { Ok(inflated.leak()) } else { Err(()) }
    }
}

impl Symbol {
    fn is_dynamic(&self) -> bool {
        self.rank & 1 == 1
    }
}

/// A symbol that may be a function of this file. `code` has the addresses of sections with code, by their numbers.
fn of_code<S>(symbol: &S, endian: Endianness, table: usize, code: &[Range<u64>]) -> Option<Symbol>
where
    S: Sym<Endian = Endianness>,
{
    let address: u64 = symbol.st_value(endian).into();
    let (section, name) = (symbol.st_shndx(endian), symbol.st_name(endian));
    let is_in_code = code.get(usize::from(section)).is_some_and(|code| code.contains(&address));
    let rank = match symbol.st_type() {
        // Numbers from here on are none of sections: there are too many for them.
        elf::STT_FUNC | elf::STT_GNU_IFUNC if is_in_code || section >= elf::SHN_LORESERVE => 0,
        elf::STT_NOTYPE if is_in_code => 1,
        _ => return None,
    };
    (name != 0).then(|| Symbol {
        address,
        rank: rank << 1 | table as u8,
        size: symbol.st_size(endian).into(),
        name,
    })
}

/// A path's last part: no debug file is looked up by folders that its program names.
fn last_part(path: &[u8]) -> String {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(last).into_owned()
}
