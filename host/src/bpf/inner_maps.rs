//! The inner maps of a map of maps.
//!
//! The kernel's interface of such a map is made of descriptors and numbers of maps. A plugin gets neither: the host creates
//! every inner map, in the shape that the policy has judged, keeps its descriptor, and finds it by the key. So what the
//! plugin sees is one map, whose keys are those of both maps; and no number that it writes denotes a descriptor.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex, MutexGuard};

use ks_compiler::object::model::{Map as ModelMap, MapShape as ModelShape, Memory, Pinning};
use ks_compiler::object::table::MapKind;
use nix::errno::Errno;

use super::charge;
use super::cursor::is_unsupported;
use super::error::{BpfError, UPDATE_ENTRY};
use super::map::{MapShape, possible_cpus};
use super::sys::{self, Batch, RawMap};
use crate::policy::Admitted;

/// Both parts of a key are filled up to a multiple of this. Source: wit/maps.wit.
const KEY_ALIGN: usize = 8;

/// The maps that the plugin has created in maps of maps, and their limits.
#[derive(Debug)]
pub(super) struct InnerBudget {
    admitted: Admitted,
    cpus: u32,
    used: Mutex<Memory>,
}

impl InnerBudget {
    /// Starts with no inner map.
    pub(super) fn new(admitted: Admitted) -> Result<Arc<InnerBudget>, BpfError> {
        let cpus = u32::try_from(possible_cpus()?).unwrap_or(u32::MAX);
        Ok(Arc::new(InnerBudget { admitted, cpus, used: Mutex::default() }))
    }

    fn used(&self) -> MutexGuard<'_, Memory> {
        // Memory is a few numbers that are set together.
        self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Checks whether so many more maps are allowed, whatever their size.
    fn allows(&self, maps: u32) -> Result<(), BpfError> {
        let more = Memory { maps: maps.into(), ..Memory::default() };
        self.admitted.check_with_inner(self.cpus, self.used().with(more)).map_err(BpfError::OverLimits)
    }

    /// Charges more maps, unless the object's maps and all inner ones would exceed a limit then.
    fn charge(&self, more: Memory) -> Result<(), BpfError> {
        let mut used = self.used();
        let with = used.with(more);
        self.admitted.check_with_inner(self.cpus, with).map_err(BpfError::OverLimits)?;
        *used = with;
        Ok(())
    }

    fn release(&self, less: Memory) {
        let mut used = self.used();
        used.maps = used.maps.saturating_sub(less.maps);
        used.map_bytes = used.map_bytes.saturating_sub(less.map_bytes);
    }
}

/// The inner maps of one map of maps.
#[derive(Debug)]
pub(super) struct InnerMaps {
    name: String,
    /// Whether the outer map is an array, which has elements from 0 to this number.
    elements: Option<u32>,
    outer_key_len: usize,
    inner: ModelShape,
    shape: MapShape,
    budget: Arc<InnerBudget>,
    maps: Mutex<BTreeMap<Vec<u8>, InnerMap>>,
}

/// An inner map, and what was charged for it.
#[derive(Debug)]
struct InnerMap {
    raw: RawMap,
    charged: Memory,
}

impl InnerMaps {
    /// Returns the inner maps of a map of the object; none for a map whose inner maps are not all the host's, or are of a
    /// kind that does not hold data alone.
    pub(super) fn of(map: &ModelMap, budget: &Arc<InnerBudget>) -> Option<InnerMaps> {
        let inner = map.inner.clone()?;
        let is_of_data = matches!(inner.kind, MapKind::Array | MapKind::Hash | MapKind::LruHash);
        if !is_of_data || !map.slots.is_empty() || map.pinning == Pinning::ByName {
            return None;
        }
        let shape = MapShape {
            ty: inner.kind.number(),
            key_size: inner.key.bytes(),
            value_size: inner.value.bytes(),
            max_entries: inner.entries,
            per_cpu: false,
        };
        Some(InnerMaps {
            name: map.name.as_str().to_owned(),
            elements: (map.shape.kind == MapKind::ArrayOfMaps).then_some(map.shape.entries),
            outer_key_len: map.shape.key.bytes() as usize,
            inner,
            shape,
            budget: Arc::clone(budget),
            maps: Mutex::default(),
        })
    }

    /// Returns the shape that a plugin sees: that of a map with keys of both parts.
    pub(super) fn shape(&self, outer: MapShape) -> MapShape {
        let key_size = (self.outer_part() + self.inner_part()) as u32;
        let max_entries = outer.max_entries.saturating_mul(self.shape.max_entries);
        MapShape { ty: outer.ty, key_size, value_size: self.shape.value_size, max_entries, per_cpu: false }
    }

