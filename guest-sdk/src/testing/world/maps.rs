//! `maps`: map entries, stored as bytes.

use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

pub(crate) use crate::bindings::kernelscript::host::maps::{MapInfo, UpdateMode};
use crate::bindings::kernelscript::host::types::Error;
use crate::error::ErrorKind;

use super::super::state::{FakeMap, InnerMaps, MapKind, error, missing, with};

pub(crate) fn list_maps() -> Vec<String> {
    with(|state| state.maps.keys().cloned().collect())
}

pub(crate) fn set_max_entries(map: &str, entries: u32) -> Result<(), Error> {
    BpfMap::open(map).map(|map| map.with(|map| map.max_entries = entries))
}

/// No program runs beside a test.
pub(crate) fn settle() -> Result<(), Error> {
    Ok(())
}

/// The test declares maps with their types.
pub(crate) fn set_value_size(map: &str, _bytes: u32) -> Result<(), Error> {
    BpfMap::open(map).map(drop)
}

#[derive(Debug)]
pub(crate) struct BpfMap {
    name: String,
}

impl BpfMap {
    pub(crate) fn open(name: &str) -> Result<BpfMap, Error> {
        with(|state| {
            state.permit(name)?;
            if state.maps.contains_key(name) {
                Ok(BpfMap { name: name.to_string() })
            } else {
                Err(missing("map", name, "map::<K, V>(..)"))
            }
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut FakeMap) -> T) -> T {
        with(|state| act(state.maps.get_mut(&self.name).expect("what was declared stays")))
    }

    pub(crate) fn info(&self) -> MapInfo {
        self.with(|map| MapInfo {
            // BPF_MAP_TYPE_HASH, ARRAY, QUEUE, STACK, BLOOM_FILTER; the first two also with values for each
            // CPU.
            type_: match (map.kind, map.per_cpu) {
                (MapKind::Hash, None) => 1,
                (MapKind::Array, None) => 2,
                (MapKind::Hash, Some(_)) => 5,
                (MapKind::Array, Some(_)) => 6,
                (MapKind::Queue, _) => 22,
                (MapKind::Stack, _) => 23,
                (MapKind::Bloom, _) => 30,
            },
            key_size: map.key.as_ref().map_or(0, |key| key.size),
            value_size: map.value.size,
            max_entries: map.max_entries,
            per_cpu: map.per_cpu.is_some(),
        })
    }

    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.with(|map| match map.kind {
            MapKind::Hash | MapKind::Array => map.entries.get(key).cloned(),
            MapKind::Stack => map.values.back().cloned(),
            MapKind::Queue | MapKind::Bloom => map.values.front().cloned(),
        }))
    }

    pub(crate) fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), Error> {
        let name = &self.name;
        self.with(|map| match map.kind {
            MapKind::Hash | MapKind::Array => put(map, name, key, value, mode),
            _ if map.values.len() >= map.max_entries as usize => Err(full(name)),
            _ => {
                map.values.push_back(value.to_vec());
                Ok(())
            }
        })
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.with(|map| match map.kind {
            MapKind::Array => Err(no_removal()),
            _ => Ok(map.entries.remove(key).is_some()),
        })
    }

    pub(crate) fn share(&self) -> Option<u32> {
        None
    }

    pub(crate) fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.with(|map| match map.kind {
            MapKind::Queue => Ok(map.values.pop_front()),
            MapKind::Stack => Ok(map.values.pop_back()),
            MapKind::Hash => Ok(map.entries.remove(key)),
            _ => Err(error(ErrorKind::Unsupported, "nothing is taken out of this kind of map".to_string())),
        })
    }

    pub(crate) fn update_sum(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), Error> {
        let mut values = value.to_vec();
        values.resize(self.with(|map| map.slot_bytes()), 0);
        self.update(key, &values, mode)
    }

    pub(crate) fn update_batch(&self, entries: &[u8], mode: UpdateMode) -> Result<u32, Error> {
        let (key, entry) = self.with(|map| {
            let key = map.key.as_ref().map_or(0, |key| key.size as usize);
            (key, key + map.slot_bytes())
        });
        for entry in entries.chunks_exact(entry) {
            self.update(&entry[..key], &entry[key..], mode)?;
        }
        Ok((entries.len() / entry) as u32)
    }

    pub(crate) fn delete_batch(&self, keys: &[u8]) -> Result<u32, Error> {
        let size = self.with(|map| map.key.as_ref().map_or(1, |key| key.size as usize));
        keys.chunks_exact(size).try_fold(0, |count, key| Ok(count + u32::from(self.delete(key)?)))
    }

    /// Nothing else writes to the maps of a test.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn contains(&self, value: &[u8]) -> Result<bool, Error> {
        Ok(self.with(|map| map.values.iter().any(|known| known == value)))
    }

    pub(crate) fn iterate(&self, values: bool) -> Result<Cursor, Error> {
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            if values { [key.as_slice(), value].concat() } else { key.clone() }
        };
        let entries = self.with(|map| map.entries.iter().map(entry).collect());
        Ok(Cursor { entries: core::cell::RefCell::new(entries) })
    }

    pub(crate) fn count(&self) -> Result<u32, Error> {
        Ok(self.with(|map| map.entries.len() as u32))
    }

    pub(crate) fn clear(&self) -> Result<(), Error> {
        self.with(|map| match map.kind {
            MapKind::Array => Err(no_removal()),
            _ => {
                map.entries.clear();
                Ok(())
            }
        })
    }

    pub(crate) fn create_inner(&self, keys: &[u8]) -> Result<(), Error> {
        self.with_inner(|inner, _| inner.keys.extend(keys.chunks_exact(inner.key_size).map(<[u8]>::to_vec)))
    }

    pub(crate) fn has_inner(&self, key: &[u8]) -> Result<bool, Error> {
        self.with_inner(|inner, _| inner.keys.contains(key))
    }

    pub(crate) fn delete_inner(&self, key: &[u8]) -> Result<bool, Error> {
        self.with_inner(|inner, entries| {
            entries.retain(|entry, _| inner.key(entry) != key);
            inner.keys.remove(key)
        })
    }

    fn with_inner<T>(
        &self,
        act: impl FnOnce(&mut InnerMaps, &mut BTreeMap<Vec<u8>, Vec<u8>>) -> T,
    ) -> Result<T, Error> {
        self.with(|map| match &mut map.inner {
            Some(inner) => Ok(act(inner, &mut map.entries)),
            None => Err(error(ErrorKind::Invalid, format!("map `{}` is no map of maps", self.name))),
        })
    }
}

