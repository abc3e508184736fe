//! Binary form of the contract's values in messages between the broker and a worker (`worker`).
//!
//! Integers are little-endian; a text or list is its length (u32) and its elements; a case of a variant is its
//! position (u8) and its payload; a handle is whether it is owned, and the number that the broker gave it. Types
//! of the bindings implement it by `#[derive(Wire)]`; a type without it does not compile.
//!
//! What a worker sends is hostile: a value takes no more memory than a small multiple of its message.

use wasmtime::component::Resource;

/// A message does not have the form of the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message between the processes of a plugin has another form")]
pub(crate) struct Malformed;

/// The unread rest of a message.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    /// Bytes of memory that lists and texts may still take.
    budget: usize,
}

impl<'a> Input<'a> {
    /// Reads a message whose values take at most so much memory.
    pub(crate) fn new(bytes: &'a [u8], budget: usize) -> Input<'a> {
        Input { rest: bytes, budget }
    }

    /// Counts memory for so many elements.
    fn spend(&mut self, elements: usize, bytes: usize) -> Result<(), Malformed> {
        let spent = elements.checked_mul(bytes).and_then(|spent| self.budget.checked_sub(spent));
        self.budget = spent.ok_or(Malformed)?;
        Ok(())
    }

    /// Takes this many bytes.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes a length. No element takes less than a byte, so it is at most that of the rest.
    fn len(&mut self) -> Result<usize, Malformed> {
        let len = usize::try_from(u32::take(self)?).map_err(|_| Malformed)?;
        if len > self.rest.len() { Err(Malformed) } else { Ok(len) }
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`Malformed`] if something is.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// A value with a form in messages.
pub(crate) trait Wire: Sized {
    /// Appends the value to a message.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes the value from a message.
    ///
    /// # Errors
    /// [`Malformed`].
    fn take(from: &mut Input<'_>) -> Result<Self, Malformed>;

    /// The handle that a list of arguments begins with, as the number of what it denotes.
    fn handle(&self) -> Option<u32> {
        None
    }

    /// Appends the elements of a list; bytes at once.
    fn put_all(items: &[Self], to: &mut Vec<u8>) {
        items.iter().for_each(|item| item.put(to));
    }

    /// Takes the elements of a list.
    ///
    /// # Errors
    /// [`Malformed`].
    fn take_all(count: usize, from: &mut Input<'_>) -> Result<Vec<Self>, Malformed> {
        from.spend(count, size_of::<Self>())?;
        (0..count).map(|_| Self::take(from)).collect()
    }
}

/// Appends a value to a message.
pub(crate) fn put<T: Wire>(value: &T, to: &mut Vec<u8>) {
    value.put(to);
}

/// Reads a message that is one value.
///
/// # Errors
/// [`Malformed`], also if something follows it.
pub(crate) fn read<T: Wire>(message: &[u8]) -> Result<T, Malformed> {
    last(&mut Input::new(message, usize::MAX))
}

/// Takes the last value of a message.
///
/// # Errors
/// As [`read`].
pub(crate) fn last<T: Wire>(from: &mut Input<'_>) -> Result<T, Malformed> {
    let value = T::take(from)?;
    from.end().map(|()| value)
}

macro_rules! integers {
    ($($ty:ident)*) => {
        $(impl Wire for $ty {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }

            fn take(from: &mut Input<'_>) -> Result<$ty, Malformed> {
                from.array().map($ty::from_le_bytes)
            }
        })*
    };
}

integers! { u16 u32 u64 i8 i16 i32 i64 }

impl Wire for u8 {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn take(from: &mut Input<'_>) -> Result<u8, Malformed> {
        from.array().map(|[byte]| byte)
    }

    fn put_all(items: &[u8], to: &mut Vec<u8>) {
        to.extend(items);
    }

    fn take_all(count: usize, from: &mut Input<'_>) -> Result<Vec<u8>, Malformed> {
        from.spend(count, 1)?;
        from.bytes(count).map(<[u8]>::to_vec)
    }
}

impl Wire for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.push((*self).into());
    }

