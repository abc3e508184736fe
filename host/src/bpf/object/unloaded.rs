//! Values of variables before the load: those of the object, and the pages that were written.

use std::collections::BTreeMap;

use ks_compiler::object::Object as Model;
use ks_compiler::object::model::{DataContent, DataSection};

use crate::bpf::globals::Variable;
use crate::bpf::loader::Written;
use crate::host_bytes::{Charge, Full};

/// Granularity in bytes of the copies: a section may be far larger than the part that a plugin writes.
const PAGE_BYTES: usize = 4096;

/// The pages of sections that were written before the load.
#[derive(Debug, Default)]
pub(super) struct Unloaded {
    pages: BTreeMap<(String, usize), Vec<u8>>,
    /// Charge for the pages.
    pub(super) charge: Option<Charge>,
}

impl Unloaded {
    /// Reads bytes of a variable's section, from `offset` on. None outside of the section.
    pub(super) fn read(&self, model: &Model, section: &str, offset: usize, len: usize) -> Option<Vec<u8>> {
        let data = section_of(model, section)?;
        let end = offset.checked_add(len).filter(|end| *end <= data.content.bytes() as usize)?;
        let mut bytes = Vec::with_capacity(len);
        let mut at = offset;
        while at < end {
            let (page, from) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let part = (end - at).min(PAGE_BYTES - from);
            match self.pages.get(&(section.to_owned(), page)) {
                Some(written) => bytes.extend_from_slice(written.get(from..from + part)?),
                None => append(data, at, part, &mut bytes),
            }
            at += part;
        }
        Some(bytes)
    }

    /// Writes bytes to a variable, from `offset` in it on. The caller has checked that they lie inside.
    ///
    /// # Errors
    /// [`Full`]: nothing is written then.
    pub(super) fn write(
        &mut self,
        model: &Model,
        variable: &Variable,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Full> {
        let start = variable.offset + offset;
        let end = start + bytes.len();
        for page in start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            self.keep(model, &variable.section, page)?;
        }
        for (at, byte) in (start..end).zip(bytes) {
            let page = self.pages.get_mut(&(variable.section.clone(), at / PAGE_BYTES));
            page.and_then(|page| page.get_mut(at % PAGE_BYTES)).into_iter().for_each(|to| *to = *byte);
        }
        Ok(())
    }

    /// Copies a page of the object, unless it was copied before.
    fn keep(&mut self, model: &Model, section: &str, page: usize) -> Result<(), Full> {
        let key = (section.to_owned(), page);
        let Some(data) = section_of(model, section).filter(|_| !self.pages.contains_key(&key)) else {
            return Ok(());
        };
        if let Some(charge) = &mut self.charge {
            charge.grow(2 * PAGE_BYTES as u64)?;
        }
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        append(data, page * PAGE_BYTES, PAGE_BYTES, &mut bytes);
        self.pages.insert(key, bytes);
        Ok(())
    }

    /// Returns what was written and differs from the object, for the loader.
    pub(super) fn written(&self, model: &Model) -> Vec<Written> {
        let differs = |section: &str, page: usize, bytes: &[u8]| {
            let mut own = Vec::with_capacity(PAGE_BYTES);
            let section = section_of(model, section);
            section.into_iter().for_each(|section| append(section, page * PAGE_BYTES, PAGE_BYTES, &mut own));
            own != bytes
        };
        let pages = self.pages.iter().filter(|((section, page), bytes)| differs(section, *page, bytes));
        let written = pages.map(|((section, page), bytes)| Written {
            section: section.clone(),
            offset: (page * PAGE_BYTES) as u64,
            bytes: bytes.clone(),
        });
        written.collect()
    }
}

fn section_of<'a>(model: &'a Model, name: &str) -> Option<&'a DataSection> {
    model.data.iter().find(|section| section.name() == name)
}

/// Appends so many bytes of the object's content, and zeros where it has ended.
fn append(section: &DataSection, offset: usize, len: usize, to: &mut Vec<u8>) {
    let wanted = to.len() + len;
    if let DataContent::Bytes(content) = &section.content {
        let rest = content.get(offset..).unwrap_or_default();
        to.extend_from_slice(&rest[..len.min(rest.len())]);
    }
    to.resize(wanted, 0);
}

#[cfg(test)]
mod tests {
    use ks_compiler::object::model::DataKind;

    use super::*;

    const SECTION_BYTES: u32 = 3 * PAGE_BYTES as u32 - 96;

    fn model(content: DataContent) -> Model {
        let section = DataSection { kind: DataKind::Data, suffix: None, content, variables: Vec::new() };
        Model { data: vec![section], ..Model::default() }
    }

    fn variable(offset: usize, size: usize) -> Variable {
        Variable { name: "v".into(), section: ".data".into(), offset, size }
    }

    #[test]
    fn what_was_written_is_read_and_the_rest_is_the_objects() {
        let bytes: Vec<u8> = (0..SECTION_BYTES).map(|at| at as u8 | 1).collect();
        let model = model(DataContent::Bytes(bytes.clone()));
        let mut unloaded = Unloaded::default();
        assert!(unloaded.written(&model).is_empty());
        let at = PAGE_BYTES - 3;
        unloaded.write(&model, &variable(at, 8), 1, &[2, 4, 6, 8]).expect("there is no limit");
        let read = |unloaded: &Unloaded, offset, len| unloaded.read(&model, ".data", offset, len);
        let mut expected = bytes.clone();
        expected[at + 1..at + 5].copy_from_slice(&[2, 4, 6, 8]);
        assert_eq!(read(&unloaded, 0, bytes.len()), Some(expected.clone()));
        assert_eq!(read(&unloaded, at, 8), Some(expected[at..at + 8].to_vec()));
        assert_eq!(read(&unloaded, bytes.len() - 4, 5), None, "beyond the end");
        assert_eq!(read(&unloaded, usize::MAX, 2), None);
        assert_eq!(unloaded.read(&model, ".bss", 0, 1), None, "there is no such section");
        let written = unloaded.written(&model);
        let mut shown = bytes;
        shown.resize(3 * PAGE_BYTES, 0);
        for one in &written {
            let from = one.offset as usize;
            shown[from..from + one.bytes.len()].copy_from_slice(&one.bytes);
        }
        expected.resize(3 * PAGE_BYTES, 0);
        assert_eq!((written.len(), shown), (2, expected));
    }

    #[test]
    fn zeros_take_no_memory_until_they_are_written() {
        let model = model(DataContent::Zeros(SECTION_BYTES));
        let mut unloaded = Unloaded::default();
        let end = SECTION_BYTES as usize - 1;
        unloaded.write(&model, &variable(end, 1), 0, &[7]).expect("there is no limit");
        assert_eq!(unloaded.read(&model, ".data", end - 1, 2), Some(vec![0, 7]));
        assert_eq!(unloaded.pages.len(), 1);
    }
}