fn put(map: &mut FakeMap, name: &str, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<(), Error> {
    let there = map.entries.contains_key(key);
    match mode {
        UpdateMode::NoExist if there => {
            return Err(error(ErrorKind::Busy, format!("the key is in map `{name}`")));
        }
        UpdateMode::Exist if !there => {
            return Err(error(ErrorKind::NotFound, format!("the key is not in map `{name}`")));
        }
        _ => {}
    }
    if !there && (map.kind == MapKind::Array || map.entries.len() >= map.max_entries as usize) {
        return Err(full(name));
    }
    if value.len() != map.slot_bytes() {
        return Err(error(
            ErrorKind::Invalid,
            format!("a value of map `{name}` has {} bytes", map.slot_bytes()),
        ));
    }
    if let Some(inner) = &mut map.inner {
        inner.keys.insert(inner.key(key).to_vec());
    }
    map.entries.insert(key.to_vec(), value.to_vec());
    Ok(())
}

fn full(name: &str) -> Error {
    error(ErrorKind::Limit, format!("map `{name}` is full, or the index is beyond its end"))
}

fn no_removal() -> Error {
    error(ErrorKind::Invalid, "elements of arrays cannot be removed".to_string())
}

#[derive(Debug)]
pub(crate) struct Cursor {
    entries: core::cell::RefCell<Vec<Vec<u8>>>,
}

impl Cursor {
    pub(crate) fn next(&self, most: u32) -> Result<Vec<u8>, Error> {
        let mut entries = self.entries.borrow_mut();
        let size = entries.first().map_or(1, Vec::len);
        let count = (most as usize / size).min(entries.len());
        Ok(entries.drain(..count).flatten().collect())
    }
}
