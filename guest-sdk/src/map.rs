//! Maps with keys.

use alloc::format;
use alloc::vec::Vec;
use core::marker::PhantomData;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::iter::{Entries, Keys};
use crate::layout;
use crate::plain::Plain;
use crate::shared::{self, Elements};
use crate::sys::layouts;
use crate::sys::maps::{self, UpdateMode};

/// The values that a map has at each key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValueCopies {
    /// One value for all CPUs.
    Shared,
    /// A value for each possible CPU.
    PerCpu,
}

/// Opens a map and compares its key type, if it has keys, and its value type with the plugin's types.
pub(crate) fn open<K: Plain, V: Plain>(name: &str, values: ValueCopies) -> Result<maps::Map> {
    let raw = open_without_keys::<V>(name, values)?;
    layout::check::<K>(&format!("a key of map `{name}`"), layouts::of_key(name))?;
    check_size(name, "a key", K::SIZE, raw.info().key_size)?;
    Ok(raw)
}

/// Opens a map without keys, and compares its value type.
pub(crate) fn open_without_keys<V: Plain>(name: &str, values: ValueCopies) -> Result<maps::Map> {
    let raw = maps::Map::open(name)?;
    shared::loaded();
    let info = raw.info();
    match (info.per_cpu, values) {
        (true, ValueCopies::Shared) => {
            return Err(Error::invalid(format!(
                "map `{name}` has a value for each CPU\n  do: open it as `PerCpuMap`"
            )));
        }
        (false, ValueCopies::PerCpu) => {
            return Err(Error::invalid(format!(
                "map `{name}` has one value for all CPUs\n  do: open it as `Map`"
            )));
        }
        (false, ValueCopies::Shared) | (true, ValueCopies::PerCpu) => {}
    }
    layout::check::<V>(&format!("a value of map `{name}`"), layouts::of_value(name))?;
    check_size(name, "a value", V::SIZE, info.value_size)?;
    Ok(raw)
}

/// Compares sizes, the only check without BTF.
fn check_size(name: &str, what: &str, here: usize, there: u32) -> Result<()> {
    if there as usize == here {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "map `{name}`: {what} has {there} bytes in the plugin's object, its type here has {here}\n  \
         do: open it with a type of {there} bytes"
    )))
}

/// `BPF_MAP_TYPE_ARRAY` of `enum bpf_map_type`, whose keys are indices of 4 bytes.
const ARRAY: u32 = 2;

/// Returns the address of a map's elements, if it is an array that the host maps.
fn elements(raw: &maps::Map) -> Option<Elements> {
    let info = raw.info();
    if info.type_ != ARRAY || info.key_size != 4 {
        return None;
    }
    Some(Elements::new(raw.share()?, info.max_entries))
}

