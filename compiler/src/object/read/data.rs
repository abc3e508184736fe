//! Parsing of the sections of variables.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::error::{ReadError, Reason, TypeFault};
use super::super::limits::MAX_VALUE_BYTES;
use super::super::model::{DataContent, DataId, DataKind, DataSection, Linkage, Variable};
use super::super::name::{Name, visible};
use super::btf::select::Selection;
use super::btf::{RawEntry, RawType, RawTypes};
use super::elf::{Binding, Elf, RelocationKind, Role, Section, Symbol, SymbolKind, SymbolSection};
use crate::object::btf::{TypeId, VarLinkage};

/// Sections of variables, and their indices in the file.
pub(super) struct Data {
    pub list: Vec<DataSection>,
    pub by_section: BTreeMap<usize, (DataId, u32)>,
}

/// Parses the sections of variables.
pub(super) fn read(
    elf: &Elf<'_>,
    types: Option<&RawTypes<'_>>,
    selection: &mut Selection<'_, '_>,
) -> Result<Data, ReadError> {
    let mut data = Data { list: Vec::new(), by_section: BTreeMap::new() };
    for (at, section) in elf.sections.iter().enumerate() {
        let Role::Data(kind) = section.role else { continue };
        // libbpf skips empty ones.
        if section.size == 0 {
            continue;
        }
        let error = |reason| ReadError::section(section.name, 0, reason);
        let bytes = u32::try_from(section.size).ok().filter(|&bytes| bytes <= MAX_VALUE_BYTES);
        let bytes = bytes.ok_or_else(|| {
            error(Reason::TooMany {
                what: "bytes of variables",
                found: section.size,
                limit: MAX_VALUE_BYTES.into(),
            })
        })?;
        let content = match kind {
            DataKind::Bss => DataContent::Zeros(bytes),
            DataKind::Data | DataKind::Rodata => DataContent::Bytes(section.bytes.to_vec()),
        };
        let suffix = section.name.strip_prefix(kind.section()).and_then(|rest| rest.strip_prefix('.'));
        let suffix = suffix.map(Name::suffix).transpose().map_err(|reason| error(reason.into()))?;
        let variables = variables(elf, at, section, types, selection)?;
        let id = DataId(u32::try_from(data.list.len()).unwrap_or(u32::MAX));
        data.by_section.insert(at, (id, bytes));
        data.list.push(DataSection { kind, suffix, content, variables });
    }
    Ok(data)
}

/// Returns the variables of a section: its symbols, with the types of `.BTF`.
fn variables(
    elf: &Elf<'_>,
    at: usize,
    section: &Section<'_>,
    types: Option<&RawTypes<'_>>,
    selection: &mut Selection<'_, '_>,
) -> Result<Vec<Variable>, ReadError> {
    let mut variables: BTreeMap<(u32, Name), FoundVariable> = BTreeMap::new();
    for (_, symbol) in elf.symbols_of(at) {
        if symbol.kind != SymbolKind::Variable || symbol.size == 0 {
            continue;
        }
        let error = |reason: Reason| ReadError::section(section.name, symbol.value, reason);
        let name = Name::sanitised(symbol.name).map_err(|reason| error(reason.into()))?;
        let offset = u32::try_from(symbol.value).unwrap_or(u32::MAX);
        let bytes = u32::try_from(symbol.size).unwrap_or(u32::MAX);
        let linkage = linkage(symbol);
        let variable =
            Variable { name: name.clone(), offset, bytes, linkage, ty: None, attributes: Vec::new() };
        if variables
            .insert((offset, name), FoundVariable { variable, is_local: symbol.binding == Binding::Local })
            .is_some()
        {
            return Err(error(Reason::NameTwice(visible(&String::from_utf8_lossy(symbol.name)))));
        }
    }
    if let Some((types, typed)) = types.and_then(|types| Some((types, types.section(section.name)?))) {
        let by_name: HashMap<Name, u32> = variables.keys().map(|(at, name)| (name.clone(), *at)).collect();
        for entry in &typed.entries {
            add_type(elf, at, section, types, entry, &mut variables, &by_name)?;
        }
    }
    let mut variables: Vec<_> = variables.into_values().map(|found| found.variable).collect();
    check_overlaps(section, &variables)?;
    for variable in &mut variables {
        variable.ty = variable.ty.map(|ty| selection.keep(ty));
    }
    Ok(variables)
}

/// A variable, with the binding of its symbol.
struct FoundVariable {
    variable: Variable,
    is_local: bool,
}

fn linkage(symbol: &Symbol<'_>) -> Linkage {
    let is_global = symbol.binding != Binding::Local && !symbol.is_hidden;
    if is_global { Linkage::Global } else { Linkage::Static }
}

