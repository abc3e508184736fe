//! Global variables of the object: those of the script, the compiler's counters, and constants that the host
//! sets.

use std::ffi::OsStr;
use std::path::Path;

use ks_wit::object;
use ks_wit::section::FAULT_COUNT_PREFIX;
use sha2::{Digest, Sha256};

use super::super::mir::{Count, Lost};
use super::Assembly;
use crate::bpf::GlobalRef;
use crate::defect::narrow;
use crate::hir::{Global, GlobalId};
use crate::object::btf::IntEncoding;
use crate::object::build::{DataSection, GlobalDef};
use crate::source::{SourceFile, Span};
use crate::split::Split;

/// The section of a global variable of the script.
pub fn section_of(global: &Global) -> DataSection {
    if global.pinned {
        DataSection::Pinned
    } else if global.constant {
        DataSection::Rodata
    } else if global.init.is_empty() {
        DataSection::Bss
    } else {
        DataSection::Data
    }
}

/// The section of a counter or host constant.
pub fn section_of_count(count: Count) -> DataSection {
    match count {
        Count::PidNamespace => DataSection::Rodata,
        Count::Faults(_)
        | Count::CutLoop(_)
        | Count::CutList(_)
        | Count::Lost(_)
        | Count::Unread
        | Count::Unraised => DataSection::Bss,
    }
}

impl Assembly<'_> {
    /// The variable of a counter or host constant, created on first use.
    pub(super) fn count(&mut self, count: Count) -> GlobalRef {
        if let Some(found) = self.counts.get(&count) {
            return *found;
        }
        let name = match count {
            Count::Faults(program) => {
                self.unused_name(&format!("{FAULT_COUNT_PREFIX}{}", self.symbols[&program]))
            }
            Count::CutLoop(span) | Count::CutList(span) => {
                let name = match count {
                    Count::CutLoop(_) => self.loop_name(span, object::cut_loop_variable),
                    _ => self.loop_name(span, object::cut_list_variable),
                };
                if let Some(found) = self.cut_loops.get(&name) {
                    return *found;
                }
                name
            }
            Count::Lost(Lost::Record(ring)) => object::lost_variable(&self.hir.rings[ring].name),
            Count::Lost(Lost::Update(map)) => object::lost_variable(&self.hir.maps[map].name),
            Count::Lost(Lost::Print) => object::lost_variable(object::PRINTS),
            Count::Unread => object::UNREAD.to_owned(),
            Count::Unraised => object::UNRAISED.to_owned(),
            Count::PidNamespace => object::PID_NAMESPACE.to_owned(),
        };
        let word = self.builder.btf().int("u64", 8, IntEncoding::Unsigned);
        let (ty, bytes) = match count {
            Count::PidNamespace => {
                let words = object::PID_NAMESPACE_BYTES / object::PID_NAMESPACE_WORD_BYTES;
                (self.builder.btf().array(word, words as u32), object::PID_NAMESPACE_BYTES as u32)
            }
            _ => (word, 8),
        };
        let section = section_of_count(count);
        let global = GlobalDef { name: name.clone(), section, ty, bytes, align: 8, initial: Vec::new() };
        let added = self.builder.add_global(global);
        self.counts.insert(count, added);
        if let Count::CutLoop(_) | Count::CutList(_) = count {
            self.cut_loops.insert(name, added);
        }
        added
    }

    /// The name of the counter of a loop or list that was cut: its line, and the file if the script imports it. The kernel accepts
    /// only letters, digits and `_` in names.
    fn loop_name(&self, span: Span, name: fn(u32, &str) -> String) -> String {
        let (file, line, _) = self.sources.position(span);
        let own = self.sources.files().next().map(SourceFile::name);
        let stem = Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let module = if own == Some(file) { "" } else { stem };
        let module = module.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        self.unused_name(&name(line, &module))
    }

    pub(super) fn add_global(&mut self, id: GlobalId) {
        let global = &self.hir.globals[id];
        let types = &self.hir.types;
        // Copies of aggregates rely on this alignment.
        let align = types.scalar(global.ty).map_or(8, |int| int.bytes() as u32);
        let ty = self.ty(global.ty);
        let global = GlobalDef {
            name: global.name.clone(),
            section: section_of(global),
            ty,
            bytes: narrow(types.size(global.ty)),
            align,
            initial: global.init.clone(),
        };
        self.globals.insert(id, self.builder.add_global(global));
    }

    /// Adds the layout description that the host compares with the pinned variables of an earlier run.
    pub(super) fn add_layout(&mut self, split: &Split) {
        let pinned = split.kernel_globals.iter().map(|id| &self.hir.globals[*id]).filter(|one| one.pinned);
        let layout: String = pinned
            .map(|one| {
                format!("{}: {}: {}\n", one.name, self.hir.types.name(one.ty), self.hir.types.size(one.ty))
            })
            .collect();
        if layout.is_empty() {
            return;
        }
        let ty = self.builder.btf().int("u64", 8, IntEncoding::Unsigned);
        self.builder.add_global(GlobalDef {
            name: object::PINNED_LAYOUT.into(),
            section: DataSection::Pinned,
            ty,
            bytes: 8,
            align: 8,
            initial: Sha256::digest(layout).get(..8).unwrap_or_default().to_vec(),
        });
    }
}
