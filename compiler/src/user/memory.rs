//! The plugin's linear memory.
//!
//! ```text
//! 0       null
//! 16      stack, grows down from STACK_TOP
//! ..      statics: constants, variables
//! ..      heap: objects of `new`
//! ..      arena: results of host calls (cabi_realloc), grows up
//! ```
//!
//! The stack holds values that do not fit a Wasm local: structs, arrays, strings, and variables whose address
//! is taken. The arena moves up when the heap needs space (`heap`).

use std::collections::BTreeMap;

/// The lowest address of the stack; accesses below it are null accesses.
pub const STACK_BOTTOM: u32 = 16;
/// The initial stack pointer; the stack has 1 MiB.
pub const STACK_TOP: u32 = STACK_BOTTOM + (1 << 20);
/// Size of a page of linear memory, in bytes.
pub const PAGE: u32 = 1 << 16;
/// Limit of the end of variables and constants: the plugin's memory minus 8 MiB for heap objects and the
/// host's answers.
pub const MAX_STATIC: u64 = (ks_wit::OWN_MEMORY_BYTES - (8 << 20)) as u64;

/// Constants and variables at fixed addresses after the stack.
#[derive(Debug)]
pub struct Statics {
    end: u32,
    segments: Vec<(u32, Vec<u8>)>,
    constants: BTreeMap<Vec<u8>, u32>,
    overflow: bool,
}

impl Statics {
    /// Creates an empty layout.
    pub fn new() -> Statics {
        Statics { end: STACK_TOP, segments: Vec::new(), constants: BTreeMap::new(), overflow: false }
    }

    /// Returns the address of a constant; equal constants are stored once.
    pub fn constant(&mut self, bytes: &[u8]) -> u32 {
        if let Some(address) = self.constants.get(bytes) {
            return *address;
        }
        let address = self.variable(bytes, bytes.len() as u64, 8);
        self.constants.insert(bytes.to_vec(), address);
        address
    }

    /// Returns the address of a new variable of `bytes` bytes, initialised with `init` followed by zeros.
    pub fn variable(&mut self, init: &[u8], bytes: u64, align: u32) -> u32 {
        let address = self.reserve(bytes, align);
        let used = init.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if used > 0 && !self.overflow {
            self.segments.push((address, init[..used].to_vec()));
        }
        address
    }

    /// Returns the address of `bytes` zeroed bytes.
    pub fn reserve(&mut self, bytes: u64, align: u32) -> u32 {
        let address = self.end.next_multiple_of(align.max(1));
        let end = u64::from(address).saturating_add(bytes);
        if end > MAX_STATIC {
            self.overflow = true;
            return STACK_TOP;
        }
        self.end = end as u32;
        address
    }

    /// Returns whether the requested memory exceeds [`MAX_STATIC`]; the addresses are then meaningless.
    pub fn overflow(&self) -> bool {
        self.overflow
    }

    /// Returns the first free address.
    pub fn end(&self) -> u32 {
        self.end.next_multiple_of(16)
    }

    /// Returns the initial content where it is not zero. Neighbours are merged, so that there are few
    /// segments.
    pub fn segments(&self) -> Vec<(u32, Vec<u8>)> {
        let mut joined: Vec<(u32, Vec<u8>)> = Vec::new();
        for (address, bytes) in &self.segments {
            match joined.last_mut() {
                Some((start, last)) if address - (*start + last.len() as u32) < 16 => {
                    last.resize((address - *start) as usize, 0);
                    last.extend_from_slice(bytes);
                }
                _ => joined.push((*address, bytes.clone())),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_stored_once_and_zeros_not_at_all() {
        let mut statics = Statics::new();
        let first = statics.constant(b"page");
        statics.variable(&[], 100, 8);
        let last = statics.variable(&[1, 0], 2, 2);
        assert_eq!(statics.constant(b"page"), first);
        assert_eq!(statics.segments(), [(first, b"page".to_vec()), (last, vec![1])]);
    }

    #[test]
    fn too_much_is_noticed() {
        let mut statics = Statics::new();
        statics.reserve(u64::MAX, 8);
        assert!(statics.overflow());
    }
}