/// Adds the type that a `.BTF` entry has for a variable. A variable without a symbol is static.
fn add_type(
    elf: &Elf<'_>,
    at: usize,
    section: &Section<'_>,
    types: &RawTypes<'_>,
    entry: &RawEntry,
    variables: &mut BTreeMap<(u32, Name), FoundVariable>,
    by_name: &HashMap<Name, u32>,
) -> Result<(), ReadError> {
    let Some(RawType::Var { name, ty, linkage: declared }) = types.get(entry.var) else {
        let fault = TypeFault::Reference(entry.var.0);
        return Err(type_error(entry, Reason::Type { id: entry.var.0, fault }));
    };
    let error = |reason| type_error(entry, Reason::Variable { name: name.to_string(), reason });
    let bytes = types.bytes(*ty).ok_or_else(|| error("its type has no size"))?;
    let offset = offset(elf, at, entry)?;
    let is_static = match declared {
        VarLinkage::Static => true,
        VarLinkage::Global => false,
        VarLinkage::Extern => return Err(error("it is of the kernel, and lies in a section of the object")),
    };
    let key = (offset, name.clone());
    if !variables.contains_key(&key) {
        if !is_static || by_name.contains_key(name) {
            return Err(error("its type and its symbol are at two places, or there is no symbol"));
        }
        let variable = Variable {
            name: name.clone(),
            offset,
            bytes: entry.bytes,
            linkage: Linkage::Static,
            ty: None,
            attributes: Vec::new(),
        };
        variables.insert(key.clone(), FoundVariable { variable, is_local: true });
    }
    let Some(FoundVariable { variable, is_local }) = variables.get_mut(&key) else { return Ok(()) };
    let end = u64::from(offset) + u64::from(entry.bytes);
    if entry.bytes == 0 || entry.bytes != variable.bytes || bytes > entry.bytes || end > section.size {
        return Err(error("its type is larger than it, or it lies outside of its section"));
    }
    if variable.ty.is_some() {
        return Err(error("it has two types"));
    }
    match (is_static, *is_local) {
        (false, true) => return Err(error("it is global, and its symbol is not")),
        (true, _) => variable.linkage = Linkage::Static,
        (false, false) => {}
    }
    variable.ty = Some(*ty);
    let mut attributes = types.notes(entry.var);
    variable.attributes = attributes.drain(..).map(|(_, attribute)| attribute).collect();
    Ok(())
}

/// Creates an error in `.BTF`, at the entry of a variable.
pub(super) fn type_error(entry: &RawEntry, reason: Reason) -> ReadError {
    ReadError::section(".BTF", entry.reloc_offset, reason)
}

/// Returns the offset of a variable: the entry's number plus its relocation. clang leaves 0 for variables
/// with a symbol.
pub(super) fn offset(elf: &Elf<'_>, section: usize, entry: &RawEntry) -> Result<u32, ReadError> {
    let Some(relocation) = elf.type_relocation(entry.reloc_offset) else { return Ok(entry.offset) };
    let error = || type_error(entry, Reason::Relocation("of a variable's offset leads to another section"));
    let symbol = elf.symbols.get(relocation.symbol).ok_or_else(error)?;
    if relocation.kind != RelocationKind::Data32 || symbol.section != SymbolSection::Section(section) {
        return Err(error());
    }
    let offset = symbol.value.checked_add(entry.offset.into()).and_then(|offset| u32::try_from(offset).ok());
    offset.ok_or_else(error)
}

fn check_overlaps(section: &Section<'_>, variables: &[Variable]) -> Result<(), ReadError> {
    for pair in variables.windows(2) {
        if let [one, other] = pair
            && u64::from(one.offset) + u64::from(one.bytes) > u64::from(other.offset)
        {
            let reason = "it shares bytes with another variable";
            let reason = Reason::Variable { name: other.name.to_string(), reason };
            return Err(ReadError::section(section.name, other.offset.into(), reason));
        }
    }
    Ok(())
}

/// Checks that every relocation of `.BTF` applies to a variable's offset.
pub(super) fn check_relocations(elf: &Elf<'_>, types: &RawTypes<'_>) -> Result<(), ReadError> {
    let Some(at) = elf.sections.iter().position(|section| section.role == Role::Types) else { return Ok(()) };
    let reloc_offsets: HashSet<u64> = types
        .sections()
        .flat_map(|(_, section)| section.entries.iter().map(|entry| entry.reloc_offset))
        .collect();
    match elf.relocations.of(at).find(|(offset, _)| !reloc_offsets.contains(offset)) {
        Some((offset, _)) => Err(ReadError::section(
            ".BTF",
            offset,
            Reason::Relocation("of something other than the offset of a variable"),
        )),
        None => Ok(()),
    }
}

/// Checks that each section with variables in `.BTF` occurs once and is one of the file's or one of the two
/// kernel ones.
pub(super) fn check_sections(elf: &Elf<'_>, types: &RawTypes<'_>) -> Result<(), ReadError> {
    let mut left: HashSet<&str> = elf.sections.iter().map(|section| section.name).collect();
    left.extend([".ksyms", ".kconfig"]);
    for (at, section) in types.sections() {
        if !left.remove(section.name.as_str()) {
            let reason = "variables of a section that does not exist, or a second list of them";
            return Err(ReadError::section(".BTF", at, Reason::TypeHeader(reason)));
        }
    }
    Ok(())
}

/// Returns name, type and linkage of an entry's variable.
pub(super) fn variable<'t>(
    types: &'t RawTypes<'_>,
    entry: &RawEntry,
) -> Result<(&'t Name, TypeId, VarLinkage), ReadError> {
    match types.get(entry.var) {
        Some(RawType::Var { name, ty, linkage }) => Ok((name, *ty, *linkage)),
        _ => {
            Err(type_error(entry, Reason::Type { id: entry.var.0, fault: TypeFault::Reference(entry.var.0) }))
        }
    }
}
