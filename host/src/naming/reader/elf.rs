//! ELF files, as far as functions are concerned: segments, symbols, and the locations of debug information.
//!
//! Headers are read first. Symbols are read when the first name is looked up there, since debug information
//! has better names.

use std::cell::OnceCell;
use std::io::Read as _;
use std::ops::Range;

use flate2::read::ZlibDecoder;
use object::elf;
use object::read::elf::{CompressionHeader as _, FileHeader, ProgramHeader as _, SectionHeader, Sym};
use object::{Endianness, FileKind, ReadRef as _};

use super::super::protocol::{DebugFile, MAX_TEXT_BYTES};
use super::data::Data;

/// Number of symbols below an address that are searched for one that covers it.
const NEIGHBOURS: usize = 16;

/// Bytes that are reserved up front for a compressed section, whatever size it declares.
const RESERVED: u64 = 64 << 20;

/// The parts of an ELF file that names of functions need.
pub(super) struct Elf {
    data: &'static Data,
    pub(super) endian: Endianness,
    pub(super) build_id: Vec<u8>,
    /// The name and the checksum of its debug file (`.gnu_debuglink`).
    pub(super) link: Option<(String, u32)>,
    /// The file that several debug files share (`.gnu_debugaltlink`).
    pub(super) shared: Option<DebugFile>,
    segments: Vec<Segment>,
    debug: Vec<Section>,
    symbols: OnceCell<Symbols>,
}

struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// A section of debug information.
struct Section {
    name: String,
    offset: u64,
    size: u64,
    /// The declared uncompressed size in bytes; None if the section is not compressed.
    inflated: Option<u64>,
}

#[derive(Default)]
struct Symbols {
    /// Addresses of the code sections; empty ones are left out.
    code: Vec<Range<u64>>,
    /// Ordered by address, then rank.
    list: Vec<Symbol>,
    /// Start and end of the string tables of `.symtab` and `.dynsym` in the file.
    names: [Option<(u64, u64)>; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    /// Priority among symbols at one address, lowest first: functions before others, `.symtab` before
    /// `.dynsym`.
    rank: u8,
    size: u64,
    name: u32,
}

impl Elf {
    /// Parses a file; None if it is not a supported ELF file.
    pub(super) fn read(data: &'static Data) -> Option<Elf> {
        match FileKind::parse(data).ok()? {
            FileKind::Elf64 => Elf::of::<elf::FileHeader64<Endianness>>(data),
            FileKind::Elf32 => Elf::of::<elf::FileHeader32<Endianness>>(data),
            _ => None,
        }
    }

    /// Parses the same file again.
    pub(super) fn again(&self) -> Option<Elf> {
        Elf::read(self.data)
    }

