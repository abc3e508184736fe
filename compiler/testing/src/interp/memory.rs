//! Memory of the interpreter: regions with bounds. It tracks uninitialised bytes, and distinguishes pointers
//! from numbers.

use std::collections::BTreeMap;

use super::{InterpError, fault};
use ks_compiler::hir::FuncId;
use ks_compiler::kernel::mir::MapSymbol;

/// A value during execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datum {
    /// A number; a null pointer is 0.
    Bits(u64),
    /// A pointer into a region.
    Pointer(Pointer),
    /// A map, as an argument of helpers.
    Map(MapSymbol),
    /// A function, as an argument of helpers.
    FuncPtr(FuncId),
}

impl Datum {
    /// Returns the number; none for a pointer.
    pub fn bits(self) -> Option<u64> {
        match self {
            Datum::Bits(bits) => Some(bits),
            Datum::Pointer(_) | Datum::Map(_) | Datum::FuncPtr(_) => None,
        }
    }
}

/// A position in a region; it may be out of bounds until it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    pub(super) region: usize,
    pub(super) offset: i64,
}

impl Pointer {
    /// Returns a number that grows with the offset; regions are far apart.
    pub(super) fn address(self) -> u64 {
        ((self.region as u64) << 32).wrapping_add(self.offset as u64)
    }
}

#[derive(Debug, Default)]
struct Region {
    /// `None` for uninitialised bytes.
    bytes: Vec<Option<u8>>,
    /// Stored pointers, by the index of their first byte.
    pointers: BTreeMap<usize, Datum>,
    gone: bool,
}

/// All regions of a run.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// Allocates a region of uninitialised bytes.
    pub(super) fn reserve(&mut self, bytes: usize) -> Pointer {
        self.regions.push(Region { bytes: vec![None; bytes], ..Region::default() });
        Pointer { region: self.regions.len() - 1, offset: 0 }
    }

    /// Allocates a region with content.
    pub(super) fn alloc_with(&mut self, content: &[u8]) -> Pointer {
        let start = self.reserve(content.len());
        self.regions[start.region].bytes = content.iter().copied().map(Some).collect();
        start
    }

    /// Ends a region: later accesses are faults.
    pub(super) fn release(&mut self, start: Pointer) {
        self.regions[start.region].gone = true;
    }

    fn range(&self, at: Pointer, bytes: usize) -> Result<std::ops::Range<usize>, InterpError> {
        let region = &self.regions[at.region];
        if region.gone {
            return fault("access to a frame that is gone");
        }
        let start = usize::try_from(at.offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        match range.filter(|range| range.end <= region.bytes.len()) {
            Some(range) => Ok(range),
            None => fault(format!("{bytes} bytes at {} of {}", at.offset, region.bytes.len())),
        }
    }

    /// Reads bytes, all of which must be initialised.
    pub(super) fn read(&self, at: Pointer, bytes: usize) -> Result<Vec<u8>, InterpError> {
        let range = self.range(at, bytes)?;
        let region = &self.regions[at.region];
        let pointers = range.start.saturating_sub(7)..range.end;
        if region.pointers.range(pointers).next().is_some() {
            return fault("a pointer is read as a number");
        }
        let known: Option<Vec<u8>> = region.bytes[range].iter().copied().collect();
        known.map_or_else(|| fault("bytes are read that nobody wrote"), Ok)
    }

    pub(super) fn load(&self, at: Pointer, bytes: usize) -> Result<Datum, InterpError> {
        let range = self.range(at, bytes)?;
        if let Some(pointer) = self.regions[at.region].pointers.get(&range.start)
            && bytes == 8
        {
            return Ok(*pointer);
        }
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(&self.read(at, bytes)?);
        Ok(Datum::Bits(u64::from_le_bytes(all)))
    }

    pub(super) fn write(&mut self, at: Pointer, content: &[u8]) -> Result<(), InterpError> {
        let range = self.range(at, content.len())?;
        let region = &mut self.regions[at.region];
        let first = range.start.saturating_sub(7);
        region.pointers.retain(|start, _| !(first..range.end).contains(start));
        for (byte, new) in region.bytes[range].iter_mut().zip(content) {
            *byte = Some(*new);
        }
        Ok(())
    }

    pub(super) fn store(&mut self, at: Pointer, bytes: usize, value: Datum) -> Result<(), InterpError> {
        match value {
            Datum::Bits(bits) => self.write(at, &bits.to_le_bytes()[..bytes]),
            Datum::Pointer(_) | Datum::Map(_) | Datum::FuncPtr(_) => {
                self.write(at, &[0; 8])?;
                self.regions[at.region].pointers.insert(at.offset as usize, value);
                Ok(())
            }
        }
    }

    /// Returns all bytes of a region, with 0 for uninitialised ones.
    pub(super) fn content(&self, start: Pointer) -> Vec<u8> {
        self.regions[start.region].bytes.iter().map(|byte| byte.unwrap_or(0)).collect()
    }
}
