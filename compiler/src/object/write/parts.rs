//! Parts other than code: the types of maps, variables, structs, functions and externs, and their offsets in
//! their sections.

use super::super::model::{
    Body, Kconfig, KconfigType, KsymKind, Linkage, Map, MapShape, Object, Pinning, Side, StructOps,
};
use super::types::Table;
use super::{KernelFunctionIds, WriteError, small};
use crate::object::btf::{FuncLinkage, IntEncoding, TypeId, VarLinkage};

/// Offsets of parts, and types of functions.
#[derive(Default)]
pub(super) struct Layout {
    /// Offset and size of each map in `.maps`.
    pub maps: Vec<(u32, u32)>,
    pub maps_bytes: u32,
    /// Offset in bytes of each map's initial values from the map's start.
    pub values: Vec<u32>,
    /// Sections of struct_ops variables.
    pub structs: Vec<StructSection>,
    /// `FUNC` of each program, and of each subprogram.
    pub programs: Vec<Option<TypeId>>,
    pub subprograms: Vec<Option<TypeId>>,
}

/// A section of struct_ops variables.
pub(super) struct StructSection {
    pub name: &'static str,
    /// Position in the object, offset and size of each struct.
    pub placements: Vec<(usize, u32, u32)>,
    pub bytes: u32,
}

const POINTER_BYTES: u32 = 8;
/// Alignment in bytes of the structs: no member needs more.
pub(super) const STRUCT_ALIGN: u32 = 8;

/// Adds the parts to the table of types.
pub(super) fn describe(
    object: &Object,
    table: &mut Table,
    functions: &KernelFunctionIds,
) -> Result<Layout, WriteError> {
    let mut layout = Layout::default();
    maps(&object.maps, table, &mut layout)?;
    variables(object, table)?;
    structs(object, table, &mut layout)?;
    kconfig(&object.kconfig, table)?;
    ksyms(object, table, functions)?;
    for program in &object.programs {
        let func =
            function(&program.body, table, |table, ty| table.func(&program.name, ty, FuncLinkage::Global));
        layout.programs.push(func?);
    }
    for one in &object.subprograms {
        let linkage = match one.linkage {
            Linkage::Static => FuncLinkage::Static,
            Linkage::Global => FuncLinkage::Global,
        };
        let func = function(&one.body, table, |table, ty| table.func(&one.name, ty, linkage));
        layout.subprograms.push(func?);
    }
    Ok(layout)
}

fn function(
    body: &Body,
    table: &mut Table,
    func: impl FnOnce(&mut Table, TypeId) -> Result<TypeId, WriteError>,
) -> Result<Option<TypeId>, WriteError> {
    let Some(signature) = body.signature else { return Ok(None) };
    let id = func(table, signature)?;
    for note in &body.notes {
        table.decl_tag(note.attribute.as_str(), id, note.param)?;
    }
    Ok(Some(id))
}

fn maps(maps: &[Map], table: &mut Table, layout: &mut Layout) -> Result<(), WriteError> {
    let mut entries = Vec::with_capacity(maps.len());
    for map in maps {
        let (ty, bytes) = map_type(map, table)?;
        // The elements of the flexible last member follow the struct.
        let slots = map
            .slots
            .keys()
            .next_back()
            .map_or(Some(0), |last| last.checked_add(1)?.checked_mul(POINTER_BYTES));
        let size = slots.and_then(|slots| slots.checked_add(bytes)).ok_or(WriteError::TooLarge)?;
        let var = table.var(&map.name, ty, VarLinkage::Global)?;
        entries.push([var.0, layout.maps_bytes, size]);
        layout.maps.push((layout.maps_bytes, size));
        layout.values.push(bytes);
        layout.maps_bytes = layout.maps_bytes.checked_add(size).ok_or(WriteError::TooLarge)?;
    }
    if !entries.is_empty() {
        table.section(".maps", layout.maps_bytes, &entries)?;
    }
    Ok(())
}

/// Returns the struct of a definition, and its size.
fn map_type(map: &Map, table: &mut Table) -> Result<(TypeId, u32), WriteError> {
    let mut members = shape(&map.shape, table)?;
    if map.pinning == Pinning::ByName {
        members.push(("pinning", table.number(LIBBPF_PIN_BY_NAME)?));
    }
    let bytes = small(members.len())? * POINTER_BYTES;
    let inner = match &map.inner {
        Some(inner) => {
            let members = shape(inner, table)?;
            Some(table.definition(&members, small(members.len())? * POINTER_BYTES)?)
        }
        None if !map.slots.is_empty() => Some(table.empty_signature()?),
        None => None,
    };
    if let Some(inner) = inner {
        let pointer = table.pointer(inner)?;
        members.push(("values", table.array(pointer, 0)?));
    }
    Ok((table.definition(&members, bytes)?, bytes))
}

/// Source: tools/lib/bpf/libbpf.h, `enum libbpf_pin_type`, v1.7.
const LIBBPF_PIN_BY_NAME: u32 = 1;