    fn take(from: &mut Input<'_>) -> Result<bool, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Wire for f64 {
    fn put(&self, to: &mut Vec<u8>) {
        self.to_bits().put(to);
    }

    fn take(from: &mut Input<'_>) -> Result<f64, Malformed> {
        u64::take(from).map(f64::from_bits)
    }
}

impl Wire for String {
    fn put(&self, to: &mut Vec<u8>) {
        put_list(self.as_bytes(), to);
    }

    fn take(from: &mut Input<'_>) -> Result<String, Malformed> {
        let len = from.len()?;
        from.spend(len, 1)?;
        str::from_utf8(from.bytes(len)?).map(str::to_owned).map_err(|_| Malformed)
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut Input<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        put_list(self, to);
    }

    fn take(from: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        let count = from.len()?;
        T::take_all(count, from)
    }
}

/// Appends a list. One of 2^32 elements would not fit into a message: its length is then a lie that the reader
/// refuses.
fn put_list<T: Wire>(items: &[T], to: &mut Vec<u8>) {
    u32::try_from(items.len()).unwrap_or(u32::MAX).put(to);
    T::put_all(items, to);
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_err().put(to);
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }

    fn take(from: &mut Input<'_>) -> Result<Result<T, E>, Malformed> {
        if bool::take(from)? { E::take(from).map(Err) } else { T::take(from).map(Ok) }
    }
}

/// The table of the broker checks the number and the type of what it denotes, whoever sends it.
impl<T: 'static> Wire for Resource<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.owned().put(to);
        self.rep().put(to);
    }

    fn take(from: &mut Input<'_>) -> Result<Resource<T>, Malformed> {
        let is_owned = bool::take(from)?;
        u32::take(from).map(if is_owned { Resource::new_own } else { Resource::new_borrow })
    }

    fn handle(&self) -> Option<u32> {
        Some(self.rep())
    }
}

macro_rules! tuples {
    ($(($first:ident $(, $name:ident)*))*) => {
        $(impl<$first: Wire $(, $name: Wire)*> Wire for ($first, $($name,)*) {
            fn put(&self, to: &mut Vec<u8>) {
                #[expect(non_snake_case, reason = "a value is called as its type")]
                let ($first, $($name,)*) = self;
                $first.put(to);
                $($name.put(to);)*
            }

            fn take(from: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(($first::take(from)?, $($name::take(from)?,)*))
            }

            fn handle(&self) -> Option<u32> {
                self.0.handle()
            }
        })*
    };
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }

#[cfg(test)]
mod tests {
    use super::*;

    fn written<T: Wire>(value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        bytes
    }

    #[test]
    fn values_come_back() {
        type All = (u64, String, Vec<Option<i32>>, Result<Vec<u8>, bool>, f64, (i8, u16));
        let all: All = (u64::MAX, "\u{e9}".into(), vec![None, Some(-1)], Ok(vec![1, 2]), -0.5, (-1, 2));
        let bytes = written(&all);
        assert_eq!(read::<All>(&bytes), Ok(all));
        for end in 0..bytes.len() {
            assert_eq!(read::<All>(&bytes[..end]), Err(Malformed), "{end}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(read::<bool>(&[2]), Err(Malformed));
        assert_eq!(read::<u8>(&[1, 2]), Err(Malformed));
        assert_eq!(read::<String>(&[1, 0, 0, 0, 0xff]), Err(Malformed));
        // A length that no message of this size can have takes no memory.
        assert_eq!(read::<Vec<u64>>(&[0xff, 0xff, 0xff, 0xff, 0]), Err(Malformed));
        // Nor do many elements of few bytes.
        let options = written(&vec![None::<(u64, u64)>; 1000]);
        assert_eq!(last::<Vec<Option<(u64, u64)>>>(&mut Input::new(&options, 20_000)), Err(Malformed));
        assert!(last::<Vec<Option<(u64, u64)>>>(&mut Input::new(&options, 24_000)).is_ok());
    }
}
