//! Global variables of an object and their positions in its data sections.

use std::collections::BTreeMap;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::DataSection;
use ks_wit::object::PINNED_SECTION;

/// A global variable: its section, offset and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub(super) name: String,
    pub(super) section: String,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Variable {
    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the offset from the start of the variable's section in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether the variable is accessed by one load or store of its natural width.
    pub fn is_scalar(&self) -> bool {
        matches!(self.size, 1 | 2 | 4 | 8) && self.offset.is_multiple_of(self.size)
    }

    /// Returns whether the variable is pinned. Once the object is loaded, the value is the pin's.
    pub fn is_pinned(&self) -> bool {
        self.section == PINNED_SECTION
    }

    /// Returns whether the verifier treats the variable as a constant.
    pub(super) fn is_constant(&self) -> bool {
        belongs_to(&self.section, ".rodata")
    }
}

/// Returns all global variables of an object, by name.
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

/// Returns whether libbpf creates a global data map for this section.
pub(super) fn is_global_data(section: &str) -> bool {
    [".data", ".bss", ".rodata"].iter().any(|kind| belongs_to(section, kind))
}

/// `.data` and `.data.name` are both of kind `.data`.
fn belongs_to(section: &str, kind: &str) -> bool {
    section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
