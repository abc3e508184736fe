//! Plain old data: what keys, values, records and variables are made of.
//!
//! Bytes are as the kernel holds them: little-endian, in C's layout. A struct gets its layout by `#[derive(Plain)]`,
//! whatever Rust does with it in memory:
//!
//! ```
//! use ks_guest::Plain;
//!
//! #[derive(Plain, Debug, Clone, PartialEq)]
//! struct Switch {
//!     cpu: u16,
//!     pid: u32,
//!     comm: [u8; 16],
//! }
//!
//! assert_eq!(Switch::SIZE, 24);
//! assert_eq!(Switch::FIELDS[1].offset, 4);
//! ```
//!
//! # Checks
//!
//! When a map, ring buffer or variable is opened, its type here is compared with the one that the BTF of the plugin's object
//! has for it: the members in their order, each with its name, place, size and kind, down to the numbers in nested structs
//! and arrays. What differs is an [`Invalid`](crate::ErrorKind::Invalid) error that shows both and the members to write.
//!
//! | the object has | here it is |
//! |---|---|
//! | an integer of 1, 2, 4 or 8 bytes | the integer of its size and sign |
//! | `_Bool`, `bool` | `bool` |
//! | `char` | `u8` or `i8` |
//! | an enumeration | an integer of its size, of either sign |
//! | a pointer | `u64` |
//! | a union, neighbouring bit-fields, a float, an integer of 16 bytes | `[u8; N]`, or an unsigned integer of its size |
//! | an array, a struct | the same of these |
//!
//! Bit-fields have the name of the first one, a union without a name has any. Names of structs are not compared. Padding has
//! no members here; a member that only fills a gap is one like others. Of an object without BTF for a map (`key_size` and
//! `value_size` in the place of types) the sizes are compared; a run from a record (`ks-host replay`) compares those alone.

use alloc::vec;
use alloc::vec::Vec;

/// A field of plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Bytes from the start.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// What it is made of.
    pub shape: &'static Shape,
}

/// What plain data is made of: what is compared with the types of the plugin's object when a map, ring buffer or variable
/// is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An integer without sign.
    Unsigned,
    /// An integer with sign.
    Signed,
    /// A truth value of one byte.
    Boolean,
    /// An array.
    Array {
        /// Its elements.
        of: &'static Shape,
        /// How many.
        count: usize,
        /// Bytes of an element.
        stride: usize,
    },
    /// A struct.
    Struct {
        /// Its name in Rust.
        name: &'static str,
        /// Its name in the object, if `#[plain(name = "..")]` says it.
        object_name: Option<&'static str>,
        /// Its fields, in order.
        fields: &'static [Field],
    },
}

/// A type with a size and a layout that the kernel shares: integers, `bool`, arrays and structs of them.
pub trait Plain: Sized {
    /// Its size in bytes, padding included.
    const SIZE: usize;
    /// What its place is a multiple of, in bytes.
    const ALIGN: usize;
    /// What it is made of.
    const SHAPE: Shape;
    /// Its fields, in order; none for what is no struct.
    const FIELDS: &'static [Field] = &[];

    /// The value in these bytes.
    ///
    /// # Panics
    /// If there are fewer than [`Plain::SIZE`] bytes.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// Writes the value. Padding is left as it is.
    ///
    /// # Panics
    /// If there are fewer than [`Plain::SIZE`] bytes.
    fn write_bytes(&self, bytes: &mut [u8]);

    /// The value in bytes, padding as zeros.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        self.write_bytes(&mut bytes);
        bytes
    }
}

macro_rules! integers {
    ($shape:ident: $($ty:ty)*) => {
        $(impl Plain for $ty {
            const SIZE: usize = size_of::<$ty>();
            const ALIGN: usize = size_of::<$ty>();
            const SHAPE: Shape = Shape::$shape;

            fn from_bytes(bytes: &[u8]) -> $ty {
                let mut own = [0; size_of::<$ty>()];
                own.copy_from_slice(&bytes[..size_of::<$ty>()]);
                <$ty>::from_le_bytes(own)
            }

            fn write_bytes(&self, bytes: &mut [u8]) {
                bytes[..size_of::<$ty>()].copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

integers!(Unsigned: u8 u16 u32 u64);
integers!(Signed: i8 i16 i32 i64);

impl Plain for bool {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;
    const SHAPE: Shape = Shape::Boolean;

    fn from_bytes(bytes: &[u8]) -> bool {
        bytes[0] != 0
    }

    fn write_bytes(&self, bytes: &mut [u8]) {
        bytes[0] = u8::from(*self);
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const ALIGN: usize = T::ALIGN;
    const SHAPE: Shape = Shape::Array { of: &T::SHAPE, count: N, stride: T::SIZE };

    fn from_bytes(bytes: &[u8]) -> [T; N] {
        core::array::from_fn(|index| T::from_bytes(&bytes[index * T::SIZE..(index + 1) * T::SIZE]))
    }

    fn write_bytes(&self, bytes: &mut [u8]) {
        for (index, one) in self.iter().enumerate() {
            one.write_bytes(&mut bytes[index * T::SIZE..(index + 1) * T::SIZE]);
        }
    }
}

/// Where fields of these sizes and alignments lie, in C's layout. For `#[derive(Plain)]`.
#[doc(hidden)]
pub const fn offsets<const N: usize>(sizes: [usize; N], aligns: [usize; N]) -> [usize; N] {
    let mut found = [0; N];
    let mut end = 0;
    let mut index = 0;
    while index < N {
        found[index] = next_multiple(end, aligns[index]);
        end = found[index] + sizes[index];
        index += 1;
    }
    found
}

/// The alignment of a struct. For `#[derive(Plain)]`.
#[doc(hidden)]
pub const fn align<const N: usize>(aligns: [usize; N]) -> usize {
    let mut most = 1;
    let mut index = 0;
    while index < N {
        if aligns[index] > most {
            most = aligns[index];
        }
        index += 1;
    }
    most
}

/// The size of a struct. For `#[derive(Plain)]`.
#[doc(hidden)]
pub const fn size<const N: usize>(sizes: [usize; N], aligns: [usize; N]) -> usize {
    let end = if N == 0 { 0 } else { offsets(sizes, aligns)[N - 1] + sizes[N - 1] };
    next_multiple(end, align(aligns))
}

const fn next_multiple(number: usize, of: usize) -> usize {
    number.div_ceil(of) * of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_lies_as_c_lays_it() {
        // struct { u8 a; u64 b; u16 c[3]; u8 d; }
        let (sizes, aligns) = ([1, 8, 6, 1], [1, 8, 2, 1]);
        assert_eq!(offsets(sizes, aligns), [0, 8, 16, 22]);
        assert_eq!((size(sizes, aligns), align(aligns)), (24, 8));
    }

    #[test]
    fn values_survive_the_round_trip_through_bytes() {
        let numbers = [[1_u16, 0x0203], [0xfffe, 5]];
        assert_eq!(numbers.to_bytes(), [1, 0, 3, 2, 0xfe, 0xff, 5, 0]);
        assert_eq!(<[[u16; 2]; 2]>::from_bytes(&numbers.to_bytes()), numbers);
        assert_eq!(i64::from_bytes(&(-7_i64).to_bytes()), -7);
        assert!(bool::from_bytes(&[2]) && !bool::from_bytes(&[0]));
    }
}
