//! Shared memory: variables and arrays of the kernel half, where the host has mapped them into the plugin.
//!
//! ```text
//! a value of 1, 2, 4 or 8 bytes:  one access
//! a larger one:                   | 2 | 4 | 8 | 8 | .. | 4 | 2 | 1 |   each at a multiple of its width
//! ```
//!
//! The kernel half and other plugins write this memory at any time. So it is accessed only atomically, and
//! each number in a value is read or written by one access; a larger value may be a mixture. A mapping stays
//! until the plugin ends, even if its map or variable is dropped. Everything that is not mapped is read and
//! written by host calls, with the same results.

mod access;

use alloc::vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::plain::Plain;

/// Whether the plugin's object is loaded: variables have no address before.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Values up to this size in bytes need no allocation.
const SMALL: usize = 64;

/// Marks the plugin's object as loaded.
pub(crate) fn loaded() {
    LOADED.store(true, Ordering::Relaxed);
}

/// The address of a variable of the type `T`, which is requested once the object is loaded.
#[derive(Debug)]
pub(crate) struct VariableAddress {
    at: Cell<Option<u32>>,
    asked: Cell<bool>,
}

impl VariableAddress {
    /// Creates an address that was not requested yet.
    pub(crate) fn new() -> VariableAddress {
        VariableAddress { at: Cell::new(None), asked: Cell::new(false) }
    }

    /// Returns the address; calls `share` once for it, and rejects an address that is not aligned for a `T`.
    pub(crate) fn find<T: Plain>(&self, share: impl FnOnce() -> Option<u32>) -> Option<u32> {
        if !self.asked.get() && LOADED.load(Ordering::Relaxed) {
            self.asked.set(true);
            self.at.set(share().filter(|at| at.is_multiple_of(align::<T>())));
        }
        self.at.get()
    }
}

/// Alignment of a `T` in shared memory.
const fn align<T: Plain>() -> u32 {
    match T::SIZE {
        1 | 2 | 4 | 8 => T::SIZE as u32,
        _ => T::ALIGN as u32,
    }
}

/// The mapped elements of an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    /// Address of the first element, a multiple of 8.
    start: u32,
    len: u32,
}

impl Elements {
    /// Describes an array of `len` elements that starts at this address.
    pub(crate) fn new(start: u32, len: u32) -> Elements {
        Elements { start, len }
    }

    /// Returns the address of the element with this index; none beyond the end.
    #[inline]
    pub(crate) fn at<T: Plain>(self, index: u32) -> Option<u32> {
        // Source: kernel/bpf/arraymap.c, `array_map_alloc` (v6.12): elements are rounded up to 8 bytes.
        let stride = const { (T::SIZE as u32).next_multiple_of(8) };
        // The host has mapped all of them, so the last one has an address of 32 bits.
        (index < self.len).then(|| self.start.wrapping_add(index.wrapping_mul(stride)))
    }
}

/// Reads the value at an address.
#[inline]
pub(crate) fn read<T: Plain>(at: u32) -> T {
    match T::SIZE {
        1 => T::from_bytes(&[access::load_8(at) as u8]),
        2 => T::from_bytes(&(access::load_16(at) as u16).to_le_bytes()),
        4 => T::from_bytes(&access::load_32(at).to_le_bytes()),
        8 => T::from_bytes(&access::load_64(at).to_le_bytes()),
        _ => read_parts(at),
    }
}

/// Not inlined, to keep the path of a single access short.
#[inline(never)]
fn read_parts<T: Plain>(at: u32) -> T {
    match T::SIZE {
        ..=SMALL => copy(at, &mut [0; SMALL][..T::SIZE]),
        _ => copy(at, &mut vec![0; T::SIZE]),
    }
}