    /// Returns the number of bytes that the kernel reads or writes for a value.
    pub(super) fn value_len(&self) -> usize {
        self.shape.value_size as usize
    }

    /// Returns the size of the key of an inner map in bytes.
    pub(super) fn outer_key_len(&self) -> usize {
        self.outer_key_len
    }

    /// Returns the number of inner maps, each with a descriptor.
    pub(super) fn count(&self) -> usize {
        self.maps().len()
    }

    /// Whether there is an inner map at a key.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.maps().contains_key(key)
    }

    /// Returns the keys of the inner maps that `keys` would create: of all elements, if there is none.
    pub(super) fn missing(&self, keys: &[u8]) -> Result<Vec<Vec<u8>>, BpfError> {
        let wanted: Vec<Vec<u8>> = match self.elements {
            Some(elements) if keys.is_empty() => {
                // Guards the host's memory: more than the limit of maps are not created anyway.
                self.budget.allows(elements)?;
                (0..elements).map(|index| index.to_le_bytes().to_vec()).collect()
            }
            _ if keys.is_empty() || !keys.len().is_multiple_of(self.outer_key_len) => {
                let what = format!("keys of inner maps of `{}`", self.name);
                return Err(BpfError::NotWhole { what, expected: self.outer_key_len, given: keys.len() });
            }
            _ => keys.chunks_exact(self.outer_key_len).map(<[u8]>::to_vec).collect(),
        };
        let maps = self.maps();
        Ok(wanted.into_iter().filter(|key| !maps.contains_key(key)).collect())
    }

    /// Creates inner maps at these keys, and stores them in the outer map.
    pub(super) fn create(&self, keys: Vec<Vec<u8>>, outer: &RawMap) -> Result<(), BpfError> {
        let mut maps = self.maps();
        let mut created = Vec::with_capacity(keys.len());
        for key in keys {
            match self.create_one() {
                Ok(map) => created.push((key, map)),
                Err(error) => {
                    self.release(created);
                    return Err(error);
                }
            }
        }
        if let Err(errno) = store(&created, outer) {
            for (key, _) in &created {
                // Some may have been stored; the others are not there.
                let _ = outer.delete(key);
            }
            self.release(created);
            return Err(self.kernel("store an inner map in", UPDATE_ENTRY, errno));
        }
        maps.extend(created);
        Ok(())
    }

    fn create_one(&self) -> Result<InnerMap, BpfError> {
        let mut charged =
            Memory { maps: 1, map_bytes: self.inner.memory_bytes(self.budget.cpus), ring_bytes: 0 };
        self.budget.charge(charged)?;
        let made = sys::create_map(&self.name, &self.inner);
        let descriptor = made.map_err(|errno| {
            self.budget.release(charged);
            self.kernel("create an inner map of", "bpf(BPF_MAP_CREATE)", errno)
        })?;
        // On pages of another size the kernel charges more than we know.
        let more = charge::charged(descriptor.as_fd(), self.shape, u64::from(self.budget.cpus))
            .unwrap_or_default()
            .saturating_sub(charged.map_bytes);
        let more = Memory { maps: 0, map_bytes: more, ring_bytes: 0 };
        if let Err(error) = self.budget.charge(more) {
            self.budget.release(charged);
            return Err(error);
        }
        charged = charged.with(more);
        Ok(InnerMap { raw: RawMap::new(descriptor, self.shape, 1), charged })
    }

    fn release(&self, maps: Vec<(Vec<u8>, InnerMap)>) {
        maps.iter().for_each(|(_, map)| self.budget.release(map.charged));
    }

    /// Removes an inner map. False if there was none.
    pub(super) fn remove(&self, key: &[u8], outer: &RawMap) -> Result<bool, BpfError> {
        let mut maps = self.maps();
        if self.elements.is_some() {
            let tried = "remove an inner map from";
            return Err(self.kernel(tried, "bpf(BPF_MAP_DELETE_ELEM)", Errno::EINVAL));
        }
        if !maps.contains_key(key) {
            return Ok(false);
        }
        match outer.delete(key) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => {
                return Err(self.kernel("remove an inner map from", "bpf(BPF_MAP_DELETE_ELEM)", errno));
            }
        }
        if let Some(map) = maps.remove(key) {
            self.budget.release(map.charged);
        }
        Ok(true)
    }

    /// Calls `call` with the inner map of an entry, and the entry's key there. ENOENT if there is no such map.
    pub(super) fn entry<T>(
        &self,
        key: &[u8],
        call: impl FnOnce(&RawMap, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (outer, inner) = self.parts(key).ok_or(Errno::ENOENT)?;
        let maps = self.maps();
        let map = maps.get(outer).ok_or(Errno::ENOENT)?;
        call(&map.raw, inner)
    }

    /// Returns the key of the inner map in that of an entry.
    pub(super) fn outer_key<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.parts(key).map(|(outer, _)| outer)
    }

    /// Returns the key after this one, or the first. ENOENT at the end.
    pub(super) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let maps = self.maps();
        let (mut from, mut inner) = match key {
            Some(key) => {
                let (outer, inner) = self.parts(key).ok_or(Errno::ENOENT)?;
                (Bound::Included(outer.to_vec()), Some(inner))
            }
            None => (Bound::Unbounded, None),
        };
        loop {
            let (outer, map) = maps.range((from.clone(), Bound::Unbounded)).next().ok_or(Errno::ENOENT)?;
            let after = inner.take().filter(|_| from == Bound::Included(outer.clone()));
            match map.raw.next_key(after) {
                Ok(next) => return Ok(self.joined(outer, &next)),
                Err(Errno::ENOENT) => from = Bound::Excluded(outer.clone()),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads up to `most` entries of one inner map, starting at a position: the key of that map, and a position in it.
    pub(super) fn batch(&self, from: Option<&[u8]>, most: u32) -> Result<Batch, Errno> {
        let maps = self.maps();
        let (start, position) = match from {
            Some(from) => from.split_at_checked(self.outer_key_len).ok_or(Errno::EINVAL)?,
            None => (&[][..], &[][..]),
        };
        let Some((outer, map)) = maps.range(start.to_vec()..).next() else {
            return Ok(Batch { keys: Vec::new(), values: Vec::new(), next: None });
        };
        let position = (outer == start && !position.is_empty()).then_some(position);
        let read = map.raw.batch(position, most.min(self.shape.max_entries.max(1)))?;
        let keys = read.keys.chunks_exact(self.shape.key_size as usize);
        let keys = keys.flat_map(|key| self.joined(outer, key)).collect();
        let next = match read.next {
            Some(position) => Some([outer.as_slice(), &position].concat()),
            None => {
                let after = (Bound::Excluded(outer.clone()), Bound::Unbounded);
                maps.range(after).next().map(|(outer, _)| outer.clone())
            }
        };
        Ok(Batch { keys, values: read.values, next })
    }

    fn maps(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, InnerMap>> {
        // No code panics while it changes the table.
        self.maps.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn outer_part(&self) -> usize {
        self.outer_key_len.next_multiple_of(KEY_ALIGN)
    }

    fn inner_part(&self) -> usize {
        (self.shape.key_size as usize).next_multiple_of(KEY_ALIGN)
    }

    /// Returns both keys in that of an entry.
    fn parts<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
        let (outer, inner) = key.split_at_checked(self.outer_part())?;
        Some((outer.get(..self.outer_key_len)?, inner.get(..self.shape.key_size as usize)?))
    }

    /// Returns the key of an entry.
    fn joined(&self, outer: &[u8], inner: &[u8]) -> Vec<u8> {
        let mut key = vec![0; self.outer_part() + self.inner_part()];
        key[..outer.len()].copy_from_slice(outer);
        key[self.outer_part()..][..inner.len()].copy_from_slice(inner);
        key
    }

    fn kernel(&self, verb: &str, call: &'static str, errno: Errno) -> BpfError {
        BpfError::Kernel { tried: format!("{verb} the map `{}`", self.name), call, errno }
    }
}

/// Stores inner maps in the outer map. The kernel waits for all runs of programs after each call, so many are stored by
/// one where it has batches of this kind.
///
/// Source: kernel/bpf/syscall.c, `maybe_wait_bpf_programs`, v6.12.
fn store(maps: &[(Vec<u8>, InnerMap)], outer: &RawMap) -> Result<(), Errno> {
    let values: Vec<[u8; 4]> =
        maps.iter().map(|(_, map)| map.raw.descriptor().as_raw_fd().to_ne_bytes()).collect();
    if let ([_, _, ..], Ok(number)) = (maps, u32::try_from(maps.len())) {
        let keys: Vec<u8> = maps.iter().flat_map(|(key, _)| key).copied().collect();
        match outer.update_batch(&keys, values.as_flattened(), number, libbpf_sys::BPF_ANY.into()) {
            Ok(()) => return Ok(()),
            Err(errno) if errno == Errno::EINVAL || is_unsupported(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    maps.iter()
        .zip(&values)
        .try_for_each(|((key, _), value)| outer.update(key, value, libbpf_sys::BPF_ANY.into()))
}