/// A map of the plugin's object with keys `K` and values `V`. It lives as long as the plugin.
///
/// A plugin with a shared memory (`ks share`) reads and writes elements of an array without host calls, if
/// the array has BPF_F_MMAPABLE, which `ks` sets. The values are the same; values of more than 8 bytes may be
/// a mixture while a program writes them, of which each number is whole.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::{Map, println};
///
/// let counts = Map::<u32, u64>::open("counts")?;
/// counts.insert(&7, &0)?;
/// for entry in counts.iter()? {
///     let (pid, count) = entry?;
///     println!("{pid} {count}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Map<K, V> {
    raw: maps::Map,
    elements: Option<Elements>,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Opens the map of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if keys or values of the object are not `K` and `V`
    /// ([`plain`](crate::plain#checks)), or there is a value for each CPU; [`NotFound`](ErrorKind::NotFound)
    /// (also: it is pinned, and bpffs is not mounted), [`NotPermitted`](ErrorKind::NotPermitted) (CAP_BPF),
    /// [`DeniedByPolicy`](ErrorKind::DeniedByPolicy), [`Kernel`](ErrorKind::Kernel).
    pub fn open(name: &str) -> Result<Map<K, V>> {
        let raw = open::<K, V>(name, ValueCopies::Shared)?;
        let elements = elements(&raw);
        Ok(Map { raw, elements, types: PhantomData })
    }

    /// Returns the value at a key; none if there is no entry.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        match self.elements {
            Some(elements) => Ok(elements.at::<V>(index(key)).map(shared::read)),
            None => self.look_up(key),
        }
    }

    #[inline(never)]
    fn look_up(&self, key: &K) -> Result<Option<V>> {
        Ok(self.raw.lookup(&key.to_bytes())?.map(|bytes| V::from_bytes(&bytes)))
    }

    /// Creates or replaces an entry.
    ///
    /// # Errors
    /// [`Limit`](ErrorKind::Limit) (the map is full, or the index is beyond the end),
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<()> {
        match self.elements.and_then(|elements| elements.at::<V>(index(key))) {
            Some(at) => {
                shared::write(at, value);
                Ok(())
            }
            // The host call reports an index beyond the end.
            None => self.update(key, value),
        }
    }

    #[inline(never)]
    fn update(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update(&key.to_bytes(), &value.to_bytes(), UpdateMode::Any)?)
    }

    /// Creates an entry.
    ///
    /// # Errors
    /// See [`Map::insert`]; [`Busy`](ErrorKind::Busy) if the key exists.
    pub fn insert_new(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update(&key.to_bytes(), &value.to_bytes(), UpdateMode::NoExist)?)
    }

    /// Replaces an entry.
    ///
    /// # Errors
    /// See [`Map::insert`]; [`NotFound`](ErrorKind::NotFound) if the key does not exist.
    pub fn replace(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update(&key.to_bytes(), &value.to_bytes(), UpdateMode::Exist)?)
    }

    /// Removes an entry. Returns false if there was none.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (elements of arrays cannot be removed), [`Kernel`](ErrorKind::Kernel).
    pub fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.raw.delete(&key.to_bytes())?)
    }

    /// Returns an iterator over the entries, which fetches them in batches, in no particular order. Entries
    /// that are added or removed meanwhile may be visited or not; no other entry is visited twice.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a type of map whose entries cannot be listed.
    pub fn iter(&self) -> Result<Entries<K, V>> {
        Ok(Entries::new(self.raw.walk(true)?))
    }

    /// Returns an iterator over the keys alone, like [`Map::iter`].
    ///
    /// # Errors
    /// See [`Map::iter`].
    pub fn keys(&self) -> Result<Keys<K>> {
        Ok(Keys::new(self.raw.walk(false)?))
    }

    /// Counts the entries by iterating over them.
    ///
    /// # Errors
    /// See [`Map::iter`]; [`Kernel`](ErrorKind::Kernel).
    pub fn count(&self) -> Result<u32> {
        Ok(self.raw.count()?)
    }

    /// Removes every entry that it finds while iterating.
    ///
    /// # Errors
    /// See [`Map::iter`]; [`Invalid`](ErrorKind::Invalid) for an array, [`Kernel`](ErrorKind::Kernel).
    pub fn clear(&self) -> Result<()> {
        Ok(self.raw.clear()?)
    }
}

/// Converts a key of an array to its index.
#[inline]
fn index<K: Plain>(key: &K) -> u32 {
    let mut bytes = [0; 4];
    key.write_bytes(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// A map with one value for each possible CPU at each key, indexed by CPU number.
#[derive(Debug)]
pub struct PerCpuMap<K, V> {
    raw: maps::Map,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> PerCpuMap<K, V> {
    /// Opens the map of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// See [`Map::open`]; [`Invalid`](ErrorKind::Invalid) if it has one value for all CPUs.
    pub fn open(name: &str) -> Result<PerCpuMap<K, V>> {
        Ok(PerCpuMap { raw: open::<K, V>(name, ValueCopies::PerCpu)?, types: PhantomData })
    }

    /// Returns the values at a key, one for each possible CPU; none if there is no entry.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn get(&self, key: &K) -> Result<Option<Vec<V>>> {
        let bytes = self.raw.lookup(&key.to_bytes())?;
        Ok(bytes.map(|bytes| bytes.chunks_exact(V::SIZE).map(V::from_bytes).collect()))
    }

    /// Creates or replaces an entry: one value for each possible CPU.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (another number of values), [`Limit`](ErrorKind::Limit) (the map is
    /// full), [`Kernel`](ErrorKind::Kernel).
    pub fn insert(&self, key: &K, values: &[V]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(Plain::to_bytes).collect();
        Ok(self.raw.update(&key.to_bytes(), &bytes, UpdateMode::Any)?)
    }

    /// Removes an entry. Returns false if there was none.
    ///
    /// # Errors
    /// See [`Map::remove`].
    pub fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.raw.delete(&key.to_bytes())?)
    }

    /// Returns an iterator over the keys, like [`Map::keys`].
    ///
    /// # Errors
    /// See [`Map::keys`].
    pub fn keys(&self) -> Result<Keys<K>> {
        Ok(Keys::new(self.raw.walk(false)?))
    }
}
