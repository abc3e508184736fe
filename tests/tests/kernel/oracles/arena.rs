//! The memory of programs in the BPF interpreter: one block of bytes whose real addresses the programs use.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// The interpreter writes through addresses without the compiler's knowledge, so every byte is
/// interior-mutable.
pub struct Arena {
    cells: Vec<AtomicU8>,
    used: usize,
    kept: usize,
}

/// Content of memory that was never written.
const UNKNOWN: u8 = 0xa5;
/// Bytes after the end, because the interpreter checks only where an access starts.
const MARGIN: usize = 8;

impl Arena {
    pub fn new(bytes: usize) -> Arena {
        Arena { cells: (0..bytes + MARGIN).map(|_| AtomicU8::new(UNKNOWN)).collect(), used: 0, kept: 0 }
    }

    fn base(&self) -> u64 {
        self.cells.as_ptr().expose_provenance() as u64
    }

    /// Returns the addresses that programs may read and write.
    pub fn addresses(&self) -> Range<u64> {
        self.base()..self.base() + (self.cells.len() - MARGIN) as u64
    }

    /// Keeps all allocations so far across [`Arena::clear`].
    pub fn keep(&mut self) {
        self.kept = self.used;
    }

    /// Frees the allocations since [`Arena::keep`].
    pub fn clear(&mut self) {
        self.used = self.kept;
    }

    /// Resets memory to its unwritten content.
    pub fn forget(&self, address: u64, bytes: usize) {
        self.at(address, bytes).iter().for_each(|cell| cell.store(UNKNOWN, Ordering::Relaxed));
    }

    /// Allocates this many unwritten bytes; the address is a multiple of 8.
    pub fn reserve(&mut self, bytes: usize) -> u64 {
        let address = self.base() + self.used as u64;
        self.used += bytes.next_multiple_of(8);
        assert!(self.used + MARGIN <= self.cells.len(), "a program needs more memory than the test has");
        self.forget(address, bytes);
        address
    }

    /// Allocates bytes with this content and returns their address.
    pub fn alloc_with(&mut self, content: &[u8]) -> u64 {
        let address = self.reserve(content.len());
        self.write(address, content);
        address
    }

    fn at(&self, address: u64, bytes: usize) -> &[AtomicU8] {
        let start = address.wrapping_sub(self.base()) as usize;
        let cells = start.checked_add(bytes).and_then(|end| self.cells[..self.used].get(start..end));
        cells.unwrap_or_else(|| panic!("a program gives {bytes} bytes at {address:#x}, where it has none"))
    }

    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        self.at(address, bytes).iter().map(|cell| cell.load(Ordering::Relaxed)).collect()
    }

    pub fn write(&self, address: u64, content: &[u8]) {
        for (cell, byte) in self.at(address, content.len()).iter().zip(content) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }

    /// Reads a number of at most 8 bytes.
    pub fn number(&self, address: u64, bytes: usize) -> u64 {
        self.read(address, bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
