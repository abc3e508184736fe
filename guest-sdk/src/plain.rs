//! Plain old data: the types of keys, values, records and variables.
//!
//! Bytes are as in the kernel: little-endian, in C's layout. `#[derive(Plain)]` defines the layout of a
//! struct, independent of its layout in Rust:
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
//! When a map, ring buffer or variable is opened, its type in Rust is compared with the type in the BTF of
//! the plugin's object: the members in their order, each with its name, offset, size and kind, down to the
//! scalars in nested structs and arrays. A difference is an [`Invalid`](crate::ErrorKind::Invalid) error that
//! shows both types and the members to write.
//!
//! | the object has | Rust has |
//! |---|---|
//! | an integer of 1, 2, 4 or 8 bytes | the integer of its size and sign |
//! | `_Bool`, `bool` | `bool` |
//! | `char` | `u8` or `i8` |
//! | an enumeration | an integer of its size, of either sign |
//! | a pointer | `u64` |
//! | a union, adjacent bit-fields, a float, a 16-byte integer | `[u8; N]` or an unsigned integer of its size |
//! | an array, a struct | the same of these |
//!
//! Bit-fields have the name of the first one, a nameless union matches any name. Names of structs are not
//! compared. Padding has no members here; an explicit padding member is compared like others. If the object
//! has no BTF for a map (`key_size` and `value_size` instead of types), only sizes are compared; so it is in
//! a replay of a recording (`ks-host replay`).

use alloc::vec;
use alloc::vec::Vec;

/// A field of a plain struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The field's name in Rust.
    pub name: &'static str,
    /// Offset in bytes from the start of the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Shape of the field's type.
    pub shape: &'static Shape,
}

/// The shape of a plain type, which is compared with the type in the plugin's object when a map, ring buffer
/// or variable is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An unsigned integer of the field's size.
    Unsigned,
    /// A signed integer of the field's size.
    Signed,
    /// A `bool` of one byte.
    Boolean,
    /// An array of equal elements.
    Array {
        /// Shape of an element.
        of: &'static Shape,
        /// Number of elements in the array.
        count: usize,
        /// Distance of two elements in bytes.
        stride: usize,
    },
    /// A struct with named fields.
    Struct {
        /// The struct's name in Rust.
        name: &'static str,
        /// The struct's name in the object, if `#[plain(name = "..")]` sets it.
        object_name: Option<&'static str>,
        /// The fields, in order of declaration.
        fields: &'static [Field],
    },
}

/// A type with a size and a layout that the kernel shares: integers, `bool`, arrays and structs of them.
pub trait Plain: Sized {
    /// Size in bytes, padding included.
    const SIZE: usize;
    /// Alignment in bytes, a power of two.
    const ALIGN: usize;
    /// Shape, for the comparison with the object's type.
    const SHAPE: Shape;
    /// The fields, in order of declaration; empty for other types than structs.
    const FIELDS: &'static [Field] = &[];

    /// Decodes a value from its bytes.
    ///
    /// # Panics
    /// If there are fewer than [`Plain::SIZE`] bytes.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// Encodes the value. Padding bytes stay unchanged.
    ///
    /// # Panics
    /// If there are fewer than [`Plain::SIZE`] bytes.
    fn write_bytes(&self, bytes: &mut [u8]);

    /// Encodes the value, with zeros as padding.
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

/// Computes the offsets of fields with these sizes and alignments, in C's layout. For `#[derive(Plain)]`.
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

/// Computes the alignment of a struct. For `#[derive(Plain)]`.
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

/// Computes the size of a struct. For `#[derive(Plain)]`.
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
