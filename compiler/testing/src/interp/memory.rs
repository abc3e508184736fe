//! Memory of the interpreter: regions with bounds, whose bytes are known or not, and which keep pointers apart from numbers.

use std::collections::BTreeMap;

use super::{InterpError, fault};
use ks_compiler::hir::FuncId;
use ks_compiler::kernel::mir::MapSymbol;

/// What a value is while a function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datum {
    /// A number, or a null pointer as 0.
    Bits(u64),
    /// A pointer.
    Pointer(Pointer),
    /// A map, as helpers take it.
    Map(MapSymbol),
    /// A function, as helpers take it.
    FuncPtr(FuncId),
}

impl Datum {
    /// The number, or nothing for a pointer.
    pub fn bits(self) -> Option<u64> {
        match self {
            Datum::Bits(bits) => Some(bits),
            Datum::Pointer(_) | Datum::Map(_) | Datum::FuncPtr(_) => None,
        }
    }
}

/// A place in a region; it may lie outside until it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    pub(super) region: usize,
    pub(super) offset: i64,
}

impl Pointer {
    /// A number that grows with the offset; regions lie far apart.
    pub(super) fn address(self) -> u64 {
        ((self.region as u64) << 32).wrapping_add(self.offset as u64)
    }
}

#[derive(Debug, Default)]
struct Region {
    /// `None` where nothing was written yet.
    bytes: Vec<Option<u8>>,
    /// Pointers that were stored, by their first byte.
    pointers: BTreeMap<usize, Datum>,
    gone: bool,
}

/// All regions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// A region of so many bytes that nobody wrote yet.
    pub(super) fn reserve(&mut self, bytes: usize) -> Pointer {
        self.regions.push(Region { bytes: vec![None; bytes], ..Region::default() });
        Pointer { region: self.regions.len() - 1, offset: 0 }
    }

    /// A region with content.
    pub(super) fn alloc_with(&mut self, content: &[u8]) -> Pointer {
        let start = self.reserve(content.len());
        self.regions[start.region].bytes = content.iter().copied().map(Some).collect();
        start
    }

    /// Ends a region: what is accessed there from now on is a fault.
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

    /// The bytes of a place, all of which were written.
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

    /// All bytes of a region; 0 where nobody wrote.
    pub(super) fn content(&self, start: Pointer) -> Vec<u8> {
        self.regions[start.region].bytes.iter().map(|byte| byte.unwrap_or(0)).collect()
    }
}