fn copy<T: Plain>(at: u32, bytes: &mut [u8]) -> T {
    for_each_width(at, bytes, |at, part| match part.len() {
        1 => part.copy_from_slice(&[access::load_8(at) as u8]),
        2 => part.copy_from_slice(&(access::load_16(at) as u16).to_le_bytes()),
        4 => part.copy_from_slice(&access::load_32(at).to_le_bytes()),
        _ => part.copy_from_slice(&access::load_64(at).to_le_bytes()),
    });
    T::from_bytes(bytes)
}

/// Stores a value at an address.
#[inline]
pub(crate) fn write<T: Plain>(at: u32, value: &T) {
    let mut bytes = [0; 8];
    match T::SIZE {
        1 | 2 | 4 | 8 => value.write_bytes(&mut bytes),
        _ => return write_parts(at, value),
    }
    let bits = u64::from_le_bytes(bytes);
    match T::SIZE {
        1 => access::store_8(at, bits as u32),
        2 => access::store_16(at, bits as u32),
        4 => access::store_32(at, bits as u32),
        _ => access::store_64(at, bits),
    }
}

/// Not inlined, to keep the path of a single access short.
#[inline(never)]
fn write_parts<T: Plain>(at: u32, value: &T) {
    match T::SIZE {
        ..=SMALL => put(at, value, &mut [0; SMALL][..T::SIZE]),
        _ => put(at, value, &mut vec![0; T::SIZE]),
    }
}

fn put<T: Plain>(at: u32, value: &T, bytes: &mut [u8]) {
    value.write_bytes(bytes);
    for_each_width(at, bytes, |at, part| match *part {
        [a] => access::store_8(at, u32::from(a)),
        [a, b] => access::store_16(at, u32::from(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => access::store_32(at, u32::from_le_bytes([a, b, c, d])),
        _ => access::store_64(at, u64::from_bytes(part)),
    });
}

/// Splits bytes at an address into the widest parts that one aligned access each covers, the first ones up to
/// the next multiple of 8: so a number that is aligned to its own width is covered by one access.
fn for_each_width(at: u32, bytes: &mut [u8], mut act: impl FnMut(u32, &mut [u8])) {
    let (mut at, mut rest) = (at, bytes);
    while !rest.is_empty() {
        let fits = |width: &u32| at.is_multiple_of(*width) && *width as usize <= rest.len();
        let width = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let (part, others) = rest.split_at_mut(width as usize);
        act(at, part);
        (at, rest) = (at + width, others);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn each_number_is_whole_in_one_access() {
        let parts = |at: u32, size: usize| {
            let mut found = Vec::new();
            for_each_width(at, &mut vec![0; size], |at, part| found.push((at, part.len())));
            found
        };
        assert_eq!(parts(64, 24), [(64, 8), (72, 8), (80, 8)]);
        assert_eq!(parts(68, 12), [(68, 4), (72, 8)]);
        assert_eq!(parts(66, 16), [(66, 2), (68, 4), (72, 8), (80, 2)]);
        assert_eq!(parts(64, 15), [(64, 8), (72, 4), (76, 2), (78, 1)]);
        assert_eq!(parts(65, 3), [(65, 1), (66, 2)]);
        assert_eq!(parts(64, 0), []);
    }

    #[test]
    fn an_element_beyond_the_end_is_nowhere() {
        let three = Elements::new(65536, 3);
        assert_eq!(three.at::<[u32; 3]>(2), Some(65536 + 32));
        assert_eq!(three.at::<u8>(1), Some(65536 + 8));
        assert_eq!((three.at::<u8>(3), three.at::<u8>(u32::MAX)), (None, None));
    }

    #[test]
    fn an_address_is_requested_once_the_object_is_loaded() {
        let address = VariableAddress::new();
        loaded();
        assert_eq!(address.find::<u32>(|| Some(65540)), Some(65540));
        assert_eq!(address.find::<u32>(|| None), Some(65540));
        // An address that is not aligned for its width is rejected, and host calls are used.
        assert_eq!(VariableAddress::new().find::<u64>(|| Some(65540)), None);
        assert_eq!(VariableAddress::new().find::<[u32; 3]>(|| Some(65540)), Some(65540));
    }
}
