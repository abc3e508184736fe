//! Maps: the variables of `.maps`, which are described by their struct types, and the older numeric
//! definitions.
//!
//! Source: tools/lib/bpf/libbpf.c, `parse_btf_map_def`, `bpf_object__init_user_btf_map` and
//! `bpf_object__collect_map_relos`, v1.7.

use std::collections::BTreeMap;

use super::super::error::{MapFault, ReadError, Reason, at_most};
use super::super::limits::MAX_ITEMS;
use super::super::model::{Map, MapId, MapInitSlot, MapShape, Pinning, ProgramId, Side, Type};
use super::super::name::Name;
use super::super::table::{MapKind, MapUse, flag, map_row};
use super::btf::RawTypes;
use super::btf::select::Selection;
use super::bytes::u32_at;
use super::data::{self, type_error};
use super::elf::{Binding, Elf, RelocationKind, Role, Symbol, SymbolKind, SymbolSection};
use crate::object::btf::{FwdKind, TypeId, VarLinkage};

/// Maps and their positions in the file.
#[derive(Default)]
pub(super) struct Maps {
    pub list: Vec<Map>,
    by_offset: BTreeMap<(usize, u64), MapId>,
}

impl Maps {
    /// Returns the map that starts at an offset.
    pub(super) fn at(&self, section: usize, offset: u64) -> Option<MapId> {
        self.by_offset.get(&(section, offset)).copied()
    }

    fn push(&mut self, section: usize, offset: u64, map: Map) -> Result<MapId, Reason> {
        at_most("maps", self.list.len() + 1, MAX_ITEMS)?;
        let id = MapId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        if self.by_offset.insert((section, offset), id).is_some() {
            return Err(fault(&map.name, MapFault::Definition("another map lies at its place")));
        }
        self.list.push(map);
        Ok(id)
    }
}

fn fault(name: &Name, fault: MapFault) -> Reason {
    Reason::Map { name: name.to_string(), fault }
}

/// Parses all maps. `program` returns the program that starts at an offset.
pub(super) fn read(
    elf: &Elf<'_>,
    types: Option<&RawTypes<'_>>,
    selection: &mut Selection<'_, '_>,
    program: &dyn Fn(usize, u64) -> Option<ProgramId>,
) -> Result<Maps, ReadError> {
    let mut maps = Maps::default();
    for (at, section) in elf.sections.iter().enumerate() {
        match section.role {
            Role::Maps if section.size > 0 => {
                let error = || {
                    ReadError::section(
                        section.name,
                        0,
                        Reason::TypeHeader("the maps have no types in `.BTF`"),
                    )
                };
                defined(elf, at, types.ok_or_else(error)?, selection, program, &mut maps)?;
            }
            Role::LegacyMaps => numbered(elf, at, &mut maps)?,
            _ => {}
        }
    }
    Ok(maps)
}

/// A map in `.maps` whose initial values are not resolved yet.
struct Defined {
    id: MapId,
    /// Start and end offsets in the section.
    start: u64,
    end: u64,
    /// Start offset of the initial values; none if the map has none.
    values: Option<u64>,
}

