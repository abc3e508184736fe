//! Global variables of an object: their values before and after the load.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use ks_wit::object::{MODULE_PREFIX, PID_NAMESPACE};
use libbpf_rs::{MapCore as _, MapType, OpenObject};

use super::{Loaded, Object, Stage};
use crate::bpf::error::BpfError;
use crate::bpf::feature;
use crate::bpf::globals::Variable;
use crate::bpf::image::{Image, has_image};
use crate::bpf::map::{MapShape, Pages};
use crate::bpf::pid_namespace;
use crate::host_bytes::{Charge, Full};

/// Granularity in bytes of the copies that this module takes of sections.
const PAGE_BYTES: usize = 4096;

/// The pages of sections that were written before the load. When the object is opened again, only these are
/// copied: a section may be far larger than the part that a plugin writes.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pages: BTreeMap<String, BTreeSet<usize>>,
    /// Charge for the copies of the pages.
    pub(super) charge: Option<Charge>,
}

impl Changed {
    /// Marks the pages of a range that is about to be written.
    fn note(&mut self, section: &str, offset: usize, len: usize) -> Result<(), Full> {
        let pages = offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES);
        let known = self.pages.entry(section.to_owned()).or_default();
        for page in pages {
            if let (false, Some(charge)) = (known.contains(&page), &mut self.charge) {
                charge.grow(2 * PAGE_BYTES as u64)?;
            }
            known.insert(page);
        }
        Ok(())
    }
}

/// Content that the plugin wrote to a section: a range of bytes of its map.
pub(super) struct Written {
    map: Vec<u8>,
    offset: usize,
    bytes: Vec<u8>,
}

impl Written {
    /// Writes the content to the image of the map of this name, if it is that of the content.
    pub(super) fn restore(&self, map: &[u8], image: &mut [u8]) {
        let to = self.offset..self.offset.saturating_add(self.bytes.len());
        if self.map == map
            && let Some(to) = image.get_mut(to)
        {
            to.copy_from_slice(&self.bytes);
        }
    }
}

impl Object {
    /// Reads a scalar variable by one atomic load, zero-extended.
    ///
    /// # Errors
    /// [`BpfError::Size`] if the variable is not a scalar; [`BpfError::NotMapped`].
    pub fn get(&self, variable: &Variable) -> Result<u64, BpfError> {
        check_scalar(variable)?;
        self.image(variable)?.load(variable.offset, variable.size).ok_or_else(|| not_mapped(variable))
    }

    /// Writes the low bytes of a value to a scalar variable by one atomic store.
    ///
    /// # Errors
    /// [`BpfError::Size`] if the variable is not a scalar; [`BpfError::Constant`]; [`BpfError::NotMapped`];
    /// [`BpfError::HostBytes`].
    pub fn set(&mut self, variable: &Variable, value: u64) -> Result<(), BpfError> {
        check_scalar(variable)?;
        self.check_writable(variable, 0, variable.size)?;
        self.image(variable)?.store(variable.offset, variable.size, value).ok_or_else(|| not_mapped(variable))
    }

    /// Reads the bytes of a variable: by one atomic load if it is a scalar, else piecewise.
    ///
    /// # Errors
    /// [`BpfError::NotMapped`].
    pub fn read(&self, variable: &Variable) -> Result<Vec<u8>, BpfError> {
        if variable.is_scalar() {
            let value = self.get(variable)?;
            return Ok(value.to_le_bytes()[..variable.size].to_vec());
        }
        let image = self.image(variable)?;
        image.copy(variable.offset, variable.size).ok_or_else(|| not_mapped(variable))
    }