fn shape(shape: &MapShape, table: &mut Table) -> Result<Vec<(&'static str, TypeId)>, WriteError> {
    let mut members = vec![("type", table.number(shape.kind.number())?)];
    for (side, by_type, by_size) in [(shape.key, "key", "key_size"), (shape.value, "value", "value_size")] {
        match side {
            Side::Nothing => {}
            Side::Bytes(bytes) => members.push((by_size, table.number(bytes)?)),
            Side::Typed { ty, .. } => members.push((by_type, table.pointer(ty)?)),
        }
    }
    let extra = shape.bloom_hashes.map_or(0, u32::from);
    for (name, number) in [("max_entries", shape.entries), ("map_flags", shape.flags), ("map_extra", extra)] {
        if number != 0 {
            members.push((name, table.number(number)?));
        }
    }
    if let Some(node) = shape.numa_node {
        members.push(("numa_node", table.number(node)?));
    }
    Ok(members)
}

fn variables(object: &Object, table: &mut Table) -> Result<(), WriteError> {
    for section in &object.data {
        let mut entries = Vec::new();
        for variable in &section.variables {
            let Some(ty) = variable.ty else { continue };
            let linkage = match variable.linkage {
                Linkage::Static => VarLinkage::Static,
                Linkage::Global => VarLinkage::Global,
            };
            let var = table.var(&variable.name, ty, linkage)?;
            for attribute in &variable.attributes {
                table.decl_tag(attribute.as_str(), var, None)?;
            }
            entries.push([var.0, variable.offset, variable.bytes]);
        }
        if !entries.is_empty() {
            table.section(&section.name(), section.content.bytes(), &entries)?;
        }
    }
    Ok(())
}

/// Returns the section name of a struct_ops variable.
fn struct_section(one: &StructOps) -> &'static str {
    match (one.by_link, one.autocreate) {
        (true, true) => ".struct_ops.link",
        (true, false) => "?.struct_ops.link",
        (false, true) => ".struct_ops",
        (false, false) => "?.struct_ops",
    }
}

fn structs(object: &Object, table: &mut Table, layout: &mut Layout) -> Result<(), WriteError> {
    for (at, one) in object.struct_ops.iter().enumerate() {
        let name = struct_section(one);
        let bytes = object.types.bytes(one.ty).ok_or(WriteError::Dangling("a type"))?;
        let section = match layout.structs.iter().position(|section| section.name == name) {
            Some(known) => layout.structs.get_mut(known),
            None => {
                layout.structs.push(StructSection { name, placements: Vec::new(), bytes: 0 });
                layout.structs.last_mut()
            }
        };
        let section = section.ok_or(WriteError::TooLarge)?;
        let offset = section.bytes.checked_next_multiple_of(STRUCT_ALIGN).ok_or(WriteError::TooLarge)?;
        section.bytes = offset.checked_add(bytes).ok_or(WriteError::TooLarge)?;
        section.placements.push((at, offset, bytes));
    }
    for section in &layout.structs {
        let mut entries = Vec::new();
        for &(at, offset, bytes) in &section.placements {
            let one = object.struct_ops.get(at).ok_or(WriteError::Dangling("a struct of the kernel"))?;
            entries.push([table.var(&one.name, one.ty, VarLinkage::Global)?.0, offset, bytes]);
        }
        table.section(section.name, section.bytes, &entries)?;
    }
    Ok(())
}

fn kconfig(facts: &[Kconfig], table: &mut Table) -> Result<(), WriteError> {
    let mut entries = Vec::with_capacity(facts.len());
    for fact in facts {
        let (ty, bytes) = match fact.ty {
            KconfigType::Bool => (table.int("_Bool", 1, IntEncoding::Bool)?, 1),
            KconfigType::Tristate => {
                (table.enumeration("libbpf_tristate", &["TRI_NO", "TRI_YES", "TRI_MODULE"])?, 4)
            }
            KconfigType::Char { signed } => (table.int("char", 1, sign(signed))?, 1),
            KconfigType::Int { bytes, signed } => (table.int("number", bytes, sign(signed))?, bytes),
            KconfigType::Text { bytes } => {
                let char = table.int("char", 1, IntEncoding::Signed)?;
                (table.array(char, bytes)?, bytes)
            }
        };
        entries.push([table.var(&fact.name, ty, VarLinkage::Extern)?.0, 0, bytes]);
    }
    if !entries.is_empty() {
        table.section(".kconfig", 0, &entries)?;
    }
    Ok(())
}

fn sign(signed: bool) -> IntEncoding {
    if signed { IntEncoding::Signed } else { IntEncoding::Unsigned }
}

fn ksyms(object: &Object, table: &mut Table, functions: &KernelFunctionIds) -> Result<(), WriteError> {
    let mut entries = Vec::with_capacity(object.ksyms.len());
    for (_, ksym) in object.ksyms_but(functions) {
        let id = match ksym.kind {
            KsymKind::Function(signature) => table.func(&ksym.name, signature, FuncLinkage::Extern)?,
            KsymKind::Variable(ty) => table.var(&ksym.name, ty, VarLinkage::Extern)?,
            KsymKind::Address => {
                let void = table.constant(TypeId::VOID)?;
                table.var(&ksym.name, void, VarLinkage::Extern)?
            }
        };
        entries.push([id.0, 0, 0]);
    }
    if !entries.is_empty() {
        table.section(".ksyms", 0, &entries)?;
    }
    Ok(())
}