fn defined(
    elf: &Elf<'_>,
    at: usize,
    types: &RawTypes<'_>,
    selection: &mut Selection<'_, '_>,
    program: &dyn Fn(usize, u64) -> Option<ProgramId>,
    maps: &mut Maps,
) -> Result<(), ReadError> {
    let Some(section) = elf.section(at) else { return Ok(()) };
    let error = |offset: u64, reason| ReadError::section(section.name, offset, reason);
    if section.bytes.iter().any(|&byte| byte != 0) {
        return Err(error(0, Reason::Section("the definitions of maps are all zeros")));
    }
    let listed = types.section(section.name);
    let listed = listed.ok_or_else(|| error(0, Reason::TypeHeader("the maps have no types in `.BTF`")))?;
    at_most("maps", listed.entries.len(), MAX_ITEMS).map_err(|reason| error(0, reason))?;
    let mut entries = Vec::with_capacity(listed.entries.len());
    for entry in &listed.entries {
        entries.push((data::offset(elf, at, entry)?, entry));
    }
    entries.sort_by_key(|(offset, _)| *offset);
    let symbols = symbols(elf, at)?;
    let mut placed = Vec::with_capacity(entries.len());
    let mut last_end = 0;
    for (offset, entry) in entries {
        let (name, ty, linkage) = data::variable(types, entry)?;
        let wrong = |why| type_error(entry, fault(name, MapFault::Definition(why)));
        let symbol = symbols.get(&u64::from(offset)).filter(|symbol| symbol.name == name.as_str().as_bytes());
        if symbol.is_none() || linkage != VarLinkage::Global {
            return Err(wrong("it is not a global variable of `.maps` with a symbol"));
        }
        let (start, end) = (u64::from(offset), u64::from(offset) + u64::from(entry.bytes));
        if start < last_end || end > section.size {
            return Err(wrong("it shares bytes with another map, or lies outside of the section"));
        }
        last_end = end;
        let reader = Definition { types, selection, name };
        let (map, values) = reader.read(ty).map_err(|reason| type_error(entry, reason))?;
        let size = types.bytes(ty).unwrap_or(u32::MAX);
        if size > entry.bytes {
            return Err(wrong("its type is larger than it"));
        }
        let values = values.map(|offset| start + u64::from(offset));
        let id = maps.push(at, start, map).map_err(|reason| type_error(entry, reason))?;
        placed.push(Defined { id, start, end, values });
    }
    for (offset, relocation) in elf.relocations.of(at) {
        if !matches!(relocation.kind, RelocationKind::Data64 | RelocationKind::Wide) {
            return Err(error(offset, Reason::Relocation("of a kind that this section does not have")));
        }
        let symbol = elf.symbols.get(relocation.symbol);
        fill(elf, maps, &placed, offset, symbol, program).map_err(|reason| error(offset, reason))?;
    }
    Ok(())
}

/// Returns the variables of a section, by offset.
fn symbols<'e, 'a>(elf: &'e Elf<'a>, at: usize) -> Result<BTreeMap<u64, &'e Symbol<'a>>, ReadError> {
    let mut symbols = BTreeMap::new();
    for (index, symbol) in elf.symbols_of(at).filter(|(_, symbol)| symbol.kind == SymbolKind::Variable) {
        if symbol.binding == Binding::Local {
            return Err(elf.symbol_error(index, "is a static map, which libbpf refuses"));
        }
        if symbols.insert(symbol.value, symbol).is_some() {
            return Err(elf.symbol_error(index, "lies where another map does"));
        }
    }
    Ok(symbols)
}

