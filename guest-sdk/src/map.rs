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

/// Opens a map and compares its keys, if it has such, and its values with what the plugin takes them for.
pub(crate) fn open<K: Plain, V: Plain>(name: &str, per_cpu: bool) -> Result<maps::Map> {
    let raw = open_without_keys::<V>(name, per_cpu)?;
    layout::check::<K>(&format!("a key of map `{name}`"), layouts::of_key(name))?;
    check_size(name, "a key", K::SIZE, raw.info().key_size)?;
    Ok(raw)
}

/// The same for a map that has values alone.
pub(crate) fn open_without_keys<V: Plain>(name: &str, per_cpu: bool) -> Result<maps::Map> {
    let raw = maps::Map::open(name)?;
    shared::loaded();
    let info = raw.info();
    match (info.per_cpu, per_cpu) {
        (true, false) => {
            return Err(Error::invalid(format!(
                "map `{name}` has a value for each CPU\n  do: open it as `PerCpuMap`"
            )));
        }
        (false, true) => {
            return Err(Error::invalid(format!(
                "map `{name}` has one value for all CPUs\n  do: open it as `Map`"
            )));
        }
        _ => {}
    }
    layout::check::<V>(&format!("a value of map `{name}`"), layouts::of_value(name))?;
    check_size(name, "a value", V::SIZE, info.value_size)?;
    Ok(raw)
}

/// Compares sizes, which is all there is to compare without BTF.
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

/// Where the elements of a map lie, if it is an array that the host maps.
fn elements(raw: &maps::Map) -> Option<Elements> {
    let info = raw.info();
    if info.type_ != ARRAY || info.key_size != 4 {
        return None;
    }
    Some(Elements::new(raw.share()?, info.max_entries))
}

/// A map of the plugin's object with keys `K` and values `V`. It lives as long as the plugin.
///
/// A plugin with a shared memory (`ks share`) gets and inserts elements of an array without calls of the host, if it was
/// made with BPF_F_MMAPABLE, as `ks` makes them. What it sees is the same; values of more than 8 bytes may be a mixture
/// while a program writes them, of which each number is whole.
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
    /// The map of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if keys or values of the object are not `K` and `V` ([`plain`](crate::plain#checks)),
    /// or there is a value for each CPU;
    /// [`NotFound`](ErrorKind::NotFound) (also: nothing to pin in, bpffs is not mounted),
    /// [`NotPermitted`](ErrorKind::NotPermitted) (CAP_BPF), [`DeniedByPolicy`](ErrorKind::DeniedByPolicy),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn open(name: &str) -> Result<Map<K, V>> {
        let raw = open::<K, V>(name, false)?;
        let elements = elements(&raw);
        Ok(Map { raw, elements, types: PhantomData })
    }

    /// The value at a key; none if there is no entry.
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
    /// [`Limit`](ErrorKind::Limit) (the map is full, or the index is beyond the end), [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<()> {
        match self.elements.and_then(|elements| elements.at::<V>(index(key))) {
            Some(at) => {
                shared::write(at, value);
                Ok(())
            }
            // The kernel has words for an index beyond the end.
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
    /// As [`Map::insert`]; [`Busy`](ErrorKind::Busy) if the key is there.
    pub fn insert_new(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update(&key.to_bytes(), &value.to_bytes(), UpdateMode::NoExist)?)
    }

    /// Replaces an entry.
    ///
    /// # Errors
    /// As [`Map::insert`]; [`NotFound`](ErrorKind::NotFound) if the key is not there.
    pub fn replace(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update(&key.to_bytes(), &value.to_bytes(), UpdateMode::Exist)?)
    }

    /// Removes an entry. False if there was none.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) (elements of arrays cannot be removed), [`Kernel`](ErrorKind::Kernel).
    pub fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.raw.delete(&key.to_bytes())?)
    }

    /// A walk over the entries, fetched in batches, in no order that is promised. Entries that come or go meanwhile may be
    /// met or not; no other is met twice.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a kind of map whose entries cannot be listed.
    pub fn iter(&self) -> Result<Entries<K, V>> {
        Ok(Entries::new(self.raw.walk(true)?))
    }

    /// The same over the keys alone.
    ///
    /// # Errors
    /// As [`Map::iter`].
    pub fn keys(&self) -> Result<Keys<K>> {
        Ok(Keys::new(self.raw.walk(false)?))
    }

    /// The number of entries, which are walked over for it.
    ///
    /// # Errors
    /// As [`Map::iter`]; [`Kernel`](ErrorKind::Kernel).
    pub fn count(&self) -> Result<u32> {
        Ok(self.raw.count()?)
    }

    /// Removes every entry that is there when it gets to it.
    ///
    /// # Errors
    /// As [`Map::iter`]; [`Invalid`](ErrorKind::Invalid) for an array, [`Kernel`](ErrorKind::Kernel).
    pub fn clear(&self) -> Result<()> {
        Ok(self.raw.clear()?)
    }
}

/// The index that a key of an array is.
#[inline]
fn index<K: Plain>(key: &K) -> u32 {
    let mut bytes = [0; 4];
    key.write_bytes(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// A map that has a value for each possible CPU at each key, by the CPU's number.
#[derive(Debug)]
pub struct PerCpuMap<K, V> {
    raw: maps::Map,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> PerCpuMap<K, V> {
    /// The map of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// As [`Map::open`]; [`Invalid`](ErrorKind::Invalid) if it has one value for all CPUs.
    pub fn open(name: &str) -> Result<PerCpuMap<K, V>> {
        Ok(PerCpuMap { raw: open::<K, V>(name, true)?, types: PhantomData })
    }

    /// The values at a key, one for each possible CPU; none if there is no entry.
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
    /// [`Invalid`](ErrorKind::Invalid) (another number of values), [`Limit`](ErrorKind::Limit) (the map is full),
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn insert(&self, key: &K, values: &[V]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(Plain::to_bytes).collect();
        Ok(self.raw.update(&key.to_bytes(), &bytes, UpdateMode::Any)?)
    }

    /// Removes an entry. False if there was none.
    ///
    /// # Errors
    /// As [`Map::remove`].
    pub fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.raw.delete(&key.to_bytes())?)
    }

    /// A walk over the keys, as [`Map::keys`].
    ///
    /// # Errors
    /// As [`Map::keys`].
    pub fn keys(&self) -> Result<Keys<K>> {
        Ok(Keys::new(self.raw.walk(false)?))
    }
}
