//! `.BTF.ext`: functions, source lines and CO-RE records of the instructions.
//!
//! Source: Documentation/bpf/btf.rst, ".BTF.ext section", v6.18.

use super::super::model::{Body, Object};
use super::code::{CodeSections, FunctionPlacement};
use super::parts::Layout;
use super::types::{Table, header, words};
use super::{WriteError, small};
use crate::bpf::{InsnIndex, SLOT_BYTES};
use crate::object::btf::TypeId;

/// A line number has 22 bits, a column 10.
const MAX_LINE: u32 = 0x003f_ffff;
const MAX_COLUMN: u32 = 0x3ff;

/// Records of one code section.
#[derive(Default)]
struct Records {
    functions: Vec<[u32; 2]>,
    lines: Vec<[u32; 4]>,
    core: Vec<[u32; 4]>,
}

/// Returns the bytes of `.BTF.ext`; none if there is no record. Strings are added to the table of types.
pub(super) fn write(
    object: &Object,
    code: &CodeSections,
    layout: &Layout,
    table: &mut Table,
) -> Result<Vec<u8>, WriteError> {
    let mut records: Vec<Records> = code.sections.iter().map(|_| Records::default()).collect();
    let programs = object.programs.iter().map(|one| &one.body).zip(&code.programs).zip(&layout.programs);
    let others =
        object.subprograms.iter().map(|one| &one.body).zip(&code.subprograms).zip(&layout.subprograms);
    for ((body, placement), func) in programs.chain(others) {
        let section = records.get_mut(placement.section).ok_or(WriteError::Dangling("a section"))?;
        add(section, body, *placement, *func, table)?;
    }
    let mut names = Vec::with_capacity(code.sections.len());
    for section in &code.sections {
        names.push(table.string(&section.name)?);
    }
    let tables = [
        part(&names, &records, |one| one.functions.as_flattened(), 8)?,
        part(&names, &records, |one| one.lines.as_flattened(), 16)?,
        part(&names, &records, |one| one.core.as_flattened(), 16)?,
    ];
    let mut out = Vec::new();
    if tables.iter().all(Vec::is_empty) {
        return Ok(out);
    }
    header(&mut out, 32);
    let mut offset = 0;
    for table in &tables {
        let bytes = small(table.len())?;
        words(&mut out, &[offset, bytes]);
        offset += bytes;
    }
    tables.iter().for_each(|table| out.extend_from_slice(table));
    Ok(out)
}

fn add(
    records: &mut Records,
    body: &Body,
    placement: FunctionPlacement,
    func: Option<TypeId>,
    table: &mut Table,
) -> Result<(), WriteError> {
    records.functions.extend(func.map(|func| [placement.offset, func.0]));
    let slots: Vec<u32> = body
        .code
        .iter()
        .scan(0, |next, one| {
            let slot = *next;
            *next += one.slots();
            Some(slot)
        })
        .collect();
    let offset = |at: InsnIndex| {
        let slot = slots.get(at.0 as usize).ok_or(WriteError::Dangling("an instruction"))?;
        Ok::<_, WriteError>(placement.offset + slot * small(SLOT_BYTES)?)
    };
    for line in &body.lines {
        let number = line.line.min(MAX_LINE) << 10 | line.column.min(MAX_COLUMN);
        records.lines.push([offset(line.at)?, table.string(&line.file)?, table.string(&line.text)?, number]);
    }
    for relo in &body.core {
        let path: Vec<String> = relo.path.iter().map(u32::to_string).collect();
        records.core.push([offset(relo.at)?, relo.root.0, table.string(&path.join(":"))?, relo.kind as u32]);
    }
    Ok(())
}

/// Writes a table: the size of a record, then for each section its name, the number of its records, and the
/// records.
///
/// libbpf rejects a table with a record size and no section, so an empty table has no bytes at all.
fn part(
    names: &[u32],
    records: &[Records],
    of: impl Fn(&Records) -> &[u32],
    record_bytes: u32,
) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    for (name, records) in names.iter().zip(records) {
        let fields = of(records);
        if fields.is_empty() {
            continue;
        }
        if out.is_empty() {
            words(&mut out, &[record_bytes]);
        }
        words(&mut out, &[*name, small(fields.len() * 4)? / record_bytes]);
        words(&mut out, fields);
    }
    Ok(out)
}