    fn of<H: FileHeader<Endian = Endianness>>(data: &'static Data) -> Option<Elf> {
        let header = H::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let loaded = header.program_headers(endian, data).ok()?.iter();
        let loaded = loaded.filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let segments = loaded.map(|segment| Segment {
            offset: segment.p_offset(endian).into(),
            size: segment.p_filesz(endian).into(),
            address: segment.p_vaddr(endian).into(),
        });
        let mut elf = Elf {
            data,
            endian,
            build_id: Vec::new(),
            link: None,
            shared: None,
            segments: segments.collect(),
            debug: Vec::new(),
            symbols: OnceCell::new(),
        };
        let sections = header.sections(endian, data).ok()?;
        for section in sections.iter() {
            if let Ok(Some(mut notes)) = section.notes(endian, data) {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                        elf.build_id = note.desc().to_vec();
                    }
                }
            }
            let Ok(name) = sections.section_name(endian, section) else { continue };
            let bytes = || section.data(endian, data).ok();
            match name {
                b".gnu_debuglink" => elf.link = bytes().and_then(|bytes| link(bytes, endian)),
                b".gnu_debugaltlink" => elf.shared = bytes().and_then(shared),
                name if name.starts_with(b".debug_") => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    elf.debug.extend(debug_section(section, name, endian, data));
                }
                _ => {}
            }
        }
        Some(elf)
    }

    /// Whether the file contains debug information itself.
    pub(super) fn has_debug(&self) -> bool {
        self.debug.iter().any(|section| section.name == ".debug_info")
    }

    /// Returns the bytes of a debug section; empty if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, or is longer than `most` bytes.
    pub(super) fn debug_section(&self, name: &str, most: u64) -> Result<&'static [u8], ()> {
        match self.debug.iter().find(|section| section.name == name) {
            Some(section) => section.bytes(self.data, most),
            None => Ok(&[]),
        }
    }

    /// Returns the address of a file offset, before relocation.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let inside =
            |segment: &&Segment| offset.checked_sub(segment.offset).is_some_and(|into| into < segment.size);
        let segment = self.segments.iter().find(inside)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Returns the name of the function at an address, and the distance from its start in bytes.
    pub(super) fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let symbols = &self.symbols().list;
        let above = symbols.partition_point(|symbol| symbol.address <= address);
        let nearest = symbols[..above].last()?.address;
        // Symbols with the nearest start come first, by rank, then those before them.
        let together = symbols[..above].partition_point(|symbol| symbol.address < nearest);
        let before = symbols[..together].iter().rev().take(NEIGHBOURS).filter(|symbol| symbol.size > 0);
        let covers = |symbol: &&Symbol| {
            let into = address - symbol.address;
            // A symbol without a size extends to the next one in its section. In `.dynsym`, which lacks most
            // symbols, that proves nothing.
            let is_open = symbol.size == 0 && (into == 0 || !symbol.is_dynamic());
            into < symbol.size || is_open && self.are_together(symbol.address, address)
        };
        let candidates = symbols[together..above].iter().chain(before).filter(covers);
        candidates.filter_map(|symbol| Some((self.name(symbol)?, address - symbol.address))).next()
    }

    /// Whether two addresses are in one code section.
    fn are_together(&self, one: u64, other: u64) -> bool {
        self.symbols().code.iter().any(|code| code.contains(&one) && code.contains(&other))
    }

    fn name(&self, symbol: &Symbol) -> Option<String> {
        let (start, end) = self.symbols().names[usize::from(symbol.is_dynamic())]?;
        let at = start.checked_add(symbol.name.into()).filter(|at| *at < end)?;
        let most = usize::try_from(end - at).unwrap_or(MAX_TEXT_BYTES).min(MAX_TEXT_BYTES);
        let mut bytes = self.data.some_at(at, most)?;
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Computes CRC-32 of the whole file, as in `.gnu_debuglink`.
    pub(super) fn checksum(&self) -> Option<u32> {
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

    fn symbols(&self) -> &Symbols {
        let read = || match FileKind::parse(self.data).ok()? {
            FileKind::Elf64 => Symbols::of::<elf::FileHeader64<Endianness>>(self.data),
            FileKind::Elf32 => Symbols::of::<elf::FileHeader32<Endianness>>(self.data),
            _ => None,
        };
        self.symbols.get_or_init(|| read().unwrap_or_default())
    }
}

impl Symbols {
    fn of<H: FileHeader<Endian = Endianness>>(data: &'static Data) -> Option<Symbols> {
        let header = H::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        // Indexed by section number; empty ranges for sections without code.
        let code: Vec<Range<u64>> = sections
            .iter()
            .map(|section| {
                let (start, size): (u64, u64) =
                    (section.sh_addr(endian).into(), section.sh_size(endian).into());
                let is_code = section.sh_flags(endian).into() & u64::from(elf::SHF_EXECINSTR) != 0;
                if is_code { start..start.saturating_add(size) } else { 0..0 }
            })
            .collect();
        let mut symbols = Symbols::default();
        for (table_index, kind) in [elf::SHT_SYMTAB, elf::SHT_DYNSYM].into_iter().enumerate() {
            // An unreadable table is ignored; the other one may be usable.
            let Ok(table) = sections.symbols(endian, data, kind) else { continue };
            let strings = sections.section(table.string_section()).ok();
            let range = strings.and_then(|section| section.file_range(endian));
            symbols.names[table_index] = range.map(|(offset, size)| (offset, offset.saturating_add(size)));
            symbols.list.try_reserve_exact(table.len()).ok()?;
            symbols
                .list
                .extend(table.iter().filter_map(|symbol| of_code(symbol, endian, table_index, &code)));
        }
        symbols.list.sort_unstable();
        symbols.code = code.into_iter().filter(|code| !code.is_empty()).collect();
        Some(symbols)
    }
}

impl Section {
    /// Reads a section; it is an error if the section exceeds `most` bytes. The declared size of a compressed
    /// section is not trusted.
    fn bytes(&self, data: &'static Data, most: u64) -> Result<&'static [u8], ()> {
        if self.size > most || self.inflated.is_some_and(|inflated| inflated > most) {
            return Err(());
        }
        let bytes = data.read_bytes_at(self.offset, self.size)?;
        let Some(said) = self.inflated else { return Ok(bytes) };
        let mut inflated = Vec::with_capacity(usize::try_from(said.min(RESERVED)).unwrap_or_default());
        let read = ZlibDecoder::new(bytes).take(said).read_to_end(&mut inflated).map_err(|_| ())?;
        if read as u64 == said { Ok(inflated.leak()) } else { Err(()) }
    }
}

impl Symbol {
    fn is_dynamic(&self) -> bool {
        self.rank & 1 == 1
    }
}

/// Returns a symbol that may be a function of this file. `code` has the addresses of code sections, by
/// section number.
fn of_code<S>(symbol: &S, endian: Endianness, table: usize, code: &[Range<u64>]) -> Option<Symbol>
where
    S: Sym<Endian = Endianness>,
{
    let address: u64 = symbol.st_value(endian).into();
    let (section, name) = (symbol.st_shndx(endian), symbol.st_name(endian));
    let is_in_code = code.get(usize::from(section)).is_some_and(|code| code.contains(&address));
    let rank = match symbol.st_type() {
        // From here on, numbers are not section indexes: there are too many sections for them.
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

/// Parses a zero-terminated name and, at the next multiple of four bytes, the debug file's checksum.
fn link(bytes: &[u8], endian: Endianness) -> Option<(String, u32)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let at = (end + 1).next_multiple_of(4);
    let crc: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    let crc = match endian {
        Endianness::Little => u32::from_le_bytes(crc),
        Endianness::Big => u32::from_be_bytes(crc),
    };
    Some((last_part(&bytes[..end]), crc))
}

/// Parses a zero-terminated name and a build id.
fn shared(bytes: &[u8]) -> Option<DebugFile> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(DebugFile { shared: true, build_id: bytes[end + 1..].to_vec(), name: last_part(&bytes[..end]) })
}

fn debug_section<S>(section: &S, name: String, endian: Endianness, data: &'static Data) -> Option<Section>
where
    S: SectionHeader<Endian = Endianness>,
{
    let (offset, size) = section.file_range(endian)?;
    match section.compression(endian, data).ok()? {
        None => Some(Section { name, offset, size, inflated: None }),
        Some((header, offset, size)) if header.ch_type(endian) == elf::ELFCOMPRESS_ZLIB => {
            Some(Section { name, offset, size, inflated: Some(header.ch_size(endian).into()) })
        }
        Some(_) => None,
    }
}

/// Returns the last component of a path: directories that a program names are not used for lookups.
fn last_part(path: &[u8]) -> String {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(last).into_owned()
}
