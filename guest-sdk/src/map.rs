//! Maps with keys.

use alloc::format;
use alloc::string::String;
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
pub(crate) fn open<K: Plain, V: Plain>(name: &str, values: ValueCopies) -> Result<maps::BpfMap> {
    let raw = open_without_keys::<V>(name, values)?;
    layout::check::<K>(&format!("a key of map `{name}`"), layouts::of_key(name))?;
    check_size(name, "a key", K::SIZE, raw.info().key_size)?;
    Ok(raw)
}

/// Opens a map without keys, and compares its value type.
pub(crate) fn open_without_keys<V: Plain>(name: &str, values: ValueCopies) -> Result<maps::BpfMap> {
    let raw = maps::BpfMap::open(name)?;
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
fn elements(raw: &maps::BpfMap) -> Option<Elements> {
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
    raw: maps::BpfMap,
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
    /// [`Limit`](ErrorKind::Limit), [`Kernel`](ErrorKind::Kernel).
    pub fn open(name: &str) -> Result<Map<K, V>> {
        let raw = open::<K, V>(name, ValueCopies::Shared)?;
        let elements = elements(&raw);
        Ok(Map { raw, elements, types: PhantomData })
    }

    pub(crate) fn raw(&self) -> &maps::BpfMap {
        &self.raw
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

    /// Removes an entry and returns its value; none if there was none.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a type of map that this kernel takes nothing out of: hash
    /// tables since 5.14; [`Kernel`](ErrorKind::Kernel).
    pub fn take(&self, key: &K) -> Result<Option<V>> {
        Ok(self.raw.lookup_and_delete(&key.to_bytes())?.map(|bytes| V::from_bytes(&bytes)))
    }

    /// Creates or replaces several entries by as few system calls as possible. Returns their number. After an
    /// error some may be written.
    ///
    /// # Errors
    /// See [`Map::insert`].
    pub fn insert_all(&self, entries: &[(K, V)]) -> Result<u32> {
        let pair = |(key, value): &(K, V)| [key.to_bytes(), value.to_bytes()].concat();
        let bytes: Vec<u8> = entries.iter().flat_map(pair).collect();
        Ok(self.raw.update_batch(&bytes, UpdateMode::Any)?)
    }

    /// Removes several entries. Returns the number of those that existed.
    ///
    /// # Errors
    /// See [`Map::remove`].
    pub fn remove_all(&self, keys: &[K]) -> Result<u32> {
        let bytes: Vec<u8> = keys.iter().flat_map(Plain::to_bytes).collect();
        Ok(self.raw.delete_batch(&bytes)?)
    }

    /// Forbids later changes by this plugin and other processes; programs may still write.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a type of map that cannot be frozen,
    /// [`Busy`](ErrorKind::Busy) for an array whose memory is shared with the plugin,
    /// [`Kernel`](ErrorKind::Kernel).
    pub fn freeze(&self) -> Result<()> {
        Ok(self.raw.freeze()?)
    }

    /// Returns an iterator over the entries, which fetches them in batches, in no particular order. Entries
    /// that are added or removed meanwhile may be visited or not; no other entry is visited twice.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a type of map whose entries cannot be listed.
    pub fn iter(&self) -> Result<Entries<K, V>> {
        Ok(Entries::new(self.raw.iterate(true)?))
    }

    /// Returns an iterator over the keys alone, like [`Map::iter`].
    ///
    /// # Errors
    /// See [`Map::iter`].
    pub fn keys(&self) -> Result<Keys<K>> {
        Ok(Keys::new(self.raw.iterate(false)?))
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

/// Returns the names of the maps of the plugin's object. Nothing is created.
pub fn list_maps() -> Vec<String> {
    maps::list_maps()
}

/// Sets the number of entries of a map that does not exist yet; of a ring buffer its bytes. The policy judges the
/// object again. An array that a script declares cannot do with fewer entries: its programs end where they look for one
/// below the declared size that is not there.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound), [`Invalid`](ErrorKind::Invalid) (a number that the type cannot have),
/// [`Stale`](ErrorKind::Stale) (the maps exist already), [`Limit`](ErrorKind::Limit) (the policy's for the bytes of
/// maps).
pub fn set_max_entries(map: &str, entries: u32) -> Result<()> {
    Ok(maps::set_max_entries(map, entries)?)
}

/// Waits until every run of a program that has begun is over: what runs later sees everything that the plugin has written
/// before. Takes some milliseconds. Programs that sleep, which are probes of user programs that read texts and use no map that
/// forbids it, may still run.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) (a kernel with CPUs in `nohz_full`); [`Kernel`](ErrorKind::Kernel).
pub fn settle() -> Result<()> {
    Ok(maps::settle()?)
}

/// Sets the size in bytes of the values of a map that does not exist yet. Stack maps have 8 bytes for each frame.
///
/// # Errors
/// See [`set_max_entries`]; [`Invalid`](ErrorKind::Invalid) for values with a type.
pub fn set_value_size(map: &str, bytes: u32) -> Result<()> {
    Ok(maps::set_value_size(map, bytes)?)
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
    raw: maps::BpfMap,
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

    /// Creates or replaces an entry whose values sum up to this one: CPU 0 has it, the others have zeros.
    ///
    /// # Errors
    /// [`Limit`](ErrorKind::Limit) (the map is full), [`Kernel`](ErrorKind::Kernel).
    pub fn insert_sum(&self, key: &K, value: &V) -> Result<()> {
        Ok(self.raw.update_sum(&key.to_bytes(), &value.to_bytes(), UpdateMode::Any)?)
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
        Ok(Keys::new(self.raw.iterate(false)?))
    }
}
