//! Global variables: where the ELF file says they are.

use std::collections::BTreeMap;

use ks_wit::object::PINNED_SECTION;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use super::error::BpfError;
use super::object::{MAX_NAME_BYTES, name_too_long};

/// Where a global variable lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub(super) name: String,
    pub(super) section: String,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Variable {
    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes from the start of its section.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether it can be read and written by one access of its natural width.
    pub fn is_scalar(&self) -> bool {
        matches!(self.size, 1 | 2 | 4 | 8) && self.offset.is_multiple_of(self.size)
    }

    /// Whether it is a pinned one: its value is that of the pin, once the object is loaded.
    pub fn is_pinned(&self) -> bool {
        self.section == PINNED_SECTION
    }

    /// Whether programs take it for a constant.
    pub(super) fn is_constant(&self) -> bool {
        belongs_to(&self.section, ".rodata")
    }
}

/// All global variables of an object, by name.
///
/// # Errors
/// [`BpfError::Unsound`] if a symbol lies outside its section.
pub(super) fn variables(elf: &ElfFile64<'_, LittleEndian>) -> Result<BTreeMap<String, Variable>, BpfError> {
    let mut found = BTreeMap::new();
    for symbol in elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0) {
        let Some(section) = symbol.section_index().and_then(|index| elf.section_by_index(index).ok()) else {
            continue;
        };
        let (Ok(name), Ok(section_name)) = (symbol.name(), section.name()) else {
            return Err(BpfError::Unsound("a symbol or section has a name that is no text".into()));
        };
        if !is_global_data(section_name) {
            continue;
        }
        if name.len().max(section_name.len()) > MAX_NAME_BYTES {
            return Err(name_too_long());
        }
        let inside = symbol.address().checked_add(symbol.size()).is_some_and(|end| end <= section.size());
        let (Ok(offset), Ok(size), true) =
            (usize::try_from(symbol.address()), usize::try_from(symbol.size()), inside)
        else {
            return Err(BpfError::Unsound(format!("variable `{name}` lies outside `{section_name}`")));
        };
        let variable = Variable { name: name.into(), section: section_name.into(), offset, size };
        found.insert(name.into(), variable);
    }
    Ok(found)
}

/// Whether libbpf makes a global data map of this section.
pub(super) fn is_global_data(section: &str) -> bool {
    [".data", ".bss", ".rodata"].iter().any(|kind| belongs_to(section, kind))
}

/// `.data` and `.data.name` belong to `.data`.
fn belongs_to(section: &str, kind: &str) -> bool {
    section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
