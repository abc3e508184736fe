//! Loss counters of a loaded object's programs, in pages that every thread may read.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use ks_wit::object::{LossVariable, loss_variable, lost_variable};
use libbpf_rs::{MapCore as _, MapType};
use nix::errno::Errno;

use super::globals::Variable;
use super::image::SharedImage;
use super::object::is_section_map;

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
}

/// A loss counter of a loaded object, in a shared page.
#[derive(Debug)]
pub struct LossCounter {
    loss: Loss,
    image: Arc<SharedImage>,
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
        self.image.load(self.offset, 8).unwrap_or_default()
    }
}

/// Returns the counters among the variables of a loaded object.
///
/// # Errors
/// Those of mmap(2): no memory or address space.
pub(super) fn counters(
    object: &libbpf_rs::Object,
    variables: &BTreeMap<String, Variable>,
) -> Result<Vec<LossCounter>, Errno> {
    let full = object.maps().filter_map(|map| {
        let name = map.name().to_string_lossy().into_owned();
        let variable = variables.get(&lost_variable(&name))?;
        Some((Loss::Full { map: name, ty: map.map_type() }, variable))
    });
    // The policy bounds the number of these (`ObjectError::LossCounters`).
    let named = variables.iter().filter_map(|(name, variable)| {
        let loss = match loss_variable(name)? {
            LossVariable::Fault(program) => Loss::Fault { program: program.to_owned() },
            LossVariable::CutLoop(line, module) => Loss::CutLoop { line, module: module.to_owned() },
        };
        Some((loss, variable))
    });
    let mut images: BTreeMap<&str, Option<Arc<SharedImage>>> = BTreeMap::new();
    let mut counters = Vec::new();
    for (loss, variable) in full.chain(named).filter(|(_, variable)| variable.size() == 8) {
        let image = match images.get(variable.section.as_str()) {
            Some(image) => image.clone(),
            None => {
                let image = image_of(object, &variable.section)?;
                images.insert(&variable.section, image.clone());
                image
            }
        };
        let Some(image) = image else { continue };
        if image.load(variable.offset(), 8).is_some() {
            counters.push(LossCounter { loss, image, offset: variable.offset() });
        }
    }
    Ok(counters)
}

/// Maps the pages of a section; none if the kernel has no map for it.
fn image_of(object: &libbpf_rs::Object, section: &str) -> Result<Option<Arc<SharedImage>>, Errno> {
    let is_of_section = |map: &libbpf_rs::Map<'_>| {
        map.map_type() == MapType::Array && is_section_map(map.name().as_encoded_bytes(), section)
    };
    let Some(map) = object.maps().find(is_of_section) else { return Ok(None) };
    SharedImage::map(map.as_fd(), map.value_size() as usize).map(|image| Some(Arc::new(image)))
}
