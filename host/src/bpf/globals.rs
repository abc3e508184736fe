//! Global variables: where the object says they are.

use std::collections::BTreeMap;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::DataSection;
use ks_wit::object::PINNED_SECTION;

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
pub(super) fn variables(model: &Model) -> BTreeMap<String, Variable> {
    let of_section = |section: &DataSection| {
        let named = section.name();
        let variables = section.variables.iter().map(move |one| Variable {
            name: one.name.as_str().to_owned(),
            section: named.clone(),
            offset: one.offset as usize,
            size: one.bytes as usize,
        });
        variables.collect::<Vec<_>>()
    };
    model.data.iter().flat_map(of_section).map(|one| (one.name.clone(), one)).collect()
}

/// Whether libbpf makes a global data map of this section.
pub(super) fn is_global_data(section: &str) -> bool {
    [".data", ".bss", ".rodata"].iter().any(|kind| belongs_to(section, kind))
}

/// `.data` and `.data.name` belong to `.data`.
fn belongs_to(section: &str, kind: &str) -> bool {
    section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
