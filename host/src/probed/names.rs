//! Lookup of functions by name.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::debugdata;
use super::elf::{Binding, Image, SymbolKind};
use super::error::ProbePointError;

/// Limit of the symbols with one name.
const MAX_FOUND: usize = 1024;

/// Limit of the offsets that one name may resolve to: each is a probe.
const MAX_OFFSETS: usize = 64;

/// Limit of the names that begin with the requested one.
const MAX_COPIES: usize = 256;

/// Limit of the copies that messages list.
const MAX_NAMED: usize = 8;

/// A symbol with the requested name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FoundSymbol {
    kind: SymbolKind,
    address: u64,
    /// Size of the function in bytes; 0 if the table does not have it.
    bytes: u64,
    /// Whether new programs are linked against this version of the symbol.
    is_current: bool,
    version: Option<String>,
    /// The source file of a local function.
    source: Option<String>,
}

/// An offset that a name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedOffset {
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// The source file, if the symbol table contains it.
    pub(super) source: Option<String>,
}

/// The offsets that a name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedOffsets {
    /// In ascending order.
    pub(super) offsets: Vec<NamedOffset>,
    /// Symbols of copies that the compiler made of the function, with other arguments. Calls of them do not
    /// reach these offsets.
    pub(super) copies: Vec<String>,
}

/// Returns the offsets `more` bytes after the start of each function with a name. Without `of`, these are all
/// functions of that name against which new programs are linked; otherwise those of the version or source
/// file `of`.
pub(super) fn offsets_of(
    image: &Image<'_>,
    name: &str,
    of: Option<&str>,
    more: u64,
) -> Result<NamedOffsets, ProbePointError> {
    let none =
        |copies: &[String]| ProbePointError::NoFunction { name: name.to_owned(), copies: copies.to_vec() };
    if name.is_empty() || name.contains('\0') {
        return Err(none(&[]));
    }
    let mut found = Vec::new();
    let mut symbols = look(image, name, &mut found)?;
    let mut is_stripped = image.section_named(|name| name == b".symtab").is_none();
    if found.is_empty()
        && let Some(unpacked) = debugdata::image(image)?
    {
        let more = look(&unpacked, name, &mut found)?;
        is_stripped = false;
        symbols.versions.extend(more.versions);
        symbols.copies.extend(more.copies);
    }
    symbols.copies.sort();
    symbols.copies.dedup();
    symbols.copies.truncate(MAX_NAMED);
    if found.is_empty() {
        return Err(match symbols.is_imported {
            true => ProbePointError::Imported(name.to_owned()),
            false if is_stripped && symbols.copies.is_empty() => ProbePointError::Stripped(name.to_owned()),
            false => none(&symbols.copies),
        });
    }
    match of {
        Some(of) => select(&mut found, name, of, &symbols.versions)?,
        None if found.iter().any(|one| one.is_current) => found.retain(|one| one.is_current),
        None => {}
    }
    if found.iter().any(|one| one.kind != SymbolKind::Label) {
        found.retain(|one| one.kind != SymbolKind::Label);
    }
    if found.iter().any(|one| one.kind == SymbolKind::Resolver) {
        return Err(ProbePointError::Chosen(name.to_owned()));
    }
    let mut offsets: BTreeMap<u64, Option<String>> = BTreeMap::new();
    for one in found {
        // The code behind the function is that of another one, which the policy may not name.
        if one.bytes != 0 && more >= one.bytes {
            return Err(ProbePointError::BehindFunction {
                name: name.to_owned(),
                offset: more,
                bytes: one.bytes,
            });
        }
        let start = image.code_at(one.address).map(|range| range.offset);
        let offset = start.and_then(|start| start.checked_add(more)).ok_or_else(|| none(&[]))?;
        let source = offsets.entry(offset).or_default();
        *source = source.take().or(one.source);
    }
    if offsets.len() > MAX_OFFSETS {
        return Err(ProbePointError::TooMany { name: name.to_owned(), most: MAX_OFFSETS });
    }
    let offsets = offsets.into_iter().map(|(offset, source)| NamedOffset { offset, source }).collect();
    Ok(NamedOffsets { offsets, copies: symbols.copies })
}

/// Keeps the symbols of a version or of a source file.
fn select(
    found: &mut Vec<FoundSymbol>,
    name: &str,
    of: &str,
    versions: &[String],
) -> Result<(), ProbePointError> {
    let is_version = versions.iter().any(|version| version == of);
    let label = |one: &FoundSymbol| if is_version { one.version.clone() } else { one.source.clone() };
    let mut known: Vec<String> = found.iter().filter_map(label).collect();
    if !is_version {
        known.extend(found.iter().filter_map(|one| one.version.clone()));
    }
    known.sort();
    known.dedup();
    found.retain(|one| {
        label(one).is_some_and(|label| if is_version { label == of } else { is_same_file(&label, of) })
    });
    if found.is_empty() {
        Err(ProbePointError::NoVersion { name: name.to_owned(), of: of.to_owned(), known })
    } else {
        Ok(())
    }
}

