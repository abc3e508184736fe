//! The language of functions in a file with Go code, by its debug information (DWARF): Go passes arguments in
//! other registers than C.

use std::collections::BTreeMap;

use addr2line::gimli::{self, AttributeValue, EndianSlice, LittleEndian};

use super::elf::Image;
use super::error::ProbePointError;
use super::go;

/// Limit of the sections that are read together, in bytes, uncompressed.
const MAX_DEBUG_BYTES: u64 = 128 << 20;

/// The word of a unit's producer that tells that Go passes arguments in registers.
///
/// Source: cmd/compile/internal/gc, `RecordFlags`, Go 1.17 to 1.25.
const IN_REGISTERS: &[u8] = b"regabi";

/// The calling convention by which a program reads the arguments of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convention {
    /// The C ABI of the machine.
    C,
    /// Go's ABIInternal: registers, from Go 1.17 on.
    Go,
}

/// The language of a compile unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Go,
    /// Go whose functions take arguments on the stack.
    GoOnStack,
    Other,
}

/// Checks that the functions at these addresses are called by this convention.
///
/// # Errors
/// [`ProbePointError::Convention`] with the reason.
pub(super) fn check(
    image: &Image<'_>,
    addresses: impl IntoIterator<Item = u64>,
    convention: Convention,
) -> Result<(), ProbePointError> {
    let Some(sign) = go::sign(image)? else {
        return match convention {
            Convention::C => Ok(()),
            Convention::Go => Err(ProbePointError::Convention(
                "`abi: \"go\"` reads the registers of Go, and the file has no code in Go".to_owned(),
            )),
        };
    };
    let units = units(image)?;
    for address in addresses {
        let within = |(start, end): &(u64, u64)| (*start..*end).contains(&address);
        let found = units.iter().find(|unit| unit.ranges.iter().any(within));
        let reason = match (found.map(|unit| unit.language), convention) {
            (Some(Language::Other), Convention::C) | (Some(Language::Go), Convention::Go) => continue,
            (Some(Language::Go), Convention::C) => {
                "the function is in Go, which passes arguments in other registers than C: write \
                 `abi: \"go\"` behind the place"
                    .to_owned()
            }
            (Some(Language::Other), Convention::Go) => {
                "the function is not in Go: leave out `abi: \"go\"`".to_owned()
            }
            (Some(Language::GoOnStack), _) => {
                "the function is in Go older than 1.17, which passes arguments on the stack".to_owned()
            }
            (None, _) => format!(
                "the file has code in Go (it has a {sign}) and no debug information (DWARF) that tells the \
                 language of this function, so nobody knows where its arguments are"
            ),
        };
        return Err(ProbePointError::Convention(reason));
    }
    Ok(())
}

/// A compile unit.
struct Unit {
    language: Language,
    /// Its code: first addresses, and those behind the last.
    ranges: Vec<(u64, u64)>,
}

/// Reads the compile units; none without debug information, or if it is malformed.
fn units(image: &Image<'_>) -> Result<Vec<Unit>, ProbePointError> {
    let mut left = MAX_DEBUG_BYTES;
    let mut sections = BTreeMap::new();
    for name in [
        ".debug_info",
        ".debug_abbrev",
        ".debug_addr",
        ".debug_line_str",
        ".debug_ranges",
        ".debug_rnglists",
        ".debug_str",
        ".debug_str_offsets",
    ] {
        let bytes = image.debug_section(name, left)?.unwrap_or_default();
        left -= bytes.len() as u64;
        sections.insert(name, bytes);
    }
    let section = |id: gimli::SectionId| {
        let bytes = sections.get(id.name()).map_or(&[][..], Vec::as_slice);
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    Ok(gimli::Dwarf::load(section).and_then(|dwarf| read(&dwarf)).unwrap_or_default())
}

fn read(dwarf: &gimli::Dwarf<EndianSlice<'_, LittleEndian>>) -> gimli::Result<Vec<Unit>> {
    let mut found = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        let Some(root) = entries.next_dfs()? else { continue };
        let language = match root.attr_value(gimli::DW_AT_language) {
            Some(AttributeValue::Language(gimli::DW_LANG_Go)) => {
                let producer = root.attr_value(gimli::DW_AT_producer);
                let producer = producer.and_then(|value| dwarf.attr_string(&unit, value).ok());
                let producer = producer.map_or(&[][..], |text| text.slice());
                let mut words = producer.split(|byte| matches!(byte, b' ' | b';'));
                if words.any(|word| word == IN_REGISTERS) { Language::Go } else { Language::GoOnStack }
            }
            _ => Language::Other,
        };
        let mut ranges = Vec::new();
        let mut code = dwarf.unit_ranges(&unit)?;
        while let Some(range) = code.next()? {
            ranges.push((range.begin, range.end));
        }
        found.push(Unit { language, ranges });
    }
    Ok(found)
}
