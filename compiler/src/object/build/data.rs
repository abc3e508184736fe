//! Global variables: their offsets in `.data`, `.bss` and `.rodata`.

use std::collections::BTreeMap;

use super::{BuildError, DataSection, GlobalDef, to_u32};
use crate::object::btf::{BtfBuilder, DatasecEntry, VarLinkage};

/// The final data sections.
pub(super) struct Data {
    pub sections: BTreeMap<DataSection, Section>,
    /// Offset of each variable in its section, in bytes.
    pub offsets: Vec<u32>,
}

pub(super) struct Section {
    pub bytes: u32,
    pub align: u32,
    /// Initial values; empty for `.bss`.
    pub initial: Vec<u8>,
    entries: Vec<DatasecEntry>,
}

impl DataSection {
    pub(super) const fn name(self) -> &'static str {
        match self {
            DataSection::Data => ".data",
            DataSection::Bss => ".bss",
            DataSection::Pinned => ".data.pinned",
            DataSection::Rodata => ".rodata",
        }
    }
}

pub(super) fn lay_out(btf: &mut BtfBuilder, globals: &[GlobalDef]) -> Result<Data, BuildError> {
    let mut data = Data { sections: BTreeMap::new(), offsets: Vec::with_capacity(globals.len()) };
    for global in globals {
        check(global)?;
        let section = data.sections.entry(global.section).or_insert_with(|| Section {
            bytes: 0,
            align: 1,
            initial: Vec::new(),
            entries: Vec::new(),
        });
        let offset = section.append(global)?;
        let var = btf.var(&global.name, global.ty, VarLinkage::Global);
        section.entries.push(DatasecEntry { var, offset, size: global.bytes });
        data.offsets.push(offset);
    }
    for (kind, section) in &data.sections {
        btf.datasec(kind.name(), section.bytes, &section.entries);
    }
    Ok(data)
}

impl Section {
    /// Appends a variable and returns its offset.
    fn append(&mut self, global: &GlobalDef) -> Result<u32, BuildError> {
        let offset = self.bytes.checked_next_multiple_of(global.align).ok_or(BuildError::TooLarge)?;
        self.bytes = offset.checked_add(global.bytes).ok_or(BuildError::TooLarge)?;
        self.align = self.align.max(global.align);
        if global.section != DataSection::Bss {
            self.initial.resize(offset as usize, 0);
            self.initial.extend_from_slice(&global.initial);
            self.initial.resize(self.bytes as usize, 0);
        }
        Ok(offset)
    }
}

fn check(global: &GlobalDef) -> Result<(), BuildError> {
    let initial = to_u32(global.initial.len())?;
    let reason = if global.bytes == 0 {
        "has no bytes"
    } else if !global.align.is_power_of_two() {
        "has an alignment that is not a power of two"
    } else if initial > global.bytes {
        "has more initial bytes than bytes"
    } else if global.section == DataSection::Bss && initial != 0 {
        "has initial bytes in .bss"
    } else {
        return Ok(());
    };
    Err(BuildError::Global { name: global.name.clone(), reason })
}