/// Adds the program or map of a relocation to a map's initial values.
fn fill(
    elf: &Elf<'_>,
    maps: &mut Maps,
    placed: &[Defined],
    offset: u64,
    symbol: Option<&Symbol<'_>>,
    program: &dyn Fn(usize, u64) -> Option<ProgramId>,
) -> Result<(), Reason> {
    const NOT_INITIAL_VALUE: Reason = Reason::Relocation("not of an initial value of a map");
    let around =
        placed.partition_point(|one| one.start <= offset).checked_sub(1).and_then(|at| placed.get(at));
    let around = around.filter(|one| offset < one.end).ok_or(NOT_INITIAL_VALUE)?;
    let inside = around.values.and_then(|values| offset.checked_sub(values)).ok_or(NOT_INITIAL_VALUE)?;
    let key = u32::try_from(inside / 8).ok().filter(|_| inside.is_multiple_of(8)).ok_or(NOT_INITIAL_VALUE)?;
    let symbol = symbol.ok_or(NOT_INITIAL_VALUE)?;
    let SymbolSection::Section(section) = symbol.section else { return Err(NOT_INITIAL_VALUE) };
    let Some(map) = maps.list.get(around.id.index()) else { return Err(NOT_INITIAL_VALUE) };
    let slot = match map.shape.kind {
        MapKind::ProgArray if symbol.kind == SymbolKind::Function => {
            program(section, symbol.value).map(MapInitSlot::Program)
        }
        kind if kind.holds_maps() => maps.at(section, symbol.value).map(MapInitSlot::Map),
        _ => None,
    };
    let is_map = elf.section(section).is_some_and(|one| one.role == Role::Maps);
    let wrong = |why| fault(&map.name, MapFault::Values(why));
    let slot = match slot
        .ok_or_else(|| wrong("they are neither programs of an array of programs nor maps of a map of maps"))?
    {
        MapInitSlot::Map(inner) if inner == around.id => return Err(wrong("the map holds itself")),
        MapInitSlot::Map(_) if !is_map => return Err(wrong("they are maps of an older form")),
        slot => slot,
    };
    let entries = map.shape.entries;
    if entries != 0 && key >= entries {
        return Err(wrong("they are more than its entries"));
    }
    if map.shape.key.bytes() != 4 {
        return Err(wrong("its keys are not numbers"));
    }
    if let Some(map) = maps.list.get_mut(around.id.index()) {
        map.slots.insert(key, slot);
    }
    Ok(())
}

/// Parser of one map definition.
struct Definition<'d, 'a, 's, 'b> {
    types: &'d RawTypes<'a>,
    selection: &'d mut Selection<'s, 'b>,
    name: &'d Name,
}

/// Parsed members of a definition.
#[derive(Default)]
struct Members {
    kind: Option<u32>,
    entries: u32,
    flags: u32,
    numa_node: Option<u32>,
    key: (Option<u32>, Option<TypeId>),
    value: (Option<u32>, Option<TypeId>),
    pinning: u32,
    extra: u64,
    /// Offset of the initial values, and their pointee type.
    values: Option<(u32, TypeId)>,
}

impl Definition<'_, '_, '_, '_> {
    /// Returns the map, and the offset of its initial values.
    fn read(self, ty: TypeId) -> Result<(Map, Option<u32>), Reason> {
        let name = Name::new(self.name.as_str())?;
        let wrong = |fault| self::fault(&name, fault);
        let members = members(self.types, ty).map_err(&wrong)?;
        let (shape, inner) = self.shapes(&members).map_err(&wrong)?;
        let pinning = match members.pinning {
            0 => Pinning::None,
            1 => Pinning::ByName,
            other => return Err(wrong(MapFault::Pinning(other))),
        };
        let map = Map { name, shape, pinning, inner, slots: BTreeMap::new() };
        Ok((map, members.values.map(|(offset, _)| offset)))
    }

    fn shapes(self, members: &Members) -> Result<(MapShape, Option<MapShape>), MapFault> {
        let shape = shape(self.types, self.selection, members)?;
        let Some((_, target)) = members.values else {
            let needs_inner = shape.kind.holds_maps();
            return if needs_inner {
                Err(MapFault::Values("a map of maps does not tell what its values are"))
            } else {
                Ok((shape, None))
            };
        };
        if !shape.kind.holds_maps() {
            let is_signature = matches!(self.types.resolve(target), Some((_, Type::Signature { .. })));
            return if is_signature && shape.kind == MapKind::ProgArray {
                Ok((shape, None))
            } else {
                Err(MapFault::Values("its kind has none, or other ones"))
            };
        }
        let inner = self::members(self.types, target)?;
        if inner.values.is_some() || inner.pinning != 0 {
            return Err(MapFault::Values("an inner map is pinned, or holds maps itself"));
        }
        let inner = self::shape(self.types, self.selection, &inner)?;
        if inner.kind.holds_maps() {
            return Err(MapFault::Values("an inner map holds maps itself"));
        }
        Ok((shape, Some(inner)))
    }
}

