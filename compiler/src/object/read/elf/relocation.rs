//! Relocations: at most one at an offset, of a kind that is valid there.

use std::collections::BTreeMap;

use super::super::super::error::{ReadError, Reason, at_most};
use super::super::super::limits::MAX_RELOCATIONS;
use super::super::bytes::u64_at;
use super::section::ReadErrorAt as _;
use super::{Elf, Role, Section};

/// Size in bytes of `Elf64_Rel`.
const RELOCATION_BYTES: usize = 16;

/// A relocation against a symbol.
#[derive(Clone, Copy)]
pub(in super::super) struct Relocation {
    pub kind: RelocationKind,
    /// Index in the symbol table.
    pub symbol: usize,
}

/// Kind of a relocation. Source: Documentation/bpf/llvm_reloc.rst, v6.18.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum RelocationKind {
    /// `R_BPF_64_64`: a wide load.
    Wide,
    /// `R_BPF_64_ABS64`: eight bytes of data.
    Data64,
    /// `R_BPF_64_ABS32` and `R_BPF_64_NODYLD32`: four bytes of type information.
    Data32,
    /// `R_BPF_64_32`: a call.
    Call,
}

/// Relocations of all sections, by section and offset.
#[derive(Default)]
pub(in super::super) struct Relocations(BTreeMap<(usize, u64), Relocation>);

impl Relocations {
    /// Returns the relocation at an offset.
    pub(in super::super) fn at(&self, section: usize, offset: u64) -> Option<Relocation> {
        self.0.get(&(section, offset)).copied()
    }

    /// Returns the relocations of a section, by offset.
    pub(in super::super) fn of(&self, section: usize) -> impl Iterator<Item = (u64, Relocation)> {
        let all = self.0.range((section, 0)..=(section, u64::MAX));
        all.map(|(&(_, offset), &relocation)| (offset, relocation))
    }
}

pub(super) fn read(elf: &Elf<'_>) -> Result<Relocations, ReadError> {
    let mut relocations = Relocations::default();
    for table in elf.sections.iter().filter(|section| section.role == Role::Relocations) {
        let target = elf.section(table.info).filter(|target| target.role != Role::None);
        let target = target.ok_or_else(|| table.error(0, Reason::Relocation("of no section")))?;
        if target.role == Role::Ignored {
            continue;
        }
        if table.name.strip_prefix(".rel") != Some(target.name) {
            return Err(table.error(0, Reason::Relocation("the table's name is not that of its section")));
        }
        let (entries, rest) = table.bytes.as_chunks::<RELOCATION_BYTES>();
        if table.entry_bytes != RELOCATION_BYTES as u64 || !rest.is_empty() {
            return Err(table.error(0, Reason::Relocation("the table's entries are not relocations")));
        }
        if elf.symbol_section == 0 || table.link != elf.symbol_section {
            return Err(table.error(0, Reason::Relocation("of another table of symbols")));
        }
        at_most("relocations", relocations.0.len().saturating_add(entries.len()), MAX_RELOCATIONS)
            .map_err(|reason| table.error(0, reason))?;
        for (index, entry) in entries.iter().enumerate() {
            let error = |reason| table.error((index * RELOCATION_BYTES) as u64, reason);
            let (offset, relocation) = relocation(elf, target, entry).map_err(error)?;
            if relocations.0.insert((table.info, offset), relocation).is_some() {
                return Err(target.error(offset, Reason::SecondRelocation));
            }
        }
    }
    Ok(relocations)
}

fn relocation(
    elf: &Elf<'_>,
    target: &Section<'_>,
    entry: &[u8; RELOCATION_BYTES],
) -> Result<(u64, Relocation), Reason> {
    let cut_off = Reason::Relocation("is cut off");
    let offset = u64_at(entry, 0).ok_or(cut_off.clone())?;
    let info = u64_at(entry, 8).ok_or(cut_off)?;
    let kind = match info & 0xffff_ffff {
        1 => RelocationKind::Wide,
        2 => RelocationKind::Data64,
        3 | 4 => RelocationKind::Data32,
        10 => RelocationKind::Call,
        _ => return Err(Reason::Relocation("of a kind that BPF does not have")),
    };
    // Number of bytes that the relocation changes, and alignment of its offset.
    let (bytes, unit) = match (&target.role, kind) {
        (Role::Programs { .. } | Role::Subprograms, RelocationKind::Wide) => (16, 8),
        (Role::Programs { .. } | Role::Subprograms, RelocationKind::Call) => (8, 8),
        // Before LLVM 12, addresses in data used the kind of wide loads.
        (Role::Maps | Role::StructOps { .. }, RelocationKind::Data64 | RelocationKind::Wide) => (8, 8),
        (Role::Types | Role::TypesOfCode, RelocationKind::Data32) => (4, 4),
        (Role::Data(_) | Role::LegacyMaps, _) => {
            return Err(Reason::Relocation(
                "addresses in variables are not known before the load: no loader fills them in",
            ));
        }
        _ => return Err(Reason::Relocation("of a kind that this section does not have")),
    };
    if !offset.is_multiple_of(unit) {
        return Err(Reason::Relocation("its place is not aligned"));
    }
    if offset.checked_add(bytes).is_none_or(|end| end > target.bytes.len() as u64) {
        return Err(Reason::Relocation("its place lies outside of the section"));
    }
    let symbol = usize::try_from(info >> 32).ok().filter(|&symbol| symbol != 0 && symbol < elf.symbols.len());
    let symbol = symbol.ok_or(Reason::Relocation("of a symbol that does not exist"))?;
    Ok((offset, Relocation { kind, symbol }))
}