/// Whether two paths may name the same source file: one ends with the other.
fn is_same_file(one: &str, other: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    ends(one, other) || ends(other, one)
}

/// Facts from the symbol tables besides the symbols of a name.
#[derive(Debug, Default)]
struct Tables {
    /// Whether the name is imported from another file.
    is_imported: bool,
    /// Names of the versions that the file defines.
    versions: Vec<String>,
    /// Symbols of copies that take other arguments.
    copies: Vec<String>,
}

/// The meaning of the suffix that a compiler appends to a function's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    /// The function itself, renamed because several files define the name.
    Renamed,
    /// A copy for some of its callers, with other arguments.
    Copy,
    /// A part of the function, or an unknown suffix.
    Other,
}

/// Source: GCC, `clone_function_name` and `lto_symtab`; LLVM, `getGlobalNameForLocal` and
/// `FunctionSpecialization`.
fn suffix(text: &[u8]) -> Suffix {
    let parts = text.split(|byte| *byte == b'.').filter(|part| !part.iter().all(u8::is_ascii_digit));
    let mut found = Suffix::Other;
    for part in parts {
        found = match part {
            b"lto_priv" | b"llvm" if found != Suffix::Copy => Suffix::Renamed,
            b"lto_priv" | b"llvm" => found,
            b"constprop" | b"isra" | b"specialized" => Suffix::Copy,
            _ => return Suffix::Other,
        };
    }
    found
}

/// Adds the functions and labels with this name from all symbol tables.
fn look(image: &Image<'_>, name: &str, found: &mut Vec<FoundSymbol>) -> Result<Tables, ProbePointError> {
    let mut tables = Tables::default();
    for table in image.symbol_tables() {
        let versions: BTreeMap<u16, String> = image.versions(&table)?.into_iter().collect();
        tables.versions.extend(versions.values().cloned());
        let mut offsets = image.name_offsets(&table, name.as_bytes())?;
        let mut copies = BTreeMap::new();
        let beginning = image.names_beginning(&table, format!("{name}.").as_bytes(), MAX_COPIES)?;
        for (name_offset, rest) in beginning {
            match suffix(&rest) {
                Suffix::Renamed => offsets.push(name_offset),
                Suffix::Copy => _ = copies.insert(name_offset, rest),
                Suffix::Other => {}
            }
        }
        offsets.sort_unstable();
        if offsets.is_empty() && copies.is_empty() {
            continue;
        }
        let first = found.len();
        let mut source_names = Vec::new();
        // Local symbols follow the entry of their source file; global ones follow the local ones.
        let mut source = None;
        image.symbols(&table, |symbol| {
            match symbol.kind {
                SymbolKind::SourceFile => source = Some(symbol.name),
                _ if symbol.binding != Binding::Local => source = None,
                _ => {}
            }
            let is_code =
                matches!(symbol.kind, SymbolKind::Function | SymbolKind::Resolver | SymbolKind::Label);
            if is_code
                && symbol.is_defined
                && let Some(rest) = copies.get(&symbol.name)
            {
                tables.copies.push(format!("{name}.{}", String::from_utf8_lossy(rest)));
            }
            if is_code && offsets.binary_search(&symbol.name).is_ok() {
                tables.is_imported |= !symbol.is_defined;
                if symbol.is_defined && found.len() < MAX_FOUND {
                    let version = image.version(&table, symbol.index);
                    source_names.push(source);
                    found.push(FoundSymbol {
                        kind: symbol.kind,
                        address: symbol.address,
                        bytes: symbol.bytes,
                        is_current: version.is_none_or(|(_, is_current)| is_current),
                        version: version.and_then(|(number, _)| versions.get(&number).cloned()),
                        source: None,
                    });
                }
            }
            ControlFlow::Continue(())
        })?;
        for (one, source) in found[first..].iter_mut().zip(source_names) {
            let Some(source) = source else { continue };
            let text = image.name(&table, source)?;
            one.source = Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty());
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_names_are_classified() {
        for (text, expected) in [
            ("lto_priv.0", Suffix::Renamed),
            ("llvm.1234567", Suffix::Renamed),
            ("constprop.0", Suffix::Copy),
            ("isra.0.constprop.1", Suffix::Copy),
            ("lto_priv.0.isra.0", Suffix::Copy),
            ("constprop.0.cold", Suffix::Other),
            ("cold", Suffix::Other),
            ("part.0", Suffix::Other),
            ("0", Suffix::Other),
        ] {
            assert_eq!(suffix(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn paths_of_a_source_file_may_be_longer_or_shorter() {
        for (one, other) in
            [("a.c", "a.c"), ("src/a.c", "a.c"), ("a.c", "/home/src/a.c"), ("x/a.c", "/y/x/a.c")]
        {
            assert!(is_same_file(one, other), "{one} {other}");
        }
        for (one, other) in [("aa.c", "a.c"), ("a.c", "b.c"), ("x/a.c", "y/a.c")] {
            assert!(!is_same_file(one, other), "{one} {other}");
        }
    }
}