/// Parses the members of a definition; each occurs at most once.
fn members(types: &RawTypes<'_>, ty: TypeId) -> Result<Members, MapFault> {
    let Some((_, Type::Composite { kind: FwdKind::Struct, members: list, .. })) = types.resolve(ty) else {
        return Err(MapFault::Definition("its type is not a struct"));
    };
    let mut members = Members::default();
    let mut seen = Vec::new();
    for (index, member) in list.iter().enumerate() {
        let name = member.name.as_ref().map_or("", Name::as_str);
        let wrong = || MapFault::Member(name.to_owned());
        let number = || number(types, member.ty).ok_or_else(wrong);
        let target = || match types.resolve(member.ty) {
            Some((_, Type::Pointer(to))) => Ok(*to),
            _ => Err(wrong()),
        };
        if seen.contains(&name) || member.bits != 0 {
            return Err(wrong());
        }
        seen.push(name);
        match name {
            "type" => members.kind = Some(number()?),
            "max_entries" => members.entries = number()?,
            "map_flags" => members.flags = number()?,
            "numa_node" => members.numa_node = Some(number()?),
            "pinning" => members.pinning = number()?,
            "key_size" => members.key.0 = Some(number()?),
            "value_size" => members.value.0 = Some(number()?),
            "key" => members.key.1 = Some(target()?),
            "value" => members.value.1 = Some(target()?),
            "map_extra" => members.extra = long(types, member.ty).ok_or_else(wrong)?,
            "values" if index + 1 == list.len() => {
                let Some((_, Type::Array { element, len: 0 })) = types.resolve(member.ty) else {
                    return Err(wrong());
                };
                let Some((_, Type::Pointer(to))) = types.resolve(*element) else { return Err(wrong()) };
                members.values = Some((member.bit_offset / 8, *to));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(members)
}

/// Returns the number of `int (*NAME)[NUMBER]`.
fn number(types: &RawTypes<'_>, ty: TypeId) -> Option<u32> {
    let Type::Pointer(to) = types.resolve(ty)?.1 else { return None };
    match types.resolve(*to)?.1 {
        Type::Array { len, .. } => Some(*len),
        _ => None,
    }
}

/// Returns a number as above, or that of an enum of one value.
fn long(types: &RawTypes<'_>, ty: TypeId) -> Option<u64> {
    match types.resolve(ty)?.1 {
        Type::Enum { values, .. } => match &values[..] {
            [(_, value)] => Some(value.cast_unsigned()),
            _ => None,
        },
        _ => number(types, ty).map(u64::from),
    }
}

/// Checks a definition against the table of kinds.
fn shape(
    types: &RawTypes<'_>,
    selection: &mut Selection<'_, '_>,
    members: &Members,
) -> Result<MapShape, MapFault> {
    let number = members.kind.ok_or(MapFault::UnknownKind(0))?;
    let mut side = |(bytes, ty): (Option<u32>, Option<TypeId>)| match (bytes, ty) {
        (None, None) | (Some(0), None) => Ok(Side::Nothing),
        (Some(bytes), None) => Ok(Side::Bytes(bytes)),
        (bytes, Some(ty)) => {
            let size = types.bytes(ty).ok_or(MapFault::Definition("its keys or values have no size"))?;
            let is_same = bytes.is_none_or(|bytes| bytes == size);
            if is_same {
                Ok(Side::Typed { ty: selection.keep(ty), bytes: size })
            } else {
                Err(MapFault::Conflict)
            }
        }
    };
    let (key, mut value) = (side(members.key)?, side(members.value)?);
    let raw = RawShape {
        number,
        entries: members.entries,
        flags: members.flags,
        numa_node: members.numa_node,
        extra: members.extra,
    };
    if members.values.is_some() && value == Side::Nothing {
        value = Side::Bytes(4);
    }
    raw.check(key, value)
}

/// Unchecked numbers of a definition.
struct RawShape {
    number: u32,
    entries: u32,
    flags: u32,
    numa_node: Option<u32>,
    extra: u64,
}

impl RawShape {
    fn check(self, key: Side, value: Side) -> Result<MapShape, MapFault> {
        let row = map_row(self.number).ok_or(MapFault::UnknownKind(self.number))?;
        let kind = match row.usage {
            MapUse::Allowed(kind) | MapUse::NeedsClass(kind, _) => kind,
            MapUse::Refused(reason) => return Err(MapFault::RefusedKind { kind: row.name, reason }),
        };
        if self.flags & !row.flags != 0 {
            return Err(MapFault::Flags(self.flags));
        }
        // The loader sets a size of 0: libbpf's tools do so for stack traces and perf buffers.
        if !row.key.allows(key.bytes()) && key.bytes() != 0 {
            return Err(MapFault::KeySize(key.bytes()));
        }
        if !row.value.allows(value.bytes()) && value.bytes() != 0 {
            return Err(MapFault::ValueSize(value.bytes()));
        }
        if !row.entries.allows(self.entries) && self.entries != 0 {
            return Err(MapFault::Entries(self.entries));
        }
        let has_node = self.flags & flag::NUMA_NODE != 0;
        let bloom_hashes = match (kind, self.extra) {
            (_, 0) => None,
            (MapKind::BloomFilter, hashes @ 1..=15) => u8::try_from(hashes).ok(),
            (_, extra) => return Err(MapFault::Extra(extra)),
        };
        Ok(MapShape {
            kind,
            key,
            value,
            entries: self.entries,
            flags: self.flags,
            numa_node: self.numa_node.filter(|_| has_node),
            bloom_hashes,
        })
    }
}

/// Parses definitions of five numbers (libbpf before 1.0), or seven (Aya): kind, bytes of keys and values,
/// entries, flags, then an id and the pinning mode.
///
/// Source: aya-ebpf-bindings, `bpf_map_def`; aya-obj, src/maps.rs, `bpf_map_def` (0.2).
fn numbered(elf: &Elf<'_>, at: usize, maps: &mut Maps) -> Result<(), ReadError> {
    let Some(section) = elf.section(at) else { return Ok(()) };
    for (&offset, symbol) in &symbols(elf, at)? {
        let error = |reason| ReadError::section(section.name, offset, reason);
        let name = Name::from_bytes(symbol.name).map_err(|reason| error(reason.into()))?;
        let wrong = |fault| error(self::fault(&name, fault));
        let bytes = super::bytes::slice(section.bytes, offset, symbol.size).unwrap_or_default();
        let field = |index: usize| u32_at(bytes, 4 * index);
        let is_known = matches!(bytes.len(), 20 | 28) && field(5).is_none_or(|id| id == 0);
        let (true, Some(number), Some(key), Some(value), Some(entries), Some(flags)) =
            (is_known, field(0), field(1), field(2), field(3), field(4))
        else {
            return Err(wrong(MapFault::Definition(
                "it is not a list of five numbers, or of seven with the id 0",
            )));
        };
        let pinning = match field(6).unwrap_or_default() {
            0 => Pinning::None,
            1 => Pinning::ByName,
            other => return Err(wrong(MapFault::Pinning(other))),
        };
        let side = |bytes: u32| if bytes == 0 { Side::Nothing } else { Side::Bytes(bytes) };
        let raw = RawShape { number, entries, flags, numa_node: None, extra: 0 };
        let shape = raw.check(side(key), side(value)).map_err(wrong)?;
        if shape.kind.holds_maps() {
            return Err(wrong(MapFault::Values("a map of maps does not tell what its values are")));
        }
        let map = Map { name, shape, pinning, inner: None, slots: BTreeMap::new() };
        maps.push(at, offset, map).map_err(error)?;
    }
    Ok(())
}
