//! Loss counters of a loaded object's programs, in pages that every thread may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use ks_wit::object::{LossVariable, loss_variable, lost_variable};
use libbpf_rs::MapType;

use super::globals::Variable;
use super::image::SectionPages;

/// The kind of loss that a counter counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Insertions into a full map or ring buffer.
    Full {
        /// Name of the map.
        map: String,
        /// Type of the map.
        ty: MapType,
    },
    /// Program runs that a fault ended.
    Fault {
        /// Name of the program.
        program: String,
    },
    /// Program runs that ended because a loop reached its limit.
    CutLoop {
        /// Line of the loop in its source file, from 1.
        line: u32,
        /// The imported module that contains the loop; empty for the script itself.
        module: String,
    },
    /// Lists of the kernel that a loop left before their end.
    CutList {
        /// Line of the loop in its source file, from 1.
        line: u32,
        /// The imported module that contains the loop; empty for the script itself.
        module: String,
    },
    /// Texts that programs could not read.
    Unread,
    /// Numbers that programs gave up to keep as the least or the greatest.
    Unraised,
}

/// A loss counter of a loaded object, in a shared page.
#[derive(Debug)]
pub struct LossCounter {
    loss: Loss,
    pages: Arc<SectionPages>,
    offset: usize,
}

impl LossCounter {
    /// Returns the kind of loss.
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// Returns the count since the object was loaded.
    pub fn count(&self) -> u64 {
        // Cannot fail: the offset was checked when the counter was found.
        self.pages.load(self.offset, 8).unwrap_or_default()
    }
}

/// Returns the counters among the variables of a loaded object, of whose maps the names and types are given.
pub(super) fn counters<'a>(
    maps: impl Iterator<Item = (&'a str, u32)>,
    pages: impl Fn(&str) -> Option<Arc<SectionPages>>,
    variables: &BTreeMap<String, Variable>,
) -> Vec<LossCounter> {
    let full = maps.filter_map(|(map, ty)| {
        let variable = variables.get(&lost_variable(map))?;
        Some((Loss::Full { map: map.to_owned(), ty: MapType::from(ty) }, variable))
    });
    // The policy bounds the number of these (`ObjectError::LossCounters`).
    let named = variables.iter().filter_map(|(name, variable)| {
        let loss = match loss_variable(name)? {
            LossVariable::Fault(program) => Loss::Fault { program: program.to_owned() },
            LossVariable::CutList(line, module) => Loss::CutList { line, module: module.to_owned() },
            LossVariable::CutLoop(line, module) => Loss::CutLoop { line, module: module.to_owned() },
            LossVariable::Unread => Loss::Unread,
            LossVariable::Unraised => Loss::Unraised,
        };
        Some((loss, variable))
    });
    let counter = |(loss, variable): (Loss, &Variable)| {
        let (pages, offset) = (pages(&variable.section)?, variable.offset());
        pages.load(offset, 8).map(|_| LossCounter { loss, pages, offset })
    };
    full.chain(named).filter(|(_, variable)| variable.size() == 8).filter_map(counter).collect()
}
