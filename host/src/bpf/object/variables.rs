//! Global variables of an object: their values before and after the load.

use std::collections::BTreeMap;

use ks_wit::object::{FUNCTION_PREFIX, MODULE_PREFIX, PID_NAMESPACE};

use super::{Loaded, Object, Stage};
use crate::bpf::error::BpfError;
use crate::bpf::feature;
use crate::bpf::globals::Variable;
use crate::bpf::image::SectionPages;
use crate::bpf::kernel_functions;
use crate::bpf::loader::Written;
use crate::bpf::map::Pages;
use crate::bpf::pid_namespace;

impl Object {
    /// Reads a scalar variable by one atomic load, zero-extended.
    ///
    /// # Errors
    /// [`BpfError::Size`] if the variable is not a scalar; [`BpfError::NotMapped`].
    pub fn get(&self, variable: &Variable) -> Result<u64, BpfError> {
        check_scalar(variable)?;
        let value = match self.pages_of(variable) {
            Some(pages) => pages.load(variable.offset, variable.size),
            None => self.unloaded(variable).map(|bytes| {
                let mut value = [0; 8];
                value[..bytes.len()].copy_from_slice(&bytes);
                u64::from_le_bytes(value)
            }),
        };
        value.ok_or_else(|| not_mapped(variable))
    }

    /// Writes the low bytes of a value to a scalar variable by one atomic store.
    ///
    /// # Errors
    /// [`BpfError::Size`] if the variable is not a scalar; [`BpfError::Constant`]; [`BpfError::NotMapped`];
    /// [`BpfError::HostBytes`].
    pub fn set(&mut self, variable: &Variable, value: u64) -> Result<(), BpfError> {
        check_scalar(variable)?;
        self.check_writable(variable)?;
        match self.pages_of(variable) {
            Some(pages) => pages.store(variable.offset, variable.size, value),
            None => {
                let bytes = value.to_le_bytes();
                Some(self.write_unloaded(variable, 0, &bytes[..variable.size])?)
            }
        }
        .ok_or_else(|| not_mapped(variable))
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
        let bytes = match self.pages_of(variable) {
            Some(pages) => copied(pages, variable),
            None => self.unloaded(variable),
        };
        bytes.ok_or_else(|| not_mapped(variable))
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
        self.check_writable(variable)?;
        let Some(pages) = self.pages_of(variable) else {
            return self.write_unloaded(variable, offset, bytes);
        };
        for (at, byte) in (variable.offset + offset..).zip(bytes) {
            pages.store(at, 1, u64::from(*byte)).ok_or_else(|| not_mapped(variable))?;
        }
        Ok(())
    }

    /// Returns the pages of a variable's section once the object is loaded. None for constants, whose pages
    /// cannot be mapped writable.
    pub fn pages(&self, variable: &Variable) -> Option<Pages> {
        let Stage::Loaded(loaded) = &self.stage else { return None };
        let map = loaded.sections.iter().find(|map| map.is_of(&variable.section))?;
        map.map.pages().filter(|_| !variable.is_constant())
    }

    /// Checks that a variable may be written at this stage.
    fn check_writable(&self, variable: &Variable) -> Result<(), BpfError> {
        match self.stage {
            Stage::Loaded(_) if variable.is_constant() => {
                Err(BpfError::Constant { name: variable.name.clone() })
            }
            Stage::Loaded(_) | Stage::Open => Ok(()),
        }
    }

    /// Returns the pages of a variable's section; none before the load.
    fn pages_of(&self, variable: &Variable) -> Option<&SectionPages> {
        let Stage::Loaded(Loaded { sections, .. }) = &self.stage else { return None };
        sections.iter().find(|map| map.is_of(&variable.section)).map(|map| &*map.pages)
    }

    /// Reads a variable before the load; none after it, and outside of the section.
    fn unloaded(&self, variable: &Variable) -> Option<Vec<u8>> {
        let Stage::Open = self.stage else { return None };
        self.unloaded.read(self.model(), &variable.section, variable.offset, variable.size)
    }

    fn write_unloaded(&mut self, variable: &Variable, offset: usize, bytes: &[u8]) -> Result<(), BpfError> {
        let Stage::Open = self.stage else { return Err(not_mapped(variable)) };
        Ok(self.unloaded.write(self.admitted.object().model(), variable, offset, bytes)?)
    }

    /// Returns what the programs need to know of this machine: the loaded ones among the kernel modules that they
    /// support, the functions that the kernel has among those that they ask for, and this process's PID namespace,
    /// unless it is the initial one.
    ///
    /// # Errors
    /// [`BpfError::PidNamespace`]; [`BpfError::KernelFunctions`].
    pub(super) fn surroundings(&self) -> Result<Vec<Written>, BpfError> {
        let known =
            self.variables.iter().filter_map(|(name, at)| Some((name.strip_prefix(MODULE_PREFIX)?, at)));
        let modules = known.filter(|(module, _)| feature::has_module(module)).map(|(module, variable)| {
            tracing::debug!(target: "module", "programs call the functions of the kernel module `{module}`");
            written(variable, vec![1])
        });
        let mut all: Vec<Written> = modules.collect();
        let asked: BTreeMap<&str, &Variable> = (self.variables.iter())
            .filter_map(|(name, at)| Some((name.strip_prefix(FUNCTION_PREFIX)?, at)))
            .collect();
        let names = asked.keys().copied().collect();
        for name in kernel_functions::existing(names).map_err(BpfError::KernelFunctions)? {
            all.extend(asked.get(name.as_str()).map(|variable| written(variable, vec![1])));
        }
        if let Some(variable) = self.variables.get(PID_NAMESPACE)
            && let Some(words) = pid_namespace::words().map_err(BpfError::PidNamespace)?
        {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            all.push(written(variable, bytes));
        }
        Ok(all)
    }
}

fn written(variable: &Variable, bytes: Vec<u8>) -> Written {
    Written { section: variable.section.clone(), offset: variable.offset as u64, bytes }
}

/// Copies a variable, in aligned words of 8 where possible, each by one atomic load.
fn copied(pages: &SectionPages, variable: &Variable) -> Option<Vec<u8>> {
    let end = variable.offset.checked_add(variable.size)?;
    let mut bytes = Vec::with_capacity(variable.size);
    let mut at = variable.offset;
    while at < end {
        let width = if at.is_multiple_of(8) && end - at >= 8 { 8 } else { 1 };
        bytes.extend_from_slice(&pages.load(at, width)?.to_le_bytes()[..width]);
        at += width;
    }
    Some(bytes)
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