    /// Writes bytes to a variable, starting at `offset`: a whole scalar by one atomic store, anything else
    /// byte by byte.
    ///
    /// # Errors
    /// [`BpfError::Size`] outside the variable; [`BpfError::Constant`]; [`BpfError::NotMapped`];
    /// [`BpfError::HostBytes`].
    pub fn write(&mut self, variable: &Variable, offset: usize, bytes: &[u8]) -> Result<(), BpfError> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > variable.size) {
            return Err(BpfError::Size {
                what: "the variable",
                name: variable.name.clone(),
                expected: variable.size,
                given: offset.saturating_add(bytes.len()),
            });
        }
        if variable.is_scalar() && bytes.len() == variable.size {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            return self.set(variable, u64::from_le_bytes(value));
        }
        self.check_writable(variable, offset, bytes.len())?;
        let image = self.image(variable)?;
        for (index, byte) in bytes.iter().enumerate() {
            let at = variable.offset + offset + index;
            image.store(at, 1, u64::from(*byte)).ok_or_else(|| not_mapped(variable))?;
        }
        Ok(())
    }

    /// Returns the pages of a variable's section once the object is loaded. None for constants, whose pages
    /// cannot be mapped writable.
    pub fn pages(&self, variable: &Variable) -> Option<Pages> {
        let Stage::Loaded(Loaded { object, .. }) = &self.stage else { return None };
        let mut maps = object.maps().filter(|_| !variable.is_constant());
        let map = maps.find(|map| is_section_map(map.name().as_encoded_bytes(), &variable.section))?;
        Pages::of(&map.name().to_string_lossy(), MapShape::of(&map), map.as_fd())
    }

    /// Checks that a range of a variable may be written at this stage, and marks it as changed before the
    /// load.
    fn check_writable(&mut self, variable: &Variable, offset: usize, len: usize) -> Result<(), BpfError> {
        match self.stage {
            Stage::Loaded(_) if variable.is_constant() => {
                Err(BpfError::Constant { name: variable.name.clone() })
            }
            Stage::Loaded(_) => Ok(()),
            Stage::Open(_) | Stage::Closed => {
                Ok(self.changed.note(&variable.section, variable.offset + offset, len)?)
            }
        }
    }

    /// Returns the memory of a variable's section at this stage.
    fn image(&self, variable: &Variable) -> Result<Image<'_>, BpfError> {
        let is_of_section = |name: &OsStr| is_section_map(name.as_encoded_bytes(), &variable.section);
        let image = match &self.stage {
            Stage::Open(open) => open
                .maps()
                .find(|map| has_image(map.map_type()) && is_of_section(map.name()))
                .and_then(|map| Image::of(&map, open)),
            Stage::Loaded(loaded) => loaded.object.image(is_of_section),
            Stage::Closed => None,
        };
        image.ok_or_else(|| not_mapped(variable))
    }

    /// Sets the programs' flags for the loaded ones among the kernel modules that they support.
    pub(super) fn show_modules(&self, open: &mut OpenObject) {
        let known =
            self.variables.iter().filter_map(|(name, at)| Some((name.strip_prefix(MODULE_PREFIX)?, at)));
        for (module, variable) in known.filter(|(module, _)| feature::has_module(module)) {
            for mut map in
                open.maps_mut().filter(|map| is_section_map(map.name().as_encoded_bytes(), &variable.section))
            {
                let byte = map.initial_value_mut().and_then(|image| image.get_mut(variable.offset));
                byte.into_iter().for_each(|byte| *byte = 1);
            }
            tracing::debug!(target: "module", "programs call the functions of the kernel module `{module}`");
        }
    }

    /// Sets the programs' description of this process's PID namespace, unless it is the initial one.
    pub(super) fn show_namespace(&self, open: &mut OpenObject) -> Result<(), BpfError> {
        let Some(variable) = self.variables.get(PID_NAMESPACE) else { return Ok(()) };
        let Some(words) = pid_namespace::words().map_err(BpfError::PidNamespace)? else { return Ok(()) };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let to = variable.offset..variable.offset.saturating_add(bytes.len());
        for mut map in
            open.maps_mut().filter(|map| is_section_map(map.name().as_encoded_bytes(), &variable.section))
        {
            let image = map.initial_value_mut().and_then(|image| image.get_mut(to.clone()));
            image.into_iter().for_each(|image| image.copy_from_slice(&bytes));
        }
        Ok(())
    }

    /// Copies the content that the plugin wrote to sections.
    pub(super) fn written(&self, open: &OpenObject) -> Vec<Written> {
        let mut written = Vec::new();
        for (section, pages) in &self.changed.pages {
            // struct_ops maps contain libbpf's own pointers to this object's programs.
            let maps = open.maps().filter(|map| map.map_type() != MapType::StructOps);
            for map in maps.filter(|map| is_section_map(map.name().as_encoded_bytes(), section)) {
                let Some(image) = Image::of(&map, open) else { continue };
                for page in pages {
                    let offset = page * PAGE_BYTES;
                    let len = PAGE_BYTES.min(image.len().saturating_sub(offset));
                    let map = map.name().as_encoded_bytes().to_vec();
                    written.extend(image.copy(offset, len).map(|bytes| Written { map, offset, bytes }));
                }
            }
        }
        written
    }
}

/// Returns whether libbpf created this map for this section. It names the map of `.data` after the object
/// (`counters.data`), that of `.data.own` like the section (`internal_map_name`, libbpf 1.7). Maps of the
/// script have no dot in their names.
pub(in crate::bpf) fn is_section_map(map: &[u8], section: &str) -> bool {
    map == section.as_bytes() || (!map.starts_with(b".") && map.ends_with(section.as_bytes()))
}

fn check_scalar(variable: &Variable) -> Result<(), BpfError> {
    if variable.is_scalar() {
        return Ok(());
    }
    Err(BpfError::Size { what: "a number", name: variable.name.clone(), expected: variable.size, given: 8 })
}

fn not_mapped(variable: &Variable) -> BpfError {
    BpfError::NotMapped { name: variable.name.clone(), section: variable.section.clone() }
}
